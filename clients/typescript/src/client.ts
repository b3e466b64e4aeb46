/** The client of the API. */

import createClient, { type Client as GeneratedClient } from "openapi-fetch";

import {
  ApiError,
  ConnectionFailed,
  ExecutionFailed,
  LonghaulError,
  RateLimited,
  Unavailable,
  WaitTimedOut,
} from "./errors.js";
import { type Event, EventDecoder } from "./event_stream.js";
import type { paths } from "./generated/api.js";
import { type RetryPolicy, lookPauses, sleep, untilNextTry } from "./retry.js";
import type { Execution, SubmitRequest } from "./schema.js";

/** Maximum silence of an event stream in milliseconds: the server sends a comment every 15 seconds. */
const IDLE_MS = 45_000;

export interface ClientOptions {
  /** Address of the API; the variable `LONGHAUL_URL` when absent. */
  readonly url?: string;
  /** Key; the variable `LONGHAUL_API_KEY` when absent. */
  readonly apiKey?: string;
  /** Maximum time of one try of a request in milliseconds, event streams excepted; 30,000 when absent. */
  readonly timeoutMs?: number;
  readonly retry?: RetryPolicy;
  /** Another `fetch`, for instance one with a proxy. */
  readonly fetch?: (request: Request) => Promise<Response>;
}

export interface RequestOptions {
  /** Ends the call, which then rejects with the signal's reason. */
  readonly signal?: AbortSignal;
}

export interface SubmitOptions extends RequestOptions {
  /** A random one when absent. */
  readonly idempotencyKey?: string;
}

export interface WaitOptions extends RequestOptions {
  /** Maximum time in milliseconds; unlimited when absent. */
  readonly timeoutMs?: number;
  /** False: return a FAILED execution rather than throw `ExecutionFailed`. */
  readonly raiseOnFailure?: boolean;
}

export interface EventsOptions extends RequestOptions {
  /** Number of the last event that is known; 0 when absent. */
  readonly after?: number;
}

/** An answer as openapi-fetch returns it. */
interface Answer<T> {
  readonly data?: T;
  readonly error?: unknown;
  readonly response: Response;
}

export class Client {
  readonly #api: GeneratedClient<paths>;
  readonly #timeoutMs: number;
  readonly #retry: RetryPolicy;

  constructor(options: ClientOptions = {}) {
    const url = options.url ?? variable("LONGHAUL_URL");
    const apiKey = options.apiKey ?? variable("LONGHAUL_API_KEY");
    if (!url || !apiKey) {
      throw new TypeError("an address and an API key are needed: pass them, or set LONGHAUL_URL and LONGHAUL_API_KEY");
    }
    this.#api = createClient<paths>({
      baseUrl: url,
      headers: { Authorization: `Bearer ${apiKey}` },
      ...(options.fetch && { fetch: options.fetch }),
    });
    this.#timeoutMs = options.timeoutMs ?? 30_000;
    this.#retry = options.retry ?? {};
  }

  /**
   * Submits an execution of a definition or an agent; stored durably when this resolves.
   *
   * Every try of the request has the same idempotency key, so the execution is stored once. A call with the key of an
   * earlier one returns the execution of that.
   */
  submit(request: SubmitRequest, options: SubmitOptions = {}): Promise<Execution> {
    const header = { "Idempotency-Key": options.idempotencyKey ?? crypto.randomUUID() };
    return this.#repeat(options.signal, (signal) =>
      this.#api.POST("/v1/executions", { params: { header }, body: request, signal }),
    );
  }

  /** Reads an execution. */
  get(id: string, options: RequestOptions = {}): Promise<Execution> {
    return this.#repeat(options.signal, (signal) =>
      this.#api.GET("/v1/executions/{id}", { params: { path: { id } }, signal }),
    );
  }

  /** Cancels an execution and everything it started. One that a worker holds ends within seconds. */
  cancel(id: string, options: RequestOptions = {}): Promise<Execution> {
    return this.#repeat(options.signal, (signal) =>
      this.#api.POST("/v1/executions/{id}/cancel", { params: { path: { id } }, signal }),
    );
  }

  /**
   * Waits until the execution has ended.
   *
   * Throws `ExecutionFailed` if it ended as FAILED, and `WaitTimedOut` after `timeoutMs`.
   */
  async wait(id: string, options: WaitOptions = {}): Promise<Execution> {
    const { timeoutMs = Infinity, raiseOnFailure = true, signal } = options;
    const end = performance.now() + timeoutMs;
    const pauses = lookPauses();
    for (;;) {
      const execution = await this.get(id, options);
      if (execution.status === "FAILED" && raiseOnFailure) throw new ExecutionFailed(execution);
      if (execution.status === "FINISHED" || execution.status === "FAILED") return execution;
      const left = end - performance.now();
      if (left <= 0) throw new WaitTimedOut(execution);
      await sleep(Math.min(pauses.next().value, left), signal);
    }
  }

  /**
   * Yields the events after number `after`, until the execution has ended.
   *
   * Connects again after a lost connection, and continues with the next event.
   */
  async *events(id: string, options: EventsOptions = {}): AsyncGenerator<Event, void, undefined> {
    const { signal } = options;
    let after = options.after ?? 0;
    for (let failed = 0; ; ) {
      let failure: LonghaulError = new ConnectionFailed("the event stream ended without an event");
      let count = 0;
      try {
        for await (const event of this.#stream(id, after, signal)) {
          if (event === "over") return;
          after = event.seq;
          failed = 0;
          count += 1;
          yield event;
        }
        // The stream ended, or the server stops. The answer to the next request is 204 if nothing follows.
        if (count > 0) continue;
      } catch (error) {
        failure = repeatable(error, signal);
      }
      failed += 1;
      await untilNextTry(this.#retry, failed, failure, signal);
    }
  }

  /** Events of one connection; `over` if none will follow. */
  async *#stream(id: string, after: number, signal: AbortSignal | undefined): AsyncGenerator<Event | "over"> {
    const idle = new Idle(signal);
    try {
      const { data, error, response } = await sent(() =>
        this.#api.GET("/v1/executions/{id}/events", {
          params: { path: { id } },
          headers: { Accept: "text/event-stream", "Last-Event-ID": String(after) },
          parseAs: "stream",
          signal: idle.signal,
        }),
      );
      if (!response.ok) throw ApiError.of(response, error);
      if (response.status === 204 || !data) return yield "over";
      const decoder = new EventDecoder();
      const reader = data.getReader();
      try {
        for (;;) {
          const { done, value } = await sent(() => reader.read());
          if (done) return;
          idle.restart();
          yield* decoder.feed(value);
        }
      } finally {
        // Free the connection also if the caller leaves the loop. A stream that failed has nothing to free.
        await reader.cancel().catch(() => undefined);
      }
    } finally {
      idle.stop();
    }
  }

  async #repeat(
    signal: AbortSignal | undefined,
    send: (signal: AbortSignal) => Promise<Answer<Execution>>,
  ): Promise<Execution> {
    for (let failed = 1; ; failed += 1) {
      try {
        const limit = AbortSignal.timeout(this.#timeoutMs);
        const { data, error, response } = await sent(() => send(signal ? AbortSignal.any([signal, limit]) : limit));
        if (!response.ok) throw ApiError.of(response, error);
        if (data === undefined) throw new LonghaulError(`the server answered ${response.status} without an execution`);
        return data;
      } catch (error) {
        await untilNextTry(this.#retry, failed, repeatable(error, signal), signal);
      }
    }
  }
}

/** Aborts a stream that was silent for too long, or that its caller aborts. */
class Idle {
  readonly #controller = new AbortController();
  readonly signal: AbortSignal;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(caller: AbortSignal | undefined) {
    const own = this.#controller.signal;
    this.signal = caller ? AbortSignal.any([caller, own]) : own;
    this.restart();
  }

  restart(): void {
    this.stop();
    this.#timer = setTimeout(() => this.#controller.abort(new Error("the event stream is silent")), IDLE_MS);
  }

  stop(): void {
    clearTimeout(this.#timer);
  }
}

/** Awaits a step of a request; its failure is a `ConnectionFailed`. */
async function sent<T>(step: () => Promise<T>): Promise<T> {
  try {
    return await step();
  } catch (error) {
    throw new ConnectionFailed(error instanceof Error ? error.message : String(error), { cause: error });
  }
}

/** The failure, if the request may be repeated after it; throws it otherwise. */
function repeatable(error: unknown, signal: AbortSignal | undefined): LonghaulError {
  signal?.throwIfAborted();
  if (error instanceof ConnectionFailed || error instanceof RateLimited || error instanceof Unavailable) return error;
  throw error;
}

/** A variable of the environment, where there is one. */
function variable(name: string): string | undefined {
  const { process } = globalThis as { process?: { env: Record<string, string | undefined> } };
  return process?.env[name];
}

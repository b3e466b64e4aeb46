/** Sending of requests. */

import {
  ApiError,
  ConnectionFailed,
  LonghaulError,
  NaiveTime,
  NoServer,
  RateLimited,
  Unavailable,
  UnexpectedAnswer,
} from "./errors.js";
import { EventDecoder, type ServerSentEvent } from "./event_stream.js";
import { type RetryPolicy, pauseMs, sleep } from "./retry.js";

/** Maximum silence of an event stream in milliseconds: the server sends a comment every 15 seconds. */
export const IDLE_MS = 45_000;
/** Codes of errors before a connection exists. */
const UNCONNECTED = new Set([
  "ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH", "UND_ERR_CONNECT_TIMEOUT",
]);

export interface RequestOptions {
  /** Ends the call, which then rejects with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
}

export interface KeyOptions extends RequestOptions {
  /** Makes the request once, however often it is sent; a random one when absent. */
  readonly idempotencyKey?: string | undefined;
}

/** One request of the API. */
export interface ApiRequest {
  readonly method: string;
  readonly path: string;
  readonly options?: RequestOptions;
  /** Parameters; undefined is left out. */
  readonly query?: Readonly<Record<string, string | number | boolean | undefined>>;
  /** Filters by metadata. */
  readonly metadata?: Readonly<Record<string, string>> | undefined;
  readonly headers?: Readonly<Record<string, string | undefined>>;
  /** Idempotency key. */
  readonly key?: string;
  /** True for a request that costs something and has no key: not repeated if it may have arrived. */
  readonly isOnce?: boolean;
  /** Time that the server may hold the answer. */
  readonly waitSeconds?: number | undefined;
  /** JSON. */
  readonly body?: unknown;
  /** A body that is not JSON. */
  readonly content?: Uint8Array;
  /** Paths of the times in body and query; `*` stands for each item of a list. */
  readonly times?: readonly string[];
}

/** Head of the answer of an event stream. */
export interface Opened {
  status?: number;
  headers?: Headers;
}

/** A `fetch`, for instance one with a proxy. */
export type Fetch = (url: string, init: RequestInit) => Promise<Response>;

/** Sends requests, again where that may help, and reads their answers. */
export class Transport {
  /** True if the address has answered. */
  isKnown = false;

  constructor(
    readonly url: string,
    private readonly apiKey: string,
    private readonly timeoutMs: number,
    private readonly retry: RetryPolicy,
    private readonly fetch: Fetch,
  ) {}

  json<T>(request: ApiRequest): Promise<T> {
    return this.repeat(request, (response) => this.#json<T>(request, response));
  }

  /** As `json`, in one try. */
  jsonOnce<T>(request: ApiRequest): Promise<T> {
    return this.#once(request, (response) => this.#json<T>(request, response));
  }

  text(request: ApiRequest): Promise<string> {
    return this.repeat(request, (response) => response.text());
  }

  bytes(request: ApiRequest): Promise<Uint8Array> {
    return this.repeat(request, async (response) => new Uint8Array(await response.arrayBuffer()));
  }

  nothing(request: ApiRequest): Promise<void> {
    return this.repeat(request, async (response) => void (await response.arrayBuffer()));
  }

  /** Sends the request until it is answered. */
  async repeat<T>(request: ApiRequest, read: (response: Response) => Promise<T>): Promise<T> {
    for (let failed = 1; ; failed += 1) {
      try {
        return await this.#once(request, read);
      } catch (error) {
        await this.pause(failed, repeatable(error, request), request.options?.signal);
      }
    }
  }

  /** Sleeps before the next try; throws the failure if there is none. */
  async pause(failed: number, failure: LonghaulError, signal: AbortSignal | undefined): Promise<void> {
    await sleep(pauseMs(this.retry, failed, failure, this.isKnown), signal);
  }

  /** Events of a stream that cannot be resumed: only its beginning is tried again. */
  async *stream(request: ApiRequest): AsyncGenerator<ServerSentEvent, void, undefined> {
    const signal = request.options?.signal;
    for (let failed = 1; ; failed += 1) {
      let count = 0;
      try {
        for await (const event of this.connection(request)) {
          count += 1;
          yield event;
        }
        return;
      } catch (error) {
        if (count > 0) throw error;
        await this.pause(failed, repeatable(error, request), signal);
      }
    }
  }

  /** Events of one connection. `opened` gets the head of the answer. */
  async *connection(request: ApiRequest, opened: Opened = {}): AsyncGenerator<ServerSentEvent, void, undefined> {
    const signal = request.options?.signal;
    const idle = new Idle(signal);
    try {
      const { url, init } = this.#prepared(request, "text/event-stream", idle.signal);
      const response = await this.#sent(signal, () => this.fetch(url, init));
      this.isKnown = true;
      if (!response.ok) throw await this.#error(response, signal);
      opened.status = response.status;
      opened.headers = response.headers;
      if (response.status === 204 || !response.body) return;
      const kind = response.headers.get("content-type") ?? "no content type";
      const reader = response.body.getReader();
      try {
        if (!kind.startsWith("text/event-stream")) {
          throw new UnexpectedAnswer(`${this.url}${request.path} answered with ${kind} in place of an event stream`);
        }
        const decoder = new EventDecoder();
        for (;;) {
          const { done, value } = await this.#sent(signal, () => reader.read());
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

  async #once<T>(request: ApiRequest, read: (response: Response) => Promise<T>): Promise<T> {
    const limit = AbortSignal.timeout(this.timeoutMs + (request.waitSeconds ?? 0) * 1000);
    const caller = request.options?.signal;
    const signal = caller ? AbortSignal.any([caller, limit]) : limit;
    const { url, init } = this.#prepared(request, "application/json", signal);
    const response = await this.#sent(caller, () => this.fetch(url, init));
    this.isKnown = true;
    if (!response.ok) throw await this.#error(response, caller);
    return this.#sent(caller, () => read(response));
  }

  async #json<T>(request: ApiRequest, response: Response): Promise<T> {
    const text = await response.text();
    if (response.status === 204) return undefined as T;
    try {
      return JSON.parse(text) as T;
    } catch {
      const kind = response.headers.get("content-type") ?? "no content type";
      const place = `${this.url}${request.path}`;
      throw new UnexpectedAnswer(
        `${place} answered ${response.status} without JSON (${kind}): is the address that of the API?`,
      );
    }
  }

  async #error(response: Response, signal: AbortSignal | undefined): Promise<ApiError> {
    const text = await this.#sent(signal, () => response.text());
    let body: unknown;
    try {
      body = JSON.parse(text);
    } catch {
      body = undefined;
    }
    return ApiError.of(response, body);
  }

  #prepared(request: ApiRequest, accept: string, signal: AbortSignal): { url: string; init: RequestInit } {
    for (const path of request.times ?? []) checkTime(path, { ...request.query, ...(request.body as object) });
    const query = new URLSearchParams();
    for (const [name, value] of Object.entries(request.query ?? {})) {
      if (value !== undefined) query.set(name, String(value));
    }
    for (const [name, value] of Object.entries(request.metadata ?? {})) query.set(`metadata.${name}`, value);
    const headers: Record<string, string> = { Accept: accept, Authorization: `Bearer ${this.apiKey}` };
    if (request.key !== undefined) headers["Idempotency-Key"] = request.key;
    if (request.waitSeconds !== undefined) headers["Prefer"] = `wait=${request.waitSeconds}`;
    for (const [name, value] of Object.entries(request.headers ?? {})) if (value !== undefined) headers[name] = value;
    const init: RequestInit = { method: request.method, headers, signal, redirect: "manual" };
    if (request.content) {
      headers["Content-Type"] = "application/octet-stream";
      init.body = request.content as BufferSource;
    } else if (request.body !== undefined) {
      headers["Content-Type"] = "application/json";
      init.body = JSON.stringify(request.body);
    }
    return { url: `${this.url}${request.path}${query.size > 0 ? `?${query}` : ""}`, init };
  }

  /** Awaits a step of a request; its failure is an error of this package, or the reason of the caller's signal. */
  async #sent<T>(signal: AbortSignal | undefined, step: () => Promise<T>): Promise<T> {
    try {
      return await step();
    } catch (error) {
      signal?.throwIfAborted();
      if (error instanceof LonghaulError) throw error;
      throw connectionFailed(error, this.url);
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

/** The failure, if the request may be repeated after it; throws it otherwise. */
export function passing(error: unknown, signal: AbortSignal | undefined): LonghaulError {
  signal?.throwIfAborted();
  if (error instanceof ConnectionFailed || error instanceof RateLimited || error instanceof Unavailable) return error;
  throw error;
}

/** As `passing`, for a request that may be one to be sent once. */
function repeatable(error: unknown, request: ApiRequest): LonghaulError {
  const failure = passing(error, request.options?.signal);
  if (request.isOnce && !(failure instanceof NoServer || failure instanceof RateLimited)) throw failure;
  return failure;
}

/** A part of a path. One that would lead to another path is refused. */
export function inPath(value: string | number): string {
  const text = String(value);
  if (["", ".", ".."].includes(text)) throw new TypeError(`"${text}" names nothing: pass the id or key`);
  return encodeURIComponent(text);
}

function connectionFailed(error: unknown, url: string): ConnectionFailed {
  const cause = error instanceof Error ? (error.cause as { code?: string; message?: string } | undefined) : undefined;
  const text = error instanceof Error ? error.message : String(error);
  const reason = cause?.message || cause?.code || text;
  if (UNCONNECTED.has(cause?.code ?? "")) {
    const advice = "is it running, and is the address right?";
    return new NoServer(`no server answers at ${url} (${reason}): ${advice}`, { cause: error });
  }
  return new ConnectionFailed(`the connection to ${url} failed: ${reason}`, { cause: error });
}

/** Refuses a time without a time zone at this path. */
function checkTime(path: string, value: unknown, place: readonly string[] = []): void {
  const [name, ...rest] = path === "" ? [] : path.split(".");
  if (name === undefined) {
    if (typeof value === "string" && !/(Z|[+-]\d\d:?\d\d)$/i.test(value)) throw new NaiveTime(place.join("."), value);
    return;
  }
  if (typeof value !== "object" || value === null) return;
  for (const [key, part] of Object.entries(value)) {
    if (key === name || name === "*") checkTime(rest.join("."), part, [...place, key]);
  }
}

/** Methods that follow something for a while, below the generated ones. */

import {
  ConnectionFailed,
  LonghaulError,
  NoServer,
  NotFound,
  Unavailable,
  UnexpectedAnswer,
  WaitTimedOut,
  executionFailed,
} from "./errors.js";
import { type ChatEvent, type Event, chatEvent, executionEvent } from "./event_stream.js";
import type { ChatBody, Execution } from "./generated/types.js";
import { sleep, waitPauseMs } from "./retry.js";
import {
  type ApiRequest,
  type KeyOptions,
  type Opened,
  type RequestOptions,
  type Transport,
  inPath,
  passing,
} from "./transport.js";

/** A cursor behind every event: the stream begins with `resync`, and goes on with what happens from now on. */
const AFTER_ALL = 2 ** 31 - 1;
/** Milliseconds without an answer after which `wait` gives up. */
const PATIENCE_MS = 60_000;
/** Milliseconds between the looks of `wait` while the server has no place for another stream. */
const NO_SLOT_PAUSE_MS = 1_000;

export interface WaitOptions extends RequestOptions {
  /** Maximum time in milliseconds; unlimited when absent. */
  readonly timeoutMs?: number | undefined;
  /** False: return a FAILED execution rather than throw `ExecutionFailed`. */
  readonly raiseOnFailure?: boolean | undefined;
}

export interface EventsOptions extends RequestOptions {
  /** Number of the last event that is known; 0 when absent. */
  readonly after?: number | undefined;
}

export interface ChatOptions extends KeyOptions {
  /** Session to continue; a new one begins when absent. */
  readonly sessionId?: string | undefined;
  /** Project that a new session is about. */
  readonly projectId?: string | undefined;
}

export interface SessionEventsOptions extends RequestOptions {
  /** Begin after this event. */
  readonly lastEventId?: string | undefined;
  /** True: leave out messages that were answered before. */
  readonly fromRunning?: boolean | undefined;
}

/** Operations of one kind. */
export class Resource {
  constructor(protected readonly transport: Transport) {}
}

export class ExecutionStreams extends Resource {
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
      const opened: Opened = {};
      let count = 0;
      try {
        for await (const sent of this.transport.connection(eventsRequest(id, after, signal), opened)) {
          const event = executionEvent(sent);
          after = event.seq;
          failed = 0;
          count += 1;
          yield event;
        }
        if (opened.status === 204) return;
        // The stream ended, or the server stops. The answer to the next request is 204 if nothing follows.
        if (count > 0) continue;
      } catch (error) {
        failure = passing(error, signal);
      }
      failed += 1;
      await this.transport.pause(failed, failure, signal);
    }
  }

  /**
   * Waits until the execution has ended, by its event stream: two requests, however long it takes.
   *
   * Throws `ExecutionFailed` if it ended as FAILED (`ExecutionCancelled` if it was cancelled), unless `raiseOnFailure`
   * is false, and `WaitTimedOut` after `timeoutMs`. Goes on after lost connections and restarts of the server.
   */
  async wait(id: string, options: WaitOptions = {}): Promise<Execution> {
    const { timeoutMs = Infinity, raiseOnFailure = true, signal } = options;
    const end = performance.now() + timeoutMs;
    const path = `/v1/executions/${inPath(id)}`;
    let execution: Execution | undefined;
    let answered = performance.now();
    for (let failed = 0; ; ) {
      const begun = performance.now();
      let failure: LonghaulError | undefined;
      const opened: Opened = {};
      try {
        await this.#untilOver(eventsRequest(id, AFTER_ALL, signal), end, opened);
        execution = await this.transport.jsonOnce<Execution>({ method: "GET", path, options: { signal } });
        answered = performance.now();
        if (execution?.status === undefined) throw new UnexpectedAnswer(`the answer of ${path} is no execution`);
        if (execution.status === "FAILED" && raiseOnFailure) throw executionFailed(execution);
        if (execution.status === "FINISHED" || execution.status === "FAILED") return execution;
      } catch (error) {
        failure = passing(error, signal);
        if (opened.status !== undefined) answered = performance.now();
        const isWrongAddress = failure instanceof NoServer && !this.transport.isKnown;
        if (isWrongAddress || performance.now() - answered > PATIENCE_MS) throw failure;
      }
      if (performance.now() >= end) throw new WaitTimedOut(id, execution);
      // A stream that told nothing for long was not in vain; one that ends at once may do so for ever.
      failed = failure === undefined && performance.now() - begun > 1000 ? 0 : failed + 1;
      await sleep(Math.min(waitPauseMs(failed, failure), Math.max(0, end - performance.now())), signal);
    }
  }

  /** Resolves when the event stream has ended, or at `end`. */
  async #untilOver(request: ApiRequest, end: number, opened: Opened): Promise<void> {
    const signal = request.options?.signal;
    // A timer holds at most 2^31 milliseconds.
    const left = Math.min(Math.max(0, end - performance.now()), 2 ** 31 - 1);
    const limit = AbortSignal.timeout(Math.ceil(left));
    const both = signal ? AbortSignal.any([signal, limit]) : limit;
    try {
      const events = this.transport.connection({ ...request, options: { signal: both } }, opened);
      for await (const _ of events) continue;
    } catch (error) {
      signal?.throwIfAborted();
      if (limit.aborted) return;
      if (!(error instanceof Unavailable) || error.code !== "too_many_streams") throw error;
      await sleep(Math.min(NO_SLOT_PAUSE_MS, Math.max(0, end - performance.now())), signal);
    }
  }
}

/** The turn of an agent. Iterating over it sends the message, and yields what the agent does until `done`. */
export class Chat implements AsyncIterable<ChatEvent> {
  /** The session; undefined before the first event of a new one. */
  sessionId: string | undefined;

  constructor(
    private readonly transport: Transport,
    private readonly request: ApiRequest & { readonly body: ChatBody },
  ) {
    this.sessionId = request.body.session_id ?? undefined;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<ChatEvent, void, undefined> {
    const signal = this.request.options?.signal;
    let last: string | undefined;
    for (let failed = 0; ; ) {
      let failure: LonghaulError = new ConnectionFailed("the chat ended without `done`");
      const opened: Opened = {};
      try {
        for await (const sent of this.transport.connection(this.#from(last), opened)) {
          this.sessionId = opened.headers?.get("x-session-id") ?? this.sessionId;
          last = sent.id ?? last;
          failed = 0;
          yield chatEvent(sent);
          if (sent.kind === "done") return;
        }
      } catch (error) {
        failure = passing(error, signal);
      }
      failed += 1;
      await this.transport.pause(failed, failure, signal);
    }
  }

  #from(last: string | undefined): ApiRequest {
    // Before the first event with an id, the same request finds the same session and message by its key.
    if (last === undefined) return this.request;
    const body = { ...this.request.body, session_id: this.sessionId, project_id: undefined };
    return { ...this.request, body, headers: { "Last-Event-ID": last } };
  }
}

export class SessionStreams extends Resource {
  /**
   * Sends a message to an agent; iterate over the result for what the agent does.
   *
   * Connects again after a lost connection, and continues with the next event: the message is sent once.
   */
  chat(agentId: string, message: ChatBody["message"], options: ChatOptions = {}): Chat {
    return new Chat(this.transport, {
      method: "POST",
      path: `/api/chat/${inPath(agentId)}`,
      options,
      key: options.idempotencyKey ?? crypto.randomUUID(),
      body: { message, session_id: options.sessionId, project_id: options.projectId },
    });
  }

  /** Yields the events of all messages of a session, until it is deleted; waits for further ones while it is idle. */
  async *events(sessionId: string, options: SessionEventsOptions = {}): AsyncGenerator<ChatEvent, void, undefined> {
    const { signal } = options;
    let last = options.lastEventId;
    let isOpened = false;
    for (let failed = 0; ; ) {
      let failure: LonghaulError = new ConnectionFailed("the event stream of the session ended");
      const opened: Opened = {};
      const request = {
        method: "GET",
        path: `/v1/sessions/${inPath(sessionId)}/events`,
        options,
        query: { from: options.fromRunning ? "running" : undefined },
        headers: { "Last-Event-ID": last },
      };
      try {
        for await (const sent of this.transport.connection(request, opened)) {
          last = sent.id ?? last;
          failed = 0;
          yield chatEvent(sent);
        }
      } catch (error) {
        if (error instanceof NotFound && isOpened) return;
        failure = passing(error, signal);
      }
      isOpened ||= opened.status !== undefined;
      failed += 1;
      await this.transport.pause(failed, failure, signal);
    }
  }
}

function eventsRequest(id: string, after: number, signal: AbortSignal | undefined): ApiRequest {
  const path = `/v1/executions/${inPath(id)}/events`;
  return { method: "GET", path, options: { signal }, headers: { "Last-Event-ID": String(after) } };
}

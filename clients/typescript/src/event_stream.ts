/** Server-sent events, and the events of executions and chats. */

import { UnexpectedAnswer } from "./errors.js";
import type * as types from "./generated/types.js";

/** Characters of one event; a step's result may have 4 MiB. */
const LONGEST_EVENT = 64 * 1024 * 1024;

/** One event of a stream. */
export interface ServerSentEvent {
  /** `message` where the stream names none. */
  readonly kind: string;
  readonly id: string | undefined;
  /** Its JSON; a text if it is none, such as `[DONE]`. */
  readonly data: unknown;
}

/**
 * One event of an execution.
 *
 * The kind `resync` means that events before `seq` are no longer kept: read the execution itself.
 */
export interface Event {
  /** Number of the event, from 1. */
  readonly seq: number;
  /** Kind; docs/reference/api.md lists them. */
  readonly kind: string;
  /** Time of the event, as RFC 3339; null for `resync`. */
  readonly at: string | null;
  readonly data: Readonly<Record<string, unknown>> | null;
}

interface ChatFrame<Kind extends string, Data> {
  readonly kind: Kind;
  /** Place in the session, to go on from; a `delta` and an `attempt_reset` have none. */
  readonly id: string | undefined;
  readonly data: Data;
}

/** Events of a chat; `kind` tells the type of `data`. */
export type ChatEvent =
  | ChatFrame<"delta", types.DeltaFrame>
  | ChatFrame<"attempt_reset", types.AttemptResetFrame>
  | ChatFrame<"tool_use", types.ToolUseFrame>
  | ChatFrame<"tool_result", types.ToolResultFrame>
  | ChatFrame<"status" | "retry" | "sub_agent" | "approval_request" | "approval_resolved", types.EventFrame>
  | ChatFrame<"error", types.FailureFrame>
  | ChatFrame<"done", types.DoneFrame>;

/** Decodes the bytes of one stream, in chunks of any size. */
export class EventDecoder {
  readonly #utf8 = new TextDecoder();
  #rest = "";
  #fields = new Map<string, string>();

  /** Events that the chunk completes. */
  feed(chunk: Uint8Array): ServerSentEvent[] {
    const lines = (this.#rest + this.#utf8.decode(chunk, { stream: true })).split("\n");
    this.#rest = lines.pop() ?? "";
    if (this.#rest.length > LONGEST_EVENT) {
      throw new UnexpectedAnswer(`an event of the stream has more than ${LONGEST_EVENT} characters`);
    }
    return lines.flatMap((line) => this.#line(line.replace(/\r$/, "")) ?? []);
  }

  #line(line: string): ServerSentEvent | undefined {
    if (line !== "") {
      const [, name = "", value = ""] = /^([^:]*):? ?(.*)$/s.exec(line) ?? [];
      const before = name === "data" ? this.#fields.get("data") : undefined;
      this.#fields.set(name, before === undefined ? value : `${before}\n${value}`);
      return undefined;
    }
    const fields = this.#fields;
    this.#fields = new Map();
    const data = fields.get("data");
    if (data === undefined) return undefined;
    return { kind: fields.get("event") ?? "message", id: fields.get("id"), data: json(data) };
  }
}

/** The event of an execution. */
export function executionEvent({ kind, id, data }: ServerSentEvent): Event {
  if (typeof data !== "object" || data === null) throw new UnexpectedAnswer("an event of the execution has no object");
  const body = data as Record<string, unknown>;
  if (kind === "resync") return { seq: Number(id ?? body["last"]), kind, at: null, data: body };
  const { seq, at, data: inner } = body;
  if (typeof seq !== "number" || typeof at !== "string") {
    throw new UnexpectedAnswer("an event of the execution has no `seq` or no `at`");
  }
  return { seq, kind: String(body["kind"]), at, data: (inner ?? null) as Event["data"] };
}

/** The event of a chat. */
export function chatEvent(sent: ServerSentEvent): ChatEvent {
  if (typeof sent.data !== "object" || sent.data === null) {
    throw new UnexpectedAnswer(`an event \`${sent.kind}\` of the chat has no object`);
  }
  return sent as ChatEvent;
}

function json(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

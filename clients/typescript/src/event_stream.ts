/** Events of an execution, decoded from server-sent events. */

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

/** Decodes the bytes of one stream, in chunks of any size. */
export class EventDecoder {
  readonly #utf8 = new TextDecoder();
  #rest = "";
  #fields = new Map<string, string>();

  /** Events that the chunk completes. */
  feed(chunk: Uint8Array): Event[] {
    const lines = (this.#rest + this.#utf8.decode(chunk, { stream: true })).split("\n");
    this.#rest = lines.pop() ?? "";
    return lines.flatMap((line) => this.#line(line.replace(/\r$/, "")) ?? []);
  }

  #line(line: string): Event | undefined {
    if (line !== "") {
      const [, name = "", value = ""] = /^([^:]*):? ?(.*)$/s.exec(line) ?? [];
      this.#fields.set(name, value);
      return undefined;
    }
    const fields = this.#fields;
    this.#fields = new Map();
    const [id, data] = [fields.get("id"), fields.get("data")];
    if (id === undefined || data === undefined) return undefined;
    const body = JSON.parse(data);
    if (fields.get("event") === "resync") return { seq: Number(id), kind: "resync", at: null, data: body };
    return { seq: body.seq, kind: body.kind, at: body.at, data: body.data ?? null };
  }
}

/** Lists over all their pages. */

import { UnexpectedAnswer } from "./errors.js";
import type { ApiRequest, Transport } from "./transport.js";

/** One page of a list. */
export interface Page<Item> {
  readonly items: readonly Item[];
  /** Cursor of the next page, for the list's option `cursor`, `after` or `before`; undefined on the last one. */
  readonly next: string | number | undefined;
}

/** A list. Iterating over it asks for one page after the other. */
export class Pages<Item> implements AsyncIterable<Item> {
  constructor(
    private readonly transport: Transport,
    private readonly request: ApiRequest,
    private readonly items: string,
    private readonly cursor?: string,
    private readonly isBySeq = false,
  ) {}

  async *[Symbol.asyncIterator](): AsyncGenerator<Item, void, undefined> {
    for await (const page of this.pages()) yield* page.items;
  }

  /** All items. */
  async all(): Promise<Item[]> {
    const found: Item[] = [];
    for await (const page of this.pages()) found.push(...page.items);
    return found;
  }

  /** The pages, with their cursors. */
  async *pages(): AsyncGenerator<Page<Item>, void, undefined> {
    for (let request = this.request; ; ) {
      const page = await this.#page(request);
      yield page;
      if (page.next === undefined || this.cursor === undefined) return;
      if (page.next === request.query?.[this.cursor]) {
        throw new UnexpectedAnswer(`${request.path} answers the same page again and again`);
      }
      request = { ...request, query: { ...request.query, [this.cursor]: page.next } };
    }
  }

  async #page(request: ApiRequest): Promise<Page<Item>> {
    const answer = await this.transport.json<Record<string, unknown> | null>(request);
    const items = answer?.[this.items];
    if (!Array.isArray(items)) {
      throw new UnexpectedAnswer(`the answer of ${request.path} has no list \`${this.items}\``);
    }
    const next = this.isBySeq ? items.at(-1)?.seq : answer?.[`next_${this.cursor}`];
    return { items, next: typeof next === "string" || typeof next === "number" ? next : undefined };
  }
}

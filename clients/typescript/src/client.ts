/** The client of the API. */

import type { Event } from "./event_stream.js";
import { Resources, type SubmitExecutionOptions } from "./generated/resources.js";
import type { Execution, SubmitBody } from "./generated/types.js";
import type { RetryPolicy } from "./retry.js";
import type { EventsOptions, WaitOptions } from "./streams.js";
import { type Fetch, type KeyOptions, type RequestOptions, Transport } from "./transport.js";

export interface ClientOptions {
  /** Address of the API; the variable `LONGHAUL_URL` when absent. */
  readonly url?: string | undefined;
  /** Key; the variable `LONGHAUL_API_KEY` when absent. */
  readonly apiKey?: string | undefined;
  /** Maximum time of one try of a request in milliseconds, event streams excepted; 30,000 when absent. */
  readonly timeoutMs?: number | undefined;
  readonly retry?: RetryPolicy | undefined;
  /** Another `fetch`, for instance one with a proxy. */
  readonly fetch?: Fetch | undefined;
}

/** Fields of a submit; exactly one of `definition` and `agent`. */
export type SubmitRequest = Omit<SubmitBody, "idempotency_key">;

export interface AnyRequestOptions extends RequestOptions {
  readonly query?: Readonly<Record<string, string | number | boolean | undefined>> | undefined;
  /** JSON. */
  readonly body?: unknown;
}

/**
 * A client of the API.
 *
 * The operations are in its attributes: `client.executions.list()`, `client.approvals.decide(…)`. The most frequent
 * ones are methods of the client itself.
 */
export class Client extends Resources {
  readonly #transport: Transport;

  constructor(options: ClientOptions = {}) {
    const url = options.url ?? variable("LONGHAUL_URL");
    const apiKey = options.apiKey ?? variable("LONGHAUL_API_KEY");
    if (!url || !apiKey) {
      throw new TypeError("an address and an API key are needed: pass them, or set LONGHAUL_URL and LONGHAUL_API_KEY");
    }
    if (!/^https?:\/\//.test(url)) throw new TypeError(`the address "${url}" does not begin with http:// or https://`);
    const { timeoutMs = 30_000, retry = {}, fetch = globalThis.fetch } = options;
    const address = url.replace(/\/+$/, "");
    const transport = new Transport(address, apiKey, timeoutMs, retry, (target, init) => fetch(target, init));
    super(transport);
    this.#transport = transport;
  }

  /**
   * Sends a request that has no method here, such as one of a newer API, and resolves to the JSON of its answer.
   *
   * Repeats it as the other methods do, a POST with an idempotency key; undefined for an answer without a body.
   */
  request(method: string, path: string, options: AnyRequestOptions = {}): Promise<unknown> {
    if (!/^\/(?!\/)/.test(path)) throw new TypeError(`"${path}" is not a path of the API, such as /v1/executions`);
    const { query = {}, body } = options;
    const key = method === "POST" ? { key: crypto.randomUUID() } : {};
    return this.#transport.json<unknown>({ method, path, options, query, body, ...key });
  }

  /** As `executions.submit`. */
  submit(request: SubmitRequest, options: SubmitExecutionOptions = {}): Promise<Execution> {
    return this.executions.submit(request, options);
  }

  /** As `executions.get`. */
  get(id: string, options: RequestOptions = {}): Promise<Execution> {
    return this.executions.get(id, options);
  }

  /** As `executions.cancel`. */
  cancel(id: string, options: KeyOptions = {}): Promise<Execution> {
    return this.executions.cancel(id, options);
  }

  /** As `executions.wait`. */
  wait(id: string, options: WaitOptions = {}): Promise<Execution> {
    return this.executions.wait(id, options);
  }

  /** As `executions.events`. */
  events(id: string, options: EventsOptions = {}): AsyncGenerator<Event, void, undefined> {
    return this.executions.events(id, options);
  }
}

/** A variable of the environment, where there is one. */
function variable(name: string): string | undefined {
  const { process } = globalThis as { process?: { env: Record<string, string | undefined> } };
  return process?.env[name];
}

/** Shared parts of the tests. */

import * as longhaul from "longhaul";

import type { Fault } from "./proxy.js";

export const URL = process.env["LONGHAUL_URL"] ?? "";
export const client = new longhaul.Client();
export const triage = { definition: "mail-triage", input: { mail: "Subject: Refund\n\nPlease refund my last order." } };
export const nowhere = "00000000-0000-0000-0000-000000000000";

/** The error of exactly this class with which the call rejects. */
export async function thrown<T extends Error>(
  kind: new (...parts: never[]) => T,
  call: Promise<unknown> | (() => unknown),
): Promise<T> {
  const outcome = Promise.resolve(typeof call === "function" ? new Promise((end) => end(call())) : call);
  const error = await outcome.then((result) => new Error(`no error, but ${JSON.stringify(result)}`), (error) => error);
  if (error?.constructor !== kind) throw error;
  return error;
}

export async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const found = [];
  for await (const item of items) found.push(item);
  return found;
}

/** Id of an execution that is FINISHED. */
export async function finished(): Promise<string> {
  const { id } = await client.submit(triage);
  await client.wait(id, { timeoutMs: 30_000 });
  return id;
}

/** Id of an execution that does not start during the test. */
export async function later(metadata = {}): Promise<string> {
  const run_at = new Date(Date.now() + 3_600_000).toISOString();
  const { id } = await client.submit({ ...triage, run_at, metadata });
  return id;
}

/** An answer that is not the API's. */
export function answer(status: string, body = "", headers: Record<string, string> = {}): Fault {
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`).join("");
  const head = `HTTP/1.1 ${status}\r\n${lines}Connection: close\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n`;
  return { answer: head + body };
}

/** A proxy's answer: it has no problem+json. */
export function refusal(status: string, retryAfter: number): Fault {
  return answer(status, "", { "Retry-After": String(retryAfter) });
}

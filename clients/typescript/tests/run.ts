/**
 * Runs every test against the API that LONGHAUL_URL and LONGHAUL_API_KEY name.
 *
 * The API has the definition `mail-triage` of this repository, on the scripted model.
 */

import { deepEqual, equal, ok, rejects } from "node:assert/strict";
import { randomUUID } from "node:crypto";

import * as longhaul from "longhaul";

import { type Fault, startProxy } from "./proxy.js";

const URL = process.env["LONGHAUL_URL"] ?? "";
const client = new longhaul.Client();
const triage = { definition: "mail-triage", input: { mail: "Subject: Refund\n\nPlease refund my last order." } };
const nowhere = "00000000-0000-0000-0000-000000000000";

/** The error of exactly this class with which the call rejects. */
async function thrown<T extends Error>(kind: new (...parts: never[]) => T, call: Promise<unknown>): Promise<T> {
  const error = await call.then((result) => new Error(`no error, but ${JSON.stringify(result)}`), (error) => error);
  if (error?.constructor !== kind) throw error;
  return error;
}

async function all(events: AsyncIterable<longhaul.Event>): Promise<longhaul.Event[]> {
  const found = [];
  for await (const event of events) found.push(event);
  return found;
}

/** Id of an execution that is FINISHED. */
async function finished(): Promise<string> {
  const { id } = await client.submit(triage);
  await client.wait(id, { timeoutMs: 30_000 });
  return id;
}

/** Id of an execution that does not start during the test. */
async function later(): Promise<string> {
  const { id } = await client.submit({ ...triage, run_at: new Date(Date.now() + 3_600_000).toISOString() });
  return id;
}

/** A proxy's answer: it has no problem+json. */
function refusal(status: string, retryAfter: number): Fault {
  return {
    answer: `HTTP/1.1 ${status}\r\nRetry-After: ${retryAfter}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n`,
  };
}

async function submitAndWait() {
  const submitted = await client.submit({ ...triage, metadata: { order: 17 }, priority: 7 });
  equal(submitted.status, "PENDING");
  const done = await client.wait(submitted.id, { timeoutMs: 30_000 });
  deepEqual([done.id, done.status, done.priority, done.metadata["order"]], [submitted.id, "FINISHED", 7, 17]);
  equal((done.output as { category: string }).category, "billing");
  deepEqual(await client.get(done.id), done);
}

async function eventsComeInOrder() {
  const { id } = await client.submit(triage);
  const events = await all(client.events(id));
  deepEqual(events.map((event) => event.seq), events.map((_, at) => at + 1));
  deepEqual([events[0]?.kind, events.at(-1)?.kind], ["submitted", "finished"]);
  deepEqual(await all(client.events(id, { after: 2 })), events.slice(2));
  deepEqual(await all(client.events(id, { after: events.length })), []);
}

async function cutStreamIsResumed() {
  const id = await finished();
  const proxy = await startProxy(URL, { cutAfter: "\nid: 3" });
  const events = await all(new longhaul.Client({ url: proxy.url }).events(id));
  deepEqual(events, await all(client.events(id)));
  deepEqual([proxy.header(0, "last-event-id"), proxy.header(1, "last-event-id")], ["0", "2"]);
  proxy.close();
}

async function lostAnswerIsRequestedAgain() {
  const proxy = await startProxy(URL, { cutAfter: "" });
  const { id } = await new longhaul.Client({ url: proxy.url }).submit(triage);
  const key = proxy.header(0, "idempotency-key");
  ok(key);
  equal(proxy.header(1, "idempotency-key"), key);
  // The first request was stored.
  equal((await client.submit(triage, { idempotencyKey: key })).id, id);
  proxy.close();
}

async function unavailableApiIsAskedAgain() {
  const busy = refusal("503 Service Unavailable", 1);
  const away = refusal("429 Too Many Requests", 3600);
  const proxy = await startProxy(URL, busy, away, busy, busy);
  const { url } = proxy;
  const begun = performance.now();
  const limited = await thrown(longhaul.RateLimited, new longhaul.Client({ url }).submit(triage));
  ok(performance.now() - begun >= 1_000);
  deepEqual([limited.status, limited.code, limited.retryAfterMs], [429, undefined, 3_600_000]);
  await thrown(longhaul.Unavailable, new longhaul.Client({ url, retry: { tries: 2 } }).submit(triage));
  equal((await new longhaul.Client({ url }).submit(triage)).status, "PENDING");
  const absent = new longhaul.Client({ url: "http://127.0.0.1:1", retry: { tries: 1 } });
  await thrown(longhaul.ConnectionFailed, absent.get(nowhere));
  proxy.close();
}

async function idempotencyKeyGivesOneExecution() {
  const idempotencyKey = randomUUID();
  const first = await client.submit(triage, { idempotencyKey });
  equal((await client.submit(triage, { idempotencyKey })).id, first.id);
  const other = client.submit({ ...triage, input: { mail: "x" } }, { idempotencyKey });
  const error = await thrown(longhaul.Conflict, other);
  deepEqual([error.status, error.code, error.executionId], [409, "idempotency_key_reused", first.id]);
}

async function failureIsThrown() {
  // The scripted model answers with the subject, which is longer than the output schema allows.
  const { id } = await client.submit({ ...triage, input: { mail: `Subject: ${"long ".repeat(40)}\n\nHello.` } });
  const error = await thrown(longhaul.ExecutionFailed, client.wait(id, { timeoutMs: 60_000 }));
  deepEqual([error.code, error.failureClass, error.execution.id], ["max_retries_exceeded", "permanent", id]);
  ok(error.summary);
  equal(error.refusal?.validator, "json_schema");
  ok(error.refusal?.feedback);
  ok(error.message.indexOf(error.refusal.feedback) < error.message.indexOf(error.summary));
  equal((await client.wait(id, { raiseOnFailure: false })).status, "FAILED");
}

async function errorsHaveCodes() {
  const missing = await thrown(longhaul.NotFound, client.get(nowhere));
  deepEqual([missing.status, missing.code, missing.name], [404, "not_found", "NotFound"]);
  const unknown = await thrown(longhaul.InvalidRequest, client.submit({ definition: "no-such-definition" }));
  deepEqual([unknown.status, unknown.code], [422, "unknown_definition"]);
  const invalid = await thrown(longhaul.InvalidRequest, client.submit({ ...triage, input: { mail: 7 } }));
  deepEqual([invalid.code, invalid.violations[0]?.path], ["invalid_input", "/input/mail"]);
  const refused = await thrown(longhaul.ApiError, new longhaul.Client({ apiKey: "lh_wrong" }).get(nowhere));
  deepEqual([refused.status, refused.code], [401, "invalid_api_key"]);
}

async function cancelledExecutionHasFailed() {
  const id = await later();
  for (const _ of [1, 2]) equal((await client.cancel(id)).status, "FAILED");
  const error = await thrown(longhaul.ExecutionFailed, client.wait(id));
  deepEqual([error.code, error.failureClass, error.refusal], ["cancelled", "permanent", undefined]);
  equal((await thrown(longhaul.Conflict, client.cancel(await finished()))).code, "execution_is_terminal");
}

async function waitEndsAfterItsTimeout() {
  const error = await thrown(longhaul.WaitTimedOut, client.wait(await later(), { timeoutMs: 300 }));
  equal(error.execution.status, "PENDING");
}

async function abortedCallsRejectWithTheReason() {
  const id = await later();
  const reason = new Error("the caller has left");
  const abort = () => {
    const controller = new AbortController();
    setTimeout(() => controller.abort(reason), 200);
    return controller.signal;
  };
  await rejects(client.wait(id, { signal: abort() }), reason);
  await rejects(all(client.events(id, { signal: abort() })), reason);
  await rejects(client.get(id, { signal: AbortSignal.abort(reason) }), reason);
  // The pause before the next try ends too.
  const absent = new longhaul.Client({ url: "http://127.0.0.1:1", retry: { firstPauseMs: 30_000 } });
  const begun = performance.now();
  await rejects(absent.get(id, { signal: abort() }), reason);
  ok(performance.now() - begun < 10_000);
}

async function leftStreamIsClosed() {
  for await (const event of client.events(await later())) {
    equal(event.kind, "submitted");
    break;
  }
}

const TESTS = [
  submitAndWait,
  eventsComeInOrder,
  cutStreamIsResumed,
  lostAnswerIsRequestedAgain,
  unavailableApiIsAskedAgain,
  idempotencyKeyGivesOneExecution,
  failureIsThrown,
  errorsHaveCodes,
  cancelledExecutionHasFailed,
  waitEndsAfterItsTimeout,
  abortedCallsRejectWithTheReason,
  leftStreamIsClosed,
];

for (const test of TESTS) {
  const begun = performance.now();
  await test();
  console.log(`ok ${test.name} ${((performance.now() - begun) / 1000).toFixed(1)} s`);
}

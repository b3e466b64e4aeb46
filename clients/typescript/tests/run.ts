/**
 * Runs every test against the API that LONGHAUL_URL and LONGHAUL_API_KEY name.
 *
 * The API has the definition `mail-triage` of this repository, on the scripted model.
 */

import { deepEqual, equal, ok, rejects } from "node:assert/strict";
import { randomUUID } from "node:crypto";

import * as longhaul from "longhaul";

import * as operations from "./operations.js";
import { startProxy } from "./proxy.js";
import { URL, all, answer, client, finished, later, nowhere, refusal, thrown, triage } from "./support.js";

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
  const refused = await thrown(longhaul.AuthenticationFailed, new longhaul.Client({ apiKey: "lh_wrong" }).get(nowhere));
  deepEqual([refused.status, refused.code], [401, "invalid_api_key"]);
  const reader = await client.keys.create({ name: "reader", scopes: ["executions:read"] });
  const denied = new longhaul.Client({ apiKey: reader.key ?? "" }).submit(triage);
  equal((await thrown(longhaul.PermissionDenied, denied)).code, "missing_scope");
  await client.keys.revoke(reader.id);
}

async function cancelledExecutionHasFailed() {
  const id = await later();
  for (const _ of [1, 2]) equal((await client.cancel(id)).status, "FAILED");
  const error = await thrown(longhaul.ExecutionCancelled, client.wait(id));
  ok(error instanceof longhaul.ExecutionFailed);
  deepEqual([error.code, error.failureClass, error.refusal], ["cancelled", "permanent", undefined]);
  equal((await thrown(longhaul.Conflict, client.cancel(await finished()))).code, "execution_is_terminal");
}

async function waitEndsAfterItsTimeout() {
  const error = await thrown(longhaul.WaitTimedOut, client.wait(await later(), { timeoutMs: 300 }));
  equal(error.execution?.status, "PENDING");
}

async function waitMakesTwoRequests() {
  const id = await later();
  const proxy = await startProxy(URL);
  const waiting = thrown(longhaul.ExecutionCancelled, new longhaul.Client({ url: proxy.url }).wait(id));
  // Nothing is asked while the execution goes on: the stream tells its end.
  await proxy.requests(1);
  await client.cancel(id);
  await waiting;
  deepEqual(proxy.lines, [`GET /v1/executions/${id}/events`, `GET /v1/executions/${id}`]);
  proxy.close();
}

async function waitGoesOnAfterLostConnections() {
  const id = await later();
  const busy = refusal("503 Service Unavailable", 0);
  const proxy = await startProxy(URL, { cutAfter: "resync" }, busy, { cutAfter: "" });
  const waiting = thrown(longhaul.ExecutionCancelled, new longhaul.Client({ url: proxy.url }).wait(id));
  await proxy.requests(4);
  await client.cancel(id);
  await waiting;
  proxy.close();
}

async function waitNeedsNoStream() {
  const body = '{"status": 503, "code": "too_many_streams", "detail": "no place for another stream"}';
  const headers = { "Content-Type": "application/problem+json", "Retry-After": "1" };
  const proxy = await startProxy(URL, answer("503 Service Unavailable", body, headers));
  const id = await finished();
  equal((await new longhaul.Client({ url: proxy.url }).wait(id, { timeoutMs: 30_000 })).status, "FINISHED");
  proxy.close();
}

async function absentServerIsNamed() {
  const begun = performance.now();
  const gone = await startProxy(URL);
  gone.close();
  const absent = new longhaul.Client({ url: gone.url });
  for (const call of [() => absent.get(nowhere), () => absent.wait(nowhere)]) {
    const error = await thrown(longhaul.NoServer, call);
    ok(error.message.includes(`${gone.url} `));
    ok(error instanceof longhaul.ConnectionFailed);
  }
  ok(performance.now() - begun < 10_000);
}

async function oddAnswersAreNamed() {
  const page = answer("200 OK", "<html>Hello</html>", { "Content-Type": "text/html" });
  const again = answer("200 OK", '{"executions": [], "next_cursor": "a"}', { "Content-Type": "application/json" });
  const proxy = await startProxy(URL, page, page, again, again, answer("302 Found", "", { Location: "/login" }));
  const other = new longhaul.Client({ url: proxy.url });
  ok((await thrown(longhaul.UnexpectedAnswer, other.get(nowhere))).message.includes("without JSON (text/html)"));
  ok((await thrown(longhaul.UnexpectedAnswer, other.wait(nowhere))).message.includes("in place of an event stream"));
  ok((await thrown(longhaul.UnexpectedAnswer, other.executions.list().all())).message.includes("the same page"));
  equal((await thrown(longhaul.ApiError, other.get(nowhere))).status, 302);
  proxy.close();
}

async function naiveTimesAreRefused() {
  const absent = new longhaul.Client({ url: "http://127.0.0.1:1" });
  const naive = "2026-12-01T09:00:00";
  const calls = {
    run_at: () => absent.submit({ ...triage, run_at: naive }),
    "executions.0.run_at": () => absent.executions.submitBatch({ executions: [{ ...triage, run_at: naive }] }),
    created_after: () => absent.executions.list({ created_after: naive }).all(),
  };
  for (const [name, call] of Object.entries(calls)) {
    ok((await thrown(longhaul.NaiveTime, call)).message.startsWith(`\`${name}\` has no time zone`));
  }
}

async function idsCannotLeaveTheirPath() {
  for (const wrong of ["", ".", ".."]) await thrown(TypeError, () => client.get(wrong));
  await thrown(longhaul.NotFound, client.get("a/../b?c#d"));
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
  waitMakesTwoRequests,
  waitGoesOnAfterLostConnections,
  waitNeedsNoStream,
  absentServerIsNamed,
  oddAnswersAreNamed,
  naiveTimesAreRefused,
  idsCannotLeaveTheirPath,
  ...operations.TESTS,
];

for (const test of TESTS) {
  const begun = performance.now();
  await test();
  console.log(`ok ${test.name} ${((performance.now() - begun) / 1000).toFixed(1)} s`);
}

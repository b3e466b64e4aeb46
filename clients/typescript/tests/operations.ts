/** Tests of the operations: lists, batches, people, tools, chats, files. */

import { deepEqual, equal, ok } from "node:assert/strict";
import { randomUUID } from "node:crypto";

import * as longhaul from "longhaul";

import { startProxy } from "./proxy.js";
import { URL, all, answer, client, finished, later, nowhere, thrown, triage } from "./support.js";

// Calls the tool that its message names, and then says what the tool answered.
const SCRIPT = `
{%- if last.role == "user" and "open" in last.text -%}
  {{ calls([call("open_file", {"path": last.text | regex_find("open (.+)")})]) }}
{%- elif last.role == "user" and "ask" in last.text -%}
  {{ calls([call("ask_caller", {"question": "Which colour?"})]) }}
{%- else -%}
  {{ text("Heard: " ~ last.text) }}
{%- endif -%}
`;

/** An agent whose tool is run by the caller, after an approval for a secret file. */
async function desk(): Promise<string> {
  const parameters = { type: "object", properties: { path: { type: "string" } }, required: ["path"] };
  await client.agents.put("client-desk", {
    name: "Desk",
    prompts: { conversation: "You open files." },
    model: { script: SCRIPT, stream: true },
    tools: ["ask_caller", { name: "open_file", runs: "caller", description: "Opens a file.", parameters }],
    approvals: {
      allow_self: true,
      rules: [{ tool: "open_file", when: 'arguments.path == "secret"', access: "ask" }],
    },
  });
  return "client-desk";
}

/** Id of an execution that waits for a person or its caller. */
async function waiting(prompt: string): Promise<string> {
  const { id } = await client.submit({ agent: await desk(), input: { prompt } });
  for await (const event of client.events(id)) if (event.kind === "parked") return id;
  throw new Error(`ended: ${JSON.stringify(await client.get(id))}`);
}

async function response(id: string): Promise<string> {
  return ((await client.wait(id, { timeoutMs: 30_000 })).output as { response: string }).response;
}

async function listGoesOverAllPages() {
  const metadata = { marker: randomUUID() };
  const ids = [await later(metadata), await later(metadata), await later(metadata)].reverse();
  const found = client.executions.list({ metadata, status: "PENDING", limit: 1 });
  deepEqual((await all(found)).map((execution) => execution.id), ids);
  const pages = await all(found.pages());
  deepEqual(pages.flatMap((page) => page.items.map((execution) => execution.id)), ids);
  equal(pages.at(-1)?.next, undefined);
  const rest = client.executions.list({ metadata, limit: 1, cursor: String(pages[0]?.next) });
  deepEqual((await rest.all()).map((execution) => execution.id), ids.slice(1));
  const ended = await finished();
  const kinds = (await client.executions.listEvents(ended, { limit: 2 }).all()).map((event) => event.kind);
  deepEqual(kinds, (await all(client.events(ended))).map((event) => event.kind));
}

async function batchHasAVerdictForEachItem() {
  const executions = [triage, { definition: "no-such-definition" }];
  const options = { idempotencyKey: randomUUID() };
  const [first, second] = (await client.executions.submitBatch({ executions }, options)).results;
  deepEqual([first?.status, second?.error?.code], [201, "unknown_definition"]);
  equal((await client.executions.submitBatch({ executions }, options)).results[0]?.id, first?.id);
  equal((await client.wait(first?.id ?? "", { timeoutMs: 30_000 })).status, "FINISHED");
}

async function approvalIsDecided() {
  const execution = await waiting("open secret");
  const [listed] = await client.approvals.list({ state: "waiting", execution }).all();
  const approval = await client.approvals.get(listed?.id ?? "");
  deepEqual(approval.arguments, { path: "secret" });
  const { hash } = approval;
  const decided = await client.approvals.decide(approval.id, { decision: "reject", hash, reason: "no" });
  equal(decided.state, "rejected");
  ok((await response(execution)).includes("rejected by user"));
  const again = client.approvals.decide(approval.id, { decision: "approve", hash });
  equal((await thrown(longhaul.Conflict, again)).code, "already_decided");
}

async function questionIsAnswered() {
  const execution = await waiting("ask");
  const [question] = await client.questions.list({ execution }).all();
  equal((await client.questions.answer(question?.id ?? "", { answer: "blue" })).state, "answered");
  ok((await response(execution)).includes("blue"));
}

async function callerRunsATool() {
  const id = await waiting("open a.txt");
  const call = (await client.get(id)).requires_action?.[0];
  deepEqual(call?.arguments, { path: "a.txt" });
  const result = { call_id: call?.call_id ?? "", hash: call?.hash ?? "", output: "three lines" };
  await client.executions.postToolResults(id, { results: [result] });
  equal(await response(id), "Heard: three lines");
}

async function chatIsStreamed() {
  const chat = client.sessions.chat(await desk(), "Hello");
  let [text, reason] = ["", ""];
  for await (const event of chat) {
    if (event.kind === "delta") text = text.slice(0, event.data.offset) + event.data.text;
    if (event.kind === "done") reason = event.data.stop_reason;
  }
  deepEqual([text, reason], ["Heard: Hello", "end_turn"]);
  const { sessionId = "" } = chat;
  equal((await all(client.sessions.chat("client-desk", "And you?", { sessionId }))).at(-1)?.kind, "done");
  const messages = await client.sessions.messages(sessionId, { limit: 2 }).all();
  equal(messages.filter(({ message }) => (message as { role: string }).role === "user").length, 2);
  let done = 0;
  for await (const event of client.sessions.events(sessionId)) {
    if (event.kind === "done") done += 1;
    if (done === 2) break;
  }
  equal((await client.sessions.end(sessionId)).status, "ended");
  await client.sessions.delete(sessionId);
  await thrown(longhaul.NotFound, client.sessions.get(sessionId));
}

async function cutChatIsResumed() {
  const proxy = await startProxy(URL, { cutAfter: "\n\n" }, { cutAfter: "" });
  const chat = new longhaul.Client({ url: proxy.url }).sessions.chat(await desk(), "Hello");
  const kinds = (await all(chat)).map((event) => event.kind);
  deepEqual([kinds.at(-1), kinds.filter((kind) => kind === "done").length], ["done", 1]);
  const messages = await client.sessions.messages(chat.sessionId ?? "").all();
  equal(messages.filter(({ message }) => (message as { role: string }).role === "user").length, 1);
  proxy.close();
}

async function answerMayBeHeld() {
  const proxy = await startProxy(URL);
  const { status } = await new longhaul.Client({ url: proxy.url }).submit(triage, { waitSeconds: 30 });
  deepEqual([status, proxy.lines], ["FINISHED", ["POST /v1/executions"]]);
  proxy.close();
}

async function fileComesBack() {
  const { file_id } = await client.files.upload(new TextEncoder().encode("line\n"), { name: "a.txt" });
  equal(new TextDecoder().decode(await client.files.download(file_id)), "line\n");
  await client.files.delete(file_id);
  await thrown(longhaul.NotFound, client.files.get(file_id));
}

async function scheduleIsKept() {
  const key = `s-${randomUUID()}`;
  await client.schedules.create({ key, cron: "0 6 * * *", ...triage });
  equal((await client.schedules.pause(key)).status, "paused");
  ok((await client.schedules.list({ limit: 1 }).all()).some((schedule) => schedule.key === key));
  await client.schedules.delete(key);
}

async function answerGoesBackAsARequest() {
  const { key, spec, version } = await client.agents.get(await desk());
  equal((await client.agents.put(key, spec)).version, version);
}

async function anyRequestMayBeSent() {
  const listed = (await client.request("GET", "/v1/executions", { query: { limit: 1 } })) as { executions: unknown };
  ok(Array.isArray(listed.executions));
  const { id } = (await client.request("POST", "/v1/executions", { body: triage })) as { id: string };
  equal((await client.wait(id, { timeoutMs: 30_000 })).status, "FINISHED");
  await thrown(longhaul.NotFound, client.request("DELETE", `/v1/files/${nowhere}`));
  for (const wrong of ["v1/executions", "//127.0.0.1/v1", "https://127.0.0.1/v1"]) {
    await thrown(TypeError, () => client.request("GET", wrong));
  }
}

async function readsOfAnInstallationWork() {
  ok(await client.server.health());
  ok((await client.server.readiness()).ready);
  equal((await client.server.whoami()).kind, "key");
  ok((await client.workers.demand()).live_workers >= 1);
  ok(Array.isArray((await client.wires.models())["data"]));
  const { projects, webhooks, skills, runs, limits, quarantine, indexes, memory, accounts, audit, keys } = client;
  const all = [projects, webhooks, skills, runs, limits, quarantine, indexes, memory, accounts, audit, keys];
  for (const one of all) ok(Array.isArray(await one.list().all()));
  await thrown(longhaul.NotFound, client.projects.get(nowhere));
}

async function everyOperationIsSent() {
  type Described = { tags: string[]; operationId: string };
  const document = await (await fetch(`${URL}/openapi.json`)).json();
  const paths: Record<string, Record<string, Described>> = document.paths;
  const expected = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods)
      // The first are those of workers, the second is a WebSocket.
      .filter(([, { tags, operationId }]) => !tags.includes("worker protocol") && operationId !== "connectResponses")
      .map(([http]) => `${http.toUpperCase()} ${path.replace(/\{\w+\}/g, "x")}`),
  );
  const proxy = await startProxy(URL, ...Array(2 * expected.length).fill(answer("404 Not Found")));
  for (const operations of Object.values(new longhaul.Client({ url: proxy.url }))) {
    const own = Object.getPrototypeOf(operations);
    for (const name of [own, Object.getPrototypeOf(own)].flatMap((kind) => Object.getOwnPropertyNames(kind))) {
      if (name === "constructor" || name === "wait") continue;
      await thrown(longhaul.NotFound, first(operations, name));
    }
  }
  const sent = proxy.lines.map((line) => line.split("?")[0]);
  deepEqual([...new Set(sent)].sort(), expected.sort());
  proxy.close();
}

/** Calls a method with some text for each parameter that it needs, to its first item if it is a list or stream. */
async function first(operations: Record<string, (...values: string[]) => unknown>, name: string): Promise<unknown> {
  const method = operations[name] ?? (() => undefined);
  const result = method.apply(operations, Array(method.length).fill("x"));
  if (typeof result !== "object" || result === null || !(Symbol.asyncIterator in result)) return result;
  return (result as AsyncIterable<unknown>)[Symbol.asyncIterator]().next();
}

export const TESTS = [
  everyOperationIsSent,
  listGoesOverAllPages,
  batchHasAVerdictForEachItem,
  approvalIsDecided,
  questionIsAnswered,
  callerRunsATool,
  chatIsStreamed,
  cutChatIsResumed,
  answerMayBeHeld,
  fileComesBack,
  scheduleIsKept,
  answerGoesBackAsARequest,
  anyRequestMayBeSent,
  readsOfAnInstallationWork,
];

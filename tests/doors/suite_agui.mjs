// AG-UI's client against Longhaul. It verifies each stream itself, and fails on an event out of place.

import { HttpAgent } from "@ag-ui/client";
import { check, main, same, settings } from "./suite.mjs";

const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const weather = { name: "get_weather", description: "Tells the weather.", parameters };

function agentOf(key) {
  const url = `${settings.url}/v1/agui/${key.replace(/^agent:/, "")}`;
  return new HttpAgent({ url, headers: { Authorization: `Bearer ${settings.key}` } });
}

// Adds a message of the user and runs the agent; returns the types of its events and its new messages.
async function run(agent, text, parameters = {}) {
  if (text) agent.addMessage({ id: crypto.randomUUID(), role: "user", content: text });
  const types = [];
  const { newMessages } = await agent.runAgent(parameters, { onEvent: ({ event }) => void types.push(event.type) });
  return { types, newMessages };
}

// Each call of the thread has its result, once.
function paired(agent) {
  const calls = agent.messages.flatMap((message) => message.toolCalls ?? []).map((call) => call.id);
  const results = agent.messages.filter((message) => message.role === "tool").map((message) => message.toolCallId);
  same(results, calls);
}

check("text is streamed, and the thread goes on", async () => {
  const agent = agentOf(settings.agent);
  for (const text of ["Hello.", "Again."]) {
    const { types, newMessages } = await run(agent, text);
    same([types[0], types.at(-1)], ["RUN_STARTED", "RUN_FINISHED"]);
    same(
      newMessages.map((message) => [message.role, message.content]),
      [["assistant", `You said: ${text}`]],
    );
  }
  same(
    agent.messages.map((message) => message.role),
    ["user", "assistant", "user", "assistant"],
  );
});

check("front-end tool is run by the client", async () => {
  const agent = agentOf(settings.agent);
  const { newMessages } = await run(agent, "Weather?", { tools: [weather] });
  const calls = newMessages.flatMap((message) => message.toolCalls ?? []);
  same(
    calls.map((call) => [call.function.name, JSON.parse(call.function.arguments)]),
    [["get_weather", { city: "Oslo" }]],
  );
  agent.addMessage({ id: crypto.randomUUID(), role: "tool", toolCallId: calls[0].id, content: "Cold." });
  const last = await run(agent, null, { tools: [weather] });
  same(
    last.newMessages.map((message) => message.content),
    ["Results: Cold."],
  );
  paired(agent);
});

check("question is an interrupt that the client resumes", async () => {
  const agent = agentOf(process.env.DOORS_ASKER ?? "agent:asker");
  await run(agent, "Ask me.");
  const [interrupt, ...more] = agent.pendingInterrupts;
  same([typeof interrupt?.id, more.length], ["string", 0]);
  const { newMessages } = await run(agent, null, {
    resume: [{ interruptId: interrupt.id, status: "resolved", payload: "Blue." }],
  });
  const text = newMessages
    .filter((message) => message.role === "assistant")
    .map((message) => message.content)
    .join("");
  same(text.startsWith("Results: ") && text.includes("Blue."), true);
  paired(agent);
  same(agent.pendingInterrupts, []);
});

check("failure of the model is an error of the run", async () => {
  const agent = agentOf(settings.agent);
  const types = [];
  const subscriber = {
    onEvent: ({ event }) => void types.push(event.type),
    onRunFailed: () => ({ stopPropagation: true }),
  };
  agent.addMessage({ id: crypto.randomUUID(), role: "user", content: `[fail 400] ${crypto.randomUUID()}` });
  await agent.runAgent({}, subscriber).catch(() => {});
  same([types[0], types.at(-1)], ["RUN_STARTED", "RUN_ERROR"]);
});

check("reader that comes back gets a snapshot, or the events after its last", async () => {
  const url = `${settings.url}/v1/agui/${settings.agent.replace(/^agent:/, "")}`;
  const headers = { Authorization: `Bearer ${settings.key}`, "Content-Type": "application/json" };
  const message = { id: "m", role: "user", content: "[words 12]" };
  const body = JSON.stringify({ threadId: "t", runId: "r", messages: [message], tools: [], context: [] });
  const answer = await fetch(url, { method: "POST", headers, body });
  const cursor = answer.headers.get("longhaul-cursor");
  const frames = (await answer.text()).split("\n\n").filter((frame) => frame);
  for (let after = 0; after <= frames.length; after += 1) {
    const again = await fetch(`${url}/runs/${cursor}?after=${after}`, { headers });
    same(
      (await again.text()).split("\n\n").filter((frame) => frame),
      frames.slice(after),
    );
  }
  const again = await (await fetch(`${url}/runs/${cursor}`, { headers })).text();
  const types = again
    .split("\n\n")
    .filter((frame) => frame)
    .map((frame) => JSON.parse(frame.slice(6)).type);
  same([types[0], types[1], types.at(-1)], ["RUN_STARTED", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]);
});

await main();

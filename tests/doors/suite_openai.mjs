// OpenAI's SDK for JavaScript against Longhaul.

import OpenAI from "openai";
import { randomUUID } from "node:crypto";
import { asked, check, main, raises, same, settings } from "./suite.mjs";

const client = new OpenAI({ baseURL: `${settings.url}/v1`, apiKey: settings.key, timeout: 60_000 });
const once = client.withOptions({ maxRetries: 0 });
const both = [settings.agent, settings.model];
const parameters = {
  type: "object",
  properties: { city: { type: "string" } },
  required: ["city"],
  additionalProperties: false,
};
const weather = { type: "function", name: "get_weather", description: "Tells the weather.", parameters, strict: true };
const words = (count) => Array.from({ length: count }, (_, at) => `word${at}`).join(" ");

async function all(stream) {
  const found = [];
  for await (const one of stream) found.push(one);
  return found;
}

check("models are listed and retrieved", async () => {
  const ids = (await all(client.models.list())).map((model) => model.id);
  same(ids.includes(settings.agent), true);
  for (const name of both) same((await client.models.retrieve(name)).id, name);
  same((await raises(OpenAI.NotFoundError, () => once.models.retrieve("agent:nothing"))).code, "model_not_found");
});

check("response is created, read, listed and deleted", async () => {
  for (const model of both) {
    const made = await client.responses.create({ model, input: "Hello.", metadata: { k: "v" } });
    same([made.status, made.output_text, made.metadata], ["completed", "You said: Hello.", { k: "v" }]);
    same((await client.responses.retrieve(made.id)).output, made.output);
    same(
      (await all(client.responses.inputItems.list(made.id))).map((item) => item.role),
      ["user"],
    );
    await client.responses.delete(made.id);
    await raises(OpenAI.NotFoundError, () => once.responses.retrieve(made.id));
  }
});

check("response streams and resumes after every event", async () => {
  for (const model of both) {
    const events = await all(
      await client.responses.create({ model, input: "[words 12]", stream: true, background: true }),
    );
    same(
      events.map((event) => event.sequence_number),
      events.map((_, at) => at),
    );
    const { id, output } = events.at(-1).response;
    same(output[0].content[0].text, words(12));
    for (let after = 0; after < events.length - 1; after += 1) {
      const rest = await all(await client.responses.retrieve(id, { stream: true, starting_after: after }));
      same(rest, events.slice(after + 1));
    }
    const helper = client.responses.stream({ model, input: "[words 12]" });
    same((await helper.finalResponse()).output_text, words(12));
  }
});

check("response is parsed by a schema", async () => {
  const format = { type: "json_schema", name: "city", strict: true, schema: parameters };
  for (const model of both) {
    const parsed = await client.responses.parse({ model, input: "City?", text: { format } });
    same(JSON.parse(parsed.output_text), { city: "Oslo" });
  }
});

check("functions are run by the client", async () => {
  for (const model of both) {
    const made = await client.responses.create({ model, input: "Weather?", tools: [weather] });
    const calls = made.output.filter((item) => item.type === "function_call");
    same(
      calls.map((call) => [call.name, JSON.parse(call.arguments)]),
      [["get_weather", { city: "Oslo" }]],
    );
    const input = calls.map((call) => ({ type: "function_call_output", call_id: call.call_id, output: "Cold." }));
    const last = await client.responses.create({ model, input, previous_response_id: made.id, tools: [weather] });
    same(last.output_text, "Results: Cold.");
  }
});

check("runTools runs", async () => {
  for (const model of both) {
    for (const stream of [false, true]) {
      const ran = [];
      const run = ({ city }) => {
        ran.push(city);
        return `${city} is fine.`;
      };
      const tool = {
        type: "function",
        function: { name: "look_up", description: "", parameters, parse: JSON.parse, function: run },
      };
      const messages = [{ role: "user", content: "Look up." }];
      const runner = client.chat.completions.runTools({ model, messages, tools: [tool], stream });
      same([await runner.finalContent(), ran], ["Results: Oslo is fine.", ["Oslo"]]);
    }
  }
});

check("chat is created, streamed and parsed", async () => {
  for (const model of both) {
    const messages = [{ role: "user", content: "[words 20]" }];
    const made = await client.chat.completions.create({ model, messages });
    same(made.choices[0].message.content, words(20));
    const chunks = await all(
      await client.chat.completions.create({ model, messages, stream: true, stream_options: { include_usage: true } }),
    );
    same(chunks.map((chunk) => chunk.choices[0]?.delta?.content ?? "").join(""), words(20));
    same(chunks.at(-1).usage.total_tokens > 0, true);
    same(
      (await client.chat.completions.stream({ model, messages }).finalChatCompletion()).choices[0].message.content,
      words(20),
    );
    const response_format = { type: "json_schema", json_schema: { name: "city", strict: true, schema: parameters } };
    const parsed = await client.chat.completions.parse({ model, messages, response_format });
    same(JSON.parse(parsed.choices[0].message.content), { city: "Oslo" });
  }
});

check("background is polled and cancelled", async () => {
  for (const model of both) {
    let made = await client.responses.create({ model, input: "Hello.", background: true });
    while (["queued", "in_progress"].includes(made.status)) made = await client.responses.retrieve(made.id);
    same([made.status, made.output_text], ["completed", "You said: Hello."]);
    made = await client.responses.create({ model, input: "[slow 20] [words 20]", background: true });
    for (let time = 0; time < 2; time += 1) same((await client.responses.cancel(made.id)).status, "cancelled");
  }
});

check("tokens are counted and conversations compacted", async () => {
  for (const model of both) {
    const counted = await client.responses.inputTokens.count({ model, input: "Some words." });
    same(counted.input_tokens > 1, true);
    const compacted = await client.responses.compact({ model, input: "A long talk." });
    same(
      compacted.output.some((item) => item.type === "compaction"),
      true,
    );
  }
});

check("errors have their types", async () => {
  const wrong = new OpenAI({ baseURL: `${settings.url}/v1`, apiKey: "lh_wrong", maxRetries: 0 });
  const input = "x";
  await raises(OpenAI.AuthenticationError, () => wrong.responses.create({ model: settings.agent, input }));
  const error = await raises(OpenAI.NotFoundError, () => once.responses.create({ model: "agent:nothing", input }));
  same([error.code, error.param, typeof error.requestID], ["model_not_found", "model", "string"]);
  await raises(OpenAI.BadRequestError, () => once.responses.create({ model: settings.agent, input: 7 }));
  const headers = { "Longhaul-Run": "a" };
  const half = await raises(OpenAI.BadRequestError, () =>
    once.responses.create({ model: settings.agent, input }, { headers }),
  );
  same(half.message.includes("Longhaul-Attempt"), true);
});

check("run pays once", async () => {
  const [run, content] = [randomUUID(), `Paid once ${randomUUID()}`];
  for (const attempt of ["1", "2"]) {
    const headers = { "Longhaul-Run": run, "Longhaul-Attempt": attempt };
    await client.chat.completions.create({ model: settings.model, messages: [{ role: "user", content }] }, { headers });
    same(await asked(content), 1);
  }
});

await main();

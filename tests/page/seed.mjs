// Real data for every screen, made through the API: executions in every state, approvals, a question, sub-agents, a
// project, sessions with memory, schedules, limits, an index, webhooks.
import { readFileSync } from "node:fs";

const HOSTILE = `</main><script>window.hacked=1</script><img src=x onerror="window.hacked=2">"'{{ 7*7 }}`;
/** As a literal of the scripted model's language. */
const TEXT = JSON.stringify(HOSTILE);

/** Waits until `look` returns something true; fails with its last value. */
export const until = async (what, look, seconds = 30) => {
  const end = Date.now() + seconds * 1000;
  for (;;) {
    const seen = await look();
    if (seen) return seen;
    if (Date.now() > end) throw new Error(`${what}: not within ${seconds} s`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
};

/** A client of the API. */
export const client = (url, key) => {
  const request = async (method, path, body) => {
    const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
    const answer = await fetch(url + path, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    const text = await answer.text();
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`);
    return text ? JSON.parse(text) : null;
  };
  return {
    key,
    get: (path) => request("GET", path),
    post: (path, body) => request("POST", path, body),
    put: (path, body) => request("PUT", path, body),
  };
};

const prompts = (conversation) => ({ conversation });
const AGENTS = [
  {
    key: "support",
    name: "Support",
    description: "Answers customers, and remembers what they said.",
    prompts: prompts("You answer customers of a shop for kitchenware in at most three sentences."),
    model: {
      temperature: 0,
      script:
        '{{ text("Thank you. You wrote: " ~ last.text ~ " I have noted it, and a colleague calls you within a day.", latency_ms=150) }}',
    },
  },
  {
    key: "event-planner",
    name: "Event planner",
    description: "Asks what it does not know.",
    prompts: prompts("You plan events. Ask the caller for what is missing."),
    tools: ["ask_caller"],
    model: {
      script: `{% if last.role == "user" %}{{ calls([call("ask_caller", {"question": "For how many people, on which day, and with what food?", "answer_schema": {"type": "object", "properties": {"people": {"type": "integer", "minimum": 1, "maximum": 500, "description": "Guests, without staff"}, "day": {"type": "string", "format": "date"}, "food": {"enum": ["none", "vegetarian", "everything"]}, "music": {"type": "boolean"}}, "required": ["people", "food"]}})]) }}{% else %}{{ text({"response": "Planned: " ~ last.text}) }}{% endif %}`,
    },
  },
  {
    key: "travel-desk",
    name: "Travel desk",
    description: "Confirms journeys.",
    prompts: prompts("You confirm journeys. Answer with JSON."),
    model: { script: '{{ text({"response": "Booked: " ~ input_text}, latency_ms=50) }}' },
  },
  {
    key: "translator",
    name: "Translator",
    description: "Answers with text where JSON is asked for, so its runs fail.",
    prompts: prompts("You translate. Answer with JSON."),
    model: { script: '{{ raw("Voilà, la traduction.", latency_ms=50) }}' },
  },
  {
    key: "slow-reader",
    name: "Slow reader",
    description: "Thinks for a second per turn.",
    prompts: prompts("You read slowly."),
    tools: ["stop_execution"],
    model: {
      script:
        '{% if turn < 5 %}{{ calls([call("stop_execution", {"outcome": "no"})], text="Page " ~ turn ~ " of 5.", latency_ms=1000) }}{% else %}{{ text({"response": "The end."}, latency_ms=1000) }}{% endif %}',
    },
  },
  {
    key: "hostile",
    name: HOSTILE,
    description: HOSTILE,
    prompts: prompts(`You are hostile. ${HOSTILE.split("{{")[0]}`),
    model: { script: JSON.stringify({ text: { response: HOSTILE } }).replaceAll("{{", "{ {") },
  },
  {
    key: "hostile-caller",
    name: HOSTILE,
    prompts: prompts("You call tools that are not there, and ask."),
    tools: ["ask_caller"],
    model: {
      script: `{% if turn == 1 %}{{ calls([call(${TEXT}, {${TEXT}: ${TEXT}})], text=${TEXT}) }}{% else %}{{ calls([call("ask_caller", {"question": ${TEXT}, "answer_schema": {"type": "object", "title": ${TEXT}, "properties": {${TEXT}: {"description": ${TEXT}, "enum": [${TEXT}]}}}})]) }}{% endif %}`,
    },
  },
];
const DEFINITIONS = [
  {
    key: "travel-request",
    agent_key: "travel-desk",
    name: "Travel request",
    description: "A form with every kind of field.",
    input_schema: {
      type: "object",
      additionalProperties: false,
      required: ["traveller", "days", "class"],
      properties: {
        traveller: {
          type: "string",
          minLength: 2,
          maxLength: 80,
          title: "Traveller",
          description: "As in the passport",
        },
        days: { type: "integer", minimum: 1, maximum: 30, description: "Nights away, 1 to 30" },
        class: { enum: ["second", "first"] },
        code: { type: "string", pattern: "^[A-Z]{3}-[0-9]{4}$", title: "Cost centre", examples: ["ABC-1234"] },
        leave_on: { type: "string", format: "date" },
        hotel: {
          type: "object",
          properties: { wanted: { type: "boolean", default: true }, name: { type: "string", maxLength: 60 } },
        },
        reason: { type: "string", maxLength: 2000 },
      },
    },
    prompt: "{{ input.traveller }} travels for {{ input.days }} days.",
  },
  {
    key: "translation",
    agent_key: "translator",
    name: "Translation",
    description: "Fails: its agent answers no JSON.",
    input_schema: { type: "object", properties: { text: { type: "string" } }, required: ["text"] },
    prompt: "{{ input.text }}",
    validators: ["is_valid_json"],
    max_retries: 1,
    output_schema: { type: "object", properties: { text: { type: "string" } }, required: ["text"] },
  },
  {
    key: "digest",
    agent_key: "travel-desk",
    name: "Nightly digest",
    description: "Held by a limit of 0.",
    input_schema: { type: "object", properties: { day: { type: "string" } } },
    prompt: "Digest of {{ input.day }}",
  },
  { key: "hostile", agent_key: "hostile", name: HOSTILE, description: HOSTILE, prompt: "x" },
];

const PLAN = {
  phases: [{ name: "collect", gate: true }, { name: "write" }],
  tasks: [
    { key: "prices", title: "Collect prices", phase: "collect", prompt: "Collect prices of heat pumps." },
    { key: "grants", title: "Collect public grants", phase: "collect", prompt: "Collect public grants." },
    {
      key: "noise",
      title: "Measure the noise of the four most sold models",
      phase: "collect",
      prompt: "Collect noise levels.",
    },
    {
      key: "compare",
      title: "Compare",
      phase: "collect",
      depends_on: ["prices", "grants", "noise"],
      prompt: "Compare:\n{{ tasks.prices.output }}",
    },
    {
      key: "report",
      title: "Write the report",
      phase: "write",
      depends_on: ["compare"],
      prompt: "Report:\n{{ tasks.compare.output }}",
    },
    {
      key: "summary",
      title: "Summary",
      phase: "write",
      depends_on: ["report"],
      prompt: "Summary:\n{{ tasks.report.output }}",
    },
  ],
};

const example = (folder, name) => readFileSync(`${folder}/examples/data/${name}`, "utf8");

/**
 * Makes everything. `api` is a client of a key that may do everything, `robot` of another key of the tenant, whose
 * calls the first may approve; `folder` holds `examples/data`.
 */
export const seed = async (api, robot, folder) => {
  for (const agent of AGENTS) await api.put(`/v1/agents/${agent.key}`, agent);
  await api.put("/v1/agents/support", {
    ...AGENTS[0],
    description: "Answers customers by mail and chat, and remembers what they said.",
  });
  for (const definition of DEFINITIONS) await api.put(`/v1/definitions/${definition.key}`, definition);
  const made = {};
  const submit = async (body) => (await robot.post("/v1/executions", body)).id;
  const ended = (id) =>
    until(`${id} ends`, async () => {
      const e = await api.get(`/v1/executions/${id}`);
      return e.finished_at && e;
    });

  // Ended executions, with corrections, tools and failures.
  const invoices = ["harbour-supplies", "lumen-studio", "pixel-and-press"];
  made.invoices = [];
  for (const name of invoices)
    made.invoices.push(
      await submit({
        definition: "invoice-extraction",
        input: { text: example(folder, `invoices/${name}.txt`) },
        metadata: { customer: name },
        priority: 5,
      }),
    );
  for (const name of ["double-charge", "login-broken", "thanks"])
    made.mail = await submit({ definition: "mail-triage", input: { mail: example(folder, `mails/${name}.txt`) } });
  made.tools = await submit({
    definition: "catalogue-enrichment",
    input: { category: "kitchen" },
    metadata: { customer: "kitchenware" },
  });
  made.failed = [];
  for (let n = 1; n <= 4; n += 1)
    made.failed.push(await submit({ definition: "translation", input: { text: `Sentence ${n}` } }));
  made.hostile = await submit({
    definition: "hostile",
    input: { text: HOSTILE },
    metadata: { customer: HOSTILE.slice(0, 100) },
  });
  made.hostileAsk = await submit({ agent: "hostile-caller", input: { prompt: HOSTILE } });
  made.budget = await submit({
    definition: "travel-request",
    input: { traveller: "Ada Lovelace", days: 3, class: "first" },
    budget: { max_tokens: 100000, max_cost_usd: 2 },
  });
  made.skill = await submit({ agent: "expense-clerk", input: { prompt: "Decide: a hotel for 95 EUR." } });

  // Waiting executions, each for another reason.
  await api.put("/v1/limits/definition:digest", { limit: 0 });
  await api.put("/v1/limits/agent:slow-reader", { limit: 1 });
  await api.put("/v1/limits/tenant", { limit: 500 });
  made.held = await submit({ definition: "digest", input: { day: "Monday" }, queue: "default" });
  made.later = await submit({
    definition: "mail-triage",
    input: { mail: "Subject: Later" },
    run_at: new Date(Date.now() + 6 * 3600e3).toISOString(),
  });
  made.starved = await submit({ definition: "mail-triage", input: { mail: "Subject: For no worker" }, queue: "night" });
  made.approvals = [];
  for (const [sku, title] of [
    ["KI-201", "Copper saucepan, 18 cm"],
    ["KI-214", "Oak chopping board"],
    ["KI-201", "A saucepan with a title that is rather long, to see how lists and cards wrap it"],
  ])
    made.approvals.push(
      await submit({ agent: "catalogue-desk", input: { prompt: `Please rename ${sku} to "${title}".` } }),
    );
  made.asks = [];
  for (let n = 0; n < 2; n += 1)
    made.asks.push(await submit({ agent: "event-planner", input: { prompt: "Plan the summer party." } }));

  // A project that waits at a gate, and one whose plan waits for approval.
  made.project = (
    await api.post("/v1/projects", {
      goal: "A report on heat pumps in old houses, with prices, public grants and noise, for people who own one",
      name: "Heat pumps",
      agent: "support",
      plan: PLAN,
      budget: { max_tokens: 200000, max_cost_usd: 5 },
    })
  ).id;
  made.planned = (
    await api.post("/v1/projects", {
      goal: "Compare KI-201 and KI-214, and give the first a better name.",
      agent: "catalogue-lead",
      agents: ["catalogue-desk"],
      needs_approval: true,
    })
  ).id;

  // A session with an answer, and one that ended, which memory takes up.
  const talk = async (id, message) => ended((await api.post(`/v1/sessions/${id}/messages`, { message })).execution_id);
  made.session = (await api.post("/v1/sessions", { agent: "support", metadata: { user: "ada" } })).id;
  await talk(made.session, "My kettle leaks.");
  await talk(made.session, "I bought it in May, and have the receipt.");
  made.over = (await api.post("/v1/sessions", { agent: "support" })).id;
  await talk(made.over, "Please call me in the mornings only.");
  await api.post(`/v1/sessions/${made.over}/end`);
  made.hostileSession = (await api.post("/v1/sessions", { agent: "hostile", metadata: { user: HOSTILE } })).id;
  await talk(made.hostileSession, HOSTILE);

  // Durable runs: one open, one failed.
  await api.post("/v1/runs", { key: "report-7", budget: { max_cost_usd: 5, max_model_calls: 200 } });
  await api.post("/v1/runs", { key: "report-6" });
  await api.post("/v1/runs/report-6/end", { status: "failed", note: HOSTILE });

  // Schedules: one well, one failing.
  await api.post("/v1/schedules", {
    key: "nightly",
    definition: "mail-triage",
    input: { mail: "Subject: Errors of yesterday" },
    cron: "30 6 * * MON-FRI",
    time_zone: "Europe/Berlin",
    monthly_budget: { max_cost_usd: 20 },
  });
  await api.post("/v1/schedules", {
    key: "broken",
    definition: "translation",
    input: { text: "again" },
    interval_seconds: 3600,
    pause_after: 2,
  });
  for (const key of ["nightly", "broken", "broken"]) {
    const run = await api.post(`/v1/schedules/${key}/run`);
    if (run.execution_id) await ended(run.execution_id);
    await until(`${key} has no run`, async () => !(await api.get(`/v1/schedules/${key}`)).running);
  }

  // An index, webhooks.
  await api.post("/v1/indexes/handbook/documents", {
    documents: [
      {
        id: "leave.md",
        text: "# Leave\n\nParental leave is twelve months.",
        format: "markdown",
        metadata: { lang: "en" },
      },
      {
        id: "travel.md",
        text: "# Travel\n\nBook second class below four hours.",
        format: "markdown",
        metadata: { lang: "en", team: "people" },
      },
    ],
  });
  made.webhook = (
    await api.post("/v1/webhooks", {
      url: "https://hooks.example.invalid/longhaul",
      description: "Pages the desk on call",
      types: ["execution.failed", "approval.requested"],
    })
  ).id;
  await api.post(`/v1/webhooks/${made.webhook}/test`);

  // What the screens need to have happened.
  for (const id of [...made.invoices, made.mail, made.tools, ...made.failed, made.hostile, made.budget, made.skill])
    await ended(id);
  await until("approvals wait", async () => (await api.get("/v1/approvals?state=waiting")).approvals.length >= 3);
  await until("questions wait", async () => (await api.get("/v1/questions?state=waiting")).questions.length >= 3);
  await until(
    "the project waits at its gate",
    async () => (await api.get(`/v1/projects/${made.project}`)).pause_reason === "gate",
  );
  await until(
    "a plan waits",
    async () => (await api.get(`/v1/projects/${made.planned}`)).status === "awaiting_approval",
  );
  await until("memory was written", async () => (await api.get("/v1/memory?agent=support")).items.length);
  made.approval = (await api.get("/v1/approvals?state=waiting")).approvals[0].id;
  made.question = (await api.get("/v1/questions?state=waiting")).questions[0].id;
  return made;
};

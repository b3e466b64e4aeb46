// What people do on the page. Each flow gets a tab that is signed in, and fails with an exception.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { until } from "./seed.mjs";

const SOON = 30000;
/** A screen that takes long to read is sent again less often: a busy machine takes its time. */
const LIVE = 90000;
/** Waits until the element shows a text. */
const shows = (page, selector, text, timeout = SOON) =>
  page.locator(selector).filter({ hasText: text }).first().waitFor({ timeout });
const toast = (page, text) => shows(page, ".toast", text);
const confirm = async (page, text, yes) => {
  await shows(page, "dialog[open] h2", text);
  await page.locator("dialog[open]").getByRole("button", { name: yes, exact: true }).click();
};
/** The page's copy is live when its stream is open: only then are changes sent to it. */
const live = (page) => page.locator(".live.on").waitFor({ timeout: SOON });

/** What waits for changes that the server sends. */
export const liveFlows = {
  async "a run is followed live, without losing the place"(page, { robot }) {
    const { id } = await robot.post("/v1/executions", { agent: "slow-reader", input: { prompt: "Read." } });
    await page.setViewportSize({ width: 1280, height: 500 });
    await page.goto(`/executions/${id}`);
    await live(page);
    await page.evaluate(() => {
      window.sameTab = true;
    });
    await page.locator("#events summary").click();
    // The note above goes away, so what is read stays in its place on the screen.
    await page.evaluate(() => window.scrollTo(0, 150));
    const look = () =>
      page.evaluate(() => ({
        scrolled: scrollY,
        top: Math.round(document.querySelector(".stats").getBoundingClientRect().top),
        rows: document.querySelectorAll("#events tbody tr").length,
        isSame: window.sameTab,
        isOpen: document.querySelector("#events").open,
      }));
    const before = await look();
    await shows(page, ".head .chip", "FINISHED", LIVE);
    const after = await look();
    assert.ok(
      after.rows > before.rows && after.isSame && after.isOpen && after.scrolled > 0,
      JSON.stringify([before, after]),
    );
    assert.ok(Math.abs(after.top - before.top) <= 2, JSON.stringify([before, after]));
    await page.setViewportSize({ width: 1280, height: 900 });
  },

  async "a session is a chat"(page, { made }) {
    await page.goto(`/sessions/${made.session}`);
    await live(page);
    await page.evaluate(() => {
      window.sameTab = true;
    });
    await page.getByLabel("Message").fill("Is a new lid <b>included</b>?");
    await page.getByRole("button", { name: "Send" }).click();
    await shows(page, ".said.user", "Is a new lid <b>included</b>?", LIVE);
    await shows(page, ".said.assistant", "You wrote: Is a new lid <b>included</b>?", LIVE);
    assert.equal(await page.evaluate(() => window.sameTab), true);
    assert.equal(await page.locator(".said b").filter({ hasText: "included" }).count(), 0);
  },
};

export const flows = {
  async "filters live in the address, and back returns"(page) {
    await page.goto("/executions");
    const all = await page.locator("tr[data-row]").count();
    await page.getByRole("link", { name: /^FAILED/ }).click();
    await page.waitForURL(/status=FAILED/);
    assert.ok((await page.locator("tr[data-row]").count()) < all);
    await page.getByLabel("Definition").fill("translation");
    await page.getByRole("button", { name: "Filter" }).click();
    await page.waitForURL((url) => url.search === "?status=FAILED&definition=translation");
    const statuses = await page.locator("tr[data-row]").evaluateAll((rows) => rows.map((row) => row.dataset.status));
    assert.ok(statuses.length >= 4 && statuses.every((status) => status === "FAILED"), String(statuses));
    await page.getByLabel("Metadata").fill("customer=kitchenware");
    await page.getByRole("button", { name: "Filter" }).click();
    await page.waitForURL(/metadata\.customer=kitchenware/);
    await shows(page, ".empty", "No executions.");
    await page.goBack();
    await page.waitForURL((url) => url.search === "?status=FAILED&definition=translation");
    assert.equal(await page.getByLabel("Definition").inputValue(), "translation");
    await page.goto("/executions?metadata.customer=kitchenware");
    assert.equal(await page.locator("tr[data-row]").count(), 1);
    await page.goto("/executions");
    await page.getByLabel("Created before").fill("2001-02-03T04:05");
    await page.getByRole("button", { name: "Filter" }).click();
    await page.waitForURL(/created_before=2001-02-0/);
    assert.equal(await page.getByLabel("Created before").inputValue(), "2001-02-03T04:05");
  },

  async "many failed executions are retried after a preview"(page, { api }) {
    await page.goto("/executions?definition=translation");
    const bulk = page.locator(".bulk");
    assert.ok(await bulk.isHidden());
    const ids = await page
      .locator("tr[data-status=FAILED]")
      .evaluateAll((rows) => rows.slice(0, 2).map((row) => row.dataset.row));
    for (const id of ids) await page.locator(`input[value="${id}"]`).check();
    await shows(page, ".bulk", "2 selected");
    await bulk.getByRole("button", { name: "Retry" }).click();
    await shows(page, "dialog[open] h2", "Retry 2 executions (2 FAILED)?");
    await page.keyboard.press("Escape");
    assert.equal(
      (await api.get("/v1/executions?definition=translation&limit=100")).executions.filter((e) => e.retry_of).length,
      0,
    );
    await bulk.getByRole("button", { name: "Retry" }).click();
    await confirm(page, "Retry 2 executions", "Retry");
    await toast(page, "2 done");
    const retried = (await api.get("/v1/executions?definition=translation&limit=100")).executions
      .map((e) => e.retry_of)
      .filter(Boolean);
    assert.deepEqual(new Set(retried), new Set(ids));
    assert.ok(await bulk.isHidden());
  },

  async "a call is approved with other arguments"(page, { api, made }) {
    await page.goto("/");
    await page
      .getByRole("link", { name: /^Approve mcp__/ })
      .first()
      .click();
    await page.waitForURL(/\/approvals\//);
    const id = page.url().split("/").pop();
    const { execution_id: execution, arguments: proposed } = await api.get(`/v1/approvals/${id}`);
    await page.getByText("Approve with other arguments").click();
    const form = page.locator("form", { has: page.locator("textarea[name=arguments]") }).first();
    await form.locator("textarea").fill("{ no JSON");
    await form.getByRole("button").click();
    await shows(page, "label .wrong", "This is not JSON");
    await form.locator("textarea").fill(JSON.stringify({ ...proposed, title: 7 }));
    await form.getByRole("button").click();
    await shows(page, ".wrong", "title");
    await form.locator("textarea").fill(JSON.stringify({ ...proposed, title: "Edited title" }));
    await form.getByLabel("Reason").fill("a better name");
    await form.getByRole("button").click();
    await shows(page, ".head .chip", "edited");
    await shows(page, ".note", "a better name");
    await until("it ends", async () => (await api.get(`/v1/executions/${execution}`)).finished_at);
    const { entries } = await api.get(`/v1/executions/${execution}/ledger`);
    assert.equal(entries.at(-1).state, "done");
    const other = (await api.get("/v1/approvals?state=waiting")).approvals[0];
    await page.goto(`/approvals/${other.id}`);
    await page.getByLabel("Reason").first().fill("not now");
    await page.getByRole("button", { name: "Reject" }).click();
    await shows(page, ".head .chip", "rejected");
    assert.equal((await api.get(`/v1/approvals/${other.id}`)).reason, "not now");
    made.decided = id;
  },

  async "a question is answered through its form"(page, { api }) {
    await page.goto("/questions?state=waiting");
    await page
      .getByRole("link", { name: /^For how many people/ })
      .last()
      .click();
    await page.waitForURL(/\/questions\//);
    const id = page.url().split("/").pop();
    await page.getByLabel(/^people/).fill("9999");
    await page.getByRole("button", { name: "Answer" }).click();
    await shows(page, "label:has([name='answer.people']) .wrong", "maximum of 500");
    await shows(page, "label:has([name='answer.food']) .wrong", "is required");
    await page.getByLabel(/^people/).fill("12");
    await page.getByLabel(/^food/).selectOption("vegetarian");
    await page.getByLabel("music").check();
    await page.getByRole("button", { name: "Answer" }).click();
    await page.waitForURL(/\/executions\//);
    await shows(page, ".head .chip", "FINISHED", LIVE);
    const { answer } = await api.get(`/v1/questions/${id}`);
    assert.deepEqual(answer, { people: 12, food: "vegetarian", music: true });
  },

  async "a form made from a schema shows violations at their fields"(page, { url, api, program, folder }) {
    await page.goto("/new");
    await page.getByLabel("Definition").selectOption("travel-request");
    await page.getByLabel(/^days/).fill("99");
    await page.getByLabel("Cost centre").fill("x");
    await page.getByRole("button", { name: "Submit" }).click();
    await shows(page, "label:has([name='input.days']) .wrong", "99 is greater than the maximum of 30");
    await shows(page, "label:has([name='input.code']) .wrong", "does not match");
    await shows(page, "label:has([name='input.traveller']) .wrong", "is required");
    assert.equal(await page.evaluate(() => document.activeElement.getAttribute("aria-invalid")), "true");
    await page.getByLabel(/^Traveller/).fill("O'Neil");
    await page.getByLabel(/^days/).fill("3");
    await page.getByLabel("Cost centre").fill("ABC-1234");
    await page.getByLabel(/^class/).selectOption("second");
    await page.getByLabel("wanted").uncheck();
    const input = { class: "second", days: 3, traveller: "O'Neil", code: "ABC-1234", hotel: { wanted: false } };
    // The lines for a shell do the same.
    const line = async (id) => (await page.locator(id).textContent()).trim();
    const env = { ...process.env, LONGHAUL_URL: url, LONGHAUL_API_KEY: api.key };
    const posted = JSON.parse(execFileSync("sh", ["-c", await line("#as-curl")], { env }));
    assert.deepEqual(posted.input, input);
    const cli = (await line("#as-cli")).replace(/^longhaul /, `'${program}' --json `);
    const waited = execFileSync("sh", ["-c", cli], { env, cwd: folder });
    assert.match(String(waited), /"status":\s*"FINISHED"/);
    await page.getByRole("button", { name: "Submit" }).click();
    await page.waitForURL(/\/executions\//);
    await shows(page, ".head .chip", "FINISHED", LIVE);
    assert.deepEqual((await api.get(`/v1${new URL(page.url()).pathname}`)).input, input);
    // The same again, edited as JSON.
    await page.getByRole("link", { name: "Run edited" }).click();
    const json = page.getByLabel("Input as JSON");
    await json.waitFor();
    assert.deepEqual(JSON.parse(await json.inputValue()), input);
  },

  async "the tenant is held, and the hold is undone"(page, { api, robot }) {
    await page.goto("/limits");
    await page.getByRole("button", { name: "Hold the tenant" }).click();
    await confirm(page, "Hold all executions of this tenant?", "Hold everything");
    await toast(page, "Everything is held.");
    const { id } = await robot.post("/v1/executions", { definition: "mail-triage", input: { mail: "Subject: Held" } });
    await until("it is held", async () => (await api.get(`/v1/executions/${id}`)).wait_reason === "concurrency_limit");
    await page.goto(`/executions/${id}`);
    await shows(page, ".note.wait", "tenant");
    await page.goto("/limits");
    const row = page.locator("tr").filter({ has: page.locator("code", { hasText: /^tenant$/ }) });
    await row.getByRole("button", { name: "Undo the hold" }).click();
    await confirm(page, "Remove this limit?", "Remove");
    await toast(page, "Removed.");
    await until("it runs", async () => (await api.get(`/v1/executions/${id}`)).status === "FINISHED");
    // What runs is cancelled from the list.
    const slow = await robot.post("/v1/executions", { agent: "slow-reader", input: { prompt: "Read." } });
    await until("it is claimed", async () => (await api.get(`/v1/executions/${slow.id}`)).status === "IN_PROGRESS");
    await page.goto("/executions?status=IN_PROGRESS&agent=slow-reader");
    await page.getByLabel("Select all").check();
    await page.locator(".bulk").getByRole("button", { name: "Cancel" }).click();
    await confirm(page, "Cancel 1 executions (1 IN_PROGRESS)?", "Cancel");
    await toast(page, "1 done");
    await until(
      "it is cancelled",
      async () => (await api.get(`/v1/executions/${slow.id}`)).failure?.code === "cancelled",
    );
  },

  async "a view is saved, used and removed"(page) {
    await page.goto("/executions?status=FAILED&agent=translator");
    await page.getByLabel("Name of this view").fill("Broken <i>translations</i>");
    await page.getByRole("button", { name: "Save view" }).click();
    await page.goto("/executions");
    await page.getByRole("link", { name: "Broken <i>translations</i>" }).click();
    await page.waitForURL(/status=FAILED&agent=translator/);
    await page.getByRole("button", { name: /^Remove the view/ }).click();
    assert.equal(await page.locator("#views a").count(), 0);
    await page.reload();
    assert.equal(await page.locator("#views a").count(), 0);
  },

  async "keys lead to the screens"(page) {
    await page.goto("/");
    for (const [key, path] of [
      ["e", "/executions"],
      ["a", "/approvals"],
      ["q", "/questions"],
      ["s", "/sessions"],
      ["p", "/projects"],
      ["c", "/schedules"],
      ["w", "/workers"],
      ["n", "/new"],
      ["o", "/"],
    ]) {
      await page.keyboard.press("g");
      await page.keyboard.press(key);
      await page.waitForURL((url) => url.pathname === path);
    }
    await page.keyboard.press("?");
    await page.locator("dialog#keys-help[open]").waitFor();
    await page.keyboard.press("Escape");
    await page.locator("dialog#keys-help[open]").waitFor({ state: "hidden" });
    await page.keyboard.press("/");
    assert.equal(await page.evaluate(() => document.activeElement.name), "q");
    await page.keyboard.type("translation");
    await page.keyboard.press("Enter");
    await page.waitForURL(/definition=translation/);
    await page.goto("/");
    await page.keyboard.press("Tab");
    assert.equal(await page.evaluate(() => document.activeElement.className), "skip");
  },

  async "the theme is switched and kept"(page) {
    await page.goto("/");
    const ground = () => page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
    const light = await ground();
    await page.getByRole("button", { name: "Light or dark" }).click();
    const dark = await ground();
    assert.notEqual(light, dark);
    await page.goto("/limits");
    assert.equal(await ground(), dark);
    await page.getByRole("button", { name: "Light or dark" }).click();
    assert.equal(await ground(), light);
  },

  async "hostile texts are shown and do nothing"(page, { made, api }) {
    const asks = (await api.get("/v1/questions?state=waiting")).questions;
    const ask = asks.find((question) => question.execution_id === made.hostileAsk).id;
    for (const path of [
      "/",
      "/agents",
      "/agents/hostile",
      "/definitions",
      "/definitions/hostile",
      `/executions/${made.hostile}`,
      `/executions/${made.hostile}/messages`,
      `/executions/${made.hostileAsk}`,
      `/executions/${made.hostileAsk}/messages`,
      "/questions",
      `/questions/${ask}`,
      "/sessions",
      `/sessions/${made.hostileSession}`,
      "/usage",
      `/new?definition=${encodeURIComponent("<script>window.hacked=3</script>")}`,
      "/executions?agent=%22%3E%3Cscript%3Ewindow.hacked%3D4%3C/script%3E",
    ]) {
      await page.goto(path);
      assert.equal(await page.evaluate(() => window.hacked), undefined, path);
      assert.equal(await page.locator("main img[src=x], main script").count(), 0, path);
    }
    // The name of the tool that the model called, as text.
    await page.goto(`/executions/${made.hostileAsk}`);
    await shows(page, "main", "<script>window.hacked=1</script>");
    await page.goto(`/executions/${made.hostile}`);
    await shows(page, "#output-text", "<script>window.hacked=1</script>");
    await page.goto(`/new?like=${made.hostile}`);
    await page.getByLabel("Input as JSON").waitFor();
    assert.equal(await page.evaluate(() => window.hacked), undefined);
  },
};

/** Properties that write to what all objects inherit, where a form follows names. */
const INHERITED = {
  type: "object",
  properties: Object.fromEntries([
    ...["api", "wrap", "body", "then", "shows"].map((name) => [name, { type: "string", default: "POST /v1/keys" }]),
    ["payload", { type: "string", default: '{"name":"made-by-a-schema","scopes":["admin"]}' }],
  ]),
};
const NAMES = ["__proto__", "constructor", "prototype", "toString", "a.b"];

export const namesFlows = {
  async "names of a schema reach nothing else of the page"(page, { api }) {
    const properties = JSON.parse(`{${NAMES.map((name) => `"${name}":${JSON.stringify(INHERITED)}`).join(",")}}`);
    const inner = (name) => ({ type: "object", properties: JSON.parse(`{"${name}":${JSON.stringify(INHERITED)}}`) });
    properties.constructor.properties.prototype = INHERITED;
    properties.deep = inner("__proto__");
    properties.inherited = { $ref: "#/properties/__proto__" };
    const input_schema = { type: "object", properties };
    await api.put("/v1/definitions/names", { key: "names", name: "Names", agent_key: "support", input_schema });
    const wrote = [];
    const note = (request) => request.method() === "GET" || wrote.push(request);
    page.on("request", note);
    await page.goto("/new?definition=names");
    await page.locator('[name="input.__proto__.api"]').waitFor();
    assert.equal(await page.evaluate(() => ({}).api ?? ({}).payload ?? document.body.dataset.api), undefined);
    // A form of the page that asks nothing of the API.
    await page.locator(".find input").fill("names");
    await page.locator(".find input").press("Enter");
    await page.waitForLoadState();
    assert.deepEqual(wrote, [], "no form writes what a schema says");
    await page.goto("/new?definition=names");
    await page.locator('[name="input.__proto__.api"]').waitFor();
    await page.locator("#new").getByRole("button", { name: "Submit" }).click();
    await page.waitForURL(/\/executions\/[0-9a-f-]+$/);
    assert.equal(wrote.length, 1);
    const { input } = JSON.parse(wrote[0].postData());
    assert.deepEqual(Object.keys(input).sort(), [...NAMES, "deep", "inherited"].sort(), "names are members, also with dots");
    page.off("request", note);
  },

  async "a form of millions of fields is written as JSON"(page, { api }) {
    const level = (n) => ({ type: "object", properties: { a: { $ref: `#/$defs/l${n}` }, b: { $ref: `#/$defs/l${n}` } } });
    const $defs = Object.fromEntries(Array.from({ length: 22 }, (_, n) => [`l${n}`, level(n + 1)]));
    $defs.l22 = { type: "string" };
    const wide = Object.fromEntries(Array.from({ length: 2000 }, (_, n) => [`f${n}`, { type: "string" }]));
    const self = { type: "object", properties: { next: { $ref: "#" }, name: { type: "string" } } };
    const schemas = { deep: { ...level(0), $defs }, wide: { type: "object", properties: wide }, self };
    for (const [name, input_schema] of Object.entries(schemas)) {
      await api.put(`/v1/definitions/${name}`, { key: name, name, agent_key: "support", input_schema });
      const began = Date.now();
      await page.goto(`/new?definition=${name}`);
      await page.locator("#fields [name], #raw textarea:enabled").first().waitFor();
      const { count, longest } = await page.evaluate(async () => {
        const before = performance.now();
        await new Promise((resolve) => setTimeout(resolve, 0));
        return { count: document.querySelectorAll("#fields [name]").length, longest: performance.now() - before };
      });
      assert.ok(count <= 201 && longest < 1000, `${name}: ${count} fields, ${longest} ms, ${Date.now() - began} ms`);
    }
  },
};

export const lastFlows = {
  async "signing out ends the session"(page, { url, api }) {
    await page.goto("/keys");
    const cookies = await page.context().cookies();
    await page.getByRole("button", { name: "Sign out" }).click();
    await page.waitForURL(/\/login|\/$/);
    await page.context().addCookies(cookies);
    const answer = await page.request.get("/v1/whoami");
    assert.equal(answer.status(), 401, "a copy of the cookie is of no use");
    // Where no local key signs in by itself, the form asks for one.
    await page.goto("/login?problem=invalid_api_key&next=%2Fagents");
    await shows(page, "[role=alert]", "unknown, expired or revoked");
    await page.getByLabel("API key").fill(api.key);
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.waitForURL(/\/agents$/);
  },
};

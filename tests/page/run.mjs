// Tests the page in a browser: `node run.mjs URL KEY ROBOT_KEY FOLDER PROGRAM CHROMIUM`. See seed.mjs for the first
// four; PROGRAM is `longhaul`. Prints what it did, and ends with 1 at the first failure.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { open, screens, start } from "./browser.mjs";
import { flows, lastFlows, liveFlows, namesFlows } from "./flows.mjs";
import { answer } from "./questions.mjs";
import { client, seed } from "./seed.mjs";

const [url, key, robotKey, folder, program, chromium] = process.argv.slice(2);
const MOST_SCRIPT_BYTES = 100 * 1024;
const [api, robot] = [client(url, key), client(url, robotKey)];
const began = Date.now();
const say = (text) => console.log(`${((Date.now() - began) / 1000).toFixed(1)} s  ${text}`);

/** No finding of axe that is serious or critical, in both themes. */
const accessible = async (page, made) => {
  const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
  const found = [];
  for (const [name, path] of [
    ...screens(made),
    ["refused", "/executions/00000000-0000-7000-8000-000000000000"],
    ["login", "/login?problem=invalid_api_key"],
  ]) {
    for (const colorScheme of ["light", "dark"]) {
      await page.emulateMedia({ colorScheme });
      if (colorScheme === "light") {
        await page.goto(path);
        await page.evaluate(axe);
      }
      // Findings depend on the theme by their contrast only.
      const options = colorScheme === "light" ? {} : { runOnly: ["color-contrast"] };
      const { violations } = await page.evaluate(
        (options) => window.axe.run(document, { ...options, resultTypes: ["violations"] }),
        options,
      );
      const serious = violations.filter((violation) => ["serious", "critical"].includes(violation.impact));
      found.push(
        ...serious.map(
          (violation) =>
            `${name} (${colorScheme}): ${violation.id}: ${violation.nodes
              .slice(0, 3)
              .map((node) => `${node.html.slice(0, 200)} ${node.any[0]?.message ?? ""}`)
              .join("\n  ")}`,
        ),
      );
    }
  }
  assert.ok(!found.length, found.join("\n"));
};

/** Scripts of the page that asks for most. */
const scriptBytes = async (page) => {
  await page.goto("/new");
  const sources = await page.locator("script[src]").evaluateAll((scripts) => scripts.map((script) => script.src));
  const sizes = await Promise.all(
    sources.map(async (source) => (await (await fetch(source)).arrayBuffer()).byteLength),
  );
  return sizes.reduce((sum, size) => sum + size, 0);
};

const made = await seed(api, robot, folder);
say("seeded");
const browser = await start(chromium);
/** A signed-in tab, and a check of its console: browsers report refusals that a flow provoked; more is a defect. */
const tab = async () => {
  const problems = [];
  const page = await open(browser, url, problems);
  await page.goto("/");
  const clean = (name) => {
    const wrong = problems.splice(0).filter((problem) => !/status of (422|401|404)/.test(problem));
    assert.ok(!wrong.length, `${name}: ${wrong.join("\n")}`);
    say(name);
  };
  return { page, clean };
};
const look = async () => {
  const { page, clean } = await tab();
  const bytes = await scriptBytes(page);
  assert.ok(bytes <= MOST_SCRIPT_BYTES, `${bytes} bytes of scripts`);
  say(`${bytes} bytes of scripts`);
  await accessible(page, made);
  clean("axe finds nothing serious");
};
const act = async (chosen) => {
  const { page, clean } = await tab();
  for (const [name, flow] of Object.entries(chosen)) {
    await flow(page, { api, robot, made, url, program, folder }).catch((error) => {
      throw new Error(`${name} (${page.url()})`, { cause: error });
    });
    clean(name);
  }
  return page;
};
try {
  // A busy server sends changes late, so what is followed live comes before axe's work.
  await act(liveFlows);
  const [page] = await Promise.all([act(flows), look()]);
  for (const [question, n] of Object.entries(await answer(page, made))) say(`${n} clicks: ${question}`);
  await act(namesFlows);
  await act(lastFlows);
} finally {
  await browser.close();
}

// Pictures of every screen, as in docs/page: `node screenshots.mjs URL MADE_JSON CHROMIUM FOLDER [light|dark|phone] [NAME…]`.
// MADE_JSON is what start.mjs printed.
import { mkdirSync, readFileSync } from "node:fs";
import { open, screens, start } from "./browser.mjs";

const [url, made, program, folder, only, ...names] = process.argv.slice(2);
const looks = { light: {}, dark: { colorScheme: "dark" }, phone: { viewport: { width: 390, height: 844 }, isMobile: true, hasTouch: true } };
mkdirSync(folder, { recursive: true });
const browser = await start(program);
const problems = [];
for (const look of only ? [only] : Object.keys(looks)) {
  const page = await open(browser, url, problems, looks[look]);
  for (const [name, path] of screens(JSON.parse(readFileSync(made, "utf8")))) {
    if (names.length && !names.includes(name)) continue;
    const answer = await page.goto(path);
    if (answer.status() !== 200) problems.push(`${path}: ${answer.status()}`);
    await page.waitForTimeout(400); // live light, fonts, forms from schemas
    const overflow = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    if (overflow > 0) problems.push(`${path} (${look}) is ${overflow} px too wide`);
    await page.screenshot({ path: `${folder}/${name}-${look}.png`, fullPage: true });
  }
}
await browser.close();
for (const problem of new Set(problems)) console.error(problem);
process.exitCode = problems.length ? 1 : 0;

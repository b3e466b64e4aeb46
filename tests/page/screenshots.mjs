// Makes the pictures of docs/page: `node screenshots.mjs URL MADE_JSON CHROMIUM FOLDER [all]`. MADE_JSON is what
// start.mjs printed. With `all`, every screen in every look, to be looked at. Ends with 1 if a screen does not fit its
// width or its console has an error.
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { open, screens, start } from "./browser.mjs";

const [url, made, program, folder, all] = process.argv.slice(2);
const SOME = ["overview", "executions", "execution", "approval", "session", "project"];
const LOOKS = {
  light: [{}, null],
  dark: [{ colorScheme: "dark" }, SOME],
  phone: [{ viewport: { width: 390, height: 844 }, isMobile: true, hasTouch: true }, SOME],
};
const MOST_HEIGHT = 1500;
const MOST_BYTES = 120 * 1024;

mkdirSync(folder, { recursive: true });
const browser = await start(program);
const problems = [];
const painter = await (await browser.newContext()).newPage();
/** PNG to WebP, by the browser itself. */
const webp = async (png, quality) => {
  const data = await painter.evaluate(
    async ([png, quality]) => {
      const image = new Image();
      image.src = `data:image/png;base64,${png}`;
      await image.decode();
      const canvas = Object.assign(document.createElement("canvas"), { width: image.width, height: image.height });
      canvas.getContext("2d").drawImage(image, 0, 0);
      return canvas.toDataURL("image/webp", quality).split(",")[1];
    },
    [png.toString("base64"), quality],
  );
  return Buffer.from(data, "base64");
};
for (const [look, [options, some]] of Object.entries(LOOKS)) {
  const page = await open(browser, url, problems, options);
  await page.goto("/");
  for (const [name, path] of screens(JSON.parse(readFileSync(made, "utf8")))) {
    if (some && !all && !some.includes(name)) continue;
    const answer = await page.goto(path);
    if (answer.status() !== 200) problems.push(`${path}: ${answer.status()}`);
    // Times are shown by a script, forms are made from schemas that it reads.
    await page.waitForLoadState("load");
    if (name === "new") await page.locator("[name='input.days']").waitFor();
    const { wide, height, width } = await page.evaluate(() => {
      const root = document.documentElement;
      return { wide: root.scrollWidth - root.clientWidth, height: root.scrollHeight, width: root.clientWidth };
    });
    if (wide > 0) problems.push(`${path} (${look}) is ${wide} px too wide`);
    const png = await page.screenshot({
      fullPage: true,
      clip: { x: 0, y: 0, width, height: Math.min(height, MOST_HEIGHT) },
    });
    let picture = await webp(png, 0.82);
    if (picture.length > MOST_BYTES) picture = await webp(png, 0.5);
    writeFileSync(`${folder}/${name}-${look}.webp`, picture);
  }
}
await browser.close();
for (const problem of new Set(problems)) console.error(problem);
process.exitCode = problems.length ? 1 : 0;

// What the suites in JavaScript share: settings, checks, and the report.

import { isDeepStrictEqual } from "node:util";

export const settings = {
  url: process.env.LONGHAUL_URL?.replace(/\/$/, ""),
  key: process.env.LONGHAUL_API_KEY,
  stub: process.env.DOORS_STUB,
  agent: process.env.DOORS_AGENT ?? "agent:helper",
  model: process.env.DOORS_MODEL ?? "custom/stub",
};

const checks = [];

export function check(name, run) {
  checks.push({ name, run });
}

export function same(found, wanted) {
  if (!isDeepStrictEqual(found, wanted)) {
    throw new Error(`${JSON.stringify(found)}, not ${JSON.stringify(wanted)}`);
  }
}

export async function raises(kind, run) {
  try {
    await run();
  } catch (error) {
    if (error.constructor !== kind) throw error;
    return error;
  }
  throw new Error(`no ${kind.name}`);
}

// Requests that the model got whose last message of the user holds the text.
export async function asked(text) {
  const answer = await fetch(`${settings.stub}/count?of=${encodeURIComponent(text)}`);
  return (await answer.json()).count;
}

export async function main() {
  let failed = 0;
  for (const { name, run } of checks) {
    const since = Date.now();
    try {
      await run();
      console.log(`ok     ${name} (${((Date.now() - since) / 1000).toFixed(1)} s)`);
    } catch (error) {
      failed += 1;
      console.log(`FAILED ${name}\n${error.stack}`);
    }
  }
  console.log(`${checks.length} checks, ${failed} failed`);
  process.exit(failed ? 1 : 0);
}

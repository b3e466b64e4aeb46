// Questions that people have, each answered in at most three clicks from the overview.
import assert from "node:assert/strict";

const MOST = 3;

/** A visitor whose clicks are counted. */
class Counted {
  constructor(page) {
    this.page = page;
    this.clicks = 0;
  }

  async click(locator) {
    this.clicks += 1;
    await locator.first().click();
  }
  /** A link by its name, in the menu or in the content. */
  async menu(name) {
    await this.click(this.page.locator("nav.side").getByRole("link", { name, exact: true }));
  }
  async link(name) {
    await this.click(this.page.locator("main").getByRole("link", { name }));
  }
  /** Finding an id counts as one click, that on the box: the rest is typing. */
  async find(text) {
    await this.click(this.page.getByRole("searchbox"));
    await this.page.keyboard.type(text);
    await this.page.keyboard.press("Enter");
  }
  async sees(selector, text) {
    await this.page.locator(selector).filter({ hasText: text }).first().waitFor({ timeout: 30000 });
  }
}

const questions = {
  "Why does this execution wait, until when, and what would end it?": async (v, made) => {
    await v.find(made.starved);
    await v.sees(".note.wait", "no live worker serves mail-triage version 1 in the queue night");
    await v.sees(".note.wait", /ends when a worker starts that serves it, at the latest in \d+ d/);
  },
  "What waits for a person, and how long is left?": async (v) => {
    await v.sees("section:has(#people) tr", /Approve mcp__catalogue__upsert_product.*expires in \d+ min/s);
    await v.sees("section:has(#people) tr", /Answer a question.*expires in \d+ h/s);
  },
  "Which definition fails most of late, and with what message?": async (v) => {
    await v.sees("section:has(#failures) tbody tr", /max_retries_exceeded.*translation/s);
    await v.click(v.page.locator("section:has(#failures) tbody a"));
    await v.sees("tr[data-status=FAILED]", "Voilà, la traduction.");
  },
  "What did the tenant spend in the last day, and on which model? And yesterday?": async (v) => {
    await v.menu("Usage");
    await v.sees("section:has(#spend) tbody tr", /slow-reader|travel-desk|translator.*scripted.*\$/s);
    await v.link("Yesterday");
    await v.sees("main .button[aria-current]", "Yesterday");
  },
  "Which agent fails most this week, and with what message?": async (v) => {
    await v.menu("Usage");
    await v.link("This week");
    await v.sees("section:has(#agents) tbody tr:first-child", /translator.*max_retries_exceeded/s);
    await v.click(v.page.locator("section:has(#agents) tbody a").filter({ hasText: "max_retries_exceeded" }));
    await v.sees("tr[data-status=FAILED]", "translation");
  },
  "Why did this run fail, and what did the model answer?": async (v, made) => {
    await v.find(made.failed[0]);
    await v.sees(".note.bad", "max_retries_exceeded");
    await v.link("Messages and bodies");
    await v.sees(".said.assistant", "Voilà, la traduction.");
    await v.sees(".note", "The response is not valid JSON");
  },
  "What did each turn of this run cost, and what did it change outside?": async (v, made) => {
    await v.find(made.tools);
    await v.sees(".waterfall .turn .took", /\d+ tokens · \$/);
    await v.sees("section:has(#ledger) tr", /upsert_product.*idempotent.*done/s);
  },
  "Which schedule fails, with what, and does it still tick?": async (v) => {
    await v.link("Schedule broken");
    await v.sees(".note.wait", "Paused: failures");
    await v.sees("section:has(#history) tr", "max_retries_exceeded");
    await v.sees(".sub", "no next tick while it is paused");
  },
  "What is held, and how much waits because of it?": async (v) => {
    await v.menu("Holds and limits");
    await v.sees("main tbody tr", /definition:digest.*hold\s*0\s*\d+/s);
  },
  "Who decided about this call, and why?": async (v, made) => {
    await v.menu("Approvals");
    await v.click(v.page.locator(`#row-${made.decided} a`));
    await v.sees(".note", /edited by/);
    await v.sees(".note", "a better name");
  },
  "What was said in the newest session?": async (v) => {
    await v.menu("Sessions");
    await v.click(v.page.locator("main tbody a.mono").last());
    await v.sees(".said.user", "My kettle leaks.");
  },
  "What does the task of this project wait for?": async (v) => {
    await v.menu("Projects");
    await v.link("Heat pumps");
    await v.sees("#row-report", "compare");
    await v.sees(".note.wait", "waits at its gate");
  },
  "What changed in the newest version of this agent?": async (v) => {
    await v.menu("Agents");
    await v.link("support");
    await v.click(v.page.getByText("Changes since v1"));
    await v.sees(".diff del", "Answers customers, and remembers");
    await v.sees(".diff ins", "Answers customers by mail and chat");
  },
  "Why does nothing reach this webhook?": async (v) => {
    await v.menu("Webhooks");
    await v.link("https://hooks.example.invalid/longhaul");
    await v.sees("main tbody tr", "the connection failed");
  },
  "What does the agent remember of its users?": async (v) => {
    await v.menu("Memory");
    await v.page.getByLabel("Agent").fill("support");
    await v.click(v.page.getByRole("button", { name: "Filter" }));
    await v.sees("main tbody tr", "Please call me in the mornings only.");
  },
};

/** Answers each question; returns them with their clicks. */
export const answer = async (page, made) => {
  const counted = {};
  for (const [question, find] of Object.entries(questions)) {
    await page.goto("/");
    const visitor = new Counted(page);
    await find(visitor, made).catch((error) => {
      throw new Error(`${question} ${page.url()}: ${error.message}`);
    });
    assert.ok(visitor.clicks <= MOST, `${question} took ${visitor.clicks} clicks`);
    counted[question] = visitor.clicks;
  }
  assert.ok(Object.keys(counted).length >= 10);
  return counted;
};

// A browser, and the list of all screens.
import { chromium } from "playwright-core";

/** Each screen with real data: name and address. */
export const screens = (made) => [
  ["overview", "/"],
  ["executions", "/executions"],
  ["usage", "/usage"],
  ["execution", `/executions/${made.tools}`],
  ["execution-corrected", `/executions/${made.invoices[2]}`],
  ["execution-failed", `/executions/${made.failed[0]}`],
  ["execution-waiting", `/executions/${made.approvals[0]}`],
  ["messages", `/executions/${made.invoices[2]}/messages`],
  ["new", "/new?definition=travel-request"],
  ["approvals", "/approvals"],
  ["approval", `/approvals/${made.approval}`],
  ["questions", "/questions"],
  ["question", `/questions/${made.question}`],
  ["runs", "/runs"],
  ["run", "/runs/report-7"],
  ["sessions", "/sessions"],
  ["session", `/sessions/${made.session}`],
  ["projects", "/projects"],
  ["project", `/projects/${made.project}`],
  ["schedules", "/schedules"],
  ["schedule", "/schedules/broken"],
  ["definitions", "/definitions"],
  ["definition", "/definitions/travel-request"],
  ["agents", "/agents"],
  ["agent", "/agents/support"],
  ["skills", "/skills"],
  ["indexes", "/indexes"],
  ["index", "/indexes/handbook"],
  ["memory", "/memory?agent=support"],
  ["workers", "/workers"],
  ["limits", "/limits"],
  ["providers", "/providers"],
  ["quarantine", "/quarantine"],
  ["webhooks", "/webhooks"],
  ["webhook", `/webhooks/${made.webhook}`],
  ["keys", "/keys"],
  ["accounts", "/accounts"],
  ["audit", "/audit"],
];

const ARGS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

/** Starts the browser at `program`. */
export const start = (program) => chromium.launch({ executablePath: program, args: ARGS });

/** A new profile with a tab; `problems` gets every error of its console. */
export const open = async (browser, url, problems, options = {}) => {
  const context = await browser.newContext({ baseURL: url, viewport: { width: 1280, height: 900 }, ...options });
  const page = await context.newPage();
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) problems.push(`${page.url()}: ${message.text()}`);
  });
  page.on("pageerror", (error) => problems.push(`${page.url()}: ${error.message}`));
  return page;
};

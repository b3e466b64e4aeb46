// The page's behaviour: updates, forms that call the API, times. Every element states in attributes what it
// does; nothing here knows a screen.
"use strict";
// Names that tenants and models choose reach objects of this page. None of them changes what all objects inherit.
Object.freeze(Object.prototype);
(() => {
  const $ = (selector, root = document) => root.querySelector(selector);
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];

  // The attribute data-<name>, as a dataset would give it but for names that it inherits.
  const told = (node, name) => node.getAttribute(`data-${name}`);
  // A member of a value, but for those that it inherits.
  const own = (of, key) => (of !== null && of !== undefined && Object.hasOwn(of, key) ? of[key] : undefined);

  // Times: <time data-ago> is a distance from now, <time data-time> the visitor's clock.
  const units = [
    ["d", 86400],
    ["h", 3600],
    ["min", 60],
    ["s", 1],
  ];
  const distance = (seconds) => {
    const [name, size] = units.find(([, size]) => Math.abs(seconds) >= size) || units[3];
    const n = Math.round(Math.abs(seconds) / size);
    return seconds >= 0 ? `${n} ${name} ago` : `in ${n} ${name}`;
  };
  const two = (n) => String(n).padStart(2, "0");
  const showTimes = () => {
    const now = Date.now();
    for (const time of all("time[data-ago]")) {
      const text = distance((now - Date.parse(time.dateTime)) / 1000);
      if (time.textContent !== text) time.textContent = text;
    }
    for (const time of all("time[data-time]")) {
      const at = new Date(time.dateTime);
      const text =
        `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ` +
        `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
      if (time.textContent !== text) time.textContent = text;
    }
  };

  // Links to whole days: [data-since] and [data-until] are a number of days ago, or "week" for this week's Monday. They
  // begin at midnight in the visitor's zone; the server wrote midnight in UTC.
  const midnight = (back) => {
    const at = new Date();
    at.setHours(0, 0, 0, 0);
    at.setDate(at.getDate() - (back === "week" ? (at.getDay() + 6) % 7 : Number(back)));
    return at.toISOString();
  };
  const showDays = () => {
    for (const link of all("a[data-since]")) {
      const to = new URL(link.href);
      for (const name of ["since", "until"]) {
        const back = told(link, name);
        if (back) to.searchParams.set(name, midnight(back));
      }
      link.href = to.href;
      const isShown = to.search === location.search;
      link.classList.toggle("primary", isShown);
      if (isShown) link.setAttribute("aria-current", "true");
    }
  };

  // Updates: the server sends the content again when it has changed; what the visitor edits or selected stays.
  let stream = null;
  const isBusy = () => $("dialog[open]") || $("main [data-dirty]");
  const update = (html) => {
    if (isBusy()) return;
    const main = $("main");
    const checked = new Set(all("input[type=checkbox][name]:checked", main).map((box) => box.value));
    Idiomorph.morph(main, html, {
      morphStyle: "innerHTML",
      callbacks: {
        beforeNodeMorphed: (old) =>
          !(
            old.nodeType === 1 &&
            ((old === document.activeElement && old.matches("input, textarea, select")) ||
              old.matches("form.filters, [data-keep]"))
          ),
        beforeAttributeUpdated: (name, node) => !(name === "open" && node.matches("details")),
      },
    });
    for (const box of all("input[type=checkbox][name]", main)) box.checked = checked.has(box.value);
    arrived(main);
  };
  const follow = () => {
    const light = $(".live");
    if (!light || stream || document.hidden) return;
    stream = new EventSource(location.pathname + location.search);
    stream.addEventListener("open", () => light.classList.add("on"));
    stream.addEventListener("error", () => light.classList.remove("on"));
    stream.addEventListener("main", (event) => update(event.data));
  };
  const rest = () => {
    if (stream) stream.close();
    stream = null;
    const light = $(".live");
    if (light) light.classList.remove("on");
  };
  document.addEventListener("visibilitychange", () => (document.hidden ? rest() : follow()));
  const refresh = async () => {
    const answer = await fetch(location.pathname + location.search, { headers: { accept: "text/html" } });
    const main = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main");
    if (main) {
      for (const of of all("main [data-dirty]")) of.removeAttribute("data-dirty");
      update(main.innerHTML);
    }
  };

  // Messages
  const say = (text) => {
    const toast = Object.assign(document.createElement("div"), {
      className: "toast",
      textContent: text,
      role: "status",
    });
    $(".toasts").append(toast);
    setTimeout(() => toast.remove(), 6000);
  };

  // Calls of the API
  const call = async (method, path, body) => {
    const answer = await fetch(path, {
      method,
      headers: body === undefined ? {} : { "content-type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    const text = await answer.text();
    let value = null;
    try {
      value = text ? JSON.parse(text) : null;
    } catch {
      /* not JSON */
    }
    if (!answer.ok)
      throw Object.assign(new Error((value && value.detail) || `${answer.status} ${answer.statusText}`), {
        problem: value,
      });
    return value;
  };

  // A form with data-api="POST /v1/…" sends its fields as JSON. A field's data-as says how: json, number, boolean, list.
  // Its place is data-path, a list of names as JSON, or its name with dots. Objects of a body inherit nothing.
  const empty = () => Object.create(null);
  const pathOf = (field) => (field.hasAttribute("data-path") ? JSON.parse(told(field, "path")) : field.name.split("."));
  const set = (body, path, value) => {
    const at = path.slice(0, -1).reduce((of, key) => (of[key] ??= empty()), body);
    at[path.at(-1)] = value;
  };
  const fieldValue = (field) => {
    if (told(field, "as") === "boolean") return field.checked;
    const text = field.value;
    if (text.trim() === "") return undefined;
    if (told(field, "as") === "number") return Number(text);
    if (told(field, "as") === "list") return text.split(/[\s,]+/).filter(Boolean);
    if (told(field, "as") === "json") {
      try {
        return JSON.parse(text);
      } catch (error) {
        throw Object.assign(new Error(`This is not JSON: ${error.message}`), { field });
      }
    }
    return text;
  };
  const bodyOf = (form, submitter) => {
    const body = empty();
    if (submitter?.name) set(body, pathOf(submitter), submitter.value);
    for (const field of form.elements) {
      if (!field.name || field.disabled || field.type === "submit" || (field.type === "radio" && !field.checked))
        continue;
      if (field.multiple) {
        const chosen = [...field.selectedOptions].map((option) => option.value);
        if (chosen.length) set(body, pathOf(field), chosen);
        continue;
      }
      const value = fieldValue(field);
      if (value !== undefined) set(body, pathOf(field), value);
    }
    return told(form, "wrap") ? (body[told(form, "wrap")] ?? empty()) : body;
  };
  // Violations are shown at their fields: /input/a/b belongs to the field named input.a.b, or to one of an object around
  // it.
  const showProblem = (form, error) => {
    for (const old of all(".wrong", form)) old.remove();
    for (const field of all("[aria-invalid]", form)) field.removeAttribute("aria-invalid");
    const note = (text, field) => {
      const wrong = Object.assign(document.createElement("p"), {
        className: "wrong",
        textContent: text,
        role: "alert",
      });
      if (field) {
        field.setAttribute("aria-invalid", "true");
        field.closest("label, .field, .row")?.append(wrong);
      } else form.append(wrong);
    };
    const violations = (error.problem && error.problem.errors) || [];
    let shown = 0;
    for (const violation of violations) {
      const path = violation.path
        .replace(/^\//, "")
        .split("/")
        .map((part) => part.replace(/~1/g, "/").replace(/~0/g, "~"));
      let [field, n] = [null, path.length + 1];
      while (n > 1 && !field) {
        n -= 1;
        field = form.elements.namedItem(path.slice(0, n).join("."));
        if (field instanceof RadioNodeList) field = field[0];
        if (field && (field.disabled || field.type === "hidden")) field = null;
      }
      const rest = (field ? path.slice(n) : path).join(".");
      note(rest ? `${rest}: ${violation.message}` : violation.message, field);
      shown += 1;
    }
    if (error.field) note(error.message, error.field);
    else if (!shown) note(error.message);
    $("[aria-invalid]", form)?.focus();
  };
  const fill = (text, value) =>
    text.replace(/\{([\w.]+)\}/g, (_, name) =>
      encodeURIComponent(name.split(".").reduce(own, value) ?? ""),
    );
  const send = async (form, submitter) => {
    let [method, path] = told(form, "api").split(" ");
    const fields = Object.fromEntries(
      [...form.elements]
        .filter((field) => field.name?.startsWith(":"))
        .map((field) => [field.name.slice(1), field.value]),
    );
    path = fill(path, fields);
    const buttons = all("button", form);
    try {
      const body = method === "DELETE" || told(form, "body") === "none" ? undefined : bodyOf(form, submitter);
      for (const name of Object.keys(fields)) if (body) delete body[":" + name];
      buttons.forEach((button) => {
        button.disabled = true;
      });
      const value = await call(method, path, body);
      form.removeAttribute("data-dirty");
      form.closest("dialog")?.close();
      if (told(form, "shows")) {
        const out = $(told(form, "shows"));
        if (out) {
          out.hidden = false;
          const at = $("[data-out]", out) || out;
          at.textContent = told(form, "out")
            ? told(form, "out").split(".").reduce(own, value)
            : JSON.stringify(value, null, 2);
        }
      }
      if (told(form, "then")) {
        location.href = fill(told(form, "then"), value || {});
        return;
      }
      say(told(form, "done") || "Done.");
      form.reset();
      await refresh();
      // What it set off shows soon, before the next update.
      for (const later of [1000, 3000])
        setTimeout(() => {
          if (!isBusy()) refresh();
        }, later);
    } catch (error) {
      showProblem(form, error);
    } finally {
      buttons.forEach((button) => {
        button.disabled = false;
      });
    }
  };
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.matches("form.filters")) {
      event.preventDefault();
      filter(form);
      return;
    }
    if (!told(form, "api")) return;
    event.preventDefault();
    if (told(form, "confirm") && !form.closest("dialog")) {
      confirmed(form);
      return;
    }
    send(form, event.submitter);
  });

  // A list's filter becomes its address, without empty fields. [data-metadata] holds key=value; [data-instant] shows the
  // hidden field of that name in the visitor's zone.
  const filter = (form) => {
    const query = new URLSearchParams();
    for (const field of form.elements) {
      const value = field.value.trim();
      if (field.name && value && (field.type !== "checkbox" || field.checked)) query.append(field.name, value);
      const [key, ...rest] = value.split("=");
      if (field.hasAttribute("data-metadata") && rest.length)
        query.append(`metadata.${key.trim()}`, rest.join("=").trim());
    }
    location.href = `${form.getAttribute("action") || location.pathname}?${query}`;
  };
  const showInstants = () => {
    for (const field of all("[data-instant]")) {
      const at = new Date(field.form.elements.namedItem(told(field, "instant")).value);
      if (!Number.isNaN(at.getTime()))
        field.value = new Date(at.getTime() - at.getTimezoneOffset() * 60000).toISOString().slice(0, 16);
    }
  };
  document.addEventListener("input", (event) => {
    const form = event.target.closest("form[data-api], form[data-guard]");
    if (form) form.setAttribute("data-dirty", "");
  });

  // Confirmation in a dialog of the page
  const confirmed = (form) =>
    ask(told(form, "confirm"), told(form, "yes") || $("button", form)?.textContent || "Yes").then((yes) => {
      if (yes) send(form);
    });
  const ask = (text, yes) =>
    new Promise((resolve) => {
      const dialog = document.createElement("dialog");
      const heading = Object.assign(document.createElement("h2"), { textContent: text });
      const row = Object.assign(document.createElement("form"), { method: "dialog", className: "actions form" });
      const no = Object.assign(document.createElement("button"), { value: "", textContent: "Keep as it is" });
      const ok = Object.assign(document.createElement("button"), {
        value: "yes",
        className: "primary",
        textContent: yes,
      });
      row.append(ok, no);
      dialog.append(heading, row);
      dialog.addEventListener("close", () => {
        resolve(dialog.returnValue === "yes");
        dialog.remove();
      });
      document.body.append(dialog);
      dialog.showModal();
    });

  // Many rows at once: [data-bulk="POST /v1/executions/{id}/cancel"] acts on the checked rows of its table.
  const chosenIds = () => all("main input[type=checkbox][name=chosen]:checked").map((box) => box.value);
  const showBulk = () => {
    const bar = $(".bulk");
    if (!bar) return;
    const n = chosenIds().length;
    bar.hidden = n === 0;
    const count = $("[data-count]", bar);
    if (count) count.textContent = String(n);
  };
  const bulk = async (button) => {
    const ids = chosenIds();
    const [method, path] = told(button, "bulk").split(" ");
    const statuses = new Map();
    for (const id of ids) {
      const status = $(`[data-row="${CSS.escape(id)}"]`)?.getAttribute("data-status") || "unknown";
      statuses.set(status, (statuses.get(status) || 0) + 1);
    }
    const preview = [...statuses].map(([status, n]) => `${n} ${status}`).join(", ");
    if (
      !(await ask(
        `${told(button, "verb")} ${ids.length} executions (${preview})? ${told(button, "effect")}`,
        told(button, "verb"),
      ))
    )
      return;
    let done = 0;
    const refused = new Map();
    for (const id of ids) {
      try {
        await call(method, fill(path, { id }), told(button, "json") ? JSON.parse(told(button, "json")) : undefined);
        done += 1;
      } catch (error) {
        const why = error.problem?.code || error.message;
        refused.set(why, (refused.get(why) || 0) + 1);
      }
    }
    for (const box of all("main table input[type=checkbox]:checked")) box.checked = false;
    showBulk();
    say([`${done} done`, ...[...refused].map(([why, n]) => `${n} refused: ${why}`)].join(", "));
    await refresh();
  };

  // What changed since another version: the lines that only one of both has.
  const showDiff = async (details) => {
    const out = $(".diff", details);
    if (out.childElementCount) return;
    const { spec } = await call("GET", told(details, "diff"));
    const [before, after] = [JSON.stringify(spec, null, 2).split("\n"), $("#spec-text").textContent.split("\n")];
    const lengths = Array.from({ length: before.length + 1 }, () => new Uint32Array(after.length + 1));
    for (let i = before.length - 1; i >= 0; i -= 1)
      for (let j = after.length - 1; j >= 0; j -= 1)
        lengths[i][j] =
          before[i] === after[j] ? lengths[i + 1][j + 1] + 1 : Math.max(lengths[i + 1][j], lengths[i][j + 1]);
    const line = (name, text) => out.append(Object.assign(document.createElement(name), { textContent: `${text}\n` }));
    let [i, j] = [0, 0];
    while (i < before.length || j < after.length) {
      if (i < before.length && j < after.length && before[i] === after[j]) {
        i += 1;
        j += 1;
      } else if (j >= after.length || (i < before.length && lengths[i + 1][j] >= lengths[i][j + 1])) {
        line("del", before[i]);
        i += 1;
      } else {
        line("ins", after[j]);
        j += 1;
      }
    }
    if (!out.childElementCount) out.textContent = "Nothing in the specification.";
  };
  document.addEventListener(
    "toggle",
    (event) => {
      if (event.target.matches?.("details[data-diff]") && event.target.open) showDiff(event.target);
    },
    true,
  );

  document.addEventListener("change", (event) => {
    const target = event.target;
    if (target.matches("[data-instant]"))
      target.form.elements.namedItem(told(target, "instant")).value = target.value
        ? new Date(target.value).toISOString()
        : "";
    if (target.matches("[data-check-all]"))
      for (const box of all("main input[name=chosen]")) box.checked = target.checked;
    if (target.matches("input[type=checkbox]")) showBulk();
    if (target.matches("form.filters select, form.filters input[type=checkbox]")) target.form.requestSubmit();
  });
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button, [data-row-link]");
    if (!button) return;
    if (told(button, "bulk")) bulk(button);
    if (told(button, "opens")) {
      const dialog = $(told(button, "opens"));
      dialog.showModal();
      $("input, textarea, select", dialog)?.focus();
    }
    if (button.hasAttribute("data-close")) button.closest("dialog").close();
    if (button.hasAttribute("data-copy")) {
      const of = told(button, "copy") ? $(told(button, "copy")).textContent : told(button, "text");
      await navigator.clipboard.writeText(of);
      say("Copied.");
    }
  });

  const arrived = (main) => {
    showTimes();
    showDays();
    showBulk();
    document.dispatchEvent(new CustomEvent("arrived", { detail: main }));
  };
  window.page = { call, say, refresh, told, own, empty, pathOf, set };
  document.addEventListener("DOMContentLoaded", () => {
    showInstants();
    arrived($("main"));
    setInterval(showTimes, 1000);
    follow();
  });
})();

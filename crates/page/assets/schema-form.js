// Forms from JSON Schemas: the input of a definition, and the answer to a question. What a schema asks beyond plain
// fields is written as JSON. The API checks the result; its violations appear at the fields.
"use strict";
(() => {
  const el = (name, of = {}, ...children) => {
    const node = Object.assign(document.createElement(name), of);
    node.append(...children);
    return node;
  };
  // Fields of one form. What lies deeper, or beyond, is written as JSON.
  const MAX_FIELDS = 200;
  const MAX_DEPTH = 6;
  const MAX_CHOICES = 500;
  const kind = (schema) => (Array.isArray(schema.type) ? schema.type.find((type) => type !== "null") : schema.type);

  // Properties of an object, required ones first.
  const ordered = (schema) => {
    const late = ([key]) => Number(!schema.required?.includes(key));
    return Object.entries(schema.properties).sort((a, b) => late(a) - late(b));
  };
  const resolved = (schema, root) => {
    if (typeof schema.$ref !== "string") return schema;
    const place = schema.$ref.replace(/^#\//, "").split("/");
    const parts = place.map((part) => part.replace(/~1/g, "/").replace(/~0/g, "~"));
    return { ...parts.reduce(page.own, root), ...schema, $ref: undefined };
  };
  const isGroup = (schema, path, budget) =>
    kind(schema) === "object" &&
    schema.properties &&
    path.length < MAX_DEPTH &&
    Object.keys(schema.properties).length <= budget.left;

  // A field for `schema` at `path`, a list of names. `budget` counts the fields that may still be made.
  const field = (path, label, schema, required, root, budget) => {
    schema = resolved(schema, root);
    const type = kind(schema);
    const name = path.join(".");
    const isTick = type === "boolean" && !schema.enum;
    const text = el(
      "label",
      { className: isTick ? "field tick" : "field" },
      `${schema.title || label}${required ? " *" : ""}`,
    );
    if (schema.description) text.append(el("span", { textContent: schema.description }));
    if (isGroup(schema, path, budget)) {
      budget.left -= Object.keys(schema.properties).length;
      const group = el("fieldset", { className: "form field" }, el("legend", { textContent: schema.title || label }));
      for (const [key, of] of ordered(schema))
        group.append(field([...path, key], key, of, schema.required?.includes(key), root, budget));
      return group;
    }
    let input;
    if (Array.isArray(schema.enum) && schema.enum.length <= MAX_CHOICES) {
      input = el(
        "select",
        { name },
        el("option", { value: "", textContent: required ? "choose" : "none" }),
        ...schema.enum.map((one) =>
          el("option", { value: typeof one === "string" ? one : JSON.stringify(one), textContent: String(one) }),
        ),
      );
      if (schema.enum.some((one) => typeof one !== "string")) input.dataset.as = "json";
    } else if (isTick) {
      input = el("input", { name, type: "checkbox" });
      input.dataset.as = "boolean";
    } else if (type === "integer" || type === "number") {
      input = el("input", { name, type: "number", step: type === "integer" ? "1" : "any" });
      if (schema.minimum !== undefined) input.min = schema.minimum;
      if (schema.maximum !== undefined) input.max = schema.maximum;
      input.dataset.as = "number";
    } else if (type === "string") {
      input =
        (schema.maxLength ?? 1000) > 200 && !schema.format && !schema.pattern && !schema.examples
          ? el("textarea", { name })
          : el("input", { name });
      if (schema.format === "date") input.type = "date";
      if (schema.pattern) input.title = `matches ${schema.pattern}`;
    } else {
      input = el("textarea", { name, placeholder: "JSON" });
      input.dataset.as = "json";
    }
    input.setAttribute("data-path", JSON.stringify(path));
    if (schema.default !== undefined) {
      if (isTick) input.checked = schema.default;
      else input.value = typeof schema.default === "string" ? schema.default : JSON.stringify(schema.default);
    }
    const example = schema.examples?.[0];
    if (example !== undefined && !input.value)
      input.placeholder = typeof example === "string" ? example : JSON.stringify(example);
    if (isTick) text.prepend(input);
    else text.append(input);
    return text;
  };
  // The fields of an object; of anything else one field.
  const fields = (name, schema) => {
    const budget = { left: MAX_FIELDS };
    if (!isGroup(schema, [name], budget)) return [field([name], name, schema, true, schema, budget)];
    budget.left -= Object.keys(schema.properties).length;
    return ordered(schema).map(([key, of]) =>
      field([name, key], key, of, schema.required?.includes(key), schema, budget),
    );
  };
  window.schemaForm = { fields };

  // New execution
  const start = () => {
    const form = document.getElementById("new");
    if (!form) return;
    const [place, raw, asJson, definition, agent] = ["fields", "raw", "as-json", "definition", "agent"].map((id) =>
      document.getElementById(id),
    );
    const text = raw.querySelector("textarea");
    const input = () => {
      const body = page.empty();
      for (const of of form.elements) {
        if (of.disabled || !(of.name === "input" || of.name?.startsWith("input."))) continue;
        let value = of.value;
        if (page.told(of, "as") === "boolean") value = of.checked;
        else if (value.trim() === "") continue;
        else if (page.told(of, "as") === "number") value = Number(value);
        else if (page.told(of, "as") === "json") {
          try {
            value = JSON.parse(value);
          } catch {
            continue;
          }
        }
        page.set(body, page.pathOf(of), value);
      }
      return body.input ?? page.empty();
    };
    const show = () => {
      const what = definition.value ? { definition: definition.value } : { agent: agent.value };
      const body = JSON.stringify({ ...what, input: input() });
      const quoted = (of) => `'${of.replaceAll("'", "'\\''")}'`;
      document.getElementById("as-curl").textContent =
        `curl -s ${location.origin}/v1/executions \\\n  -H "Authorization: Bearer $LONGHAUL_API_KEY" \\\n  -H 'Content-Type: application/json' \\\n  -d ${quoted(body)}`;
      document.getElementById("as-cli").textContent =
        `longhaul submit ${definition.value || `--agent ${agent.value || "…"}`} --input ${quoted(JSON.stringify(input()))} --wait`;
    };
    // `?like=ID`: the definition or agent and the input of an execution.
    const copy = async (id) => {
      const of = await page.call("GET", `/v1/executions/${encodeURIComponent(id)}`);
      definition.value = of.definition.key;
      if (!definition.value) agent.value = of.agent.key;
      asJson.checked = true;
      text.value = JSON.stringify(of.input, null, 2);
    };
    const build = async (keep) => {
      let schema = { type: "object" };
      if (definition.value) {
        const answer = await page.call("GET", `/v1/definitions/${encodeURIComponent(definition.value)}`);
        schema = answer.spec.input_schema ?? schema;
      }
      const plain = isGroup(schema, ["input"], { left: MAX_FIELDS });
      if (!plain) asJson.checked = true;
      const json = asJson.checked;
      if (json && keep) text.value = JSON.stringify(input(), null, 2);
      raw.hidden = !json;
      text.disabled = !json;
      place.hidden = json;
      place.replaceChildren(...(json ? [] : fields("input", schema)));
      for (const of of [definition, agent]) of.disabled = false;
      show();
    };
    definition.addEventListener("change", () => {
      if (definition.value) {
        agent.value = "";
        asJson.checked = false;
      }
      build(false);
    });
    agent.addEventListener("change", () => {
      if (agent.value) definition.value = "";
      build(false);
    });
    asJson.addEventListener("change", () => build(true));
    form.addEventListener("input", show);
    const like = new URLSearchParams(location.search).get("like");
    if (like) copy(like).then(() => build(false));
    else build(false);
  };

  // The answer to a question
  const answer = () => {
    const form = document.getElementById("answer");
    if (!form) return;
    const place = form.querySelector("[data-schema]");
    place.append(...fields("answer", JSON.parse(page.told(place, "schema"))));
  };
  document.addEventListener("DOMContentLoaded", () => {
    start();
    answer();
  });
})();

// Forms from JSON Schemas: the input of a definition, and the answer to a question. What a schema asks beyond plain
// fields is written as JSON. The API checks the result; its violations appear at the fields.
"use strict";
(() => {
  const el = (name, of = {}, ...children) => {
    const node = Object.assign(document.createElement(name), of);
    node.append(...children);
    return node;
  };
  const kind = (schema) => (Array.isArray(schema.type) ? schema.type.find((type) => type !== "null") : schema.type);

  // Properties of an object, required ones first.
  const ordered = (schema) => {
    const late = ([key]) => Number(!schema.required?.includes(key));
    return Object.entries(schema.properties).sort((a, b) => late(a) - late(b));
  };

  // A field for `schema` under the dotted `name`.
  const field = (name, label, schema, required, root) => {
    if (schema.$ref)
      schema = {
        ...schema.$ref
          .replace(/^#\//, "")
          .split("/")
          .reduce((of, key) => of?.[key], root),
        ...schema,
        $ref: undefined,
      };
    const type = kind(schema);
    const text = el(
      "label",
      { className: type === "boolean" && !schema.enum ? "field tick" : "field" },
      `${schema.title || label}${required ? " *" : ""}`,
    );
    if (schema.description) text.append(el("span", { textContent: schema.description }));
    if (type === "object" && schema.properties) {
      const group = el("fieldset", { className: "form field" }, el("legend", { textContent: schema.title || label }));
      for (const [key, of] of ordered(schema))
        group.append(field(`${name}.${key}`, key, of, schema.required?.includes(key), root));
      return group;
    }
    let input;
    if (schema.enum) {
      input = el(
        "select",
        { name },
        el("option", { value: "", textContent: required ? "choose" : "none" }),
        ...schema.enum.map((one) =>
          el("option", { value: typeof one === "string" ? one : JSON.stringify(one), textContent: String(one) }),
        ),
      );
      if (schema.enum.some((one) => typeof one !== "string")) input.dataset.as = "json";
    } else if (type === "boolean") {
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
    if (schema.default !== undefined) {
      if (type === "boolean") input.checked = schema.default;
      else input.value = typeof schema.default === "string" ? schema.default : JSON.stringify(schema.default);
    }
    const example = schema.examples?.[0];
    if (example !== undefined && !input.value)
      input.placeholder = typeof example === "string" ? example : JSON.stringify(example);
    if (type === "boolean" && !schema.enum) text.prepend(input);
    else text.append(input);
    return text;
  };
  // The fields of an object; of anything else one field.
  const fields = (name, schema) =>
    kind(schema) === "object" && schema.properties
      ? ordered(schema).map(([key, of]) => field(`${name}.${key}`, key, of, schema.required?.includes(key), schema))
      : [field(name, name, schema, true, schema)];
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
      const body = {};
      for (const of of form.elements) {
        if (of.disabled || !(of.name === "input" || of.name?.startsWith("input."))) continue;
        let value = of.value;
        if (of.dataset.as === "boolean") value = of.checked;
        else if (value.trim() === "") continue;
        else if (of.dataset.as === "number") value = Number(value);
        else if (of.dataset.as === "json") {
          try {
            value = JSON.parse(value);
          } catch {
            continue;
          }
        }
        page.set(body, of.name, value);
      }
      return body.input ?? {};
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
      const plain = kind(schema) === "object" && schema.properties;
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
    place.append(...fields("answer", JSON.parse(place.dataset.schema)));
  };
  document.addEventListener("DOMContentLoaded", () => {
    start();
    answer();
  });
})();

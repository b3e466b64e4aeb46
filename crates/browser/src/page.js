// Reads the page and finds its elements; run in an isolated world, as `(SCRIPT)(request)`.
//
// The world has its own prototypes, so the page cannot replace them. It shares the document, in which elements may
// shadow properties (`<form><input name="tagName">`), so each property is read by its prototype's getter.
(request) => {
  const getter = (type, name) => {
    const get = Object.getOwnPropertyDescriptor(type.prototype, name).get;
    return (of) => get.call(of);
  };
  const method = (type, name) => {
    const of = type.prototype[name];
    return (self, ...args) => of.apply(self, args);
  };
  const firstChild = getter(Node, "firstChild"), nextSibling = getter(Node, "nextSibling");
  const nodeType = getter(Node, "nodeType"), isConnected = getter(Node, "isConnected");
  const data = getter(CharacterData, "data"), localName = getter(Element, "localName");
  const shadowRoot = getter(Element, "shadowRoot"), attribute = method(Element, "getAttribute");
  const contains = method(Node, "contains"), find = method(Document, "querySelector");
  const title = getter(Document, "title"), root = getter(Document, "documentElement");
  const at = method(Document, "elementFromPoint"), box = method(Element, "getBoundingClientRect");
  const has = method(Element, "hasAttribute"), closest = method(Element, "closest");
  const isEditable = getter(HTMLElement, "isContentEditable"), focus = method(HTMLElement, "focus");
  const dispatch = method(EventTarget, "dispatchEvent");

  const page = () => ({ url: String(location.href).slice(0, 2000), title: String(title(document)).slice(0, 300) });
  const attr = (element, name) => String(attribute(element, name) ?? "").slice(0, 200);
  const quoted = (name, text) => (text === "" ? "" : ` ${name}=${JSON.stringify(String(text).slice(0, 200))}`);
  const inputType = (element) => (element instanceof HTMLInputElement ? getter(HTMLInputElement, "type")(element) : "");

  const ROLES = ["button", "link", "checkbox", "radio", "switch", "tab", "menuitem", "option", "textbox", "combobox"];
  const SKIPPED = new Set(["script", "style", "noscript", "template", "head", "object", "embed"]);

  /// The text that describes an element which can be clicked or typed into; null for others.
  const described = (element, name) => {
    const label = quoted("label", attr(element, "aria-label") || attr(element, "title"));
    if (name === "a" && has(element, "href")) {
      let url = attr(element, "href");
      try { url = new URL(url, location.href).href.slice(0, 300); } catch {}
      return `link ${url}${label}`;
    }
    if (name === "button" || name === "summary") return `button${label}`;
    if (name === "textarea") {
      return `textarea${quoted("name", attr(element, "name"))}${quoted("placeholder", attr(element, "placeholder"))}` +
        `${label}${quoted("value", getter(HTMLTextAreaElement, "value")(element))}`;
    }
    if (name === "select") {
      const options = getter(HTMLSelectElement, "options")(element), shown = [];
      for (let i = 0; i < options.length && i < 30; i++) shown.push(String(options[i].text).slice(0, 60));
      const chosen = options[getter(HTMLSelectElement, "selectedIndex")(element)];
      return `select${quoted("name", attr(element, "name"))}${label}${quoted("value", chosen ? chosen.text : "")}` +
        ` options=${JSON.stringify(shown)}`;
    }
    if (name === "input") {
      const type = inputType(element);
      if (type === "hidden") return null;
      let value = getter(HTMLInputElement, "value")(element);
      if (type === "password" && value !== "") value = "(filled in)";
      if (type === "checkbox" || type === "radio") {
        value = getter(HTMLInputElement, "checked")(element) ? "checked" : "not checked";
      }
      return `input ${type}${quoted("name", attr(element, "name"))}` +
        `${quoted("placeholder", attr(element, "placeholder"))}${label}${quoted("value", value)}`;
    }
    const role = attr(element, "role");
    if (ROLES.includes(role)) return `${role}${label}`;
    if (has(element, "onclick")) return `button${label}`;
    const editable = attribute(element, "contenteditable");
    return editable !== null && editable !== "false" ? `textbox${label}` : null;
  };

  const read = ({ maxChars, maxElements, maxNodes, maxMillis }) => {
    const elements = (globalThis.elements = []), until = performance.now() + maxMillis;
    let text = "", nodes = 0, isCut = false;
    const line = () => { if (text !== "" && !text.endsWith("\n")) text += "\n"; };
    const open = [{ next: root(document), isBlock: true }];
    while (open.length > 0) {
      const top = open[open.length - 1], node = top.next;
      if (node === null) {
        open.pop();
        if (top.isBlock) line();
        continue;
      }
      top.next = nextSibling(node);
      if (++nodes > maxNodes || text.length > maxChars || (nodes % 256 === 0 && performance.now() > until)) {
        isCut = true;
        break;
      }
      if (nodeType(node) === Node.TEXT_NODE) {
        const words = data(node).slice(0, maxChars).replace(/\s+/g, " ");
        text += text === "" || text.endsWith("\n") || text.endsWith(" ") ? words.trimStart() : words;
        continue;
      }
      if (nodeType(node) !== Node.ELEMENT_NODE) continue;
      const name = localName(node);
      if (SKIPPED.has(name)) continue;
      const style = getComputedStyle(node);
      if (style.display === "none" || style.visibility === "hidden" || style.contentVisibility === "hidden") continue;
      const isBlock = !/^(inline|contents|ruby)/.test(style.display);
      if (isBlock || name === "br") line();
      const heading = /^h([1-6])$/.exec(name);
      if (heading) text += "#".repeat(Number(heading[1])) + " ";
      if (name === "img" && attr(node, "alt") !== "") text += `[image: ${attr(node, "alt")}] `;
      if (name === "iframe" || name === "frame") text += `[frame ${attr(node, "src")}] `;
      const description = elements.length < maxElements ? described(node, name) : null;
      if (description !== null) {
        elements.push(node);
        text += `[${elements.length} ${description}] `;
        if (name === "select" || name === "textarea") continue;
      }
      open.push({ next: firstChild(node), isBlock });
      const shadow = shadowRoot(node);
      if (shadow !== null) open.push({ next: firstChild(shadow), isBlock: false });
    }
    return { ...page(), text: text.slice(0, maxChars), isCut };
  };

  /// The element that the request names by number or selector.
  const target = ({ number, selector }) => {
    if (typeof number === "number") {
      const element = (globalThis.elements ?? [])[number - 1];
      if (element === undefined) throw `there is no element ${number}; read the page to get its numbers`;
      if (!isConnected(element)) throw `element ${number} is no longer on the page; read the page again`;
      return element;
    }
    let element = null;
    try { element = find(document, selector); } catch { throw "the selector is not valid CSS"; }
    if (element === null) throw "no element of the page matches the selector";
    return element;
  };

  /// The point at which a click reaches the element.
  const point = (request) => {
    const element = target(request);
    method(Element, "scrollIntoView")(element, { block: "center", inline: "center", behavior: "instant" });
    const { left, top, width, height } = box(element);
    if (width === 0 || height === 0) throw "the element is not visible";
    const x = Math.min(Math.max(left + width / 2, 0), innerWidth - 1);
    const y = Math.min(Math.max(top + height / 2, 0), innerHeight - 1);
    let hit = at(document, x, y);
    for (let depth = 0; hit !== null && shadowRoot(hit) !== null && depth < 50; depth++) {
      const inner = method(ShadowRoot, "elementFromPoint")(shadowRoot(hit), x, y);
      if (inner === null || inner === hit) break;
      hit = inner;
    }
    const label = hit === null ? null : closest(hit, "label");
    const isReached = hit !== null && (contains(element, hit) || contains(hit, element)
      || (label !== null && getter(HTMLLabelElement, "control")(label) === element));
    if (!isReached) throw "another element covers it, or it is outside of the page";
    return { ...page(), x, y };
  };

  const set = (element, type, value) => {
    Object.getOwnPropertyDescriptor(type.prototype, "value").set.call(element, value);
    dispatch(element, new Event("input", { bubbles: true }));
    dispatch(element, new Event("change", { bubbles: true }));
    return { ...page(), typing: "done" };
  };

  /// Prepares an element for text: focused, with all that it holds selected; or sets it, if keys cannot.
  const prepare = (request) => {
    const element = target(request), name = localName(element), type = inputType(element);
    if (name === "select") {
      const options = getter(HTMLSelectElement, "options")(element), wanted = request.text.trim();
      for (let i = 0; i < options.length; i++) {
        if (options[i].text.trim() === wanted || options[i].value === wanted) {
          return set(element, HTMLSelectElement, options[i].value);
        }
      }
      throw "the list has no such option";
    }
    if (["date", "time", "datetime-local", "month", "week", "color", "range"].includes(type)) {
      const done = set(element, HTMLInputElement, request.text);
      if (getter(HTMLInputElement, "value")(element) === "" && request.text !== "") {
        throw `the text is not a value of an input of type ${type}`;
      }
      return done;
    }
    if (["checkbox", "radio", "file", "button", "submit", "reset", "image", "hidden"].includes(type)) {
      throw `an input of type ${type} takes no text`;
    }
    const isField = name === "input" || name === "textarea";
    if (!isField && !(element instanceof HTMLElement && isEditable(element))) throw "the element takes no text";
    focus(element);
    if (name === "input") method(HTMLInputElement, "select")(element);
    else if (name === "textarea") method(HTMLTextAreaElement, "select")(element);
    else getSelection().selectAllChildren(element);
    return { ...page(), typing: "keys" };
  };

  try {
    switch (request.action) {
      case "read": return JSON.stringify(read(request));
      case "point": return JSON.stringify(point(request));
      case "prepare": return JSON.stringify(prepare(request));
      default: return JSON.stringify(page());
    }
  } catch (error) {
    return JSON.stringify({ error: String(error).slice(0, 300) });
  }
}

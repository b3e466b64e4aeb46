// What visitors choose for themselves in this browser: the theme, saved views; and the keyboard.
"use strict";
(() => {
  const $ = (selector) => document.querySelector(selector);

  // Theme: as the system says, unless chosen here.
  const root = document.documentElement;
  const showTheme = () => {
    const chosen = localStorage.getItem("theme");
    if (chosen) root.dataset.theme = chosen;
    else delete root.dataset.theme;
  };
  showTheme();

  // Saved views: the query of a list under a name, in this browser.
  const savedViews = () => {
    try {
      return JSON.parse(localStorage.getItem("views")) || {};
    } catch {
      return {};
    }
  };
  const saveView = () => {
    const name = $("#view-name")?.value.trim();
    if (!name) return;
    localStorage.setItem(
      "views",
      JSON.stringify({ ...savedViews(), [name.slice(0, 60)]: location.pathname + location.search }),
    );
    $("#view-name").value = "";
    showViews();
  };
  const showViews = () => {
    const at = $("#views");
    if (!at) return;
    at.replaceChildren(
      ...Object.entries(savedViews())
        .slice(0, 50)
        .map(([name, href]) => {
          const item = Object.assign(document.createElement("span"), { className: "tag" });
          const link = Object.assign(document.createElement("a"), { textContent: name, href });
          const remove = Object.assign(document.createElement("button"), {
            className: "link",
            textContent: "×",
            title: "Remove this view",
          });
          remove.setAttribute("aria-label", `Remove the view ${name}`);
          remove.dataset.removeView = name;
          item.append(link, " ", remove);
          return item;
        }),
    );
  };

  // Keys: / search, g then a letter goes to a screen, ? lists them.
  let went = 0;
  const places = {
    o: "/",
    e: "/executions",
    u: "/usage",
    a: "/approvals",
    q: "/questions",
    s: "/sessions",
    p: "/projects",
    c: "/schedules",
    w: "/workers",
    n: "/new",
  };
  document.addEventListener("keydown", (event) => {
    if (event.target.closest("input, textarea, select, dialog") || event.ctrlKey || event.metaKey || event.altKey)
      return;
    if (event.key === "/") {
      event.preventDefault();
      $(".find input")?.focus();
    } else if (event.key === "?") $("#keys-help")?.showModal();
    else if (event.key === "g") went = Date.now();
    else if (places[event.key] && Date.now() - went < 1500) location.href = places[event.key];
  });

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.hasAttribute("data-theme-switch")) {
      const dark = root.dataset.theme
        ? root.dataset.theme === "dark"
        : matchMedia("(prefers-color-scheme: dark)").matches;
      localStorage.setItem("theme", dark ? "light" : "dark");
      showTheme();
    }
    if (button.hasAttribute("data-save-view")) saveView();
    if (button.dataset.removeView) {
      const views = savedViews();
      delete views[button.dataset.removeView];
      localStorage.setItem("views", JSON.stringify(views));
      showViews();
    }
  });
  document.addEventListener("DOMContentLoaded", showViews);
})();

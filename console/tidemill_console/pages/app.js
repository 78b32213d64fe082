// The frame: which view is shown, keys, theme, token, and whether what is shown is of now.

import { askForToken } from "./dialogs.js";
import { token } from "./api.js";
import { button, clear, data, h, link, say } from "./dom.js";
import { clock } from "./format.js";
import { forget, listen, live, lookNow, run } from "./live.js";
import { asked, rights } from "./rights.js";
import { overview } from "./views/overview.js";

// Name, title, key, and who makes it: a function (place, parts) that may return {update, close}. Views but the first
// are loaded when they are opened.
const VIEWS = [
  ["overview", "Overview", "o", async () => overview],
  ["groups", "Groups", "g", async () => (await import("./views/groups.js")).groups],
  ["subjects", "Subjects", "s", async () => (await import("./views/subjects.js")).subjects],
  ["messages", "Messages", "m", async () => (await import("./views/messages.js")).messages],
  ["dead", "Dead letters", "d", async () => (await import("./views/dead.js")).dead],
  ["timers", "Timers", "t", async () => (await import("./views/timers.js")).timers],
  ["transactions", "Transactions", "x", async () => (await import("./views/transactions.js")).transactions],
  ["archives", "Archives", "a", async () => (await import("./views/archives.js")).archives],
  ["brokers", "Brokers", "b", async () => (await import("./views/brokers.js")).brokers],
];
const THEME = "tidemill.theme";
const main = document.getElementById("main");
let shown = null;
let number = 0;

async function show() {
  const [name, ...parts] = location.hash.replace(/^#\/?/, "").split("/").map(decoded);
  const [view, title, , load] = VIEWS.find((one) => one[0] === name) ?? VIEWS[0];
  number += 1;
  const mine = number;
  for (const one of document.querySelectorAll("#views a")) {
    if (one.dataset.view === view) one.setAttribute("aria-current", "page");
    else one.removeAttribute("aria-current");
  }
  document.title = [...parts.filter(Boolean).slice(0, 2), title, "tidemill"].join(" · ");
  const [make] = await Promise.all([load(), asked]);
  if (mine !== number) return;
  shown?.close?.();
  clear(main);
  shown = make(main, parts) ?? null;
  if (live.at) shown?.update?.(live);
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

// -- the frame --------------------------------------------------------------------------------------------------------

function frame() {
  const views = document.getElementById("views");
  for (const [name, title, key] of VIEWS) {
    views.append(link(name, [], title, { "data-view": name, "aria-keyshortcuts": `g ${key}`, title: `g, then ${key}` }));
  }
  const tools = document.getElementById("tools");
  tools.append(
    button("Theme", turn, { class: "quiet", title: "light, dark, or as the system" }),
    h("span", { id: "who" }),
    button("Token", () => askForToken(false), { class: "quiet", id: "token" }),
    button("Keys", help, { class: "quiet", "aria-keyshortcuts": "?" }),
  );
}

function turn() {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const order = dark ? ["", "light"] : ["", "dark"];
  const next = order[(order.indexOf(document.documentElement.dataset.theme ?? "") + 1) % 2];
  if (next) localStorage.setItem(THEME, next);
  else localStorage.removeItem(THEME);
  theme();
}

function theme() {
  const chosen = localStorage.getItem(THEME) ?? "";
  if (chosen) document.documentElement.dataset.theme = chosen;
  else delete document.documentElement.dataset.theme;
}

function help() {
  const keys = [["/", "to the filter"], ["↑ ↓", "from row to row"], ["Enter", "open"], ["Esc", "close"], ["r", "ask again now"],
    ...VIEWS.map(([, title, key]) => [`g ${key}`, title])];
  const rows = keys.map(([key, what]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, what)]);
  const close = h("button", { class: "main" }, "Close");
  const dialog = h("dialog", { "aria-labelledby": "keys" }, h("form", { method: "dialog" }, h("h2", { id: "keys" }, "Keys"), h("dl", { class: "keys" }, rows), close));
  dialog.addEventListener("close", () => dialog.remove());
  close.addEventListener("click", (event) => { event.preventDefault(); dialog.close(); });
  document.body.append(dialog);
  dialog.showModal();
}

let after = -Infinity;

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea, dialog")) return;
  const second = performance.now() - after < 1500;
  after = -Infinity;
  const view = second && VIEWS.find((one) => one[2] === event.key);
  if (view) location.hash = `#/${view[0]}`;
  else if (event.key === "g") after = performance.now();
  else if (event.key === "/") main.querySelector("input")?.focus();
  else if (event.key === "?") help();
  else if (event.key === "r") lookNow();
  else return;
  event.preventDefault();
}

function state() {
  const place = document.getElementById("state");
  const old = live.at ? `, what is shown is of ${clock(live.at)}` : "";
  say(place, live.error ? `${live.error.sentence ?? live.error.message}${old}` : `As of ${clock(live.at)}`);
  place.parentElement.classList.toggle("bad", Boolean(live.error));
  const who = rights.everything && rights.who === "nobody" ? "" : rights.who;
  clear(document.getElementById("who"), who && data(who));
  document.getElementById("token").classList.toggle("set", Boolean(token.get()));
}

theme();
frame();
addEventListener("hashchange", () => { show(); main.focus({ preventScroll: true }); scrollTo(0, 0); });
addEventListener("keydown", pressed);
document.addEventListener("token-wanted", (event) => askForToken(event.detail));
document.addEventListener("token-changed", () => { forget(); lookNow(); show(); });
document.addEventListener("rights-changed", () => { forget(); show(); });
listen(() => { state(); shown?.update?.(live); });
show();
run();

// Messages: by subject, key and time; by id; and as they come.

import { askAll, found, get, part, query } from "../api.js";
import { attempt, shut, silence } from "../dialogs.js";
import { button, choice, clear, data, field, h, link, put, say } from "../dom.js";
import { bytes, count, moment } from "../format.js";
import { listen, live } from "../live.js";
import { details, preview, sizeOf, why } from "../message.js";
import { Browser } from "../stored.js";
import { demand, unless } from "../rights.js";
import { table } from "../table.js";

const PAGE = 50;
const TAIL_MS = 1_000;
const TAIL_MAX = 300;
const TAIL_PAGE = 100;

export function messages(place, parts) {
  if (parts[0] === "id" && parts[1]) return one(place, parts[1]);
  if (parts[0] && parts[1] === "tail") return tail(place, parts[0]);
  return browse(place, parts[0] ?? "");
}

const COLUMNS = [
  { title: "Stored", cell: (row) => link("messages", ["id", row.id], moment(row.stored_at)), changes: (row) => row.id },
  { title: "Subject", cell: (row) => data(row.subject), changes: (row) => row.subject },
  { title: "Sequence", number: true, cell: (row) => count(row.sequence) },
  { title: "Key", cell: (row) => data(row.key ?? ""), changes: (row) => row.key },
  { title: "Tags", cell: (row) => row.tags.map((tag) => data(tag, "tag")), changes: (row) => row.tags },
  { title: "Size", number: true, cell: (row) => bytes(sizeOf(row)) },
  { title: "Body", cell: preview, changes: (row) => row.id },
];

// Once broker groups are known: a view may be opened before the first answer of meta.
function once(act) {
  if (live.brokers.length) return act();
  const stop = listen(() => {
    if (!live.brokers.length) return;
    stop();
    act();
  });
  return undefined;
}

// -- searching --------------------------------------------------------------------------------------------------------

function browse(place, subject) {
  const inputs = {
    subject: h("input", { type: "text", value: subject, placeholder: "all, when a key is given", autocomplete: "off", spellcheck: "false" }),
    key: h("input", { type: "text", autocomplete: "off", spellcheck: "false" }),
    from: h("input", { type: "datetime-local", step: "1" }),
    to: h("input", { type: "datetime-local", step: "1" }),
  };
  const id = h("input", { type: "text", autocomplete: "off", spellcheck: "false", placeholder: "01a1ef846f98000032cc5423b7b98b30-0" });
  const missing = h("div");
  const rows = table("Messages", COLUMNS, { key: (row) => row.id, empty: "No message is like that." });
  const more = h("p", { class: "more", role: "status" });
  let order = "newest";
  let shown = [];
  const go = h("button", { class: "main" }, "Look");
  const form = h("form", { class: "filters", role: "search" }, field("Subject", inputs.subject), field("Key", inputs.key), field("From", inputs.from), field("To", inputs.to),
    choice("Order", [["newest", "newest first"], ["oldest", "oldest first"]], order, (name) => { order = name; }), go);
  const byId = h("form", { class: "filters", role: "search" }, field("Id", id), h("button", {}, "Open"));
  const tailing = h("div", { class: "actions" }, subject && link("messages", [subject, "tail"], "Live tail", { class: "button" }));
  place.append(h("h1", {}, "Messages"), byId, form, tailing, missing, rows.node, more);
  rows.node.hidden = true;
  byId.addEventListener("submit", (event) => {
    event.preventDefault();
    if (id.value.trim()) location.hash = `#/messages/id/${part(id.value.trim())}`;
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    attempt(look);
  });

  const time = (input) => (input.value ? new Date(input.value).getTime() : undefined);

  async function look() {
    const name = inputs.subject.value.trim();
    demand("Browse", name || "*");
    const asked = { key: inputs.key.value, from: time(inputs.from), to: time(inputs.to), order, limit: PAGE };
    say(more, "Looking…");
    shown = [];
    if (!name) return everywhere(asked);
    const browser = new Browser(name, asked);
    return page(browser);
  }

  async function page(browser) {
    shown = shown.concat(await browser.next());
    show(browser.silent);
    if (browser.more) clear(more, `${count(shown.length)} messages. `, button("Show more", () => attempt(() => page(browser)), { class: "quiet" }));
    else if (shown.length) say(more, `${count(shown.length)} messages.`);
    else say(more, browser.known || browser.silent.length ? "" : "No broker has a subject of that name.");
  }

  // By key alone: each broker looks through all of its subjects.
  async function everywhere(asked) {
    if (!asked.key) throw new Error("Write a subject, or a key, or the id of a message.");
    const said = await askAll(live.brokers, (at) => get(`/v1/messages${query(asked)}`, at));
    const { answers, silent } = found(said);
    shown = answers.flatMap((one) => one.value.messages);
    if (answers.length > 1) shown.sort((one, other) => (order === "newest" ? -1 : 1) * one.stored_at.localeCompare(other.stored_at));
    show(silent);
    say(more, answers.some((one) => one.value.after) ? `The first ${count(shown.length)} messages; name the subject to see more.` : `${count(shown.length)} messages.`);
  }

  function show(silent) {
    rows.node.hidden = false;
    rows.update(shown);
    silence(missing, silent);
  }

  if (subject) once(() => attempt(look));
  return {};
}

// -- one --------------------------------------------------------------------------------------------------------------

function one(place, id) {
  const content = h("div", {}, h("p", {}, "Looking…"));
  const because = why(id);
  place.append(h("p", { class: "crumbs" }, link("messages", [], "Messages"), " /"), h("h1", {}, "Message ", data(id, "mono")), content, because.node);
  once(async () => {
    try {
      const said = found(await askAll(live.brokers, (at) => get(`/v1/messages/${part(id)}`, at)));
      clear(content, details(said.answers[0].value));
    } catch (error) {
      clear(content, h("p", { class: "note warn" }, error.sentence ?? String(error)));
      return;
    }
    attempt(because.look);
  });
  return {};
}

// -- as they come -----------------------------------------------------------------------------------------------------

function tail(place, subject) {
  const barred = unless("Browse", subject);
  if (barred) return shut(place, ["Live tail of ", data(subject)], barred);
  const state = h("p", { class: "more", role: "status" });
  const missing = h("div");
  const rows = table(`Messages of ${subject} as they come`, COLUMNS, { key: (row) => row.id, empty: "Waiting for messages…" });
  const pause = button("Pause", turn);
  let running = true;
  let closed = false;
  let seen = new Set();
  let shown = [];
  let since = null;
  place.append(h("p", { class: "crumbs" }, link("subjects", [subject], data(subject)), " /"), h("h1", {}, "Live tail of ", data(subject)),
    h("div", { class: "actions" }, pause, button("Clear", () => { shown = []; rows.update(shown); })), h("p", { class: "more" }, "Looking consumes nothing: groups are given what they would be given anyway."), missing, state, rows.node);
  rows.update([]);

  function turn() {
    running = !running;
    say(pause, running ? "Pause" : "Go on");
  }

  // From the time of the newest one on, for several may have come in its millisecond; those that were shown are known.
  async function look() {
    const browser = new Browser(subject, { order: "newest", limit: TAIL_PAGE, from: since ?? undefined });
    const page = await browser.next();
    const fresh = page.filter((message) => !seen.has(message.id));
    silence(missing, browser.silent);
    if (page.length) since = Math.max(since ?? 0, ...page.map((message) => new Date(message.stored_at).getTime()));
    seen = new Set(page.map((message) => message.id).concat([...seen].slice(0, 1_000)));
    shown = fresh.concat(shown).slice(0, TAIL_MAX);
    rows.update(shown);
    const gap = since !== null && fresh.length === TAIL_PAGE ? `More came than is shown: the newest ${TAIL_PAGE} of each look.` : "";
    say(state, `${count(shown.length)} shown. ${gap}`);
  }

  async function keep() {
    while (!closed) {
      if (running && !document.hidden && live.brokers.length) await attempt(look);
      await new Promise((done) => setTimeout(done, TAIL_MS));
    }
  }

  keep();
  return { close: () => { closed = true; } };
}

// What waits for its time: under timer keys listed by subject, else by its id; cancelled, given another time.

import { get, ofSubject, part, post, query, speakers } from "../api.js";
import { attempt, confirm } from "../dialogs.js";
import { button, data, field, h, put, say } from "../dom.js";
import { ago, bytes, count, moment } from "../format.js";
import { live } from "../live.js";
import { demand, may, unless } from "../rights.js";
import { table } from "../table.js";

const PAGE = 100;

export function timers(place, parts) {
  const subject = h("input", { type: "text", value: parts[0] ?? "", autocomplete: "off", spellcheck: "false", required: true });
  const prefix = h("input", { type: "text", autocomplete: "off", spellcheck: "false" });
  const id = h("input", { type: "text", autocomplete: "off", spellcheck: "false", placeholder: "01a1ef846f98000032cc5423b7b98b30-0" });
  const go = h("button", { class: "main" }, "Look");
  const form = h("form", { class: "filters", role: "search" }, field("Subject", subject), field("Timer keys that begin with", prefix), go);
  const byId = h("form", { class: "filters", role: "search" }, field("Id", id), h("button", {}, "Find"));
  const more = h("p", { class: "more", role: "status" });
  const rows = table("Timers", [
    { title: "Due", cell: (row) => `${moment(row.due)}` },
    { title: "That is", cell: (row) => ago(new Date(row.due).getTime()) },
    { title: "Subject", cell: (row) => data(row.subject), changes: (row) => row.subject },
    { title: "Timer key", cell: (row) => data(row.timer_key ?? ""), changes: (row) => row.timer_key },
    { title: "Recurs", cell: (row) => data(row.cron ?? ""), changes: (row) => row.cron },
    { title: "Message", cell: (row) => data(row.id, "mono"), changes: (row) => row.id },
    { title: "Size", number: true, cell: (row) => bytes(row.size) },
    { title: "Change", cell: (row) => changeable(row) && [button("Cancel…", () => cancel(row), { class: "danger", "aria-label": `Cancel ${row.timer_key ?? row.id}` }), " ", button("Reschedule…", () => reschedule(row), { "aria-label": `Reschedule ${row.timer_key ?? row.id}` })], changes: (row) => row.id },
  ], { key: (row) => row.id, empty: "Nothing like that waits." });
  let shown = [];
  let again = look;
  place.append(h("h1", {}, "Timers"), h("p", { class: "more" }, "Messages for later that have a timer key; those without one are found by their id."), byId, form, rows.node, more);
  rows.node.hidden = true;
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    again = look;
    attempt(() => look());
  });
  byId.addEventListener("submit", (event) => {
    event.preventDefault();
    if (!id.value.trim()) return;
    again = find;
    attempt(find);
  });

  // By its id alone a delay group knows no subject before it has looked, so that takes the right on all.
  const changeable = (row) => may("Send", row.timer_key ? row.subject : "*");

  // Any broker asks all delay groups.
  function anybody() {
    const one = speakers(live.brokers, false).find((speaker) => speaker.at !== undefined);
    if (!one) throw new Error("No broker is alive that could be asked.");
    return one.at;
  }

  function show(text) {
    rows.node.hidden = false;
    rows.update(shown);
    const barred = shown.find((row) => !changeable(row));
    say(more, [text, barred && unless("Send", barred.timer_key ? barred.subject : "*")].filter(Boolean).join(" "));
  }

  async function find() {
    say(more, "Looking…");
    shown = [];
    try {
      shown = [await get(`/v1/timers/${part(id.value.trim())}`, anybody())];
    } finally {
      show("");
    }
  }

  async function look(after = null) {
    demand("Browse", subject.value.trim());
    const path = `timers${query({ prefix: prefix.value, limit: PAGE, after })}`;
    const said = await get(ofSubject(subject.value.trim(), path), anybody());
    shown = after ? shown.concat(said.timers) : said.timers;
    show(shown.length ? `${count(shown.length)} timers.` : "");
    if (said.after) put(more, " ", button("Show more", () => attempt(() => look(said.after)), { class: "quiet" }));
  }

  // What was found by its id and is gone is not looked for again.
  async function refresh(gone) {
    if (again === look) return look();
    if (!gone) return find();
    shown = [];
    return show("");
  }

  async function cancel(row) {
    const title = `Cancel ${row.timer_key ?? "it"}?`;
    const text = row.cron ? "It is not sent again, this time or any other." : "It is not sent.";
    if (!(await confirm({ title, text, yes: "Cancel it", danger: true }))) return;
    await attempt(async () => {
      const said = row.timer_key ? await post(ofSubject(row.subject, "timers/cancel"), { timer_key: row.timer_key }, anybody()) : await post(`/v1/timers/${part(row.id)}/cancel`, undefined, anybody());
      await refresh(true);
      return told(said, "cancelled");
    });
  }

  async function reschedule(row) {
    const input = h("input", { type: "datetime-local", step: "1", required: true });
    const given = await confirm({ title: `When instead of ${moment(row.due)}?`, text: "A time in the past sends it at once.", yes: "Reschedule", fields: [{ name: "at", label: "At", input }] });
    if (given === null || !given.at) return;
    await attempt(async () => {
      const at = new Date(given.at).toISOString();
      const said = row.timer_key ? await post(ofSubject(row.subject, "timers/reschedule"), { timer_key: row.timer_key, at }, anybody()) : await post(`/v1/timers/${part(row.id)}/reschedule`, { at }, anybody());
      await refresh(false);
      return told(said, "rescheduled");
    });
  }

  if (parts[0]) {
    let done = false;
    return { update: () => { if (!done && live.brokers.length) { done = true; attempt(() => look()); } } };
  }
  return {};
}

function told(said, what) {
  return `${count(said.changed)} ${what}${said.gone ? `, ${count(said.gone)} had gone already` : ""}.`;
}

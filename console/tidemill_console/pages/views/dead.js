// Dead letters: which groups have some; of one group, by what they failed of, given out again or dropped.

import { askAll, found, get, ofGroup, post } from "../api.js";
import { attempt, confirm, failed, shut, silence } from "../dialogs.js";
import { button, clear, data, h, link, put, say } from "../dom.js";
import { ago, count, plural } from "../format.js";
import { groupColumns, groupKey } from "../groupRows.js";
import { listGroups, live, lookNow } from "../live.js";
import { preview } from "../message.js";
import { unless } from "../rights.js";
import { Browser } from "../stored.js";
import { table } from "../table.js";

const LETTERS = 20;

export function dead(place, parts) {
  return parts[1] ? group(place, parts[0], parts[1]) : list(place);
}

function list(place) {
  const missing = h("div");
  const columns = groupColumns().filter((one) => one.title !== "Lag over time" && one.title !== "Trend");
  columns[0] = { ...columns[0], cell: (row) => link("dead", [row.subject, row.group], data(row.group)) };
  const rows = table("Groups with dead letters", columns, { key: groupKey, empty: "No group has dead letters." });
  place.append(h("h1", {}, "Dead letters"), h("p", { class: "more" }, "Messages that a group has given up: each is kept as a copy with its reason, until somebody decides."), missing, rows.node);
  async function update() {
    const result = await listGroups({ order: "dead", limit: 1000 });
    silence(missing, result.silent);
    rows.update(result.rows.filter((row) => row.dead).sort((one, other) => other.dead - one.dead));
  }
  return { update };
}

function group(place, subject, name) {
  const unseen = unless("Browse", subject);
  if (unseen) return shut(place, ["Dead letters of ", data(name)], unseen);
  const barred = unless("Admin", subject);
  const missing = h("div");
  const waiting = h("p", { role: "status" });
  const marks = table("What they failed of", [
    { title: "Reason", cell: (row) => data(row.reason, "mono reason"), changes: (row) => row.reason },
    { title: "Error", cell: (row) => data(row.error, "short"), changes: (row) => row.error },
    { title: "At", cell: (row) => data(row.place, "mono short"), changes: (row) => row.place },
    { title: "Fingerprint", cell: (row) => data(row.fingerprint, "mono"), changes: (row) => row.fingerprint },
    { title: "Messages", number: true, hint: "that failed of it, handled since or not", cell: (row) => count(row.messages) },
    { title: "Last", cell: (row) => ago(row.last_ms) },
    ...(barred ? [] : [{ title: "Decide", cell: (row) => [button("Redrive…", () => settle("redrive", { fingerprint: row.fingerprint }), { "aria-label": `Redrive ${row.fingerprint}` }), " ", button("Purge…", () => settle("purge", { fingerprint: row.fingerprint }), { class: "danger", "aria-label": `Purge ${row.fingerprint}` })], changes: (row) => row.fingerprint }]),
  ], { key: (row) => row.fingerprint, empty: "No message of this group has failed of late." });
  const letters = table("Newest dead letters", [
    { title: "Message", cell: (row) => link("messages", ["id", row.origin ?? row.id], data(row.origin ?? row.id, "mono")), changes: (row) => row.id },
    { title: "Key", cell: (row) => data(row.key ?? ""), changes: (row) => row.key },
    { title: "Reason", cell: (row) => data(reasonOf(row), "mono reason"), changes: (row) => row.id },
    { title: "Attempts", number: true, cell: (row) => count(row.attempts) },
    { title: "Body", cell: preview, changes: (row) => row.id },
  ], { key: (row) => row.id, empty: "None is kept." });
  put(place,
    h("p", { class: "crumbs" }, link("dead", [], "Dead letters"), " / ", link("groups", [subject, name], data(`${subject} ${name}`)), " /"),
    h("h1", {}, "Dead letters of ", data(name)),
    waiting,
    barred ? h("p", { class: "more" }, barred) : h("div", { class: "actions" }, button("Redrive all…", () => settle("redrive", { all: true })), button("Purge all…", () => settle("purge", { all: true }), { class: "danger" })),
    missing,
    h("section", {}, h("h2", {}, "By what they failed of"), marks.node),
    h("section", {}, h("h2", {}, "The newest that wait"), letters.node),
  );

  async function look() {
    const said = found(await askAll(live.brokers, (at) => get(ofGroup(subject, name, "dead"), at)));
    silence(missing, said.silent);
    const errors = new Map();
    for (const one of said.answers.flatMap((answer) => answer.value.errors)) {
      const known = errors.get(one.fingerprint);
      errors.set(one.fingerprint, known ? { ...known, messages: known.messages + one.messages, last_ms: Math.max(known.last_ms, one.last_ms) } : one);
    }
    const many = said.answers.reduce((sum, one) => sum + one.value.waiting, 0);
    say(waiting, `${plural(many, "dead letter")} ${many === 1 ? "waits" : "wait"} for somebody to decide.`);
    marks.update([...errors.values()].sort((one, other) => other.last_ms - one.last_ms));
    const pages = await Promise.all(said.answers.flatMap((one) => one.value.partitions.map((grave) => newest(one, grave))));
    letters.update(pages.flat().sort((one, other) => (one.stored_at < other.stored_at ? 1 : -1)).slice(0, LETTERS));
  }

  // A grave is asked for at the broker that has it; what was settled before is left out.
  async function newest(one, grave) {
    const browser = new Browser(grave.subject, { order: "newest", limit: LETTERS });
    browser.places = new Map([[grave.subject, { group: one.group, name: grave.subject, waiting: [], after: null, done: false }]]);
    const page = grave.waiting ? await browser.next() : [];
    return page.filter((letter) => !handled(grave.handled, letter.sequence));
  }

  async function settle(what, chosen) {
    const masters = (body) => askAll(live.brokers, (at) => post(ofGroup(subject, name, `dead/${what}`), body, at), false);
    const words = what === "redrive" ? "given to the group again" : "dropped for ever";
    const meant = await confirm({
      title: what === "redrive" ? "Give them to the group again?" : "Drop them for ever?",
      text: chosen.all ? "All dead letters of this group." : `Those of the mistake ${chosen.fingerprint}.`,
      yes: what === "redrive" ? "Redrive" : "Purge",
      danger: what === "purge",
      rehearse: chosen.all ? null : async () => `${plural(counted(await masters({ ...chosen, rehearsal: true })), "dead letter")} would be ${words}.`,
    });
    if (meant === null) return;
    await attempt(async () => `${plural(counted(await masters(chosen)), "dead letter")} ${words}.`);
    lookNow();
  }

  return { update: () => look().catch(failed) };
}

function counted(result) {
  return found(result).answers.reduce((sum, one) => sum + one.value.count, 0);
}

function handled(ranges, sequence) {
  for (let at = 0; at < ranges.length; at += 2) if (sequence >= ranges[at] && sequence <= ranges[at + 1]) return true;
  return false;
}

function reasonOf(letter) {
  return String(letter.properties?.["tidemill.dead"]?.reason ?? "");
}

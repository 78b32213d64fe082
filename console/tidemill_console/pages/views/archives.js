// Archives and replays, as their jobs have told meta: how far they have come, how runs went, and what stopped them.

import { askAll, get, living, part, query } from "../api.js";
import { failed, shut, silence } from "../dialogs.js";
import { clear, data, h, link, say } from "../dom.js";
import { ago, bytes, count, duration, moment } from "../format.js";
import { live } from "../live.js";
import { unless } from "../rights.js";
import { table } from "../table.js";

const SHOWN = 200;
const ROWS_MAX = 1_000;
const SHARE = 20;
const KINDS = { Running: "", Succeeded: "good", Failed: "bad", Lost: "bad", Active: "good", Ended: "" };

export function archives(place, parts) {
  const barred = unless("Browse");
  if (barred) return shut(place, "Archives", barred);
  return parts[0] ? archive(place, parts[0]) : list(place);
}

const mark = (text) => h("span", { class: `mark ${KINDS[text] ?? ""}` }, text);

// What meta has of many partitions is large: it is asked for as seldom as keeps this below a twentieth of the time.
function paced(look) {
  let next = 0;
  return {
    update: async () => {
      if (performance.now() < next) return;
      const began = performance.now();
      next = Infinity;
      try {
        await look();
      } catch (error) {
        failed(error);
      }
      next = performance.now() + SHARE * (performance.now() - began);
    },
  };
}

// -- runs -------------------------------------------------------------------------------------------------------------

const last = (one) => one.runs.at(-1);
const through = (one) => one.runs.reduce((most, run) => Math.max(most, run.through ?? 0), 0);
export const whyOf = (run) => (run.state === "Lost" ? `its driver was last heard of ${ago(run.heard_at)}, at ${moment(run.heard_at)}` : (run.error ?? ""));
const failure = (one) => (["Failed", "Lost"].includes(last(one)?.state) ? whyOf(last(one)) : "");
const took = (run) => (run.started_at === undefined ? "–" : run.ended_at === undefined ? `begun ${ago(run.started_at)}` : duration(run.ended_at - run.started_at));
const sum = (run, name) => count(run.counts?.[name]);
const size = (run, name) => (run.counts?.[name] === undefined ? "–" : bytes(run.counts[name]));

const COMMON = [
  { title: "Is", cell: (run) => mark(run.state), changes: (run) => run.state },
  { title: "Begun", cell: (run) => moment(run.started_at) },
  { title: "Took", cell: took },
  { title: "Messages", number: true, cell: (run) => sum(run, "messages") },
];
const ERROR = { title: "Error", cell: (run) => data(whyOf(run), "mono"), changes: whyOf };

function list(place) {
  const rows = table("Archives", [
    { title: "Archive", cell: (one) => link("archives", [one.name], data(one.name)), changes: (one) => one.name },
    { title: "Is", cell: (one) => mark(one.state), changes: (one) => one.state },
    { title: "Subjects", cell: (one) => data(one.subjects.join(", ")), changes: (one) => one.subjects },
    { title: "Archived up to", hint: "all that was stored before is archived", cell: (one) => (through(one) ? moment(through(one)) : "–") },
    { title: "That is", cell: (one) => (through(one) ? ago(through(one)) : "–") },
    { title: "Last run", cell: (one) => (last(one) ? mark(last(one).state) : "none"), changes: (one) => last(one)?.state },
    { title: "Begun", cell: (one) => (last(one)?.started_at === undefined ? "–" : ago(last(one).started_at)) },
    { title: "Error", cell: (one) => data(failure(one), "mono"), changes: failure },
  ], { key: (one) => one.name, empty: "No archive has told of itself." });
  const again = table("Replays", [
    { title: "Replay", cell: (run) => data(run.name), changes: (run) => run.name },
    ...COMMON,
    { title: "Size", number: true, cell: (run) => size(run, "bytes") },
    { title: "Sends", cell: (run) => (run.dry_run ? "nothing, it counts" : "yes") },
    ERROR,
  ], { key: (run) => run.name, empty: "No replay has told of itself." });
  place.append(h("h1", {}, "Archives"), rows.node, h("section", {}, h("h2", {}, "Replays"), again.node));
  return paced(async () => {
    const [some, replays] = await Promise.all([get("/v1/archives"), get("/v1/replays")]);
    rows.update(some);
    again.update(replays.sort((one, other) => (other.started_at ?? 0) - (one.started_at ?? 0)));
  });
}

// -- one archive ------------------------------------------------------------------------------------------------------

// What the names of all its subjects begin with, so that brokers are asked for these and few others.
export function common(subjects) {
  const names = subjects.map((one) => one.replace(/\*$/, ""));
  let length = 0;
  while (names.length && names[0][length] !== undefined && names.every((one) => one[length] === names[0][length])) length += 1;
  return (names[0] ?? "").slice(0, Math.min(length, 100));
}

const covered = (subjects, name) => subjects.some((one) => (one.endsWith("*") ? living(name).startsWith(one.slice(0, -1)) : one === living(name)));

// Each partition that the archive has, or should have: how far it is, and how far its broker group is.
function standings(found, answers) {
  const rows = new Map();
  for (const [group, partitions] of Object.entries(found.watermarks)) {
    for (const [name, sequence] of Object.entries(partitions)) rows.set(`${group} ${name}`, { group, name, archived: sequence });
  }
  for (const answer of answers) {
    for (const one of answer.value.subjects.filter((row) => covered(found.subjects, row.name))) {
      const key = `${answer.group} ${one.name}`;
      const row = rows.get(key) ?? { group: answer.group, name: one.name, archived: null };
      const from = row.archived ?? one.first_sequence;
      rows.set(key, { ...row, next: one.next_sequence, behind: one.next_sequence - Math.max(from, one.first_sequence), gone: Math.max(0, one.first_sequence - from) });
    }
  }
  return [...rows.values()].sort((one, other) => (other.behind ?? 0) - (one.behind ?? 0) || (one.name < other.name ? -1 : 1));
}

function archive(place, name) {
  const facts = h("dl", { class: "tiles" });
  const missing = h("div");
  const wrong = h("p", { class: "note bad", hidden: true });
  const many = h("p", { class: "more", role: "status" });
  const marks = table("How far it is", [
    { title: "Partition", cell: (row) => link("subjects", [living(row.name)], data(row.name)), changes: (row) => row.name },
    { title: "On", cell: (row) => data(row.group), changes: (row) => row.group },
    { title: "Archived below", number: true, hint: "the sequence below which all is archived", cell: (row) => count(row.archived) },
    { title: "Next sequence", number: true, cell: (row) => count(row.next) },
    { title: "Behind", number: true, hint: "messages that are kept and not archived", cell: (row) => count(row.behind) },
    { title: "Gone before", number: true, hint: "messages that retention took before they were archived", cell: (row) => count(row.gone) },
  ], { key: (row) => `${row.group} ${row.name}`, empty: "It has no partition yet." });
  const runs = table("Runs", [
    { title: "Run", cell: (run) => data(run.run, "mono"), changes: (run) => run.run },
    ...COMMON,
    { title: "Archived up to", cell: (run) => moment(run.through) },
    { title: "Read", number: true, cell: (run) => size(run, "read_bytes") },
    { title: "Written", number: true, cell: (run) => size(run, "written_bytes") },
    { title: "Files", number: true, cell: (run) => sum(run, "files") },
    { title: "Missing", number: true, hint: "messages that retention took before this run", cell: (run) => sum(run, "missing") },
    ERROR,
  ], { key: (run) => run.run, empty: "No run has told of itself." });
  place.append(
    h("p", { class: "crumbs" }, link("archives", [], "Archives"), " /"),
    h("h1", {}, "Archive ", data(name)), wrong, missing, facts,
    h("section", {}, h("h2", {}, "How far it is"), marks.node, many),
    h("section", {}, h("h2", {}, "Runs"), runs.node),
  );
  return paced(async () => {
    const found = await get(`/v1/archives/${part(name)}`);
    const asked = query({ contains: common(found.subjects), order: "next_sequence", limit: ROWS_MAX });
    const said = await askAll(live.brokers, (at) => get(`/v1/overview/subjects${asked}`, at));
    const rows = standings(found, said.answers);
    const known = rows.filter((row) => row.behind !== undefined);
    const cut = known.length < rows.length || said.answers.some((one) => one.value.subjects.length < one.value.found);
    const total = known.reduce((all, row) => all + row.behind, 0);
    const gone = known.reduce((all, row) => all + row.gone, 0);
    const run = last(found);
    const tiles = [["State", found.state], ["Subjects", found.subjects.join(", ")], ["Behind", `${cut ? "≥ " : ""}${count(total)}`], ["Archived up to", through(found) ? ago(through(found)) : "–"], ["Last run", run ? run.state : "none"], ["Gone before", count(gone)]];
    const kinds = { "Last run": failure(found) ? "bad" : "", "Gone before": gone ? "warn" : "" };
    clear(facts, tiles.map(([title, value]) => h("div", { class: `tile ${kinds[title] ?? ""}` }, h("dt", {}, title), h("dd", {}, value))));
    wrong.hidden = !failure(found);
    clear(wrong, `The last run ${last(found)?.state === "Lost" ? "is lost" : "failed"}: `, data(failure(found), "mono"));
    silence(missing, said.silent);
    marks.update(rows.slice(0, SHOWN));
    say(many, rows.length > SHOWN ? `The ${count(SHOWN)} that are most behind of ${count(rows.length)} partitions.` : "");
    runs.update([...found.runs].reverse());
  });
}

// What all views look at, asked again and again: broker groups, sums, the groups in most trouble, and how all of that
// went since this page was opened.
//
// It is asked every two seconds; when the answers take longer, as seldom as keeps this page below a twentieth of the
// time, and not at all while nobody sees the page.

import { askAll, get, living, query } from "./api.js";
import { learn, may } from "./rights.js";

const EVERY_MS = 2_000;
const SHARE = 20;
const PAUSE_MAX_MS = 20_000;
const POINTS_MAX = 900;
const TROUBLED_MAX = 200;
const GAP_MS = 200_000;
const HISTORIES_MAX = 500;

export const live = {
  brokers: [],
  delays: [],
  silent: [],
  groups: [],
  archives: [],
  sums: null,
  counts: { groups: 0, subjects: 0 },
  rates: { in: null, out: null },
  error: null,
  at: 0,
};

// Whether all of every subject lies on one broker, in whose process this page's server is: no route has to be asked for.
export const isAlone = () => live.brokers.length === 1 && live.brokers[0].brokers.every((one) => one.addresses.control.startsWith(":"));

const listeners = new Set();
const histories = new Map();

export function listen(act) {
  listeners.add(act);
  return () => listeners.delete(act);
}

// -- histories --------------------------------------------------------------------------------------------------------

export function record(name, at, values) {
  const points = histories.get(name) ?? [];
  const last = points.at(-1);
  if (last && at <= last.at) return points;
  points.push({ at, ...values });
  if (points.length > POINTS_MAX) points.splice(0, points.length - POINTS_MAX);
  histories.delete(name); // so that those that nobody looks at any more come first, and go first
  histories.set(name, points);
  if (histories.size > HISTORIES_MAX) histories.delete(histories.keys().next().value);
  return points;
}

// What is older than all that is known comes before it.
function seed(name, older) {
  const points = histories.get(name) ?? [];
  const first = points[0]?.at ?? Infinity;
  histories.set(name, older.filter((one) => one.at < first).concat(points));
}

export const history = (name) => histories.get(name) ?? [];
export const nameOf = (row) => `group ${row.subject} ${row.group}`;

// How fast a number grows, over about ten seconds; null while that is not known.
export function growth(points, key, now = points.at(-1)?.at) {
  const last = points.at(-1);
  const first = points.find((one) => one.at >= now - 10_000 && one[key] !== undefined) ?? last;
  if (!last || last.at - first.at < 900) return null;
  return ((last[key] - first[key]) * 1000) / (last.at - first.at);
}

export function series(points, key) {
  return points.map((one) => [one.at, one[key]]);
}

export function rates(points, key) {
  const found = [];
  for (let index = 1; index < points.length; index += 1) {
    const [before, one] = [points[index - 1], points[index]];
    if (before[key] === undefined) continue; // brokers do not keep all of it
    if (one.at - before.at > GAP_MS) continue;
    found.push([one.at, Math.max(0, ((one[key] - before[key]) * 1000) / (one.at - before.at))]);
  }
  return found;
}

// -- what brokers say, together ---------------------------------------------------------------------------------------

const SUMS = ["lag", "in_flight", "failed", "dead", "acked", "consumers"];

// Rows of one group at several broker groups become one. A row that a broker group left out, because it was asked for
// the first so many only, is missing in the sum: `atLeast` says so.
export function together(answers, key = "groups", sums = SUMS) {
  const merged = new Map();
  const cut = answers.filter((one) => one.value[key].length < one.value.found);
  for (const answer of answers) {
    for (const row of answer.value[key]) {
      const name = row.group === undefined ? living(row.name) : `${living(row.subject)} ${row.group}`;
      const known = merged.get(name);
      if (!known) {
        merged.set(name, { ...row, ...own(row), at: [answer.group], parts: 1 });
        continue;
      }
      for (const sum of sums) known[sum] += row[sum];
      known.parts += 1;
      if (!known.at.includes(answer.group)) known.at.push(answer.group);
      if (row.groups !== undefined) known.groups = Math.max(known.groups, row.groups);
      known.paused = known.paused ?? row.paused;
      known.suspended = known.suspended || row.suspended;
      known.over_quota = known.over_quota ?? row.over_quota;
    }
  }
  const rows = [...merged.values()];
  for (const row of rows) row.atLeast = cut.some((one) => !row.at.includes(one.group));
  return rows;
}

function own(row) {
  return row.group === undefined ? { name: living(row.name) } : { subject: living(row.subject) };
}

export function byTrouble(one, other) {
  const undone = (row) => row.lag + row.failed;
  return (
    Number(one.paused === null) - Number(other.paused === null) ||
    undone(other) - undone(one) ||
    (one.subject < other.subject ? -1 : one.subject > other.subject ? 1 : one.group < other.group ? -1 : 1)
  );
}

export async function listGroups(asked) {
  const result = await askAll(live.brokers, (at) => get(`/v1/overview/groups${query(asked)}`, at));
  const rows = together(result.answers);
  const made = result.answers.length ? Math.max(...result.answers.map((one) => one.value.made_ms)) : 0;
  for (const row of rows) if (!row.atLeast) record(nameOf(row), made, { lag: row.lag, acked: row.acked });
  return { rows, ...result, found: Math.max(rows.length, ...result.answers.map((one) => one.value.found)) };
}

export async function listSubjects(asked) {
  const result = await askAll(live.brokers, (at) => get(`/v1/overview/subjects${query(asked)}`, at));
  const rows = together(result.answers, "subjects", ["messages", "next_sequence"]);
  const made = result.answers.length ? Math.max(...result.answers.map((one) => one.value.made_ms)) : 0;
  for (const row of rows) if (!row.atLeast) record(`subject ${row.name}`, made, { sent: row.next_sequence });
  return { rows, ...result, found: Math.max(rows.length, ...result.answers.map((one) => one.value.found)) };
}

// -- the last hour, as brokers have kept it ---------------------------------------------------------------------------

const OF_ALL = ["lag", "in_flight", "failed", "acked"];
const OF_GROUP = ["lag", "acked"];

export async function past(asked = {}) {
  const { answers } = await askAll(live.brokers, (at) => get(`/v1/overview/past${query(asked)}`, at));
  const groups = new Map();
  for (const answer of answers) {
    for (const one of answer.value.groups) {
      const name = nameOf({ subject: living(one.subject), group: one.group });
      groups.set(name, [...(groups.get(name) ?? []), one.points]);
    }
  }
  seed("all", added(answers.map((one) => one.value.sums), OF_ALL));
  for (const [name, several] of groups) seed(name, added(several, OF_GROUP));
}

// Several histories as one: at each time what each said last, from the time on from which all say something.
function added(several, names) {
  const rows = several.flatMap((points, index) => points.map(([at, ...values]) => ({ at, index, values })));
  rows.sort((one, other) => one.at - other.at);
  const last = new Map();
  const points = [];
  for (const { at, index, values } of rows) {
    last.set(index, values);
    if (last.size < several.length) continue;
    const sums = names.map((_, place) => [...last.values()].reduce((sum, one) => sum + one[place], 0));
    points.push({ at, ...Object.fromEntries(names.map((name, place) => [name, sums[place]])) });
  }
  return points;
}

// -- the loop ---------------------------------------------------------------------------------------------------------

// Of many partitions that is large, and runs end seldom: as seldom as keeps it below a twentieth of the time.
const ARCHIVES_EVERY_MS = 15_000;
let archivesAt = 0;

async function lookAtArchives() {
  if (!may("Browse")) live.archives = [];
  if (!may("Browse") || performance.now() < archivesAt) return;
  const began = performance.now();
  archivesAt = Infinity;
  try {
    live.archives = await get("/v1/archives");
  } catch {
    live.archives = []; // an older server, or one that is busy: whoever wants to know why looks at the archives
  }
  archivesAt = performance.now() + Math.max(ARCHIVES_EVERY_MS, SHARE * (performance.now() - began));
}

async function look() {
  const [brokers, delays] = await Promise.all([get("/v1/brokers"), get("/v1/delays"), learn()]);
  Object.assign(live, { brokers, delays });
  await lookAtArchives();
  const [groups, subjects] = await Promise.all([
    listGroups({ order: "trouble", limit: TROUBLED_MAX }),
    listSubjects({ order: "next_sequence", limit: 1 }),
  ]);
  const sums = {};
  for (const one of groups.answers) for (const [key, value] of Object.entries(one.value.sums)) sums[key] = (sums[key] ?? 0) + value;
  for (const one of subjects.answers) for (const [key, value] of Object.entries(one.value.sums)) sums[key] = (sums[key] ?? 0) + value;
  const most = (answers) => Math.max(0, ...answers.map((one) => one.value.count));
  live.groups = groups.rows.sort(byTrouble);
  live.silent = groups.silent;
  live.counts = { groups: most(groups.answers), subjects: most(subjects.answers) };
  live.sums = groups.answers.length ? sums : null;
  if (!live.sums || groups.silent.length || subjects.silent.length) return;
  const made = Math.max(...groups.answers.map((one) => one.value.made_ms));
  const points = record("all", made, { ...sums, sent: sums.next_sequence });
  live.rates = { in: growth(points, "sent"), out: growth(points, "acked") };
}

let wake = () => {};
let wanted = false;

export function lookNow() {
  wanted = true;
  wake();
}

// Whoever looks from now on may be somebody else, who may see other things: what was seen is not shown, nor compared.
export function forget() {
  histories.clear();
  archivesAt = 0;
  Object.assign(live, { groups: [], archives: [], silent: [], sums: null, counts: { groups: 0, subjects: 0 }, rates: { in: null, out: null }, at: 0 });
}

export async function run() {
  document.addEventListener("visibilitychange", () => document.hidden || wake());
  for (;;) {
    const began = performance.now();
    wanted = false;
    if (!document.hidden || !live.at) {
      try {
        await look();
        live.error = null;
        if (!live.at) setTimeout(() => past().catch(() => {})); // without it charts begin now
        live.at = Date.now();
      } catch (error) {
        live.error = error;
      }
      for (const act of listeners) act(live);
    }
    if (wanted) continue;
    const took = live.error ? 0 : performance.now() - began;
    const rest_ms = Math.min(PAUSE_MAX_MS, Math.max(EVERY_MS, SHARE * took));
    const pause = new Promise((done) => {
      wake = done;
    });
    await Promise.race([pause, new Promise((done) => setTimeout(done, rest_ms))]);
  }
}

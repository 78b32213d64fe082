// What the queue's canary says, in one line; and what of it is wrong.

import { data, h } from "./dom.js";
import { count, duration, plural } from "./format.js";

const SILENT_MS = 60_000;

const lostOf = (group) => Object.values(group.probes).reduce((sum, kind) => sum + kind.lost - kind.found, 0);
const twiceOf = (group) => group.doubled.stored + group.doubled.acknowledged;
const seenOf = (group) => Object.values(group.probes).reduce((sum, kind) => sum + kind.seen, 0);
const sum = (groups, of) => groups.reduce((all, group) => all + of(group), 0);

// The change of a master that was last, of any broker group.
function lastOf(groups) {
  const all = groups.flatMap((group) => group.failovers.map((one) => ({ ...one, group: group.group })));
  return all.reduce((last, one) => (last === null || one.ago_ms < last.ago_ms ? one : last), null);
}

const seconds = (ms) => (ms < 1000 ? `${count(ms)} ms` : `${(ms / 1000).toFixed(1)} s`);

export function canaryLine(canary) {
  if (!canary?.page) return null;
  const { groups } = canary.page;
  const p99s = groups.map((group) => group.p99_ms.end_to_end).filter((one) => one !== null);
  const last = lastOf(groups);
  return h("p", { class: "note" },
    h("strong", {}, "Canary"),
    ` of ${plural(sum(groups, seenOf), "probe")}: ${count(sum(groups, lostOf))} lost, ${count(sum(groups, twiceOf))} twice`,
    p99s.length ? `, from send to handler at most ${seconds(Math.max(...p99s))} for 99 of 100` : "",
    last === null ? "; no change of a master was seen." : ["; the last change of a master, of ", data(last.group), ` ${duration(last.ago_ms)} ago, took ${seconds(last.rto_ms)} and lost ${count(last.rpo)}.`],
  );
}

export function canaryTroubles(canary) {
  if (!canary) return [];
  if (canary.problem) return [{ kind: "warn", name: "Canary", text: `${canary.problem}.` }];
  if (!canary.page) return [];
  const found = canary.page.problem ? [{ kind: "warn", name: "Canary", text: `${canary.page.problem}.` }] : [];
  for (const group of canary.page.groups) {
    const [lost, twice] = [lostOf(group), twiceOf(group)];
    if (lost > 0) found.push({ kind: "bad", name: group.group, text: `lost ${plural(lost, "probe")} of its canary: they were stored and never came.` });
    if (twice > 0) found.push({ kind: "bad", name: group.group, text: `gave out ${plural(twice, "probe")} of its canary twice.` });
    if (group.silent_ms > SILENT_MS) found.push({ kind: "bad", name: group.group, text: `let no probe of its canary through for ${duration(group.silent_ms)}.` });
    if (group.problem) found.push({ kind: "warn", name: group.group, text: `is in trouble with its canary: ${group.problem}.` });
  }
  return found;
}

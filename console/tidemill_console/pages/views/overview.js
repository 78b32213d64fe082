// What is wrong, first; then what is to do, and how that goes; then who has most to do.

import { canaryLine, canaryTroubles } from "../canary.js";
import { lineChart } from "../chart.js";
import { silence } from "../dialogs.js";
import { clear, data, h, link, put } from "../dom.js";
import { count, plural, rate } from "../format.js";
import { groupColumns, groupKey, stateOf } from "../groupRows.js";
import { history, rates, series } from "../live.js";
import { browsable, may, rights } from "../rights.js";
import { table } from "../table.js";
import { whyOf } from "./archives.js";

const SHOWN = 15;
const NAMED_MAX = 8;

// Who may not look at all is told what this is a part of.
function partly() {
  const some = browsable();
  if (!rights.who) return "Nothing is shown to who has not said who asks: write a token.";
  if (!some.length) return `${rights.who} may look at no subject: ask whoever administers the queue for a grant.`;
  return [`Sums and groups are of what ${rights.who} may look at: `, data(some.join(", ")), "."];
}

export function overview(place) {
  const troubles = h("ul", { class: "troubles" });
  const tiles = h("dl", { class: "tiles" });
  const missing = h("div");
  const canary = h("section", { "aria-label": "Canary" });
  const undone = lineChart("To do", ["lag", "failed", "in flight"]);
  const flow = lineChart("Messages a second", ["sent", "handled"]);
  const worst = table("Groups with most to do", groupColumns(), { key: groupKey, empty: "No consumer group is there yet: a group is made by its first consumer." });
  put(place,
    h("h1", { class: "unseen" }, "Overview"),
    h("section", { "aria-label": "What is wrong" }, troubles),
    may("Browse") ? null : h("p", { class: "note" }, partly()),
    missing,
    tiles,
    canary,
    h("div", { class: "charts" }, undone.node, flow.node),
    h("section", {}, h("h2", {}, "Groups with most to do"), worst.node, h("p", { class: "more" }, link("groups", [], "All groups"), " · ", link("subjects", [], "all subjects"))),
  );

  function update(live) {
    const wrong = troublesOf(live);
    const said = JSON.stringify(wrong.map((one) => [one.kind, one.name, one.text]));
    if (troubles.dataset.said !== said) {
      troubles.dataset.said = said;
      clear(troubles, wrong.length ? wrong.map(trouble) : live.sums && h("li", { class: "good" }, h("strong", {}, "All is well."), " No broker is missing, no group is paused, nothing is dead."));
    }
    silence(missing, live.silent);
    showTiles(tiles, live);
    const line = canaryLine(live.canary);
    if (canary.textContent !== (line?.textContent ?? "")) clear(canary, line);
    const points = history("all");
    undone.update([series(points, "lag"), series(points, "failed"), series(points, "in_flight")]);
    flow.update([rates(points, "sent"), rates(points, "acked")]);
    worst.update(live.groups.slice(0, SHOWN));
  }

  return { update };
}

function trouble(one) {
  return h("li", { class: one.kind }, one.to ? link(one.to[0], one.to.slice(1), data(one.name)) : h("strong", {}, data(one.name)), " ", one.text);
}

function showTiles(tiles, live) {
  const sums = live.sums ?? {};
  const alive = live.brokers.flatMap((group) => group.brokers);
  const rows = [
    ["Lag", count(sums.lag), "messages that no consumer has yet", ""],
    ["In flight", count(sums.in_flight), "messages that consumers hold", ""],
    ["Failed", count(sums.failed), "messages that wait for another attempt", sums.failed ? "warn" : ""],
    ["Dead", count(sums.dead), "dead letters that nobody decided about", sums.dead ? "warn" : ""],
    ["Sent", rate(live.rates.in), "messages a second, over ten seconds", ""],
    ["Handled", rate(live.rates.out), "messages a second that groups are done with", ""],
    ["Brokers", `${alive.filter((one) => one.alive).length} of ${alive.length}`, "that are alive", alive.every((one) => one.alive) ? "" : "bad"],
    ["Groups", count(live.counts.groups), "consumer groups", ""],
    ["Subjects", count(live.counts.subjects), "subjects and their partitions", ""],
  ];
  clear(tiles, rows.map(([name, value, hint, kind]) => h("div", { class: `tile ${kind}`, title: hint }, h("dt", {}, name), h("dd", {}, value))));
}

export function troublesOf(live) {
  const found = [...[...live.brokers, ...live.delays].flatMap(ofBrokers), ...canaryTroubles(live.canary)];
  const groups = live.groups.map((row) => ({ row, state: stateOf(row) }));
  const paused = groups.filter((one) => one.row.paused !== null);
  for (const { row } of paused.slice(0, NAMED_MAX)) {
    found.push({ kind: "bad", to: ["groups", row.subject, row.group], name: row.group, text: `of ${row.subject} is paused: its deliveries fail alike. Mend its handlers, or what they need; it is probed, and goes on by itself.` });
  }
  more(found, paused, "bad", "groups", "are paused");
  for (const one of (live.archives ?? []).filter((one) => one.state === "Active")) {
    const run = one.runs.filter((each) => each.state !== "Running").at(-1);
    const how = { Failed: "failed", Lost: "is lost" }[run?.state];
    if (how) found.push({ kind: "bad", to: ["archives", one.name], name: one.name, text: `is an archive whose last run ${how}${whyOf(run) ? `: ${whyOf(run)}` : ""}. Start it again; what is kept until it is archived grows.` });
  }
  const dead = groups.filter((one) => one.row.dead && one.row.paused === null);
  for (const { row } of dead.slice(0, NAMED_MAX)) {
    found.push({ kind: "warn", to: ["dead", row.subject, row.group], name: row.group, text: `of ${row.subject} has ${plural(row.dead, "dead letter")}.` });
  }
  more(found, dead, "warn", "groups", "have dead letters");
  const alone = groups.filter((one) => one.state[1] === "no consumers");
  for (const { row } of alone.slice(0, NAMED_MAX)) {
    found.push({ kind: "warn", to: ["groups", row.subject, row.group], name: row.group, text: `of ${row.subject} has ${plural(row.lag, "message")} and no consumer.` });
  }
  more(found, alone, "warn", "groups", "have messages and no consumer");
  const full = groups.filter((one) => one.row.over_quota);
  for (const { row } of full.slice(0, NAMED_MAX)) {
    found.push({ kind: "warn", to: ["groups", row.subject, row.group], name: row.group, text: `of ${row.subject} is kept back: the quota of ${row.over_quota} of messages in flight is used up. Look which consumers hold them.` });
  }
  more(found, full, "warn", "groups", "are kept back by quotas");
  const suspended = groups.filter((one) => one.row.suspended);
  for (const { row } of suspended.slice(0, NAMED_MAX)) {
    found.push({ kind: "warn", to: ["groups", row.subject, row.group], name: row.group, text: `of ${row.subject} is suspended, by a person or a program.` });
  }
  more(found, suspended, "warn", "groups", "are suspended");
  return found.sort((one, other) => Number(other.kind === "bad") - Number(one.kind === "bad"));
}

function more(found, some, kind, view, text) {
  if (some.length > NAMED_MAX) found.push({ kind, to: [view], name: `${some.length - NAMED_MAX} more groups`, text: `${text}.` });
}

function ofBrokers(group) {
  if (group.retired) return [];
  const found = [];
  if (group.problem) found.push({ kind: "bad", to: ["brokers"], name: group.group, text: `has no master: ${group.problem}.` });
  for (const one of group.brokers) {
    if (!one.alive) found.push({ kind: "bad", to: ["brokers"], name: one.name, text: "is dead: meta has not heard of it for seconds. Start it again, or let meta forget it." });
    else if (!one.in_sync) found.push({ kind: "warn", to: ["brokers"], name: one.name, text: "is not in sync, and cannot take over. It catches up by itself." });
  }
  if (group.draining) found.push({ kind: "warn", to: ["brokers"], name: group.group, text: "is draining." });
  else if (group.state !== "RW" && !group.problem) found.push({ kind: "warn", to: ["brokers"], name: group.group, text: `takes ${group.state === "R" ? "reads only" : group.state === "W" ? "writes only" : "nothing"}.` });
  return found;
}

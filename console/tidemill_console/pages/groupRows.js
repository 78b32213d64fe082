// How a consumer group is shown wherever it is: what it has to do, how that went, and what is wrong with it.

import { sparkline } from "./chart.js";
import { data, h, link } from "./dom.js";
import { count, duration, rate } from "./format.js";
import { growth, history, nameOf, series } from "./live.js";

export const groupKey = (row) => nameOf(row);

export function trendOf(row) {
  const points = history(nameOf(row));
  const grows = growth(points, "lag");
  if (grows === null) return "";
  if (row.lag === 0 && grows <= 0) return "";
  if (grows > 0.5) return `grows by ${rate(grows)}`;
  if (grows < -0.5) return `done in ${duration((row.lag / -grows) * 1000)}`;
  return "steady";
}

export function stateOf(row) {
  if (row.paused !== null) return ["bad", "paused"];
  if (row.suspended) return ["warn", "suspended"];
  if (row.over_quota) return ["warn", "over quota"];
  if (row.dead) return ["warn", "dead letters"];
  if (!row.consumers && row.lag) return ["warn", "no consumers"];
  return ["good", row.consumers ? "works" : "idle"];
}

export const mark = ([kind, text]) => h("span", { class: `mark ${kind}` }, text);

const many = (row, key) => `${row.atLeast ? "≥ " : ""}${count(row[key])}`;

export function groupColumns({ subject = true } = {}) {
  return [
    { title: "Group", sort: "name", cell: (row) => link("groups", [row.subject, row.group], data(row.group)), changes: (row) => [row.subject, row.group] },
    ...(subject ? [{ title: "Subject", cell: (row) => link("subjects", [row.subject], data(row.subject)), changes: (row) => row.subject }] : []),
    { title: "Is", cell: (row) => mark(stateOf(row)), changes: stateOf },
    { title: "Lag", sort: "lag", number: true, hint: "messages that no consumer has yet", cell: (row) => many(row, "lag") },
    { title: "Lag over time", cell: (row) => sparkline(series(history(nameOf(row)), "lag"), `lag of ${row.group}`), changes: (row) => history(nameOf(row)).at(-1)?.at ?? 0 },
    { title: "Trend", cell: trendOf },
    { title: "In flight", sort: "in_flight", number: true, hint: "messages that consumers hold", cell: (row) => many(row, "in_flight") },
    { title: "Failed", sort: "failed", number: true, hint: "messages that wait for another attempt", cell: (row) => many(row, "failed") },
    { title: "Dead", sort: "dead", number: true, cell: (row) => (row.dead ? link("dead", [row.subject, row.group], many(row, "dead")) : "0"), changes: (row) => [row.dead, row.atLeast] },
    { title: "Consumers", sort: "consumers", number: true, cell: (row) => many(row, "consumers") },
  ];
}

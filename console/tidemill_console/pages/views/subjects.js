// All subjects; and one of them: its groups, where it lies, and ways to its messages.

import { lineChart } from "../chart.js";
import { get, ofSubject } from "../api.js";
import { attempt, silence } from "../dialogs.js";
import { clear, data, h, link } from "../dom.js";
import { count, rate } from "../format.js";
import { filtered } from "../listing.js";
import { groupColumns, groupKey } from "../groupRows.js";
import { byTrouble, growth, history, isAlone, listGroups, listSubjects, live, rates } from "../live.js";
import { table } from "../table.js";

export function subjects(place, parts) {
  return parts[0] ? subject(place, parts[0]) : list(place);
}

const historyOf = (row) => history(`subject ${row.name}`);

const COLUMNS = [
  { title: "Subject", sort: "name", cell: (row) => link("subjects", [row.name], data(row.name)), changes: (row) => row.name },
  { title: "Messages", sort: "messages", number: true, hint: "that are kept", cell: (row) => `${row.atLeast ? "≥ " : ""}${count(row.messages)}` },
  { title: "Sent", sort: "next_sequence", number: true, hint: "since the subject is there", cell: (row) => `${row.atLeast ? "≥ " : ""}${count(row.next_sequence)}` },
  { title: "Now", number: true, hint: "messages a second", cell: (row) => rate(growth(historyOf(row), "sent")) },
  { title: "Groups", sort: "groups", number: true, cell: (row) => count(row.groups) },
  { title: "Durability", cell: (row) => row.durability },
  { title: "Look at", cell: (row) => [link("messages", [row.name], "Messages"), " · ", link("messages", [row.name, "tail"], "Tail")], changes: (row) => row.name },
];

function list(place) {
  return filtered(place, {
    title: "Subjects",
    caption: "Subjects",
    hint: "Part of a subject's name",
    contains: "",
    orders: [["name", "name"], ["messages", "messages that are kept"], ["next_sequence", "messages sent"], ["groups", "groups"]],
    ask: listSubjects,
    compare: (order) => (order === "name" ? (one, other) => (one.name < other.name ? -1 : 1) : (one, other) => other[order] - one[order]),
    make: (order, sorted) => table("Subjects", COLUMNS, { key: (row) => row.name, order, sorted, empty: "No subject is like that." }),
  });
}

function subject(place, name) {
  const facts = h("dl", { class: "tiles" });
  const missing = h("div");
  const flow = lineChart("Sent, messages a second", ["sent"], 200);
  const groups = table(`Groups of ${name}`, groupColumns({ subject: false }), { key: groupKey, empty: "No group consumes it." });
  const route = h("p", { class: "more" });
  place.append(
    h("p", { class: "crumbs" }, link("subjects", [], "Subjects"), " /"),
    h("h1", {}, data(name)),
    h("div", { class: "actions" }, link("messages", [name], "Messages", { class: "button" }), link("messages", [name, "tail"], "Live tail", { class: "button" }), link("timers", [name], "Timers", { class: "button" })),
    missing,
    facts,
    h("div", { class: "charts" }, flow.node),
    h("section", {}, h("h2", {}, "Groups"), groups.node),
    route,
  );
  let located = false;

  async function locate() {
    if (located) return;
    located = true;
    if (isAlone()) {
      clear(route, `Lies on ${live.brokers[0].group} as a whole.`);
      return;
    }
    const said = await get(ofSubject(name, "route"));
    const places = said.partitions.map((one) => `${one.group} as ${one.name}`).join(", ");
    clear(route, `Lies on ${places}; it takes ${said.state}; order keys: ${said.order_strategy}.`);
  }

  async function update() {
    const [found, rows] = await Promise.all([listSubjects({ contains: name, limit: 1000 }), listGroups({ subject: name, limit: 1000 })]);
    const row = found.rows.find((one) => one.name === name);
    silence(missing, found.silent);
    const tiles = row ? [["Messages", count(row.messages)], ["Sent", count(row.next_sequence)], ["Now", rate(growth(historyOf(row), "sent"))], ["Durability", row.durability], ["On", row.at.join(", ")]] : [["Subject", "no broker has it"]];
    clear(facts, tiles.map(([title, value]) => h("div", { class: "tile" }, h("dt", {}, title), h("dd", {}, value))));
    if (row) flow.update([rates(historyOf(row), "sent")]);
    groups.update(rows.rows.sort(byTrouble));
    if (row) attempt(locate);
  }

  return { update };
}

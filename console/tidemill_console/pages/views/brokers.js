// Broker groups and delay groups: who leads, who is in sync, what may be stopped, and handing over.

import { baseOf, post, part } from "../api.js";
import { attempt, confirm } from "../dialogs.js";
import { button, clear, data, h } from "../dom.js";
import { bytes, count } from "../format.js";
import { lookNow } from "../live.js";
import { may, rights } from "../rights.js";
import { table } from "../table.js";

export function brokers(place) {
  const groups = h("div");
  const delays = h("div");
  const shown = new Map();
  place.append(h("h1", {}, "Brokers"), groups, h("h2", {}, "Delay groups"), delays);

  function update(live) {
    show(groups, live.brokers, true);
    show(delays, live.delays, false);
  }

  function show(holder, some, hands) {
    for (const group of some) {
      if (!shown.has(group.group)) {
        shown.set(group.group, card(hands));
        holder.append(shown.get(group.group).node);
      }
      shown.get(group.group).update(group);
    }
    if (!some.length) clear(holder, h("p", { class: "empty" }, hands ? "No broker has registered." : "There is none here; beside a broker that is alone it is part of that."));
  }

  return { update };
}

function card(hands) {
  const title = h("h2");
  const facts = h("p", { class: "more" });
  const problem = h("p", { class: "note bad", hidden: true });
  const actions = h("div", { class: "actions" });
  let group = null;
  const rows = table("Brokers of the group", [
    { title: "Broker", cell: (row) => data(row.name), changes: (row) => row.name },
    { title: "Role", cell: (row) => row.role },
    { title: "Is", cell: (row) => h("span", { class: `mark ${row.alive ? (row.in_sync ? "good" : "warn") : "bad"}` }, row.alive ? (row.in_sync ? "in sync" : "not in sync") : "dead"), changes: (row) => [row.alive, row.in_sync] },
    { title: "Messages", number: true, hint: "how far its message log has come", cell: (row) => bytes(row.positions.messages) },
    { title: "Actions", number: true, cell: (row) => bytes(row.positions.actions) },
    { title: "Epoch", number: true, cell: (row) => count(row.epoch) },
    { title: "May be stopped", cell: (row) => (row.safe_to_stop ? "yes" : row.why_not || "no") },
    { title: "HTTP", cell: (row) => data(row.addresses.control, "mono"), changes: (row) => row.addresses.control },
  ], { key: (row) => row.name });

  function update(said) {
    group = said;
    clear(title, data(said.group), " ", h("span", { class: `mark ${said.problem ? "bad" : said.state === "RW" ? "good" : "warn"}` }, said.problem ? "no master" : said.state));
    clear(facts, `Epoch ${said.epoch}, master ${said.master || "nobody"}${said.draining ? ", draining" : ""}${said.retired ? ", retired" : ""}.`);
    problem.hidden = !said.problem;
    clear(problem, said.problem);
    rows.update(said.brokers);
    const able = said.brokers.filter((one) => one.alive && one.in_sync && one.name !== said.master);
    const to = said.brokers.find((one) => one.name === said.master)?.hand_over_to || able[0]?.name;
    if (actions.dataset.to === (to ?? "")) return;
    actions.dataset.to = to ?? "";
    clear(actions, hands && to && may("Admin") && button(`Hand over to ${to}…`, () => handOver(group, to)));
  }

  return { node: h("section", { class: "card" }, title, facts, problem, actions, rows.node), update };
}

// The master takes no more work and its slave has all; then meta appoints the slave, and both are told at once, so that
// nothing is written for about a tenth of a second.
async function handOver(group, to) {
  const meant = await confirm({ title: `Make ${to} master of ${group.group}?`, text: `${group.master} hands over. Nothing is lost or repeated; writes wait for less than a second.`, yes: "Hand over" });
  if (!meant) return;
  await attempt(async () => {
    const of = (name) => baseOf(group, group.brokers.find((one) => one.name === name));
    const began = performance.now();
    await post("/v1/replication/handover", { to }, of(group.master));
    const said = await post(`/v1/groups/${part(group.group)}/handover`, { to, epoch: group.epoch });
    const appointment = Object.fromEntries(["group", "epoch", "master", "replicas", "in_sync", "version"].map((name) => [name, said[name]]));
    appointment.addresses = Object.fromEntries(group.brokers.map((one) => [one.name, one.addresses.data]));
    // Who cannot be told hears it from meta, a second later; where it is locked only the cluster's own may tell them.
    if (rights.everything) await Promise.allSettled([to, group.master].map((name) => post("/v1/replication/appointment", appointment, of(name))));
    return `${to} is master of ${group.group}, in epoch ${said.epoch}, after ${Math.round(performance.now() - began)} ms.`;
  });
  lookNow();
}

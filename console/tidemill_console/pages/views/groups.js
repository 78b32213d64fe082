// All consumer groups; and one of them: lag over time, where it stands, and moving, suspending and resuming it.

import { lineChart } from "../chart.js";
import { askAll, get, ofGroup, post, query } from "../api.js";
import { attempt, confirm, failed, silence } from "../dialogs.js";
import { button, clear, data, h, link, put } from "../dom.js";
import { count, plural } from "../format.js";
import { groupColumns, groupKey, mark, stateOf, trendOf } from "../groupRows.js";
import { byTrouble, history, listGroups, live, lookNow, nameOf, past, rates, series } from "../live.js";
import { filtered } from "../listing.js";
import { unless } from "../rights.js";
import { table } from "../table.js";

export function groups(place, parts) {
  return parts.length > 1 && parts[1] ? group(place, parts[0], parts[1]) : list(place, parts[0] ?? "");
}

const ORDERS = {
  trouble: byTrouble,
  name: (one, other) => (one.group < other.group ? -1 : 1),
};

function list(place, contains) {
  return filtered(place, {
    title: "Groups",
    caption: "Consumer groups",
    hint: "Part of a group's or subject's name",
    contains,
    orders: [["trouble", "most to do"], ["name", "subject and name"], ["lag", "lag"], ["in_flight", "in flight"], ["failed", "failed"], ["dead", "dead letters"], ["consumers", "consumers"], ["acked", "handled"]],
    ask: listGroups,
    compare: (order) => ORDERS[order] ?? ((one, other) => other[order] - one[order]),
    make: (order, sorted) => table("Consumer groups", groupColumns(), { key: groupKey, order, sorted, empty: "No consumer group is like that." }),
  });
}

function group(place, subject, name) {
  const facts = h("dl", { class: "tiles" });
  const state = h("span");
  const missing = h("div");
  const chart = lineChart("Lag over time", ["lag"], 200);
  const flow = lineChart("Handled, messages a second", ["handled"], 200);
  const row = { subject, group: name };
  const suspend = button("Suspend…", () => steer("suspend"));
  const resume = button("Resume", () => steer("resume"));
  const barred = unless("Admin", subject);
  put(place,
    h("p", { class: "crumbs" }, link("groups", [], "Groups"), " / ", link("subjects", [subject], data(subject)), " /"),
    h("h1", {}, data(name), " ", state),
    h("div", { class: "actions" }, barred ? null : [button("Seek…", seek), suspend, resume], link("dead", [subject, name], "Dead letters", { class: "button" })),
    barred && h("p", { class: "more" }, barred),
    missing,
    facts,
    h("div", { class: "charts" }, chart.node, flow.node),
  );

  let told = false;
  async function update() {
    let result;
    try {
      if (!told) {
        told = true;
        await past({ subject, group: name });
      }
      result = await listGroups({ subject, group: name, limit: 1000 });
    } catch (error) {
      return failed(error);
    }
    silence(missing, result.silent);
    const found = result.rows[0];
    if (!found) return clear(facts, h("div", { class: "tile warn" }, h("dt", {}, "Group"), h("dd", {}, live.brokers.length ? "there is none of that name" : "…")));
    clear(state, mark(stateOf(found)));
    suspend.hidden = found.suspended;
    resume.hidden = !found.suspended;
    const tiles = [["Lag", count(found.lag)], ["Trend", trendOf(found) || "–"], ["In flight", count(found.in_flight)], ["Failed", count(found.failed)], ["Dead", count(found.dead)], ["Handled", count(found.acked)], ["Consumers", count(found.consumers)], ["Consumption", found.consumption], ["On", found.at.join(", ")]];
    if (found.paused !== null) tiles.push(["Paused for", found.paused]);
    if (found.over_quota) tiles.push(["Over the quota of", found.over_quota]);
    clear(facts, tiles.map(([title, value]) => h("div", { class: "tile" }, h("dt", {}, title), h("dd", {}, value))));
    const points = history(nameOf(row));
    chart.update([series(points, "lag")]);
    flow.update([rates(points, "acked")]);
    return undefined;
  }

  async function steer(what) {
    const text = what === "suspend" ? "It is given nothing more until it is resumed. What its consumers hold they may handle." : "";
    if (text && !(await confirm({ title: `Suspend ${name}?`, text, yes: "Suspend", danger: true }))) return;
    await attempt(async () => {
      await everywhere((at, stored) => post(ofGroup(stored, name, what), undefined, at));
      return `${name} is ${what === "suspend" ? "suspended" : "resumed"}.`;
    });
    lookNow();
  }

  // Wherever the group is; a subject with partitions of it on one broker is moved as one by its broker.
  async function everywhere(act) {
    const rows = await askAll(live.brokers, (at) => get(`/v1/overview/groups${query({ subject, group: name, limit: 1000 })}`, at), false);
    if (rows.silent.length) throw rows.silent[0].error;
    const answers = [];
    for (const one of rows.answers) if (one.value.groups.length) answers.push(await act(one.at, subject));
    if (!answers.length) throw new Error("no broker group has this group");
    return answers;
  }

  async function seek() {
    const to = h("select", {}, h("option", { value: "latest" }, "latest: what comes from now on"), h("option", { value: "earliest" }, "earliest: all that is kept"), h("option", { value: "time" }, "a time"), h("option", { value: "sequence" }, "a sequence"));
    const value = h("input", { type: "text", placeholder: "2026-09-01T00:00:00Z, or 41", autocomplete: "off" });
    const placeOf = (given) => (given.to === "time" ? given.value.trim() : given.to === "sequence" ? Number(given.value) : given.to);
    const given = await confirm({
      title: `Where does ${name} go on?`,
      text: "Leases and waiting retries of what is passed over are void.",
      yes: "Move it",
      danger: true,
      fields: [{ name: "to", label: "Go on at", input: to }, { name: "value", label: "Time or sequence", input: value }],
      rehearse: async (values) => {
        const said = await everywhere((at, stored) => post(ofGroup(stored, name, "seek"), { to: placeOf(values), rehearsal: true }, at));
        const sum = (key) => said.reduce((all, one) => all + one[key], 0);
        return `Would give ${plural(sum("again"), "message")} again, skip ${count(sum("skipped"))}, and end ${plural(sum("in_flight"), "lease")}.`;
      },
    });
    if (given === null) return;
    await attempt(async () => {
      await everywhere((at, stored) => post(ofGroup(stored, name, "seek"), { to: placeOf(given) }, at));
      return `${name} goes on at ${placeOf(given)}.`;
    });
    lookNow();
  }

  return { update };
}

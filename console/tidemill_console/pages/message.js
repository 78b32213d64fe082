// One message, wherever it is shown: what it holds, and what became of it in each group.

import { askAll, found, get, part } from "./api.js";
import { attempt } from "./dialogs.js";
import { button, clear, data, h, link, put } from "./dom.js";
import { bytes, count, moment } from "./format.js";
import { live } from "./live.js";

const SHOWN_CHARS = 20_000;

export function sizeOf(message) {
  const padding = message.body.endsWith("==") ? 2 : message.body.endsWith("=") ? 1 : 0;
  return (message.body.length / 4) * 3 - padding;
}

// A body as text: JSON with its lines, text as it is, anything else as its bytes.
export function bodyOf(message) {
  if (message.text === null || message.text === undefined) return hex(message.body);
  try {
    const value = JSON.parse(message.text);
    if (typeof value === "object" && value !== null) return JSON.stringify(value, null, 2);
  } catch {
    return message.text;
  }
  return message.text;
}

function hex(body) {
  const binary = atob(body.slice(0, 8192));
  const lines = [];
  for (let at = 0; at < Math.min(binary.length, 2048); at += 16) {
    const some = [...binary.slice(at, at + 16)];
    const codes = some.map((one) => one.charCodeAt(0));
    lines.push(`${at.toString(16).padStart(4, "0")}  ${codes.map((one) => one.toString(16).padStart(2, "0")).join(" ").padEnd(48)} ${codes.map((one) => (one > 31 && one < 127 ? String.fromCharCode(one) : ".")).join("")}`);
  }
  return lines.join("\n");
}

export function preview(message) {
  if (message.problem && !message.body) return h("span", { class: "mark bad" }, "unreadable");
  const text = message.text ?? `${bytes(sizeOf(message))} of binary`;
  return data(text.length > 120 ? `${text.slice(0, 120)}…` : text, "preview");
}

export function details(message) {
  const rows = [
    ["Id", data(message.id, "mono")], ["Subject", link("subjects", [message.subject], data(message.subject))], ["Sequence", count(message.sequence)],
    ["Stored", moment(message.stored_at)], ["Created", moment(message.created_at)], ["Key", message.key ? data(message.key) : "–"],
    ["Tags", message.tags.length ? message.tags.map((tag) => data(tag, "tag")) : "–"], ["Priority", String(message.priority)], ["Size", bytes(sizeOf(message))],
  ];
  if (message.problem) rows.push(["Unreadable", data(message.problem)]);
  if (message.origin) rows.push(["Of", link("messages", ["id", message.origin], data(message.origin, "mono"))]);
  for (const [name, value] of Object.entries(message.properties ?? {})) rows.push([data(name), data(typeof value === "string" ? value : JSON.stringify(value))]);
  const text = bodyOf(message);
  const shown = text.length > SHOWN_CHARS ? `${text.slice(0, SHOWN_CHARS)}\n… ${count(text.length - SHOWN_CHARS)} more characters` : text;
  return h("div", { class: "message" },
    h("dl", { class: "facts" }, rows.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])),
    h("pre", { class: "body", tabindex: "0", "aria-label": "Body" }, shown));
}

// -- why --------------------------------------------------------------------------------------------------------------

const KINDS = { acked: "good", dead: "bad", dropped: "bad", purged: "bad", retry: "warn", dying: "warn", parked: "warn" };

export function why(id) {
  const place = h("section", { class: "why", "aria-live": "polite" });
  const ask = button("What became of it?", () => attempt(look), { class: "main" });
  put(place, ask);
  async function look() {
    ask.disabled = true;
    try {
      const said = found(await askAll(live.brokers, (at) => get(`/v1/messages/${part(id)}/why`, at)));
      const groups = said.answers.flatMap((one) => one.value.groups);
      clear(place, h("h2", {}, "What became of it"), said.silent.map((one) => h("p", { class: "note warn" }, `${one.group} did not say: ${one.error.sentence}`)),
        groups.length ? groups.map(standing) : h("p", { class: "empty" }, "No group consumes its subject."));
    } finally {
      ask.disabled = false;
    }
  }
  return { node: place, look };
}

function standing(one) {
  const error = one.error && h("p", {}, "It failed of ", data(one.error.reason, "mono"), one.error.place && [" at ", data(one.error.place, "mono")], one.error.fingerprint && [" (", data(one.error.fingerprint, "mono"), ")"]);
  const events = one.events.map((event) => h("li", {}, h("time", {}, moment(event.at)), " ", data(event.what), event.consumer && [" by ", data(event.consumer)], event.error && [": ", data(event.error.reason, "mono")]));
  return h("article", {}, h("h3", {}, data(one.group), " ", h("span", { class: `mark ${KINDS[one.state] ?? ""}` }, one.state)), h("p", {}, data(one.sentence)), error, events.length > 0 && h("ol", { class: "events" }, events));
}

// Transactions that nobody has decided, and a person's word on one.

import { askAll, get, part, post } from "../api.js";
import { attempt, confirm, shut, silence } from "../dialogs.js";
import { button, data, h, link, say } from "../dom.js";
import { ago, bytes, count, plural } from "../format.js";
import { live, lookNow } from "../live.js";
import { unless } from "../rights.js";
import { table } from "../table.js";

export function transactions(place) {
  const barred = unless("Admin");
  if (barred) return shut(place, "Transactions", barred);
  const missing = h("div");
  const many = h("p", { class: "more", role: "status" });
  const rows = table("Pending transactions", [
    { title: "Transaction", cell: (row) => data(row.id, "mono"), changes: (row) => row.id },
    { title: "Producer group", cell: (row) => data(row.group), changes: (row) => row.group },
    { title: "Subjects", cell: (row) => row.subjects.map((name) => [link("subjects", [name.replace(/#\d+$/, "")], data(name)), " "]), changes: (row) => row.subjects },
    { title: "Messages", number: true, cell: (row) => count(row.messages) },
    { title: "Size", number: true, cell: (row) => bytes(row.bytes) },
    { title: "Stored", cell: (row) => ago(row.stored_ms) },
    { title: "Asked", number: true, cell: (row) => plural(row.checks, "time") },
    { title: "Next", cell: (row) => (row.committing ? "is being committed" : ago(row.next_check_ms)) },
    { title: "On", cell: (row) => row.on },
    { title: "Decide", cell: (row) => [button("Commit…", () => decide(row, "commit"), { "aria-label": `Commit ${row.id}` }), " ", button("Roll back…", () => decide(row, "rollback"), { class: "danger", "aria-label": `Roll back ${row.id}` })], changes: (row) => row.id },
  ], { key: (row) => row.id, empty: "No transaction is pending." });
  place.append(h("h1", {}, "Transactions"), h("p", { class: "more" }, "Half messages that nobody sees until their producer, or a person, decides."), missing, rows.node, many);

  async function update() {
    const said = await askAll(live.brokers, (at) => get("/v1/transactions", at), false);
    silence(missing, said.silent);
    const all = said.answers.flatMap((one) => one.value.transactions.map((row) => ({ ...row, on: one.group, at: one.at })));
    rows.update(all.sort((one, other) => one.stored_ms - other.stored_ms));
    const pending = said.answers.reduce((sum, one) => sum + one.value.pending, 0);
    say(many, pending > all.length ? `The oldest ${count(all.length)} of ${count(pending)}.` : pending ? plural(pending, "transaction") : "");
  }

  async function decide(row, what) {
    const text = what === "commit" ? `${plural(row.messages, "message")} become messages. Do so only when the program's own part has happened.` : `Nobody will ever see ${plural(row.messages, "message")} of it.`;
    const title = what === "commit" ? "Commit in the producer's stead?" : "Roll back in the producer's stead?";
    if (!(await confirm({ title, text, yes: what === "commit" ? "Commit" : "Roll back", danger: true }))) return;
    await attempt(async () => {
      const said = await post(`/v1/transactions/${part(row.id)}/${what}`, undefined, row.at);
      return what === "commit" ? `${plural(said.count, "message")} committed.` : `${row.id} is rolled back.`;
    });
    lookNow();
  }

  return { update };
}

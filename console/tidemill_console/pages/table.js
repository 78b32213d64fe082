// Tables that are filled again and again: a row stays the same row while its key is there, so that the focus, and what
// a person has marked, stay where they are.
//
// A column is {title, cell(row) -> text or node, number, sort, hint}; `changes(row)` says when a cell that is a node has
// to be made anew. Arrow keys go from row to row by the first link or button of each.

import { h, put, say } from "./dom.js";

export function table(caption, columns, { key, empty = "There is nothing here.", order = null, sorted = null } = {}) {
  const heads = columns.map((column) => head(column, order, sorted));
  const body = h("tbody");
  const node = h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", {}, h("caption", { class: "unseen" }, caption), h("thead", {}, h("tr", {}, heads)), body),
  );
  const nothing = h("p", { class: "empty", hidden: true }, empty);
  const rows = new Map();
  node.addEventListener("keydown", (event) => step(event, body));

  function update(values) {
    const focused = document.activeElement;
    const wanted = new Set();
    let before = null;
    for (const value of values) {
      const name = key(value);
      if (wanted.has(name)) continue;
      wanted.add(name);
      const row = rows.get(name) ?? make(columns);
      rows.set(name, row);
      for (const [index, column] of columns.entries()) fill(row, index, column, value);
      const next = before ? before.nextSibling : body.firstChild;
      if (next !== row.node) body.insertBefore(row.node, next);
      before = row.node;
    }
    for (const [name, row] of rows) {
      if (wanted.has(name)) continue;
      row.node.remove();
      rows.delete(name);
    }
    if (focused && focused !== document.activeElement && body.contains(focused)) focused.focus();
    nothing.hidden = rows.size > 0;
    node.hidden = rows.size === 0;
  }

  return { node: h("div", { class: "table" }, node, nothing), update };
}

function head(column, order, sorted) {
  const more = { scope: "col", class: column.number ? "number" : null, title: column.hint };
  if (!column.sort || !order) return h("th", more, column.title);
  const is = sorted === column.sort;
  const act = () => order(column.sort);
  return h("th", { ...more, "aria-sort": is ? (column.number ? "descending" : "ascending") : "none" },
    h("button", { type: "button", class: "sort", onclick: act }, column.title, h("span", { "aria-hidden": "true" }, is ? (column.number ? " ↓" : " ↑") : "")));
}

function make(columns) {
  const cells = columns.map((column, index) => h(index ? "td" : "th", { class: column.number ? "number" : null, scope: index ? null : "row" }));
  return { node: h("tr", {}, cells), cells, said: [] };
}

function fill(row, index, column, value) {
  const cell = row.cells[index];
  if (!column.changes) {
    const content = column.cell(value);
    if (!(content instanceof Node) && !Array.isArray(content)) return say(cell, content ?? "");
    return cell.firstChild ? undefined : put(cell, content);
  }
  const said = JSON.stringify(column.changes(value));
  if (row.said[index] === said) return undefined;
  row.said[index] = said;
  cell.replaceChildren();
  return put(cell, column.cell(value));
}

function step(event, body) {
  const down = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!down || event.target.matches("input, select, textarea")) return;
  const rows = [...body.children];
  const at = rows.findIndex((row) => row.contains(document.activeElement));
  const target = rows[at < 0 ? (down > 0 ? 0 : rows.length - 1) : at + down]?.querySelector("a, button");
  if (!target) return;
  event.preventDefault();
  target.focus();
}

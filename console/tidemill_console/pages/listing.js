// A list of many things: a filter and an order that the server applies, and as many rows as a page shows.

import { failed, silence } from "./dialogs.js";
import { button, choice, clear, field, h, say } from "./dom.js";
import { count } from "./format.js";
import { live } from "./live.js";

const PAGE = 100;
const ROWS_MAX = 1_000;
const TYPING_MS = 200;

const away = (one) => !one.error.status || one.error.status >= 500;

export function filtered(place, { title, caption, hint, contains, orders, ask, compare, make }) {
  const asked = { contains, order: orders[0][0], limit: PAGE };
  const input = h("input", { type: "search", value: contains, placeholder: hint, autocomplete: "off", spellcheck: "false" });
  const many = h("p", { class: "more", role: "status" });
  const missing = h("div");
  const holder = h("div");
  const order = choice("Order", orders, asked.order, (name) => sort(name));
  let rows = table();
  let turn = 0;
  let timer = 0;
  place.append(h("h1", {}, title), h("div", { class: "filters", role: "search" }, field("Filter", input), order), missing, holder, many);
  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      Object.assign(asked, { contains: input.value.trim(), limit: PAGE });
      update();
    }, TYPING_MS);
  });

  function table() {
    const made = make((name) => sort(name), asked.order);
    clear(holder, made.node);
    return made;
  }

  function sort(name) {
    asked.order = name;
    order.querySelector("select").value = name;
    rows = table();
    update();
  }

  async function update() {
    turn += 1;
    const mine = turn;
    let result;
    try {
      result = await ask({ ...asked });
    } catch (error) {
      return failed(error);
    }
    if (mine !== turn) return undefined;
    if (!result.answers.length && result.silent.length && result.silent.every(away)) return silence(missing, result.silent); // nobody says that there are none
    const shown = result.rows.sort(compare(asked.order)).slice(0, asked.limit);
    rows.update(shown);
    silence(missing, result.silent);
    const left = result.found > shown.length;
    const text = `${count(shown.length)} of ${count(result.found)} ${caption.toLowerCase()}`;
    if (left && asked.limit < ROWS_MAX) clear(many, `${text}. `, button(`Show more`, () => { asked.limit = Math.min(ROWS_MAX, asked.limit * 3); update(); }, { class: "quiet" }));
    else say(many, left ? `${text}; narrow the filter to see others.` : `${text}.`);
    return undefined;
  }

  if (!live.at) say(many, "Asking…");
  return { update };
}

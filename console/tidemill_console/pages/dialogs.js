// What asks a person: is this meant, which token; and what tells one that something was done, or was not.

import { button, clear, field, h, put } from "./dom.js";
import { token } from "./api.js";

const TOLD_MS = 8_000;

export function tell(text, kind = "good") {
  const place = document.getElementById("told");
  if ([...place.children].some((one) => one.dataset.said === text)) return;
  const note = h("p", { class: `note ${kind}`, "data-said": text }, text, " ", button("Dismiss", () => note.remove(), { class: "quiet" }));
  place.append(note);
  if (kind === "good") setTimeout(() => note.remove(), TOLD_MS);
}

export function failed(error) {
  tell(error.sentence ?? String(error.message ?? error), "bad");
}

// Does something once it is meant; `act` may give a sentence that is told afterwards.
export async function attempt(act) {
  try {
    const said = await act();
    if (said) tell(said);
    return true;
  } catch (error) {
    failed(error);
    return false;
  }
}

// Resolves to the values of the fields when it is meant, to null when not. `more(values)` may put a rehearsal's outcome
// before the eyes of whoever decides.
export function confirm({ title, text, yes, danger = false, fields = [], rehearse = null }) {
  return new Promise((resolve) => {
    const inputs = Object.fromEntries(fields.map((one) => [one.name, one.input]));
    const values = () => Object.fromEntries(Object.entries(inputs).map(([name, input]) => [name, input.value]));
    const outcome = h("p", { class: "outcome", role: "status" });
    const go = h("button", { class: danger ? "danger" : "main", value: "yes" }, yes);
    const form = h("form", { method: "dialog" },
      h("h2", { id: "asked" }, title), h("p", {}, text), fields.map((one) => field(one.label, one.input)), outcome,
      h("div", { class: "actions" }, go, button("Cancel", () => dialog.close("no"))));
    const dialog = h("dialog", { "aria-labelledby": "asked" }, form);
    const look = async () => {
      if (!rehearse) return;
      clear(outcome, "Looking…");
      try {
        clear(outcome, await rehearse(values()));
        go.disabled = false;
      } catch (error) {
        clear(outcome, error.sentence ?? String(error));
        go.disabled = true;
      }
    };
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (!go.disabled) dialog.close("yes");
    });
    for (const input of Object.values(inputs)) input.addEventListener("change", look);
    dialog.addEventListener("close", () => {
      resolve(dialog.returnValue === "yes" ? values() : null);
      dialog.remove();
    });
    document.body.append(dialog);
    dialog.showModal();
    (fields[0]?.input ?? go).focus();
    look();
  });
}

// A view that is not for whoever sits here; nothing is asked for it.
export function shut(place, title, why) {
  place.append(h("h1", {}, title), h("p", { class: "note warn" }, why));
  return {};
}

let asking = false;
let declined = null;

// The token is kept as long as this tab, and sent with every request from then on.
// Who does not want to give one is not asked again by every request that is refused.
export async function askForToken(refused) {
  if (asking || (refused !== false && refused === declined)) return;
  asking = true;
  const input = h("input", { type: "password", autocomplete: "off", spellcheck: "false", name: "token" });
  const text = refused ? "This token was refused. Write another one." : "What is asked for here needs a token. It is kept as long as this tab is open.";
  const seen = isSecureContext ? "" : " This page did not come by TLS: who is between can read the token.";
  const said = await confirm({ title: "Token", text: text + seen, yes: "Use it", fields: [{ name: "token", label: "Bearer token", input }] });
  asking = false;
  declined = said === null ? token.get() : null;
  if (said === null) return;
  token.set(said.token.trim());
  document.dispatchEvent(new CustomEvent("token-changed"));
}

export function silence(place, silent) {
  clear(place);
  for (const one of silent) {
    put(place, h("p", { class: "note warn" }, `What ${one.group} has is missing here: ${one.error.sentence ?? one.error.message}`));
  }
}

// What whoever sits here may do, as the server says it, so that what would be refused is not offered. It keeps nobody
// out: each path judges for itself, by the token that comes along.

import { Refused, get } from "./api.js";

const NOBODY = { who: "", everything: false, permissions: [] };
export const rights = { ...NOBODY };

let settle;
let settled = false;
// When it was asked once, whatever the answer.
export const asked = new Promise((done) => {
  settle = done;
});

// Asked for again and again, for grants change.
export async function learn() {
  try {
    take(await get("/v1/access/own"));
  } catch (error) {
    if (error.status === 401) take(NOBODY);
    throw error;
  } finally {
    settled = true;
    settle();
  }
}

function take(said) {
  const former = JSON.stringify(rights);
  Object.assign(rights, said);
  if (settled && JSON.stringify(rights) !== former) document.dispatchEvent(new CustomEvent("rights-changed"));
}

// The twin of `covers` and `Permission.allows` in wire/tidemill_wire/access.py.
export function covers(pattern, wanted) {
  return pattern.endsWith("*") ? wanted.startsWith(pattern.slice(0, -1)) : pattern === wanted;
}

export function may(operation, subject = "*") {
  const granting = operation === "Browse" ? ["Browse", "Admin"] : [operation];
  return rights.everything || rights.permissions.some((one) => one.operations.some((name) => granting.includes(name)) && one.subjects.some((pattern) => covers(pattern, subject)));
}

// What may be looked at, as it was granted.
export function browsable() {
  return [...new Set(rights.permissions.filter((one) => one.operations.some((name) => name === "Browse" || name === "Admin")).flatMap((one) => one.subjects))];
}

const DOES = { Browse: "look at", Admin: "administer", Send: "send to" };
const ADVICE = "ask whoever administers the queue for a grant";

function lacking(operation, subject) {
  const what = subject === "*" ? "all subjects, as this asks for" : `'${subject}'`;
  return `${rights.who || "Nobody"} may not ${DOES[operation]} ${what}`;
}

// A sentence for who may not, and nothing for who may.
export function unless(operation, subject = "*") {
  return may(operation, subject) ? null : `${lacking(operation, subject)}: ${ADVICE}.`;
}

export function demand(operation, subject = "*") {
  if (!may(operation, subject)) throw new Refused(403, { code: "forbidden", detail: lacking(operation, subject), advice: ADVICE });
}

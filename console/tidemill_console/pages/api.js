// Asking the public HTTP ports: meta's, which is where this page comes from, and those of brokers.
//
// A broker that is in the same process as the page has no address of its own; others are asked through meta, which
// passes on what this page may ask (/console/at/GROUP/BROKER/...). The token, when there is one, goes along, and lives as
// long as this tab.

const TOKEN = "tidemill.token";
const PATIENCE_MS = 20_000;

export class Refused extends Error {
  constructor(status, error) {
    super(error.detail ?? `it answered ${status}`);
    this.status = status;
    this.code = error.code ?? String(status);
    this.advice = error.advice ?? "";
  }

  get sentence() {
    return this.advice ? `${this.message}: ${this.advice}` : this.message;
  }
}

export const token = {
  get: () => sessionStorage.getItem(TOKEN) ?? "",
  set: (text) => (text ? sessionStorage.setItem(TOKEN, text) : sessionStorage.removeItem(TOKEN)),
};

export async function ask(method, path, body, at = "") {
  const headers = { Accept: "application/json" };
  const shown = token.get();
  if (shown) headers.Authorization = `Bearer ${shown}`;
  if (method !== "GET") headers["Tidemill-Console"] = "1";
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(at + path, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      credentials: "omit",
      redirect: "error",
      cache: "no-store",
      signal: AbortSignal.timeout(PATIENCE_MS),
    });
  } catch (error) {
    const why = error.name === "TimeoutError" ? `no answer within ${PATIENCE_MS / 1000} s` : "no answer";
    throw new Refused(0, { code: "unavailable", detail: why, advice: "look whether the server runs, and at the network" });
  }
  let value;
  try {
    value = await answer.json();
  } catch {
    throw new Refused(answer.status, { detail: "the answer broke off, or is not tidemill's" });
  }
  if (answer.ok) return value;
  // Of an answer that comes late a person may have given another one meanwhile.
  if (answer.status === 401 && shown === token.get()) document.dispatchEvent(new CustomEvent("token-wanted", { detail: shown }));
  throw new Refused(answer.status, value?.error ?? {});
}

export const get = (path, at = "") => ask("GET", path, undefined, at);
export const post = (path, body, at = "") => ask("POST", path, body, at);

export function query(values) {
  const given = Object.entries(values).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return given.length ? `?${new URLSearchParams(given)}` : "";
}

export const part = encodeURIComponent;

export function ofSubject(subject, more) {
  return `/v1/subjects/${part(subject)}/${more}`;
}

export function ofGroup(subject, group, more) {
  return `/v1/subjects/${part(subject)}/groups/${part(group)}/${more}`;
}

// -- brokers --------------------------------------------------------------------------------------------------------

export function baseOf(group, broker) {
  const here = broker.addresses.control.startsWith(":");
  return here ? "" : `/console/at/${part(group.group)}/${part(broker.name)}`;
}

// Who is asked about what a broker group has: its master; or, to look only, a slave when there is none.
export function speakers(groups, looking = true) {
  return groups
    .filter((group) => !group.retired)
    .map((group) => {
      const alive = group.brokers.filter((one) => one.alive);
      const master = alive.find((one) => one.name === group.master) ?? (looking ? alive[0] : undefined);
      return { group: group.group, broker: master?.name, at: master && baseOf(group, master) };
    });
}

// The answers of all, and who did not give one: what they have is missing, and a view has to say so.
export async function askAll(groups, question, looking = true) {
  const all = speakers(groups, looking);
  const said = await Promise.allSettled(
    all.map(async (one) => {
      if (one.at === undefined) throw new Refused(0, { detail: "nobody of it is alive" });
      return question(one.at, one);
    }),
  );
  const answers = [];
  const silent = [];
  said.forEach((one, index) => {
    if (one.status === "fulfilled") answers.push({ ...all[index], value: one.value });
    else silent.push({ ...all[index], error: one.reason });
  });
  return { answers, silent };
}

// A search that finds nothing at one broker group may find it at another; only when all others agree it is nowhere.
export function found(result) {
  const wrong = result.silent.filter((one) => one.error.status !== 404);
  if (!result.answers.length && wrong.length) throw wrong[0].error;
  if (!result.answers.length && result.silent.length) throw result.silent[0].error;
  return { answers: result.answers, silent: wrong };
}

export const living = (name) => name.replace(/#\d+$/, "");

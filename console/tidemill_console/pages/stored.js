// Messages of a subject wherever they lie: of its partitions on all broker groups, the newest first, a page at a time.

import { askAll, get, ofSubject, query } from "./api.js";
import { isAlone, live } from "./live.js";

// Where the messages of a subject lie, by the routes of meta; of what meta has not heard of, everywhere under its name.
async function partitionsOf(subject) {
  if (!subject.startsWith("%") && !isAlone()) {
    try {
      const route = await get(ofSubject(subject, "route"));
      const all = [route, ...route.former].flatMap((one) => one.partitions);
      return new Map(all.map((one) => [`${one.group}/${one.name}`, one]));
    } catch (error) {
      if (error.status !== 404) throw error;
    }
  }
  return new Map(live.brokers.map((group) => [`${group.group}/${subject}`, { group: group.group, name: subject }]));
}

export class Browser {
  // `asked`: key, from, to, order, limit.
  constructor(subject, asked) {
    this.subject = subject;
    this.asked = asked;
    this.places = null;
    this.silent = [];
    this.known = false;
  }

  get more() {
    return this.places === null || [...this.places.values()].some((one) => one.waiting.length || !one.done);
  }

  // The next page; fewer messages than were asked for when there are no more.
  async next() {
    this.places ??= new Map([...(await partitionsOf(this.subject))].map(([name, one]) => [name, { ...one, waiting: [], after: null, done: false }]));
    const limit = this.asked.limit;
    await Promise.all([...this.places.values()].map((place) => this.refill(place, limit)));
    const page = [];
    while (page.length < limit) {
      const place = this.first();
      if (!place) break;
      page.push(place.waiting.shift());
    }
    return page;
  }

  // The place whose next message comes first. Within a place they keep their order: many have the same time.
  first() {
    const filled = [...this.places.values()].filter((one) => one.waiting.length);
    const before = (one, other) => (this.asked.order === "oldest" ? one < other : one > other);
    return filled.reduce((best, one) => (!best || before(one.waiting[0].stored_at, best.waiting[0].stored_at) ? one : best), null);
  }

  async refill(place, limit) {
    if (place.done || place.waiting.length >= limit) return;
    const groups = live.brokers.filter((one) => one.group === place.group);
    const path = ofSubject(place.name, `messages${query({ ...this.asked, after: place.after })}`);
    const said = await askAll(groups, (at) => get(path, at));
    for (const one of said.silent) {
      place.done = true;
      if (one.error.status !== 404) this.silent.push(one);
    }
    for (const one of said.answers) {
      this.known = true;
      place.waiting.push(...one.value.messages);
      place.after = one.value.after;
      place.done = one.value.after === null;
    }
  }
}

"""What tidemill has set out to reach beside its peers, and whether the rows at hand show it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from measure import Row

OWN = "tidemill"
SIZES = (1024, 100)
PAGE_CACHE = "page cache"
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Verdict:
    goal: str
    own: float | None
    other: float | None
    who: str
    factor: float
    at_least: bool
    doubt: str = ""
    """Why the figures behind it should not be trusted, if so."""

    @property
    def met(self) -> bool | None:
        """None: a figure is missing."""
        if self.own is None or self.other is None:
            return None
        bound = self.other * self.factor
        return self.own >= bound if self.at_least else self.own <= bound

    def line(self) -> str:
        word = {True: "met", False: "**not met**", None: "not measured"}[self.met] + self.doubt
        sign = "≥" if self.at_least else "≤"
        ratio = f"{self.own / self.other:.2f}" if self.own is not None and self.other else ""
        figure = "" if self.own is None else f"{self.own:,.3g}" if self.own < 100 else f"{self.own:,.0f}"
        other = (
            "" if self.other is None else f"{self.other:,.3g}" if self.other < 100 else f"{self.other:,.0f}"
        )
        return (
            f"| {self.goal} | {figure} | {other} ({self.who}) | {ratio} | {sign} {self.factor:g} | {word} |"
        )


Filter = Callable[[Row], bool]


class Book:
    """Finds the best figure among rows."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows = [row for row in rows if "error" not in row]

    def best(self, name: str, which: Filter, *, least: bool = False) -> Row | None:
        found = [row for row in self.rows if row.get(name) is not None and which(row)]
        return (min if least else max)(found, key=lambda row: row[name]) if found else None

    def least(self, name: str, which: Filter) -> float | None:
        row = self.best(name, which, least=True)
        return None if row is None else float(row[name])

    def compare(
        self, goal: str, name: str, own: Filter, others: Filter, factor: float, *, at_least: bool = True
    ) -> Verdict:
        mine = self.best(name, lambda row: row["peer"] == OWN and own(row), least=not at_least)
        theirs = self.best(name, lambda row: row["peer"] != OWN and others(row), least=not at_least)
        who = f"{theirs['peer']}, {theirs['variant']}" if theirs else "–"
        own_figure = float(mine[name]) if mine else None
        other_figure = float(theirs[name]) if theirs else None
        return Verdict(goal, own_figure, other_figure, who, factor, at_least, _doubt(mine, theirs))

    def in_and_out(self, size: int, peer: str) -> float | None:
        """Server CPU for a million messages in and out again, the out with single acknowledgements."""
        into = self.least("server_cpu_s_per_m", _in("a", size, peer=peer))
        out = self.least("server_cpu_s_per_m", _in("c", size, "ack", peer=peer))
        return into + out if into is not None and out is not None else None


def _doubt(*rows: Row | None) -> str:
    words = [word for word in ("disturbed", "quick") if any(row and row.get(word) for row in rows)]
    return f" ({', '.join(words)})" if words else ""


def _in(
    workload: str, size: int, tag: str = "", peer: str = "", variant: str = "", durability: str = ""
) -> Filter:
    def holds(row: Row) -> bool:
        return (
            row["workload"] == workload
            and row["size"] == size
            and (not tag or tag in row["tags"])
            and (not peer or row["peer"] == peer)
            and (not variant or row["variant"] == variant)
            and (not durability or row["durability"] == durability)
        )

    return holds


def judge(rows: list[Row]) -> list[Verdict]:
    book = Book(rows)
    found: list[Verdict] = []
    for size in SIZES:
        found += _throughput(book, size)
    for size, share in ((1024, 1 / 2), (100, 1 / 4)):
        own = book.in_and_out(size, OWN)
        costs = {peer: book.in_and_out(size, peer) for peer in {row["peer"] for row in rows} - {OWN}}
        known = [(cost, peer) for peer, cost in costs.items() if cost is not None]
        other, who = min(known, default=(None, "–"))
        found.append(Verdict(f"broker CPU s/M in and out, {size} B", own, other, who, share, at_least=False))
    for durability in (PAGE_CACHE, "fsync"):
        for name in ("p50_ms", "p99_ms"):
            goal = f"one in flight, {durability}: {name.removesuffix('_ms')} ms beside NATS"
            sync = _in("d", 1024, durability=durability)
            nats = _in("d", 1024, peer="nats", durability=durability)
            found.append(book.compare(goal, name, sync, nats, 1.5, at_least=False))
    e2e = _in("e", 1024)
    found.append(book.compare("end to end: p99 ms", "p99_ms", e2e, e2e, 1.0, at_least=False))
    return found + _topics(book) + _rest(book) + _replicated(book) + _later(book)


def _replicated(book: Book) -> list[Verdict]:
    """With a second server that has each message before the answer: beside who does the same, and beside one alone."""
    found: list[Verdict] = []
    for size in SIZES:
        own = _in("r", size)
        for peer, factor in (("kafka", 1.5), ("rocketmq", 1.5)):
            goal = f"produce, two replicas, {peer}, {size} B"
            found.append(book.compare(goal, "rate", own, _in("r", size, peer=peer), factor))
        both, alone = (book.best("rate", _in(workload, size, peer=OWN)) for workload in ("r", "a"))
        rates = [None if row is None else float(row["rate"]) for row in (both, alone)]
        doubt = _doubt(both, alone)
        found.append(
            Verdict(
                f"two replicas beside one, {size} B", rates[0], rates[1], OWN, 0.6, at_least=True, doubt=doubt
            )
        )
    return found


def _later(book: Book) -> list[Verdict]:
    """Messages for later beside RocketMQ's timers, and beside those that go at once."""
    late = _in("t-due", 1024)
    found = [
        book.compare("for later: p99 ms late", "p99_ms", late, late, 1.0, at_least=False),
        book.compare("for later: most ms late", "most_ms", late, late, 1.0, at_least=False),
    ]
    for size in SIZES:
        own = _in("t-produce", size)
        found.append(book.compare(f"scheduling, {size} B", "rate", own, own, 1.0))
        later, now = (book.best("rate", _in(workload, size, peer=OWN)) for workload in ("t-produce", "a"))
        rates = [None if row is None else float(row["rate"]) for row in (later, now)]
        doubt = _doubt(later, now)
        goal = f"scheduling beside produce, {size} B"
        found.append(Verdict(goal, rates[0], rates[1], OWN, 0.7, at_least=True, doubt=doubt))
    return found


def _rest(book: Book) -> list[Verdict]:
    """What a queue needs that nobody uses, and how soon it is there."""

    def goal(text: str, name: str, variant: str, bound: float) -> Verdict:
        own = book.least(
            name, lambda row: row["peer"] == OWN and re.match(variant, row["variant"]) is not None
        )
        return Verdict(text, own, bound, "the goal", 1.0, at_least=False)

    return [
        goal("memory at rest, MB", "rss_mb", "start and rest", 120 * MIB / 1e6),
        goal("memory with 10,000 subjects, MB", "rss_mb", "10,000 subjects", 1024 * MIB / 1e6),
        goal("ready when empty, s", "startup_s", "start, empty", 1.0),
        goal("ready on 10 GiB after an orderly stop, s", "startup_s", r"start, 1\d.*orderly", 5.0),
        goal("ready on 10 GiB after a kill under load, s", "startup_s", r"start, 1\d.*under load", 5.0),
    ]


def _throughput(book: Book, size: int) -> list[Verdict]:
    def goal(text: str, own: str, others: Filter, factor: float) -> Verdict:
        return book.compare(f"{text}, {size} B", "rate", _in(own, size), others, factor)

    python, drain = "f-produce", "f-consume"
    return [
        goal("produce, page cache", "a", _in("a", size), 1.5),
        goal("produce, page cache, Python clients", "a", _in(python, size), 1.5),
        goal("produce, fsync", "b", _in("b", size), 1.5),
        goal("drain, queues with single acks", "c", _in("c", size, "ack"), 3.0),
        goal("drain, RabbitMQ streams in Java", "c", _in("c", size, peer="rabbitmq", variant="stream"), 1.0),
        goal("drain, aiokafka", "c", _in(drain, size, variant="aiokafka"), 2.0),
        goal("drain, Python clients of queues", "c", _in(drain, size, "ack"), 8.0),
        goal("drain, confluent-kafka", "c", _in(drain, size, variant="confluent-kafka"), 0.7),
    ]


def _topics(book: Book) -> list[Verdict]:
    own = _in("g", 100)
    found = [
        book.compare(f"5,000 topics: {peer}", "rate", own, _in("g", 100, peer=peer), factor)
        for peer, factor in (("kafka", 10.0), ("rocketmq", 10.0), ("nats", 0.7))
    ]
    first = book.least("first_touch_s", lambda row: row["peer"] == OWN and own(row))
    found.append(Verdict("5,000 topics: first touch s", first, 2.0, "the goal", 1.0, at_least=False))
    return found


def render(rows: list[Row]) -> str:
    lines = [
        "| goal | tidemill | best of the others | ratio | goal | verdict |",
        "|---|---:|---:|---:|---:|---|",
    ]
    return "\n".join(lines + [verdict.line() for verdict in judge(rows)])

"""Reading partitions as brokers keep them: which ranges there are, and the batches of each, from slaves first.

    plan(server, subjects, start, end)  ->  ranges, each of one partition and of about so many bytes
    read(one)                           ->  bytes of whole batches, one answer after the other; ``decode`` opens them

A range is a value and may go to another process. Its sequences are committed and on a disk, so whoever reads it again,
from whichever broker of the group, reads the same. When a broker goes, the next one is asked, from where the last
answer ended; when all have gone, meta is asked who is there now, until ``PATIENCE_S`` is over.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice, pairwise
from typing import Any, Literal, NamedTuple, TypeAlias, cast
from urllib.parse import quote, urlencode

from tidemill_spark.calling import Port
from tidemill_wire.errors import TidemillError
from tidemill_wire.limits import MIB, RANGE_PIECES_MAX

TARGET_BYTES = 128 * MIB
"""Of a range: a task of some seconds."""
ANSWER_BYTES = 16 * MIB
PATIENCE_S = 60.0
"""With brokers that are away: a failover takes ten seconds at most."""
PAUSE_S = 0.25
NEXT = "Tidemill-Next"
PATH = "/v1/ranges"

Key: TypeAlias = tuple[str, str]
"""Broker group and partition."""
Position: TypeAlias = Literal["earliest", "latest"] | datetime | Mapping[Key, int]
"""A place in every partition; a partition that a map does not name begins at its earliest, and ends at its latest."""
Prefers: TypeAlias = Literal["slave", "master"]


class RangeGone(TidemillError):
    """Retention was faster: the partition begins later by now, at ``first``."""

    def __init__(self, detail: str, first: int | None) -> None:
        super().__init__(detail)
        self.first = first

    def __reduce__(self) -> tuple[Any, ...]:
        return RangeGone, (str(self), self.first)  # out of a worker's process


class NobodyAnswers(TidemillError):
    """No broker of a group, or no meta."""


class Broker(NamedTuple):
    """One that can be asked over HTTP."""

    group: str
    url: str


class Standing(NamedTuple):
    """A partition and what of it may be read. ``at`` is the first sequence of the time that was asked for."""

    subject: str
    broker_group: str
    partition: str
    first: int
    next: int
    bytes: int
    at: int | None
    complete: bool = False
    """All brokers of the group were heard: none of them has more."""

    @property
    def key(self) -> Key:
        return self.broker_group, self.partition


@dataclass(frozen=True, slots=True)
class Range:
    """Messages of one partition, ``next_sequence`` not included."""

    subject: str
    broker_group: str
    partition: str
    first_sequence: int
    next_sequence: int
    bytes: int
    server: str
    urls: tuple[str, ...]
    prefers: Prefers = "slave"

    @property
    def key(self) -> Key:
        return self.broker_group, self.partition


# -- who is there ------------------------------------------------------------------------------------------------


def brokers(server: str, prefers: Prefers = "slave") -> dict[str, list[Broker]]:
    """The brokers of each group, in the order in which they are asked. ``server`` is meta, or a lone broker; several
    replicas of meta are parted by commas.
    """
    error: Exception = NobodyAnswers(f"{server!r} names nobody")
    for place in filter(None, server.split(",")):
        try:
            status, _, body = Port.ask(place, "/v1/brokers")
            if status == 404:  # no meta
                who = _json(Port.ask(place, f"{PATH}?subject=-")[2])
                return {str(who["group"]): [Broker(str(who["group"]), place)]}
            if status == 200:
                return _listed(json.loads(body), prefers, place)
            error = NobodyAnswers(f"{place} answers {status}")
        except (OSError, http.client.HTTPException, ValueError) as caught:
            error = caught
    raise NobodyAnswers(f"nobody answers at {server}: {error}") from error


def _listed(rows: Sequence[Mapping[str, Any]], prefers: Prefers, place: str) -> dict[str, list[Broker]]:
    """As meta at that place has them. A broker without a host is in the same process."""
    found: dict[str, list[Broker]] = {}
    for row in rows:
        if row["retired"]:
            continue
        members = sorted(
            row["brokers"], key=lambda one: (not one["alive"], one["role"] != prefers, not one["in_sync"])
        )
        controls = [str(one["addresses"]["control"]) for one in members]
        found[str(row["group"])] = [
            Broker(str(row["group"]), place if control.startswith(":") else control) for control in controls
        ]
    return found


def standings(
    server: str,
    subjects: Sequence[str],
    at: datetime | None = None,
    prefers: Prefers = "slave",
    *,
    of_all: bool = False,
) -> list[Standing]:
    """The partitions of these subjects (or patterns, as ``order.*``) on all broker groups, as one broker of each has
    them; or with ``of_all`` as all have them together, for one may be behind, and each drops by itself what is old.
    ``NobodyAnswers`` when one group is silent: what lies there is not known.
    """
    asked = [("subject", name) for name in subjects]
    asked += [("at", str(int(at.timestamp() * 1000)))] if at is not None else []
    path = f"{PATH}?{urlencode(asked)}"
    deadline = time.monotonic() + PATIENCE_S
    done: dict[str, list[Standing]] = {}
    while True:
        known = brokers(server, prefers)
        for group, members in known.items():
            wanted = 0 if group in done else len(members) if of_all else 1
            answers = list(islice(_told_by(members, path), wanted))
            if answers:
                rows = [_standing(row, group) for answer in answers for row in answer["partitions"]]
                done[group] = list(_joined(rows, complete=len(answers) == len(members)))
        missing = sorted(set(known) - set(done))
        if not missing:
            return [one for group in sorted(known) for one in done[group]]
        if time.monotonic() > deadline:
            raise NobodyAnswers(f"no broker of {', '.join(missing)} answers")
        time.sleep(PAUSE_S)


def _standing(row: Mapping[str, Any], group: str) -> Standing:
    at = row.get("at")
    return Standing(
        str(row["subject"]), group, str(row["partition"]), int(row["first"]), int(row["next"]), int(row["bytes"]),
        None if at is None else int(at),
    )  # fmt: skip


def _told_by(members: Sequence[Broker], path: str) -> Iterator[Mapping[str, Any]]:
    for broker in members:
        with suppress(OSError, http.client.HTTPException):
            status, _, body = Port.ask(broker.url, path)
            if status == 200:
                yield _json(body)


def _joined(rows: Sequence[Standing], *, complete: bool) -> Iterator[Standing]:
    """Each partition once. Who has what lies behind a time says where that begins; who ends before it does not."""
    known: dict[Key, list[Standing]] = {}
    for row in rows:
        known.setdefault(row.key, []).append(row)
    for own in known.values():
        first, end, size = (
            min(row.first for row in own), max(row.next for row in own), max(row.bytes for row in own)
        )  # fmt: skip
        at = min((row.at for row in own if row.at is not None and row.at < row.next), default=end)
        one = own[0]._replace(first=first, next=end, bytes=size, complete=complete)
        yield one if one.at is None else one._replace(at=at)


# -- ranges ------------------------------------------------------------------------------------------------------


def positions(
    server: str, subjects: Sequence[str], position: Position, prefers: Prefers = "slave"
) -> dict[Key, int]:
    """A place as a sequence of each partition that there is."""
    at = position if isinstance(position, datetime) else None
    return {one.key: place(one, position) for one in standings(server, subjects, at, prefers)}


def place(one: Standing, position: Position, absent: Literal["earliest", "latest"] = "earliest") -> int:
    """A place in a partition, within what may be read."""
    if isinstance(position, datetime):
        return cast("int", one.at)
    if not isinstance(position, str) and (named := position.get(one.key)) is not None:
        return min(max(named, 0), one.next)
    return one.next if (absent if not isinstance(position, str) else position) == "latest" else one.first


def plan(
    server: str,
    subjects: Sequence[str],
    start: Position = "earliest",
    end: Position = "latest",
    *,
    target_bytes: int = TARGET_BYTES,
    prefers: Prefers = "slave",
) -> list[Range]:
    """The ranges between two places. Those that begin where nothing is any more are refused with ``RangeGone`` when
    they are read: what a map names may have expired.
    """
    now = standings(server, subjects, end if isinstance(end, datetime) else None, prefers)
    ends = {one.key: place(one, end, "latest") for one in now}
    begins = (
        positions(server, subjects, start, prefers)
        if isinstance(start, datetime)
        else {one.key: place(one, start) for one in now}
    )
    spans = {one.key: (begins.get(one.key, one.first), ends[one.key]) for one in now}
    return ranges_of(server, now, spans, target_bytes=target_bytes, prefers=prefers)


def ranges_of(
    server: str,
    now: Sequence[Standing],
    spans: Mapping[Key, tuple[int, int]],
    *,
    target_bytes: int = TARGET_BYTES,
    prefers: Prefers = "slave",
) -> list[Range]:
    """These sequences of each partition, cut where they are large."""
    known = brokers(server, prefers)
    found: list[Range] = []
    for one in now:
        first, until = spans.get(one.key, (0, 0))
        if first >= until:
            continue
        urls = tuple(broker.url for broker in known.get(one.broker_group, ()))
        whole = Range(one.subject, *one.key, first, until, one.bytes, server, urls, prefers)
        found += _cut(whole, target_bytes) if one.bytes > target_bytes else [whole]
    return found


def _cut(whole: Range, target_bytes: int) -> list[Range]:
    """Along the pieces that a broker tells: small ones together, large ones in equal parts."""
    if whole.bytes <= target_bytes:
        return [whole]
    cuts, held, at = [whole.first_sequence], 0, whole.first_sequence
    sizes: list[int] = []
    for first, until, size, _ in _pieces(whole):
        parts = max(1, -(-size // target_bytes))
        step = max(1, -(-(until - first) // parts))
        for part in range(first, until, step):
            if held and held + size // parts > target_bytes:
                cuts.append(part)
                sizes.append(held)
                held = 0
            held += size // parts
        at = until
    if at < whole.next_sequence or not sizes:
        at = whole.next_sequence
    sizes.append(held)
    cuts.append(whole.next_sequence)
    return [
        replace(whole, first_sequence=first, next_sequence=until, bytes=size)
        for (first, until), size in zip(pairwise(cuts), sizes, strict=True)
    ]


def _pieces(whole: Range) -> Iterator[tuple[int, int, int, int]]:
    at = whole.first_sequence
    while at < whole.next_sequence:
        try:
            rows = _told(whole, at)
        except RangeGone as gone:  # who reads the first range is told so, too
            at = whole.next_sequence if gone.first is None else gone.first
            continue
        for row in rows:
            yield row[0], row[1], row[2], row[3]
        if len(rows) < RANGE_PIECES_MAX:
            return
        at = rows[-1][1]


def _told(whole: Range, at: int) -> list[list[int]]:
    """The pieces from a sequence on, of whoever answers. Without them a backlog would be one range, however large."""
    asked = urlencode({"from": at, "until": whole.next_sequence})
    path = f"{PATH}/{quote(whole.partition, safe='')}?{asked}"
    urls, deadline = list(whole.urls), time.monotonic() + PATIENCE_S
    while True:
        for url in urls:
            try:
                status, _, body = Port.ask(url, path)
            except (OSError, http.client.HTTPException):
                continue
            if status == 200:
                return cast("list[list[int]]", _json(body)["pieces"])
            _check_there(whole, at, status, body)
        if time.monotonic() > deadline:
            raise NobodyAnswers(f"no broker of {whole.broker_group} tells the pieces of {whole.partition}")
        time.sleep(PAUSE_S)
        urls = _urls(whole)


# -- batches -----------------------------------------------------------------------------------------------------


def read(one: Range, answer_bytes: int = ANSWER_BYTES) -> Iterator[bytes]:
    """Whole batches, which may hold a few messages before and behind the range: ``decode`` leaves those out."""
    at, urls, gone = one.first_sequence, list(one.urls), list[RangeGone]()
    deadline, port = time.monotonic() + PATIENCE_S, None
    try:
        while at < one.next_sequence:
            if not urls:
                if gone:
                    raise min(gone, key=lambda error: error.first or 0)
                _wait(one, deadline)
                urls = _urls(one)
                continue
            port = port or Port(urls[0])
            try:
                answer = _batches(port, one, at, answer_bytes)
            except RangeGone as error:  # another one may have dropped less by now
                gone.append(error)
                answer = None
            if answer is None or answer[0] <= at:  # it is gone, or has not got so far yet
                port.close()
                port = None
                urls.pop(0)
                continue
            at, data = answer
            deadline, gone = time.monotonic() + PATIENCE_S, []
            if data:
                yield data
    finally:
        if port is not None:
            port.close()


def _wait(one: Range, deadline: float) -> None:
    if time.monotonic() > deadline:
        raise NobodyAnswers(
            f"no broker of {one.broker_group} gives {one.partition} up to {one.next_sequence}"
        )
    time.sleep(PAUSE_S)


def _urls(one: Range) -> list[str]:
    """Who is there now; who was there before, when meta is away."""
    try:
        return [broker.url for broker in brokers(one.server, one.prefers).get(one.broker_group, ())]
    except NobodyAnswers:
        return list(one.urls)


def _batches(port: Port, one: Range, at: int, size: int) -> tuple[int, bytes] | None:
    """Where they end, and they; ``None``: ask somebody else."""
    asked = urlencode({"from": at, "until": one.next_sequence, "size": size})
    try:
        status, head, body = port.get(f"{PATH}/{quote(one.partition, safe='')}/batches?{asked}")
    except (OSError, http.client.HTTPException):
        return None
    _check_there(one, at, status, body)
    return (int(head.get(NEXT, "0")), body) if status == 200 else None


def _check_there(one: Range, at: int, status: int, body: bytes) -> None:
    """``RangeGone`` when a broker says so."""
    first = _json(body).get("first") if status == 410 else None
    if first is not None:
        raise RangeGone(f"{one.partition} on {one.broker_group} begins at {first}, not at {at}", int(first))


def _json(body: bytes) -> Mapping[str, Any]:
    found: object = json.loads(body)
    return cast("Mapping[str, Any]", found) if isinstance(found, dict) else {}

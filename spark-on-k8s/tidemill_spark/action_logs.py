"""The action logs of brokers, over HTTP, from slaves first: from where to where they go, and what their records say.

A position is that of the whole broker group, and what is told is committed and on a disk: so whoever reads it again,
from whichever broker of the group, reads the same.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast
from urllib.parse import urlencode

from tidemill_spark.calling import Port
from tidemill_spark.ranges import PATIENCE_S, PAUSE_S, Broker, NobodyAnswers, Prefers, RangeGone, brokers

PATH = "/v1/actions"


@dataclass(frozen=True, slots=True)
class ActionLog:
    """The log of a broker group, as far as it may be read."""

    server: str
    broker_group: str
    urls: tuple[str, ...]
    first: int
    next: int
    since_ms: int
    """When the first record was written that is kept."""
    complete: bool
    """All brokers of the group were heard: none of them has more."""
    prefers: Prefers = "slave"


class Answer(NamedTuple):
    """What some records say, and the position behind them. ``unnamed``: those of groups whose names are gone."""

    next: int
    unnamed: int
    records: Sequence[Mapping[str, Any]]
    bytes: int


def action_logs(server: str, prefers: Prefers = "slave") -> list[ActionLog]:
    """Those of all broker groups, but for those of an earlier version, which tell no actions. ``NobodyAnswers`` when a
    group is silent.
    """
    deadline = time.monotonic() + PATIENCE_S
    done: dict[str, ActionLog | None] = {}
    while True:
        known = brokers(server, prefers)
        for group, members in known.items():
            if group not in done and (answers := _standings(members)) is not None:
                done[group] = _log((server, prefers), group, members, answers)
        missing = sorted(set(known) - set(done))
        if not missing:
            return [one for group in sorted(known) if (one := done[group]) is not None]
        if time.monotonic() > deadline:
            raise NobodyAnswers(f"no broker of {', '.join(missing)} answers")
        time.sleep(PAUSE_S)


def _standings(members: Sequence[Broker]) -> list[Mapping[str, Any]] | None:
    """What brokers of a group say; nothing, when they all know no such path; ``None``: nobody answers."""
    answered, found = False, list[Mapping[str, Any]]()
    for broker in members:
        try:
            status, _, body = Port.ask(broker.url, PATH)
        except (OSError, http.client.HTTPException):
            continue
        answered |= status in {200, 404}
        if status == 200:
            found.append(cast("Mapping[str, Any]", json.loads(body)))
    return found if answered else None


def _log(
    asked: tuple[str, Prefers], group: str, members: Sequence[Broker], answers: Sequence[Mapping[str, Any]]
) -> ActionLog | None:
    """A slave may be behind, and each drops by itself what is old."""
    if not answers:
        return None
    oldest = min(answers, key=lambda one: int(one["first"]))
    end = max(int(one["next"]) for one in answers)
    urls = tuple(broker.url for broker in members)
    first, since_ms = int(oldest["first"]), int(oldest["since"] or 0)
    return ActionLog(asked[0], group, urls, first, end, since_ms, len(answers) == len(members), asked[1])


def told(log: ActionLog, first: int, until: int, subjects: Sequence[str]) -> Iterator[Answer]:
    """What the records from one position to before another say of subjects, which may be patterns. ``RangeGone`` when
    all brokers of the group begin later by now.
    """
    at, urls, gone = first, list(log.urls), list[int]()
    deadline = time.monotonic() + PATIENCE_S
    while at < until:
        if not urls:
            if gone:
                raise RangeGone(
                    f"the action log of {log.broker_group} begins at {min(gone)} by now", min(gone)
                )
            if time.monotonic() > deadline:
                raise NobodyAnswers(f"no broker of {log.broker_group} tells its actions up to {until}")
            time.sleep(PAUSE_S)
            urls = _urls(log)
            continue
        answer = _asked(urls[0], at, until, subjects, gone)
        if answer is None or answer.next <= at:  # it is gone, or has not come so far yet
            urls.pop(0)
            continue
        at, gone = answer.next, []
        deadline = time.monotonic() + PATIENCE_S
        yield answer


def _asked(url: str, at: int, until: int, subjects: Sequence[str], gone: list[int]) -> Answer | None:
    asked = urlencode([("from", at), ("until", until), *(("subject", one) for one in subjects)])
    try:
        status, _, body = Port.ask(url, f"{PATH}/records?{asked}")
    except (OSError, http.client.HTTPException):
        return None
    said: Mapping[str, Any] = json.loads(body) if status in {200, 410} else {}
    if status == 410 and "first" in said:
        gone.append(int(said["first"]))
    if status != 200:
        return None
    return Answer(int(said["next"]), int(said["unnamed"]), said["records"], len(body))


def _urls(log: ActionLog) -> list[str]:
    """Who is there now; who was there before, when meta is away."""
    try:
        return [broker.url for broker in brokers(log.server, log.prefers).get(log.broker_group, ())]
    except NobodyAnswers:
        return list(log.urls)

"""What became of archived messages: of each group, who got it when, which try that was, and what came of it.

A message is followed into the dead letters of a group, where it has another sequence, and out of them again. What is
not kept of the log is told: a row in the place of what is missing, and where nothing of a broker group is archived.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidemill_spark.action_tables import COLUMNS, LOG, SCHEMA
from tidemill_spark.actions import MISSING, Row
from tidemill_spark.commits import Partition
from tidemill_spark.finding import dataset, find
from tidemill_spark.lake import Lake
from tidemill_spark.layout import actions_uri
from tidemill_spark.queries import Query
from tidemill_wire.fields import dead_subject
from tidemill_wire.lanes import lane_name, priority_of, split_lane

EARLY_MS = 60_000
"""Actions may be older by the clock than the message that they are about, when the clock was set back in between."""
OF_A_MESSAGE = ("id", "subject", "broker_group", "partition", "sequence", "stored_at")
ASIDE = frozenset(("paused", "resumed", "exhumed"))
"""Of these none is what became of a message."""


@dataclass(frozen=True, slots=True)
class History:
    """Of one message. ``archived``: whether anything of its broker group's actions is."""

    message: Mapping[str, Any]
    archived: bool
    events: Mapping[str, Sequence[Row]] = field(default_factory=dict[str, Sequence[Row]])
    """Of each group, in the order of the log."""
    missing: Sequence[Row] = ()

    def outcome(self, group: str) -> str:
        """What was done with it last."""
        said = [row["action"] for row in self.events[group] if row["action"] not in ASIDE]
        return str(said[-1]) if said else ""


def actions_of(lake: Lake) -> Lake:
    """What was done with the messages of a lake."""
    return Lake.at(actions_uri(lake.store.uri))


def histories(lake: Lake, query: Query, limit: int) -> Iterator[History]:
    """Of so many of the messages that a query means."""
    actions = actions_of(lake)
    left = limit
    for table in find(lake, query, OF_A_MESSAGE):
        for message in table.slice(0, left).to_pylist():
            yield history_of(actions, message)
        left -= table.num_rows
        if left <= 0:
            return


def history_of(actions: Lake, message: Mapping[str, Any]) -> History:
    """Of a message that has these columns."""
    subject, group = message["subject"], message["broker_group"]
    if Partition(subject, group, LOG) not in actions.state.watermarks:
        return History(message, archived=False)
    since_ms = int(message["stored_at"].timestamp() * 1000) - EARLY_MS
    files = actions.files(
        (subject,),
        (since_ms, None),
        lambda file: any(span.broker_group == group for span in file.spans),
    )
    source = dataset(actions, files, SCHEMA)
    found: dict[tuple[int, int], Row] = {}
    partition = str(message["partition"])
    places = [(partition, int(message["sequence"]), "")]
    for place in places:  # which grows
        for row in _rows(source, group, *place):
            found[row["position"], row["row"]] = row
            grave = _grave(place, row)
            if grave is not None and grave not in places:
                places.append(grave)
    missing = [
        row for row in found.values() if row["action"] == MISSING and row["at"] >= message["stored_at"]
    ]
    events: dict[str, list[Row]] = {}
    for _, row in sorted(found.items()):
        if row["action"] != MISSING:
            events.setdefault(row["consumer_group"], []).append(row)
    return History(message, archived=True, events=dict(sorted(events.items())), missing=missing)


def _rows(source: Any, broker_group: str, partition: str, sequence: int, group: str) -> list[Row]:
    """The actions on one message, those on its group as a whole, and what is missing."""
    module: Any = importlib.import_module("pyarrow.dataset")
    first, last, of = module.field("first_sequence"), module.field("last_sequence"), module.field("partition")
    on_it = (of == partition) & (first <= sequence) & (last >= sequence)
    on_all = (of == partition) & last.is_null() & module.field("pull").is_null()
    wanted = (on_it | on_all) if not group else on_it
    gaps = module.field("action") == MISSING
    own = module.field("broker_group") == broker_group
    rows = source.to_table(columns=list(COLUMNS), filter=own & (wanted | gaps)).to_pylist()
    return [row for row in rows if not group or row["consumer_group"] in {group, None}]


def _grave(place: tuple[str, int, str], row: Row) -> tuple[str, int, str] | None:
    """Where a copy of the message lies among dead letters, and of which group."""
    partition, sequence, _ = place
    if row["action"] != "dead" or row["letter"] is None:
        return None
    letter = int(row["letter"]) + sequence - int(row["first_sequence"])
    dead = dead_subject(split_lane(partition)[0], row["consumer_group"])
    return lane_name(dead, priority_of(letter)), letter, row["consumer_group"]


def document(history: History) -> dict[str, Any]:
    """As JSON has it."""
    return {
        **history.message,
        "archived": history.archived,
        "groups": [
            {"group": group, "outcome": history.outcome(group), "events": [_event(row) for row in rows]}
            for group, rows in history.events.items()
        ],
        "missing_before": [row["at"] for row in history.missing],
    }


def _event(row: Row) -> dict[str, Any]:
    named = ("at", "action", "consumer", "attempts", "until", "reason", "error", "place")
    return {name: row[name] for name in named if row[name] is not None}


def cells(history: History) -> list[dict[str, Any]]:
    """A table for people: a line each. Tries are counted from one."""
    found: list[dict[str, Any]] = [
        {"group": None, "at": row["at"], "action": MISSING, "reason": "what was done before is not kept"}
        for row in history.missing
    ]
    for group, rows in history.events.items():
        found += [
            {
                "group": group, "at": row["at"], "action": row["action"], "consumer": row["consumer"],
                "try": None if row["attempts"] is None else row["attempts"] + 1, "until": row["until"],
                "reason": row["reason"] or row["error"],
            }
            for row in rows
        ]  # fmt: skip
    names = ("group", "at", "action", "consumer", "try", "until", "reason")
    return [{name: one.get(name) for name in names} for one in found]

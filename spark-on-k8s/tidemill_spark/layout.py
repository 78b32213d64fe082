"""Where things lie in a lake. Pure: names in, names out.

    URI/subject=S/date=YYYY-MM-DD/hour=HH/NAME.parquet   messages, by the hour in which a broker stored them
    URI/_tidemill/commits/NNNNNNNNNNNNNNNNNNNN.json      what is in the lake, one file a commit (``commits.py``)
    URI/_tidemill/checkpoints/NNNNNNNNNNNNNNNNNNNN.json  the same, added up as far as that commit
    URI/_tidemill/ids/NAME.ids                           which batches a file has messages of (``ids.py``)
    URI/_actions/                                        a lake of its own, of what was done with the messages

What begins with ``_`` is passed over by whoever reads the folder as a table. A subject's name needs no escaping: it has
no character that a path, a partition of Hive or a URL would take for its own.
"""

from __future__ import annotations

from typing import NamedTuple

OWN = "_tidemill"
COMMITS = f"{OWN}/commits"
CHECKPOINTS = f"{OWN}/checkpoints"
IDS = f"{OWN}/ids"
KIND = f"{OWN}/lake.json"
"""What the lake is: said once, by its first run."""
ACTIONS = "_actions"
DIGITS = 20
MS_A_HOUR = 3_600_000


class Hour(NamedTuple):
    """The partition of the table that a message belongs to."""

    subject: str
    date: str
    hour: int

    @property
    def folder(self) -> str:
        return f"subject={self.subject}/date={self.date}/hour={self.hour:02d}"


def actions_uri(uri: str) -> str:
    """Where the actions of a lake of messages lie."""
    return f"{uri.rstrip('/')}/{ACTIONS}"


def data_name(hour: Hour, stem: str) -> str:
    """A file of messages. ``stem`` is used once in the life of the lake."""
    return f"{hour.folder}/{stem}.parquet"


def ids_name(data: str) -> str:
    """The ids of a file of messages."""
    return f"{IDS}/{data.removesuffix('.parquet')}.ids"


def commit_name(number: int) -> str:
    """The commit of a number."""
    return f"{COMMITS}/{number:0{DIGITS}d}.json"


def checkpoint_name(number: int) -> str:
    """The checkpoint as far as that commit."""
    return f"{CHECKPOINTS}/{number:0{DIGITS}d}.json"


def number_of(name: str) -> int | None:
    """The number in the name of a commit or checkpoint; ``None`` for what is neither."""
    stem, _, kind = name.rpartition("/")[2].partition(".")
    return int(stem) if kind == "json" and len(stem) == DIGITS and stem.isdigit() else None

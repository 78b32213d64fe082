"""What is in a lake: a fold over its commits. Pure.

A commit is one file that is created if it is absent, under the next number. It names data files that were written
before, and says up to which sequence each partition is archived with them: both at once, or neither.

    run                            commit N is there            then
    creates N                      no                           its files are in the lake
    creates N                      yes, another run's           what of its pieces still follows on goes into N + 1
    dies before                    no                           its files are in no commit: nobody reads them
    dies after, or does not hear   yes, its own                 its files are in the lake; the next run goes on behind

Invariants:

- a partition's pieces lie one behind the other: each says after which watermark it comes, and that was the watermark;
- so a message is in one piece at most, however often and by how many it was read;
- what a piece left out between the watermark and its first sequence was gone at the brokers, and is said (``missing``);
- a file is added once, and taken out once, by a commit that knew it to be there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple, cast

from tidemill_spark.errors import LakeDamaged

FORMAT = 1
REMOVED_KEPT_MS = 7 * 24 * 3600 * 1000
"""What was taken out longer ago than that is told from what never was in a commit by nobody."""


class Partition(NamedTuple):
    """Where sequences count."""

    subject: str
    broker_group: str
    name: str


class Span(NamedTuple):
    """The sequences of a partition that a file has messages of: from ``first`` to before ``next``, ``rows`` of them."""

    broker_group: str
    partition: str
    first: int
    next: int
    rows: int


@dataclass(frozen=True, slots=True)
class File:
    """A file of the lake, with what prunes it unread."""

    name: str
    subject: str
    date: str
    hour: int
    rows: int
    size: int
    spans: tuple[Span, ...]
    stored_ms: tuple[int, int]
    ids: tuple[str, str]
    """The first and last batch id, which grow with time."""


@dataclass(frozen=True, slots=True)
class Piece:
    """What a run read of a partition, from ``first`` to before ``next``, and the files that hold it."""

    partition: Partition
    after: int | None
    """The watermark that it follows; ``None``: nothing of the partition was archived before."""
    first: int
    next: int
    files: tuple[File, ...] = ()
    carried: str = ""
    """What whoever reads the next piece has to know of what lies before it, as they wrote it."""

    @property
    def missing(self) -> int:
        """Messages that were gone at the brokers before they were archived."""
        return 0 if self.after is None else self.first - self.after


@dataclass(frozen=True, slots=True)
class Commit:
    """What one run says at once. ``identity`` is drawn for each attempt, so that a run knows its own again."""

    identity: str
    run: str
    at_ms: int
    pieces: tuple[Piece, ...] = ()
    added: tuple[File, ...] = ()
    removed: tuple[str, ...] = ()
    intent: bool = False
    """Its pieces have no files: a table with a log of its own is given them under this commit's number."""
    done: int | None = None
    """The intent that such a table has taken."""


@dataclass(frozen=True, slots=True)
class State:
    """A lake as of a commit."""

    number: int = 0
    watermarks: Mapping[Partition, int] = field(default_factory=dict[Partition, int])
    files: Mapping[str, File] = field(default_factory=dict[str, File])
    begins: Mapping[Partition, int] = field(default_factory=dict[Partition, int])
    """The first sequence of each partition that was ever archived."""
    missing: int = 0
    expired: Mapping[Partition, int] = field(default_factory=dict[Partition, int])
    """Rows that retention of the lake has taken out."""
    removed: Mapping[str, int] = field(default_factory=dict[str, int])
    """Files that were taken out of late, and when: somebody may still be reading them."""
    open_intent: tuple[int, Commit] | None = None
    """The number of an intent that is not done, and what it says."""
    carried: Mapping[Partition, str] = field(default_factory=dict[Partition, str])
    """What the last piece of each partition has left for the next one."""


def fitting(state: State, pieces: Iterable[Piece]) -> tuple[list[Piece], list[Piece]]:
    """Of a run's pieces those that still follow on, and those that somebody else has archived meanwhile."""
    watermarks = dict(state.watermarks)
    fit: list[Piece] = []
    late: list[Piece] = []
    for piece in sorted(pieces, key=lambda one: (one.partition, one.first)):
        if watermarks.get(piece.partition) == piece.after and (piece.after or 0) <= piece.first:
            watermarks[piece.partition] = piece.next
            fit.append(piece)
        else:
            late.append(piece)
    return fit, late


def after(state: State, commit: Commit) -> State:
    """The lake when a commit has been added, or ``LakeDamaged`` when it cannot follow."""
    number = state.number + 1
    _check(state, commit, number)
    watermarks, files, expired = dict(state.watermarks), dict(state.files), dict(state.expired)
    begins, missing, carried = dict(state.begins), state.missing, dict(state.carried)
    removed = {name: at for name, at in state.removed.items() if at > commit.at_ms - REMOVED_KEPT_MS}
    for piece in sorted(commit.pieces, key=lambda one: (one.partition, one.first)):
        watermarks[piece.partition] = piece.next
        begins.setdefault(piece.partition, piece.first)
        missing += piece.missing
        files.update((one.name, one) for one in piece.files)
        if piece.carried:
            carried[piece.partition] = piece.carried
    for name in commit.removed:
        gone = files.pop(name)
        removed[name] = commit.at_ms
        if not commit.added:
            for span in gone.spans:
                place = Partition(gone.subject, span.broker_group, span.partition)
                expired[place] = expired.get(place, 0) + span.rows
    files.update((one.name, one) for one in commit.added)
    intent = state.open_intent
    if commit.intent:
        intent = number, commit
    elif commit.done is not None:
        intent = None
    return State(number, watermarks, files, begins, missing, expired, removed, intent, carried)


def _check(state: State, commit: Commit, number: int) -> None:
    fit, late = fitting(state, commit.pieces)
    if late:
        raise LakeDamaged(f"commit {number} archives {late[0].partition} after {late[0].after} once more")
    news = [one.name for piece in fit for one in piece.files] + [one.name for one in commit.added]
    if len(news) != len(set(news)) or not state.files.keys().isdisjoint(news):
        raise LakeDamaged(f"commit {number} adds a file that is there")
    if not state.files.keys() >= set(commit.removed) or len(set(commit.removed)) != len(commit.removed):
        raise LakeDamaged(f"commit {number} takes out a file that is not there")
    if commit.added and rows_of(commit.added) != rows_of(state.files[name] for name in commit.removed):
        raise LakeDamaged(f"commit {number} rewrites files into others with more or fewer rows")
    if commit.done is not None and (state.open_intent is None or state.open_intent[0] != commit.done):
        raise LakeDamaged(f"commit {number} ends {commit.done}, which is not open")
    if commit.intent and state.open_intent is not None:
        raise LakeDamaged(f"commit {number} begins while {state.open_intent[0]} is not done")


def rows_of(files: Iterable[File]) -> dict[tuple[str, str, str], int]:
    """Rows by partition."""
    counts: dict[tuple[str, str, str], int] = {}
    for one in files:
        for span in one.spans:
            place = one.subject, span.broker_group, span.partition
            counts[place] = counts.get(place, 0) + span.rows
    return counts


def rebased(state: State, commit: Commit) -> tuple[Commit | None, list[Piece]]:
    """A commit whose number was taken, as it may be said after that one: with the pieces that still fit. ``None`` when
    nothing is left of it; and the pieces that are not in it any more.
    """
    fit, late = fitting(state, commit.pieces)
    if not state.files.keys() >= set(commit.removed):
        return None, [*fit, *late]  # a rewriting of what somebody else has rewritten, or taken out
    if commit.intent and state.open_intent is not None:
        return None, [*fit, *late]
    if commit.done is not None and (state.open_intent is None or state.open_intent[0] != commit.done):
        return None, []
    if commit.pieces and not fit:
        return None, late
    return replace(commit, pieces=tuple(fit)), late


# -- as JSON ---------------------------------------------------------------------------------------------------------


def commit_document(commit: Commit) -> dict[str, Any]:
    """A commit as JSON has it."""
    return {"format": FORMAT, **asdict(commit), "pieces": [_piece_document(one) for one in commit.pieces]}


def parse_commit(document: object) -> Commit:
    """The reverse; ``LakeDamaged`` says what it is not."""
    try:
        said = _of_format(document)
        return Commit(
            said["identity"], said["run"], said["at_ms"], tuple(map(_parse_piece, said["pieces"])),
            tuple(map(_parse_file, said["added"])), tuple(said["removed"]), said["intent"], said["done"],
        )  # fmt: skip
    except (KeyError, TypeError, ValueError) as error:
        raise LakeDamaged(f"a commit that cannot be read: {error!r}") from error


def state_document(state: State) -> dict[str, Any]:
    """A checkpoint as JSON has it."""
    intent = state.open_intent
    return {
        "format": FORMAT,
        "number": state.number,
        "watermarks": [[*place, next_] for place, next_ in state.watermarks.items()],
        "files": [asdict(one) for one in state.files.values()],
        "begins": [[*place, first] for place, first in state.begins.items()],
        "missing": state.missing,
        "expired": [[*place, rows] for place, rows in state.expired.items()],
        "removed": dict(state.removed),
        "open_intent": None if intent is None else [intent[0], commit_document(intent[1])],
        **({"carried": [[*place, said] for place, said in state.carried.items()]} if state.carried else {}),
    }


def parse_state(document: object) -> State:
    """The reverse; ``LakeDamaged`` says what it is not."""
    try:
        said = _of_format(document)
        intent = said["open_intent"]
        files = map(_parse_file, said["files"])
        return State(
            said["number"],
            {Partition(*row[:3]): row[3] for row in said["watermarks"]},
            {one.name: one for one in files},
            {Partition(*row[:3]): row[3] for row in said["begins"]},
            said["missing"],
            {Partition(*row[:3]): row[3] for row in said["expired"]},
            dict(said["removed"]),
            None if intent is None else (intent[0], parse_commit(intent[1])),
            {Partition(*row[:3]): row[3] for row in said.get("carried", ())},
        )
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise LakeDamaged(f"a checkpoint that cannot be read: {error!r}") from error


def _of_format(document: object) -> dict[str, Any]:
    said = cast("dict[str, Any]", document)
    if said["format"] != FORMAT:
        raise LakeDamaged(f"it is of format {said['format']!r}; this side reads format {FORMAT}")
    return said


def _piece_document(piece: Piece) -> dict[str, Any]:
    said = {**asdict(piece), "partition": list(piece.partition)}
    if not piece.carried:
        del said["carried"]
    return said


def _parse_piece(said: Mapping[str, Any]) -> Piece:
    files = tuple(map(_parse_file, said["files"]))
    first, next_ = int(said["first"]), int(said["next"])
    return Piece(Partition(*said["partition"]), said["after"], first, next_, files, said.get("carried", ""))


def _parse_file(said: Mapping[str, Any]) -> File:
    spans = tuple(Span(*one) for one in cast("Sequence[Sequence[Any]]", said["spans"]))
    (first_ms, last_ms), (first_id, last_id) = said["stored_ms"], said["ids"]
    return File(
        str(said["name"]), said["subject"], said["date"], int(said["hour"]), int(said["rows"]), int(said["size"]),
        spans, (first_ms, last_ms), (first_id, last_id),
    )  # fmt: skip

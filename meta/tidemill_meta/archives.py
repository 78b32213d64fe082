"""Archives and replays: what their jobs tell, how far archives have come, and what brokers keep for them.

    nobody told of one     of a subject that is declared ``archive: Required`` everything is kept
    active                 what is below the watermarks of all active archives of a subject may go
    ended                  it holds nothing; when no other one of a subject is active, that may go as any other

A watermark only grows, by what a run says; a run that comes late, or is told twice, takes nothing back. A lake has
those of subjects that were removed, too, and a subject of that name may be there again: a run says when that was made
of which it speaks (``made``), and of another one nothing is taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tidemill_meta.archive_values import Archive, Marks, ReplayRecord
from tidemill_meta.asked import Asked, parse_name, wrong
from tidemill_meta.errors import Denied
from tidemill_meta.registry import Draft, View
from tidemill_meta.silence import RUNNING, as_it_stands, beaten, heard
from tidemill_meta.values import SubjectRecord
from tidemill_wire.fields import living_subject, parse_partition
from tidemill_wire.filters import is_pattern, matches_pattern, parse_subscribed

ARCHIVE_FIELDS = frozenset({"subjects", "state"})
RUN_FIELDS = frozenset(
    {"state", "started_at", "ended_at", "counts", "watermarks", "made", "error", "subjects", "through"}
)
REPLAY_FIELDS = frozenset({"state", "run", "started_at", "ended_at", "counts", "error", "dry_run", "through"})
RUN_STATES = (RUNNING, "Succeeded", "Failed")
RUNS_KEPT = 20
COUNTS_MAX = 32
ERROR_CHARS_MAX = 1_000
ACTIVE, ENDED = "Active", "Ended"


def put_archive(draft: Draft, name: str, asked: Asked) -> Archive:
    """There is such an archive, or it has ended."""
    parse_name(name, "the archive")
    known = draft.get(Archive, name) or Archive(name)
    subjects = _subjects(asked) if asked.has("subjects") else known.subjects
    ended = asked.one_of("state", (ACTIVE, ENDED), ACTIVE) == ENDED
    made = replace(known, subjects=subjects, ended=ended)
    return known if made == known and known.version else draft.put(made)


def put_run(draft: Draft, name: str, run: str, asked: Asked, now_ms: int) -> Archive:
    """What a run says of itself. An archive that nobody has told of begins with it."""
    parse_name(name, "the archive")
    parse_name(run, "the run")
    known = draft.get(Archive, name) or Archive(name)
    said = _told(asked, ERROR_CHARS_MAX) | {"state": asked.one_of("state", RUN_STATES)}
    subjects = tuple(dict.fromkeys((*known.subjects, *_subjects(asked))))
    marks = _grown(known.watermarks, _of_what_is_there(draft, asked, _marks(asked)))
    former = [one for one in known.runs if one[0] != run]
    said = heard(said, dict(known.runs).get(run, {}), now_ms)
    runs = (*former, (run, said))[-RUNS_KEPT:]
    return draft.put(replace(known, subjects=subjects, watermarks=marks, runs=runs))


def beat_run(draft: Draft, name: str, run: str, asked: Asked, now_ms: int) -> Archive:
    """The driver of a run is there."""
    known = draft.get(Archive, name)
    said = None if known is None else dict(known.runs).get(run)
    if known is None or said is None:
        raise unknown_archive(name) if known is None else unknown_run(name, run)
    told = beaten(said, asked, now_ms)
    runs = tuple((one, told if one == run else before) for one, before in known.runs)
    return known if told is said else draft.put(replace(known, runs=runs))


def put_replay(draft: Draft, name: str, asked: Asked, now_ms: int) -> ReplayRecord:
    """What a replay says of itself."""
    parse_name(name, "the replay")
    said = _told(asked, ERROR_CHARS_MAX) | {"state": asked.one_of("state", RUN_STATES)}
    if asked.has("run"):
        said["run"] = asked.name("run")
    if asked.has("dry_run"):
        said["dry_run"] = bool(asked.one_of("dry_run", ("true", "false")) == "true")
    known = draft.get(ReplayRecord, name)
    return draft.put(ReplayRecord(name, heard(said, {} if known is None else known.said, now_ms)))


def beat_replay(draft: Draft, name: str, asked: Asked, now_ms: int) -> ReplayRecord:
    """The driver of a replay is there."""
    known = draft.get(ReplayRecord, name)
    if known is None:
        raise unknown_replay(name)
    told = beaten(known.said, asked, now_ms)
    return known if told is known.said else draft.put(replace(known, said=told))


def drop_archive(draft: Draft, name: str) -> None:
    """Forget it. What brokers were told of it stays as it is: let it end first."""
    if draft.get(Archive, name) is None:
        raise unknown_archive(name)
    draft.drop(Archive, name)


def drop_replay(draft: Draft, name: str) -> None:
    """Forget it."""
    if draft.get(ReplayRecord, name) is None:
        raise unknown_replay(name)
    draft.drop(ReplayRecord, name)


def forget_marks(draft: Draft, subject: str) -> None:
    """The subject is removed: what comes under its name begins with no message, and no archive has any of them."""
    for archive in list(draft.all(Archive)):
        left = tuple(mark for mark in archive.watermarks if living_subject(mark[1]) != subject)
        if left != archive.watermarks:
            draft.put(replace(archive, watermarks=left))


def unknown_archive(name: str) -> Denied:
    return Denied("unknown_archive", f"there is no archive {name[:100]!r}")


def unknown_run(name: str, run: str) -> Denied:
    return Denied("unknown_archive", f"the archive {name[:100]!r} has no run {run[:100]!r}")


def unknown_replay(name: str) -> Denied:
    return Denied("unknown_replay", f"there is no replay {name[:100]!r}")


# -- what brokers are told ---------------------------------------------------------------------------------------


def archived_in(view: View, group: str, records: Sequence[SubjectRecord]) -> dict[str, Any]:
    """Of the subjects of a broker group that are kept for archives: watermarks, and those that nobody keeps."""
    archives = sorted(view.all(Archive), key=lambda one: one.name)
    marks = [_marks_in(one, group) for one in archives]
    archived: list[list[Any]] = []
    released: list[str] = []
    for record in records:
        if record.declared is None or not record.declared.archive_required:
            continue
        own = [place for place, one in enumerate(archives) if covers(one, record.name)]
        active = [marks[place].get(record.name, {}) for place in own if not archives[place].ended]
        if active:
            archived += [[name, number] for name, number in _common(active)]
        elif own:
            released.append(record.name)
    return {"archived": archived, "released": released}


def covers(archive: Archive, subject: str) -> bool:
    """Whether a subject is one of its own."""
    return any(
        matches_pattern(one, subject) if is_pattern(one) else one == subject for one in archive.subjects
    )


def _marks_in(archive: Archive, group: str) -> dict[str, dict[str, int]]:
    """How far it has come in a broker group: by subject, and by partition. There may be thousands of both."""
    found: dict[str, dict[str, int]] = {}
    for at, name, number in archive.watermarks:
        if at == group:
            found.setdefault(living_subject(name), {})[name] = number
    return found


def _common(marks: Sequence[Mapping[str, int]]) -> Iterator[tuple[str, int]]:
    """What all of them have."""
    for name in sorted(set[str]().union(*marks)):
        yield name, min(own.get(name, 0) for own in marks)


# -- what is shown -----------------------------------------------------------------------------------------------


def archive_row(archive: Archive, now_ms: int, listening_since_ms: int) -> dict[str, Any]:
    """As people, operators and jobs see it."""
    marks: dict[str, dict[str, int]] = {}
    for group, name, number in archive.watermarks:
        marks.setdefault(group, {})[name] = number
    return {
        "name": archive.name,
        "subjects": list(archive.subjects),
        "state": ENDED if archive.ended else ACTIVE,
        "watermarks": marks,
        "runs": [
            {"run": name, **as_it_stands(said, now_ms, listening_since_ms)} for name, said in archive.runs
        ],
        "version": archive.version,
    }


def replay_row(replay: ReplayRecord, now_ms: int, listening_since_ms: int) -> dict[str, Any]:
    said = as_it_stands(replay.said, now_ms, listening_since_ms)
    return {"name": replay.name, **said, "version": replay.version}


# -- what is said ------------------------------------------------------------------------------------------------


def _subjects(asked: Asked) -> tuple[str, ...]:
    named = asked.items("subjects")
    if not all(type(one) is str for one in named):
        raise wrong(
            "subjects has what is no text: write a list of subjects' names, or patterns such as order.*"
        )
    return tuple(dict.fromkeys(parse_subscribed(one) for one in named))


def _told(asked: Asked, error_max: int) -> dict[str, Any]:
    """What runs and replays have in common; times are milliseconds."""
    said: dict[str, Any] = {}
    for field in ("started_at", "ended_at", "through"):
        if asked.has(field):
            said[field] = asked.whole(field)
    if asked.has("error"):
        said["error"] = asked.text("error", limit=error_max)
    counts = asked.part("counts")
    if len(counts.fields) > COUNTS_MAX:
        raise wrong(f"counts has {len(counts.fields)} numbers: write at most {COUNTS_MAX}")
    if counts.fields:
        said["counts"] = {parse_name(name, "counts"): counts.whole(name) for name in counts.fields}
    return said


def _marks(asked: Asked) -> Marks:
    """``{group: {partition: sequence}}``."""
    found: list[tuple[str, str, int]] = []
    groups = asked.part("watermarks")
    for group in groups.fields:
        partitions = groups.part(group)
        found += [
            (parse_name(group, "a broker group"), parse_partition(name), partitions.whole(name))
            for name in partitions.fields
        ]
    return tuple(found)


def _of_what_is_there(view: View, asked: Asked, marks: Marks) -> Marks:
    """Those that are of subjects as they are now. A job of an earlier version does not say."""
    if not asked.has("made"):
        return marks
    said = asked.part("made")
    made = {subject: said.whole(subject) for subject in said.fields}

    def is_there(name: str) -> bool:
        subject = living_subject(name)
        record = view.get(SubjectRecord, subject)
        return record is not None and made.get(subject, 0) == record.made_ms

    return tuple(one for one in marks if is_there(one[1]))


def _grown(known: Marks, said: Iterable[tuple[str, str, int]]) -> Marks:
    marks: dict[tuple[str, str], int] = {(group, name): number for group, name, number in known}
    for group, name, number in said:
        marks[group, name] = max(number, marks.get((group, name), 0))
    return tuple((group, name, number) for (group, name), number in sorted(marks.items()))

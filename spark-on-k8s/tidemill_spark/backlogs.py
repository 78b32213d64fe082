"""What of partitions is to be archived now, and whether they are those that were archived before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from tidemill_spark.commits import Partition, State
from tidemill_spark.errors import WrongRequest
from tidemill_spark.ranges import Prefers, RangeGone, Standing, ranges_of, read, standings
from tidemill_wire.batch import read_header
from tidemill_wire.fields import living_subject


def life_of(made: Mapping[str, int] | None, subject: str) -> str | None:
    """What pieces of a subject carry, nothing where an earlier meta made it; ``None`` when it is not there."""
    at_ms = 0 if made is None else made.get(living_subject(subject))
    return None if at_ms is None else str(at_ms or "")


def backlog_of(state: State, one: Standing) -> tuple[int, int] | None:
    """What of a partition is to be archived now."""
    mark = state.watermarks.get(Partition(one.subject, one.broker_group, one.partition))
    if mark is not None and mark > one.next and one.complete:
        raise _made_anew(one, f"ends at {one.next}", mark)
    first, end = max(one.first, mark or 0), one.next if one.at is None else min(one.at, one.next)
    return (first, end) if first < end else None


def check_same(
    server: str, state: State, one: Standing, made: Mapping[str, int] | None, prefers: Prefers
) -> None:
    """A subject that was made again since goes on behind its watermark, or what lies there is older than it: else other
    messages have the numbers of those that are archived.
    """
    place = Partition(one.subject, one.broker_group, one.partition)
    mark, carried, life = (
        state.watermarks.get(place, 0),
        state.carried.get(place, ""),
        life_of(made, one.subject),
    )
    if not life or carried in {"", life} or one.first >= mark:
        return
    since = moment(int(life))
    for row in standings(server, [one.subject], since, prefers):
        if row.key == one.key and row.at is not None and row.at < min(mark, row.next):
            raise _made_anew(one, f"has {row.at} from {since:%Y-%m-%d %H:%M} on", mark)


def _made_anew(one: Standing, what: str, mark: int) -> WrongRequest:
    return WrongRequest(
        f"{one.partition} on {one.broker_group} {what}, and is archived up to {mark}: it was removed and made anew, so "
        "archive it to another folder"
    )


def begins_ms(server: str, state: State, there: Sequence[Standing], until_ms: int, prefers: Prefers) -> int:
    """When the first message was stored that is not archived; ``until_ms`` when there is none. What is archived says
    when it was at the earliest, which is long ago where a partition stood still: so brokers are asked, in that order,
    and no more of them than may have an earlier one.
    """
    archived_ms: dict[Partition, int] = {}
    for file in state.files.values():
        for span in file.spans:
            place = Partition(file.subject, span.broker_group, span.partition)
            archived_ms[place] = max(archived_ms.get(place, 0), file.stored_ms[1])
    backlogs = {one.key: backlog for one in there if (backlog := backlog_of(state, one)) is not None}
    spans = {key: (first, first + 1) for key, (first, _) in backlogs.items()}
    singles = [
        (archived_ms.get(Partition(one.subject, one.broker_group, one.partition), 0), one)
        for one in ranges_of(server, there, spans, prefers=prefers)
    ]
    found = until_ms
    for earliest_ms, one in sorted(singles, key=lambda single: single[0]):
        if earliest_ms >= found:
            break
        try:
            found = min(found, read_header(next(read(one, answer_bytes=1))).stored_at_ms)
        except RangeGone:
            continue  # retention was faster: another run finds what comes behind it
    return found


def moment(ms: int) -> datetime:
    """As brokers are asked for it."""
    return datetime.fromtimestamp(ms / 1000, UTC)

"""The same archive as a table of Delta, with its time travel, written by Spark.

Delta has a log of its own, so files and watermarks cannot be said at once. They are said one after the other, as two
commits of our lake around one of Delta's:

    intent N    ranges, and the watermarks behind them; created if absent, so one run has number N
    append      of exactly these ranges, under transaction N of this archive: Delta takes a transaction once
    done N      the next intent may follow

    a run dies             then
    before the intent      nothing is there
    before the append      the next run finds an open intent, reads its ranges again, and appends them
    before done            the same, and Delta says that it has transaction N

Two runs at once: both may append transaction N, and Delta lets one of them. So each message is in the table once.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from typing import Any

from tidemill_spark.archive import Tell, Totals, Wanted, archived_of, decoded, plan
from tidemill_spark.arrow import pa
from tidemill_spark.commits import Commit, Partition, Piece
from tidemill_spark.lake import Lake
from tidemill_spark.marks import made_of
from tidemill_spark.ranges import Range, RangeGone, ranges_of, standings
from tidemill_spark.schema import COLUMNS, schema_of, spark_schema
from tidemill_spark.workers import Workers

FORMAT = "Delta"
PARTITIONED_BY = ("subject", "date", "hour")
CONFLICTS = (
    *("ConcurrentTransactionException", "ConcurrentAppendException", "ConcurrentWriteException"),
    *("MetadataChangedException", "ProtocolChangedException", "DELTA_CONCURRENT", "DELTA_METADATA_CHANGED"),
    *("DELTA_PROTOCOL_CHANGED", "DELTA_TABLE_ALREADY_EXISTS", "DELTA_PATH_EXISTS"),
)
"""What Delta says to one of two who write at once; the first ones of a table make it, too."""
TRIES = 5
CONF = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
"""What a session needs, beside the jars of ``io.delta:delta-spark``."""


def run(session: Any, wanted: Wanted, workers: Workers, now_ms: Callable[[], int], tell: Tell) -> Totals:
    """Finish what another run left, then archive what there is, a wave of ranges by an intent each."""
    lake = Lake.at(wanted.uri)
    lake.claim(FORMAT)
    totals = Totals()
    if lake.state.open_intent is not None:
        finish(session, lake, wanted, now_ms, totals)
    totals.made = made_of(wanted.server)
    tasks, through_ms = plan(wanted, lake.state, now_ms(), totals.made)
    totals.tasks, totals.planned_bytes = len(tasks), sum(one.range.bytes for one in tasks)
    tell(totals)
    size = max(1, workers.width * 4)
    for at in range(0, len(tasks), size):
        wave = tasks[at : at + size]
        pieces = tuple(
            Piece(
                one.partition, one.after, one.range.first_sequence, one.range.next_sequence, carried=one.made
            )
            for one in wave
        )
        intent = Commit(secrets.token_hex(16), wanted.name, now_ms(), pieces, intent=True)
        said, late = lake.commit(intent)
        totals.late_rows += sum(one.next - one.first for one in late)
        if said is not None:
            finish(session, lake, wanted, now_ms, totals)
        totals.tasks_done += len(wave)
        tell(totals)
    totals.watermarks, totals.through_ms = archived_of(lake.state, totals.made), through_ms
    return totals


def finish(session: Any, lake: Lake, wanted: Wanted, now_ms: Callable[[], int], totals: Totals) -> None:
    """Append what the open intent says, and say that it is done."""
    assert lake.state.open_intent is not None
    number, intent = lake.state.open_intent
    ranges = ranges_for(wanted, intent.pieces)
    if ranges:
        said = session.sparkContext.parallelize([(json.dumps(asdict(one)),) for one in ranges], len(ranges))
        rows = session.createDataFrame(said, "range STRING").mapInArrow(read_ranges, spark_schema())
        append(rows, f"tidemill/{wanted.name}", number, wanted.uri)
    lake.commit(Commit(secrets.token_hex(16), wanted.name, now_ms(), done=number))
    for piece in intent.pieces:
        totals.rows += piece.next - piece.first
        totals.missing += piece.missing
    totals.commits += 1


def append(rows: Any, application: str, number: int, uri: str) -> None:
    """Under that transaction. Whoever is told that another one wrote at once says it again: if that was the same
    transaction, Delta knows it by then and takes nothing.
    """
    options = {"txnAppId": application, "txnVersion": str(number), "mergeSchema": "true"}
    written = rows.write.format("delta").mode("append").partitionBy(*PARTITIONED_BY).options(**options)
    for _ in range(TRIES - 1):
        try:
            written.save(uri)
        except Exception as error:
            if any(name in str(error) for name in CONFLICTS):
                continue
            raise
        return
    written.save(uri)


def ranges_for(wanted: Wanted, pieces: tuple[Piece, ...]) -> list[Range]:
    """The ranges that pieces name, wherever they are read from by now."""
    server, prefers = wanted.server, wanted.prefers
    there = standings(server, sorted({one.partition.subject for one in pieces}), prefers=prefers)
    places = {Partition(one.subject, one.broker_group, one.partition): one for one in there}
    found: list[Range] = []
    for piece in pieces:
        if piece.first < piece.next and piece.partition in places:  # or else it was removed since the intent
            one = places[piece.partition]
            span = {one.key: (piece.first, piece.next)}
            (made,) = ranges_of(server, [one], span, target_bytes=1 << 62, prefers=prefers)
            found.append(made)
    return found


def read_ranges(batches: Iterator[Any]) -> Iterator[Any]:
    """In a task: ranges in, their messages out. What retention has taken since the intent is not to be had."""
    for batch in batches:
        for text in batch.column(0).to_pylist():
            said: dict[str, Any] = json.loads(text)
            said["urls"] = tuple(said["urls"])
            yield from _messages(Range(**said))


def _messages(wanted: Range) -> Iterator[Any]:
    try:
        for table, _ in decoded(wanted):
            yield from table.cast(_nullable()).to_batches()
    except RangeGone as gone:
        if gone.first is not None and wanted.first_sequence < gone.first < wanted.next_sequence:
            yield from _messages(replace(wanted, first_sequence=gone.first))


def _nullable() -> Any:
    """As Spark has it: whatever it reads may be null."""
    return pa.schema([field.with_nullable(nullable=True) for field in schema_of(COLUMNS)])

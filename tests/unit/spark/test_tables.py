"""Files of a lake: what a table becomes, and what is read back of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidemill_spark import ids, upkeep
from tidemill_spark.archive import Task, write_batches
from tidemill_spark.decode import Place, decode
from tidemill_spark.errors import LakeDamaged, StoreFailed, WrongRequest
from tidemill_spark.layout import MS_A_HOUR, Hour, ids_name
from tidemill_spark.queries import Query
from tidemill_spark.ranges import Range
from tidemill_spark.schema import COLUMNS, SCHEMA
from tidemill_spark.stores.local import LocalStore
from tidemill_spark.tables import STORED, hours_of, in_order, read_file, read_from, write_file
from tidemill_wire.batch import BatchIds, Origin, stamp
from tidemill_wire.columns import Content, build_batch

NOON_MS = 1_800_014_400_000  # 2027-01-15T12:00Z
PLACE = Place("order.paid", "g0", "order.paid")
HOUR = Hour("order.paid", "2027-01-15", 12)


def some_batches(count: int = 6, each: int = 10, step_ms: int = MS_A_HOUR // 3, size: int = 0) -> list[bytes]:
    made = []
    batch_ids = BatchIds(7)
    for number in range(count):
        at_ms = NOON_MS + number * step_ms
        first = number * each
        content = Content(
            [b"body %d" % (first + row) + b"." * size for row in range(each)],
            keys=[f"o-{(first + row) * 7 % 13}" if row % 3 else None for row in range(each)],
            tags=[["vip"] if row % 4 == 0 else [] for row in range(each)],
        )
        batch = build_batch(Origin(b"order.paid", 7, number, batch_ids.next(at_ms), at_ms), content)
        stamp(batch, 0, len(batch), first, number * 4096, at_ms, 1)
        made.append(bytes(batch))
    return made


@pytest.fixture(name="table")
def _table() -> Any:
    return pa.Table.from_batches([decode(some_batches(), PLACE)])


def test_hours_are_cut_also_when_a_clock_went_back(table: Any) -> None:
    parts = list(hours_of(table, "order.paid"))
    assert [(hour.hour, part.num_rows) for hour, part in parts] == [(12, 30), (13, 30)]
    mixed = table.take(pa.array([*range(40, 60), *range(40)]))
    assert [(hour, part.num_rows) for hour, part in hours_of(mixed, "order.paid")] == [
        (Hour("order.paid", "2027-01-15", 12), 30),
        (Hour("order.paid", "2027-01-15", 13), 30),
    ]


def test_file_is_sorted_by_key_has_bloom_filters_and_is_read_back_as_it_was(
    table: Any, tmp_path: Path
) -> None:
    hour, part = next(hours_of(table, "order.paid"))
    store = LocalStore(str(tmp_path))
    file = write_file(store, part, hour, "one", "Zstd")
    data, listed = store.read(file.name), store.read(ids_name(file.name))
    assert file.size == len(data)
    raw = pq.read_table(pa.BufferReader(data))
    keys = raw["key"].to_pylist()
    assert keys == sorted(keys, key=lambda key: (key is None, key or ""))
    assert raw.column_names == list(STORED)
    path = tmp_path / file.name
    asked = f"SELECT path_in_schema FROM parquet_metadata('{path}') WHERE bloom_filter_offset IS NOT NULL"
    filtered = {name for (name,) in duckdb.sql(asked).fetchall()}
    assert filtered == {"id", "key"}
    assert file.spans[0][2:] == (0, 30, 30)
    assert ids.holds(listed, bytes.fromhex(part["id"][29].as_py()[:32]))
    back = read_file(pa.BufferReader(data), file)
    assert back.schema.equals(pa.schema([pa.field(one.name, one.type) for one in SCHEMA]))
    assert in_order(back).cast(SCHEMA).equals(part)


def test_file_of_bodies_in_place_is_the_same_to_whoever_reads_it(tmp_path: Path) -> None:
    """Sorted and cut at hours, also when a clock went back; and no reader is told that they were views."""
    batches = some_batches(size=500)
    batches = batches[4:] + batches[:4]
    written: list[dict[str, bytes]] = []
    for in_place in (False, True):
        store = LocalStore(str(tmp_path / str(in_place)))
        table = pa.Table.from_batches([decode(batches, PLACE, in_place=in_place)])
        assert (table.schema.field("body").type == pa.binary_view()) == in_place
        files = [write_file(store, part, hour, "one", "Zstd") for hour, part in hours_of(table, "order.paid")]
        assert len(files) == 2
        written.append({one.name: store.read(one.name) for one in files})
    for name, data in written[0].items():
        one, other = (pq.read_table(pa.BufferReader(found)) for found in (data, written[1][name]))
        assert other.schema.field("body").type == pa.binary()
        assert one.equals(other)


def test_task_that_unpacks_to_much_becomes_files_portion_by_portion(tmp_path: Path) -> None:
    batches = list(map(memoryview, some_batches(size=500)))
    task = Task(Range("order.paid", "g0", "order.paid", 5, 55, 0, "", ()), None, str(tmp_path), "Zstd")
    once = write_batches(task, batches)
    assert [file.rows for file in once.piece.files] == [25, 25]

    written = write_batches(task, batches, 15_000)
    assert [file.rows for file in written.piece.files] == [15, 10, 10, 15]
    assert [file.spans[0][2:4] for file in written.piece.files] == [(5, 20), (20, 30), (30, 40), (40, 55)]
    assert (written.piece.first, written.piece.next, written.read_bytes) == (5, 55, once.read_bytes)
    with pytest.raises(StoreFailed, match="no 20 "):
        write_batches(task, batches[:2] + batches[3:], 15_000)
    with pytest.raises(StoreFailed, match="no 50 "):
        write_batches(task, batches[:5])


def test_rows_of_several_row_groups_are_read_by_their_places(table: Any, tmp_path: Path) -> None:
    hour, part = next(hours_of(table, "order.paid"))
    file = write_file(LocalStore(str(tmp_path)), part, hour, "one", "Snappy")
    data = (tmp_path / file.name).read_bytes()
    grouped = pa.BufferOutputStream()
    pq.write_table(pq.read_table(pa.BufferReader(data)), grouped, row_group_size=7)
    whole = read_file(pa.BufferReader(data), file)
    rows = np.array([0, 6, 7, 20, 29])
    some = read_file(pa.BufferReader(grouped.getvalue()), file, ("id", "subject", "date"), rows)
    assert some["id"].to_pylist() == whole["id"].take(pa.array(rows)).to_pylist()
    none = read_file(pa.BufferReader(grouped.getvalue()), file, COLUMNS, np.zeros(0, np.int64))
    assert none.num_rows == 0


def test_file_of_an_older_version_lacks_columns_and_one_with_other_rows_is_damaged(
    table: Any, tmp_path: Path
) -> None:
    hour, part = next(hours_of(table, "order.paid"))
    file = write_file(LocalStore(str(tmp_path)), part, hour, "one", "None")
    data = (tmp_path / file.name).read_bytes()
    old = pa.BufferOutputStream()
    pq.write_table(pq.read_table(pa.BufferReader(data)).drop_columns(["timer_key", "epoch"]), old)
    back = read_file(pa.BufferReader(old.getvalue()), file)
    assert back["epoch"].null_count == 30
    assert back["body"].null_count == 0
    with pytest.raises(LakeDamaged, match="30 rows"):
        read_file(pa.BufferReader(data), replace(file, rows=31))
    with pytest.raises(WrongRequest, match="Lzma"):
        write_file(LocalStore(str(tmp_path)), part, hour, "one", "Lzma")


@pytest.mark.parametrize(
    "query",
    [
        Query(),
        Query(keys=("o-7", "o-1")),
        Query(tags=("vip", "none")),
        Query(start_ms=NOON_MS + 1, end_ms=NOON_MS + MS_A_HOUR),
        Query(keys=("o-7",), tags=("vip",), start_ms=0),
        Query(keys=("nobody",)),
    ],
)
def test_query_finds_what_a_loop_over_rows_finds(table: Any, query: Query) -> None:
    def meant(row: dict[str, Any]) -> bool:
        at_ms = row["stored_at"].timestamp() * 1000
        return (
            (not query.keys or row["key"] in query.keys)
            and (not query.tags or bool(set(query.tags) & set(row["tags"] or ())))
            and (query.start_ms is None or at_ms >= query.start_ms)
            and (query.end_ms is None or at_ms < query.end_ms)
        )

    found = table.take(pa.array(query.rows(table), pa.int64()))
    assert found["id"].to_pylist() == [row["id"] for row in table.to_pylist() if meant(row)]


def test_predicate_of_sql_sees_the_rows_and_nothing_of_this_machine(table: Any, tmp_path: Path) -> None:
    assert Query(where="key = 'o-7' AND hour = 12").filtered(table).num_rows > 0
    assert Query(where="hour = 11").filtered(table).num_rows == 0
    with pytest.raises(WrongRequest, match="cannot be answered"):
        Query(where="no_such_column = 1").filtered(table)
    secret = tmp_path / "secret.csv"
    secret.write_text("a\n1\n")
    with pytest.raises(WrongRequest, match="disabled"):
        Query(where=f"EXISTS (SELECT * FROM read_csv('{secret}'))").filtered(table)


@pytest.mark.parametrize(
    "where",
    [
        "true) UNION ALL SELECT * FROM messages WHERE (true",
        "true); SELECT 42 AS id WHERE (true",
        "true; DROP TABLE messages",
        "true LIMIT 1",
        "sequence = (SELECT max(sequence) FROM messages)",
        "true, false",
    ],
)
def test_predicate_is_one_expression_over_one_message(table: Any, where: str) -> None:
    """Or else a replay would send twice, or send what a file happens to hold beside it."""
    with pytest.raises(WrongRequest, match="cannot be answered"):
        Query(where=where).filtered(table)


def test_rows_of_a_predicate_are_as_those_without_one(table: Any) -> None:
    query = Query(where="messages.key IS NULL -- those without")
    assert query.filtered(table).schema.equals(table.schema)
    assert (
        query.filtered(table)["key"].null_count == table["key"].null_count == query.filtered(table).num_rows
    )
    assert Query(where="key <> 'o-7'").filtered(table).num_rows < table.num_rows - table["key"].null_count


def test_flipped_bits_of_messages_are_found(table: Any, tmp_path: Path) -> None:
    """Of the pages: what is behind them is read by nobody, or says where they are."""
    store = LocalStore(str(tmp_path))
    (hour, part), *_ = hours_of(table, "order.paid")
    file = write_file(store, part, hour, "one", "None")
    data = store.read(file.name)
    there = read_from(store, file)
    chunks = pq.ParquetFile(pa.BufferReader(data)).metadata.row_group(0)
    ends = max(
        column.data_page_offset + column.total_compressed_size
        for column in (chunks.column(at) for at in range(chunks.num_columns))
    )
    found = 0
    for at in range(4, ends, 13):
        broken = bytearray(data)
        broken[at] ^= 4
        store.write(file.name, broken)
        try:
            same = read_from(store, file).equals(there)
        except LakeDamaged:
            found += 1
        else:
            assert same, at
    assert found > 100
    body = data.index(b"body 1")
    store.write(file.name, data[:body] + b"BODY" + data[body + 4 :])
    with pytest.raises(LakeDamaged, match="cannot be read"):
        read_from(store, file)
    store.delete([file.name])
    with pytest.raises(LakeDamaged, match="is not there"):
        read_from(store, file)


def test_small_files_that_unpack_to_much_are_merged_portion_by_portion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Logs that repeat themselves: a file of a megabyte may be a hundred in memory."""
    store = LocalStore(str(tmp_path))
    files = [
        write_file(store, pa.Table.from_batches([decode([one], PLACE)]), HOUR, str(at), "Zstd")
        for at, one in enumerate(some_batches(step_ms=0, size=100_000))
    ]
    assert sum(one.size for one in files) < 100_000
    monkeypatch.setattr(upkeep, "UNPACKED_BYTES", 2_500_000)
    made = upkeep.merged(upkeep.Merge(str(tmp_path), tuple(files), "Zstd"))
    assert [len(names) for names, _ in made] == [2, 2, 2]
    assert sorted(name for names, _ in made for name in names) == sorted(one.name for one in files)
    assert [one.rows for _, one in made] == [20, 20, 20]
    monkeypatch.setattr(upkeep, "UNPACKED_BYTES", 1_500_000)
    assert upkeep.merged(upkeep.Merge(str(tmp_path), tuple(files), "Zstd")) == []

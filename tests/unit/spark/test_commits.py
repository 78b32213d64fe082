"""Commits of a lake: deaths at every operation, runs side by side, and what cannot follow."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from samples.lake_memory import Died, Memory
from tidemill_spark import commits, layout
from tidemill_spark.commits import Commit, File, Partition, Piece, Span, State, after, fitting, rebased
from tidemill_spark.errors import LakeDamaged
from tidemill_spark.lake import CHECKPOINT_EVERY, CHECKPOINTS_KEPT, GRACE_MS, Lake

ONE = Partition("order.paid", "broker-1", "order.paid")
TWO = Partition("order.paid", "broker-2", "order.paid")


def a_file(store: Memory, place: Partition, first: int, next_: int, token: str) -> File:
    name = layout.data_name(
        layout.Hour(place.subject, "2027-01-01", 9), f"{place.broker_group}-{first}-{token}"
    )
    store.write(name, json.dumps([[*place, sequence] for sequence in range(first, next_)]).encode())
    span = Span(place.broker_group, place.name, first, next_, next_ - first)
    return File(name, place.subject, "2027-01-01", 9, next_ - first, 10, (span,), (0, 1), ("0", "f"))


def run_archive(store: Memory, logs: dict[Partition, int], token: str, step: int = 3) -> Iterator[str]:
    """A run as it is: plan, write, commit; it stops between each, so that others may go on meanwhile."""
    lake = Lake(store)
    lake.look()
    pieces: list[Piece] = []
    for place, end in logs.items():
        mark = lake.state.watermarks.get(place)
        for first in range(mark or 0, end, step):
            next_ = min(first + step, end)
            file = a_file(store, place, first, next_, token)
            pieces.append(Piece(place, mark, first, next_, (file,)))
            mark = next_
            yield "written"
    if pieces:
        lake.commit(Commit(token, token, store.now_ms, tuple(pieces)))
    yield "committed"


def rows_in(store: Memory) -> Counter[tuple[object, ...]]:
    rows: Counter[tuple[object, ...]] = Counter()
    for name in Lake(store).look().files:
        rows.update(map(tuple, json.loads(store.objects[name])))
    return rows


def rows_of(logs: dict[Partition, int]) -> Counter[tuple[object, ...]]:
    return Counter((*place, sequence) for place, end in logs.items() for sequence in range(end))


LOGS = {ONE: 7, TWO: 5}


@pytest.mark.parametrize("does_it", [False, True])
def test_death_at_every_operation_loses_and_doubles_nothing(does_it: bool) -> None:
    whole = Memory()
    list(run_archive(whole, LOGS, "whole"))
    assert whole.operations > 5
    for dies_at in range(1, whole.operations + 1):
        store = Memory()
        store.dies_at, store.does_it = dies_at, does_it
        with pytest.raises(Died):
            list(run_archive(store, LOGS, "first"))
        before = rows_in(store)
        assert before in (Counter(), rows_of(LOGS))
        store.dies_at = None
        longer = {ONE: 9, TWO: 5}
        list(run_archive(store, longer, "second"))
        assert rows_in(store) == rows_of(longer), dies_at


def test_two_runs_in_every_order_of_their_steps_archive_each_message_once() -> None:
    steps = len(list(run_archive(Memory(), LOGS, "count")))
    others = len(list(run_archive(Memory(), {ONE: 9, TWO: 2}, "count", 4)))
    seen: set[int] = set()
    for order in itertools.combinations(range(steps + others), others):
        store = Memory()
        runs = run_archive(store, LOGS, "one"), run_archive(store, {ONE: 9, TWO: 2}, "two", 4)
        for turn in range(steps + others):
            next(runs[turn in order], None)
        assert max(rows_in(store).values()) == 1
        seen.add(len(rows_in(store)))
        list(run_archive(store, {ONE: 9, TWO: 5}, "three"))
        assert rows_in(store) == rows_of({ONE: 9, TWO: 5})
    assert len(seen) > 1  # in some orders one of them lost its pieces, in others not


def test_lost_answer_of_the_store_is_no_second_commit() -> None:
    store = Memory()
    lake = Lake(store)
    create = store.create

    def lossy(name: str, data: bytes) -> bool:
        create(name, data)
        return create(name, data)  # as a client says it that did not hear the first answer

    store.create = lossy  # type: ignore[method-assign]
    said, late = lake.commit(
        Commit("me", "run", 0, (Piece(ONE, None, 0, 3, (a_file(store, ONE, 0, 3, "x"),)),))
    )
    assert (said is not None, late) == (True, [])
    assert rows_in(store) == rows_of({ONE: 3})


def test_what_was_gone_at_the_brokers_is_counted_and_a_step_back_never_fits() -> None:
    state = after(State(), Commit("a", "r", 0, (Piece(ONE, None, 5, 8),)))
    assert state.missing == 0  # nothing is known of what lay before the first run
    state = after(state, Commit("b", "r", 0, (Piece(ONE, 8, 10, 12),)))
    assert (state.missing, state.watermarks[ONE]) == (2, 12)
    back = Piece(ONE, 12, 11, 15)
    assert fitting(state, [back]) == ([], [back])
    with pytest.raises(LakeDamaged, match="once more"):
        after(state, Commit("c", "r", 0, (back,)))


def test_rewriting_needs_its_files_and_keeps_their_rows() -> None:
    store = Memory()
    small = [a_file(store, ONE, 0, 3, "a"), a_file(store, ONE, 3, 5, "b")]
    state = after(State(), Commit("a", "r", 0, (Piece(ONE, None, 0, 5, tuple(small)),)))
    large = replace(a_file(store, ONE, 0, 5, "c"), spans=(*small[0].spans, *small[1].spans))
    names = tuple(one.name for one in small)
    done = after(state, Commit("b", "r", 1, added=(large,), removed=names))
    assert set(done.files) == {large.name}
    assert done.removed == dict.fromkeys(names, 1)
    assert rebased(done, Commit("c", "r", 2, added=(large,), removed=names)) == (None, [])
    fewer = replace(large, spans=small[0].spans)
    with pytest.raises(LakeDamaged, match="more or fewer"):
        after(state, Commit("b", "r", 1, added=(fewer,), removed=names))
    gone = after(state, Commit("b", "r", 1, removed=names[:1]))
    assert gone.expired == {ONE: 3}


def test_intent_is_done_once_and_holds_up_the_next() -> None:
    intent = Commit("a", "r", 0, (Piece(ONE, None, 0, 5),), intent=True)
    state = after(State(), intent)
    assert state.open_intent == (1, intent)
    following = Commit("b", "r", 0, (Piece(ONE, 5, 5, 9),), intent=True)
    assert rebased(state, following)[0] is None
    done = after(state, Commit("c", "r", 0, done=1))
    assert done.open_intent is None
    assert rebased(done, Commit("d", "r", 0, done=1)) == (None, [])
    with pytest.raises(LakeDamaged, match="not open"):
        after(done, Commit("d", "r", 0, done=1))
    assert after(done, following).watermarks[ONE] == 9


def test_documents_say_what_they_were_made_of_and_refuse_the_rest() -> None:
    store = Memory()
    file = a_file(store, ONE, 0, 3, "a")
    commit = Commit("a", "r", 5, (Piece(ONE, None, 0, 3, (file,)),), intent=True)
    assert commits.parse_commit(json.loads(json.dumps(commits.commit_document(commit)))) == commit
    state = after(State(), commit)
    assert commits.parse_state(json.loads(json.dumps(commits.state_document(state)))) == state
    for broken in (
        None,
        {},
        {"format": 2},
        {"format": 1},
        {**commits.commit_document(commit), "pieces": [{}]},
    ):
        with pytest.raises(LakeDamaged):
            commits.parse_commit(broken)
        with pytest.raises(LakeDamaged):
            commits.parse_state(broken)


def test_lake_of_many_commits_is_read_from_its_newest_checkpoint() -> None:
    store = Memory()
    lake = Lake(store)
    count = CHECKPOINT_EVERY * (CHECKPOINTS_KEPT + 1) + 2
    for number in range(count):
        piece = Piece(ONE, number or None, number, number + 1, (a_file(store, ONE, number, number + 1, "x"),))
        lake.commit(Commit(str(number), "r", number, (piece,)))
    assert len(list(store.list(layout.CHECKPOINTS))) == CHECKPOINTS_KEPT
    for number in range(1, CHECKPOINT_EVERY * CHECKPOINTS_KEPT):
        del store.objects[layout.commit_name(number)]  # they are not looked at
    assert Lake(store).look() == lake.state
    assert rows_in(store) == rows_of({ONE: count})


def test_earlier_state_is_folded_anew() -> None:
    store = Memory()
    lake = Lake(store)
    for first in (0, 3):
        file = a_file(store, ONE, first, first + 3, "x")
        lake.commit(Commit(str(first), "r", 0, (Piece(ONE, first or None, first, first + 3, (file,)),)))
    assert lake.as_of(1).watermarks == {ONE: 3}
    assert lake.as_of(2) == lake.state


def test_sweep_takes_what_no_commit_has_and_leaves_what_may_still_be_read() -> None:
    store = Memory()
    lake = Lake(store)
    orphan = a_file(store, ONE, 0, 3, "dead")
    kept = a_file(store, ONE, 0, 3, "kept")
    lake.commit(Commit("a", "r", 0, (Piece(ONE, None, 0, 3, (kept,)),)))
    store.now_ms = GRACE_MS
    assert lake.sweep(GRACE_MS) == 0
    young = a_file(store, ONE, 3, 5, "young")
    store.now_ms = GRACE_MS + 1
    assert lake.sweep(GRACE_MS + 1) == 1
    assert orphan.name not in store.objects
    assert {kept.name, young.name} <= set(store.objects)
    lake.commit(Commit("b", "r", 2 * GRACE_MS, removed=(kept.name,)))
    store.now_ms = 4 * GRACE_MS
    assert list(lake.leftovers(3 * GRACE_MS)) == [young.name]
    assert set(lake.leftovers(3 * GRACE_MS + 1)) == {young.name, kept.name}


def test_who_sweeps_by_a_wrong_clock_takes_nothing_from_a_run_that_is_about_to_commit() -> None:
    store = Memory()
    store.now_ms = GRACE_MS
    runs = run_archive(store, LOGS, "slow")
    next(runs)
    assert Lake(store).sweep(400 * GRACE_MS) == 0
    assert list(runs)[-1] == "committed"
    assert rows_in(store) == rows_of(LOGS)


def test_random_histories_of_runs_and_rewritings_keep_every_row_once() -> None:
    for seed in range(60):
        chance = random.Random(seed)
        store = Memory()
        logs = {ONE: 0, TWO: 0}
        for turn in range(12):
            for place in logs:
                logs[place] += chance.randrange(4)
            store.operations = 0
            store.dies_at = chance.randrange(1, 12) if chance.random() < 0.5 else None
            store.does_it = chance.random() < 0.5
            try:
                if chance.random() < 0.3:
                    rewrite(store, str(turn))
                else:
                    list(run_archive(store, logs, f"{seed}-{turn}", chance.randrange(1, 5)))
            except Died:
                pass
            assert max(rows_in(store).values(), default=1) == 1, seed
        store.dies_at = None
        list(run_archive(store, logs, "last"))
        assert rows_in(store) == rows_of(logs), seed


def rewrite(store: Memory, token: str) -> None:
    lake = Lake(store)
    files = list(lake.look().files.values())[:3]
    if not files:
        return
    name = layout.data_name(layout.Hour(ONE.subject, "2027-01-01", 9), f"all-{token}")
    rows = [row for one in files for row in json.loads(store.objects[one.name])]
    store.write(name, json.dumps(rows).encode())
    spans = tuple(span for one in files for span in one.spans)
    large = File(name, ONE.subject, "2027-01-01", 9, len(rows), 1, spans, (0, 1), ("0", "f"))
    lake.commit(Commit(token, token, 0, added=(large,), removed=tuple(one.name for one in files)))


def test_what_a_piece_carries_is_there_with_its_watermark_also_behind_a_checkpoint() -> None:
    store = Memory()
    for number in range(CHECKPOINT_EVERY + 2):
        lake = Lake(store)
        lake.look()
        before = None if number == 0 else number
        piece = Piece(ONE, before, number, number + 1, carried=f"after {number}")
        said, _ = lake.commit(Commit(str(number), "run", 0, (piece,)))
        assert said is not None
        assert Lake(store).look().carried == {ONE: f"after {number}"}
    late = Piece(ONE, 3, 3, 4, carried="of a run that came late")
    assert Lake(store).commit(Commit("late", "run", 0, (late,))) == (None, [late])
    assert Lake(store).look().carried == {ONE: f"after {CHECKPOINT_EVERY + 1}"}


def test_commits_and_checkpoints_of_messages_say_nothing_of_what_is_carried() -> None:
    """So an earlier version, and one that knows of it, write the same bytes."""
    piece = Piece(ONE, None, 0, 1)
    state = after(State(), Commit("one", "run", 0, (piece,)))

    assert "carried" not in commits.state_document(state)
    assert "carried" not in commits.commit_document(Commit("one", "run", 0, (piece,)))["pieces"][0]

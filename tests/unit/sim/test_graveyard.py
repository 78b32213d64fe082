"""What the simulator says of dead letters: nothing when all is well, and each wrong by its name."""

from __future__ import annotations

import pytest

from samples.actions import PULL, SETTINGS
from sim.checkers import Ack, History, Outcome, PowerCut, Promise, Send, Terms, ended, nothing_lost
from sim.graveyard import Graveyard, Letter, alive, dead_of, draw_policies, grave_problems
from tidemill_broker.actions import (
    Acked,
    Buried,
    ConsumerNamed,
    FailedDeliveries,
    GroupNamed,
    GroupPaused,
    Pulled,
    PullRun,
    Purged,
    Reason,
    SubjectNamed,
)
from tidemill_broker.state import State
from tidemill_wire.limits import DOOMED_MS

GRAVE = "%dead%s%g"
TERMS = Terms({"s": ("g",)})
CUT = Terms({"s": ("g",)}, cuts=(PowerCut(5.0, "s1"),))


def buried_state(*more) -> State:
    """Three messages were given out: 0 is acked, 1 is dead, 2 is in somebody's hands."""
    state = State()
    for action in (
        SubjectNamed(1, "s", SETTINGS),
        SubjectNamed(2, GRAVE, SETTINGS),
        GroupNamed(1, 1, "g", 0, 0, {}),
        GroupNamed(2, 2, "g", 0, 0, {"consumption": "dead"}),
        ConsumerNamed(1, 1, "c"),
        Pulled(1, 100, [PullRun(PULL, 0, 3, 0)]),
        Acked(1, [PULL, PULL]),
        FailedDeliveries(1, DOOMED_MS, Reason.NACK, [PULL + 1, PULL + 1], 7),
        Buried(1, 1, 1, 4096),
        *more,
    ):
        state.apply(action)
    return state


def letter(message: str = "m1", sequence: int = 0, source: int = 1, subject: str = "s") -> Letter:
    return Letter("g", subject, source, GRAVE, sequence, message.encode(), source)


def history() -> History:
    made = History()
    for number in range(3):
        message = f"m{number}"
        send = made.sending(
            Send(message, "p", "s", message.encode(), Promise.HIGH, "", number, place=f"s/{number}")
        )
        ended(send, Outcome.OK, number + 0.1)
    ended(made.acking(Ack("g", "s/0", "m0", 3.0)), Outcome.OK, 3.1)
    return made


def problems(letters, state=None, terms=TERMS, **more) -> list[str]:
    return grave_problems(letters, state or buried_state(), history(), terms, purges=False, **more)


def test_a_dead_letter_that_is_right_is_no_problem() -> None:
    assert problems([letter()]) == []


def test_a_message_that_is_dead_is_not_lost() -> None:
    dead = dead_of([letter()], buried_state(), set())
    terms = Terms({"s": ("g",)}, dead=dead)

    assert dead == {("g", "m1")}
    assert len(nothing_lost(history(), TERMS)) == 2
    assert len(nothing_lost(history(), terms)) == 1


def test_a_dead_letter_that_was_redriven_is_alive_and_a_purged_one_is_not() -> None:
    state = buried_state(Purged(2, [0, 0]))

    assert dead_of([letter()], state, set()) == set()
    assert dead_of([letter()], state, {(GRAVE, 0)}) == {("g", "m1")}


def test_a_message_that_lies_there_twice_is_found() -> None:
    [problem] = [one for one in problems([letter(), letter(sequence=1)], terms=CUT) if "twice" in one]

    assert problem.startswith("buried twice: m1")


def test_a_message_that_is_acked_and_dead_is_found() -> None:
    assert "acked and dead: m0" in problems([letter("m0", source=0)])[0]


@pytest.mark.parametrize("wrong", [letter("m9"), letter("m1|other"), letter(subject="t")])
def test_a_dead_letter_of_another_message_is_found(wrong: Letter) -> None:
    assert problems([wrong])[0].startswith("altered: ")


def test_a_dead_letter_that_was_dropped_before_somebody_settled_it_is_found() -> None:
    state = buried_state()
    state.by_name[GRAVE.encode()].next_sequence = 1  # and no rows
    assert problems([letter()], state) == [f"dropped: m1 at {GRAVE}/0, which nobody redrove or purged"]
    assert problems([letter()], state, CUT) == [], "a power cut may have taken back that it was purged"
    state.apply(Purged(2, [0, 0]))
    assert not any(one.startswith("dropped") for one in problems([letter()], state))


def test_sums_that_are_not_right_are_found() -> None:
    state = buried_state()
    assert problems([]) == ["sums: g of s has buried 1, there are 0"]
    assert problems([letter(), letter("m2", 1, 2)]) == ["sums: g of s has buried 1, there are 2"]
    assert problems([letter(), letter("m2", 1, 2)], terms=CUT) == [], "nobody counts it after a power cut"
    state.groups[1].acked += 1
    for terms in (TERMS, CUT):
        assert problems([letter()], state, terms)[0].startswith("sums: g of s was given 3; 2 acked, 1 dead")
    state.groups[1].acked -= 2
    assert problems([letter()], state)[0].startswith("sums: g of s was given 3; 0 acked")
    assert problems([letter()], state, CUT) == []


def test_attempts_that_count_while_a_group_is_paused_are_found() -> None:
    for counted in (0, 1):
        found: list[str] = []
        graveyard = Graveyard(found)
        graveyard._state = state = buried_state(GroupPaused(1, 7, "mark"))
        for action in (
            FailedDeliveries(1, 100, Reason.NACK, [PULL + 2, PULL + 2], 8, counted),
            Pulled(1, 200, [PullRun(PULL + 3, 2, 1, counted)]),
        ):
            graveyard.acts(action, 1.0)
            state.apply(action)
        assert len(found) == counted, found


def test_more_than_a_probe_of_a_paused_group_is_found() -> None:
    found: list[str] = []
    graveyard = Graveyard(found)
    graveyard._state = buried_state(GroupPaused(1, 7, "mark"))
    graveyard.acts(Pulled(1, 200, [PullRun(PULL + 3, 3, 2, 0)]), 1.0)

    assert [one.partition(":")[0] for one in found] == ["paused"]


def test_subject_of_a_dead_letter_is_told_from_its_name() -> None:
    assert (alive(GRAVE, "g"), alive("s", "g")) == ("s", "s")


def test_policies_are_drawn_from_the_seed() -> None:
    assert draw_policies("7", ["a", "b"], 300) == draw_policies("7", ["a", "b"], 300)
    drawn = [draw_policies(str(seed), ["a"], 300) for seed in range(100)]
    assert 40 <= sum(bool(policies) for policies, _ in drawn) <= 80
    assert 20 <= sum(bool(outages) for _, outages in drawn) <= 60

"""Whoever breaks an order is found, and who could not help it is not blamed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from sim.checkers import Outcome, Promise, Send
from sim.faults import Fault, Kind
from sim.turns import Turns

LEASED, ENDED = (
    SimpleNamespace(_delivery=SimpleNamespace(until=9.0)),
    SimpleNamespace(_delivery=SimpleNamespace(until=0.5)),
)


class Scene:
    """Two processes, a clock, and what is found."""

    def __init__(self, *faults: Fault, excused: bool = False) -> None:
        self.loop = SimpleNamespace(now=1.0)
        self.envs = {name: SimpleNamespace(name=name, life=1, loop=self.loop) for name in ("a", "b")}
        self.lives = {name: SimpleNamespace(alive=True, number=1) for name in self.envs}
        nodes = {name: SimpleNamespace(life=life) for name, life in self.lives.items()}
        self.problems: list[str] = []
        world = SimpleNamespace(nodes=nodes, plan=SimpleNamespace(faults=faults))
        self.turns = Turns(world, self.problems, lambda _send: excused)
        self._at_s = 0.0

    def send(self, name: str) -> Send:
        """The next message of the key, answered."""
        self._at_s += 0.1
        made = Send(name, "p", "s", b"", Promise.NORMAL, "k", self._at_s, Outcome.OK, self._at_s + 0.05)
        self.turns.answered(made)
        return made

    def begin(self, name: str, send: Send, message=LEASED):
        self.loop.now += 0.1
        return self.turns.begins(self.envs[name], "g", "k", send, message)


def test_a_message_is_begun_after_the_ones_before_it_were_handled():
    scene = Scene()
    first, second = scene.send("1"), scene.send("2")

    scene.turns.ends(scene.begin("a", first), handled=True)
    scene.turns.ends(scene.begin("b", second), handled=True)
    scene.begin("a", first)  # it comes again

    assert scene.problems == []


@pytest.mark.parametrize("failed", [False, True])
def test_one_that_is_begun_before_is_found_also_behind_a_failure(failed):
    scene = Scene()
    first, second = scene.send("1"), scene.send("2")
    if failed:
        scene.turns.ends(scene.begin("a", first), handled=False)

    scene.begin("a", second)

    assert [problem.partition(":")[0] for problem in scene.problems] == ["begun too soon"]


def test_what_a_power_cut_may_have_taken_is_not_waited_for():
    scene = Scene(excused=True)
    scene.send("1")

    scene.begin("a", scene.send("2"))

    assert scene.problems == []


def test_two_at_once_are_found_while_the_lease_of_the_first_runs():
    scene = Scene()
    first = scene.send("1")
    scene.begin("a", first)

    scene.begin("b", first)

    assert [problem.partition(":")[0] for problem in scene.problems] == ["two at once"]


def test_who_lost_its_lease_stood_still_or_was_killed_is_at_nothing():
    stood = Fault(0.9, Kind.PAUSE, "a", lasts_s=5.0)
    late, paused, killed = Scene(), Scene(stood), Scene()
    for scene, message in ((late, ENDED), (paused, LEASED), (killed, LEASED)):
        first = scene.send("1")
        scene.begin("a", first, message)
        scene.lives["a"].alive = scene is not killed

        scene.begin("b", first)

    assert late.problems == paused.problems == killed.problems == []

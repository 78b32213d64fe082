"""Who is promised something by one replica of meta, and taken for gone by another one: never both at once."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tidemill_meta.beats import ClientBeat
from tidemill_meta.liveness import VIEW_MS_MAX, Liveness
from tidemill_meta.senses import Senses
from tidemill_meta.settings import MetaSettings

SETTINGS = MetaSettings()
AUTHORISATION_MS = SETTINGS.authorisation_ms
CLIENT = "c"


def replicas(count: int) -> list[Liveness[str]]:
    return [Liveness[str](-60_000, alone=False, returning=True) for _ in range(count)]


def test_a_promise_by_what_another_replica_heard_is_over_when_a_third_takes_it_for_gone() -> None:
    """It reads the bulletin almost a second after the third one, and hears the client when that one cannot know it."""
    first, early, late = replicas(3)
    first.hear(CLIENT, "beat", 0)
    [news] = first.news(100)
    early.learn(news, "first", 100, 150)
    late.learn(news, "first", 100, 1_050)
    late.hear(CLIENT, "beat", 2_100)

    left_ms = late.lease_left(CLIENT, AUTHORISATION_MS, 2_100)

    assert left_ms > 0
    assert not early.gone(CLIENT, AUTHORISATION_MS, 2_100 + left_ms)


def test_a_promise_does_not_shrink_when_another_replica_tells_of_an_earlier_beat() -> None:
    first, here = replicas(2)
    first.hear(CLIENT, "beat", 900)
    [news] = first.news(1_000)
    here.hear(CLIENT, "beat", 950)
    here.published(1_000, 1_000)
    here.learn(news, "first", 1_000, 1_060)

    before = here.lease_left(CLIENT, AUTHORISATION_MS, 2_000)
    after = here.lease_left(CLIENT, AUTHORISATION_MS, 2_100)

    assert (before, after) == (950 + AUTHORISATION_MS - 2_000, before - 100)


def test_nothing_is_promised_by_a_bulletin_of_which_nobody_knows_how_old_it_is() -> None:
    """A replica that begins finds what one that has died put up a minute ago."""
    dead, new = (Senses(SETTINGS, 0, alone=False) for _ in range(2))
    dead.clients.hear(CLIENT, ClientBeat(CLIENT), 1_000)
    told = dead.bulletin(1_100)

    new.learn("dead", told, 60_000)
    new.exchanged(60_000, 60_000, 60_010)

    assert new.clients.present(CLIENT, 1_000, 60_010), "it may live, as far as is known"
    assert new.clients.lease_left(CLIENT, AUTHORISATION_MS, 60_000 + 2 * VIEW_MS_MAX) == 0


class Board:
    """Replicas that exchange bulletins when they are alive, at whatever times, and one client."""

    def __init__(self, seed: int, count: int = 3) -> None:
        self.chance = random.Random(seed)
        self.now_ms = 100_000
        self.senses = [Senses(SETTINGS, self.now_ms - 60_000, alone=False) for _ in range(count)]
        self.due = [self.now_ms] * count
        self.ends = [1 << 62] * count
        self.board: dict[int, tuple[int, dict[str, Any]]] = {}
        self.number = 0
        self.promised_ms = 0

    def exchange(self, replica: int) -> None:
        self.number += 1
        senses = self.senses[replica]
        self.board[replica] = self.number, senses.bulletin(self.now_ms)
        for other, (number, told) in self.board.items():
            if other != replica and senses.is_new(str(other), number):
                senses.learn(str(other), told, self.now_ms)
        senses.exchanged(self.now_ms, self.now_ms, self.now_ms)

    def beat(self, replica: int) -> None:
        senses = self.senses[replica]
        if not senses.fresh(self.now_ms):
            return
        senses.clients.hear(CLIENT, ClientBeat(CLIENT), self.now_ms)
        left_ms = senses.clients.lease_left(CLIENT, AUTHORISATION_MS, self.now_ms)
        self.promised_ms = max(self.promised_ms, self.now_ms + left_ms if left_ms else 0)

    def alive(self) -> list[int]:
        return [one for one, end in enumerate(self.ends) if self.now_ms < end]

    def pass_time(self, ms: int, beats: list[tuple[int, int]]) -> int:
        """The promises that were broken by a replica which takes the client for gone while one holds."""
        broken, end = 0, self.now_ms + ms
        while self.now_ms < end:
            self.now_ms += 50
            for one in self.alive():
                if self.now_ms >= self.due[one]:
                    self.exchange(one)
                    slow = self.chance.random() < 0.1
                    self.due[one] = self.now_ms + self.chance.randint(100, 2_500 if slow else 900)
                self.senses[one].ticked(self.now_ms)
            for at_ms, one in beats:
                if at_ms == self.now_ms and one in self.alive():
                    self.beat(one)
            for one in self.alive():
                senses = self.senses[one]
                gone = senses.clients.gone(CLIENT, AUTHORISATION_MS, self.now_ms)
                broken += senses.fresh(self.now_ms) and gone and self.now_ms < self.promised_ms
        return broken


def broken_promises(seed: int) -> tuple[int, int]:
    board = Board(seed)
    begin, chance = board.now_ms, board.chance
    beats = [
        (begin + 50 * chance.randint(1, 240), chance.randrange(len(board.senses)))
        for _ in range(chance.randint(1, 6))
    ]
    last_ms, last = max(beats)
    # Who hears it last dies with what it heard.
    board.ends[last] = last_ms + 50 * chance.randint(1, 20)
    return board.pass_time(30_000, beats), board.promised_ms


def test_no_promise_is_broken_however_late_replicas_read_and_whichever_dies() -> None:
    found = [broken_promises(seed) for seed in range(150)]

    assert [seed for seed, (broken, _) in enumerate(found) if broken] == []
    assert sum(promised > 0 for _, promised in found) > 50, "there were promises to break"


def test_a_promise_by_how_young_a_beat_looks_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def naive(self: Liveness[Any], heard: Any, known_ms: int) -> None:
        heard.pending.append((heard.at_ms, known_ms + VIEW_MS_MAX))

    monkeypatch.setattr(Liveness, "_settle_later", naive)

    assert any(broken for broken, _ in map(broken_promises, range(150)))

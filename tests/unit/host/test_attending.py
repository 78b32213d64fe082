"""What a service cannot do of what meta said ends no beat, and is said once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

import pytest

from tidemill_host.attending import Attending
from tidemill_host.server import Server
from tidemill_wire.replication import Ends, Stood
from tidemill_wire.routes import State

STOOD = Stood("g1-0", "master", 1, 1, 1, Ends(0, 0), Ends(0, 0), "g1-0")


class Service:
    """It is full from one beat to another."""

    state: State = "RW"

    def __init__(self, problems: list[str]) -> None:
        self.server = cast("Server", None)
        self.problem = ""
        self._problems = problems

    def heed(self, due: object) -> object:
        if due == "told":
            self.problem = self._problems.pop(0)
        return due


class Beats:
    """Two things to do in each beat; ``ended`` when there were enough."""

    beat_s = 0.0

    def __init__(self, beats: int) -> None:
        self.answers: list[object] = []
        self.ended = asyncio.Event()
        self._left = beats

    def beat(self, stood: Stood, state: State) -> object:
        if not self._left:
            self.ended.set()
            return None
        self._left -= 1
        return "told"

    def answered(self, status: int, answer: object) -> object | None:
        self.answers.append(answer)
        return "looked" if answer == "told" else None


class Peer:
    """The machine, which stands as it stands."""

    def __init__(self, *_: Any) -> None:
        pass

    def ask(self, _: object) -> asyncio.Future[Stood]:
        future: asyncio.Future[Stood] = asyncio.get_running_loop().create_future()
        future.set_result(STOOD)
        return future


async def test_what_cannot_be_done_is_said_once_when_the_rest_of_the_beat_is_done(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tidemill_host.attending.LocalPeer", Peer)
    beats = Beats(6)
    service = Service(["full", "full", "too many", "", "", "too many"])
    keeping = asyncio.ensure_future(Attending(service, beats, ["m1:1", "m2:1"]).keep())
    async with asyncio.timeout(10):
        await beats.ended.wait()
    keeping.cancel()
    with suppress(asyncio.CancelledError):
        await keeping

    assert beats.answers == ["told", "looked"] * 6
    assert capsys.readouterr().err == "tidemill: full\ntidemill: too many\ntidemill: too many\n"


class News:
    """In the place of ``Hearing``: each beat brings the next one at once."""

    def __init__(self, _caller: object, _metas: object, news: Callable[[], None]) -> None:
        self._news = news

    async def keep(self, _session: object) -> None:
        while True:
            self._news()
            await asyncio.sleep(0)


async def test_news_bring_the_next_beat_before_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill_host.attending.LocalPeer", Peer)
    monkeypatch.setattr("tidemill_host.attending.Hearing", News)
    beats = Beats(4)
    beats.beat_s = 3600.0
    keeping = asyncio.ensure_future(Attending(Service([""] * 4), beats, ["m1:1"], hears=True).keep())
    async with asyncio.timeout(30):
        await beats.ended.wait()
    keeping.cancel()
    with suppress(asyncio.CancelledError):
        await keeping

    assert beats.answers == ["told", "looked"] * 4

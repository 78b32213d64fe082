"""A process's log has a form and a level, and another level for a while."""

from __future__ import annotations

import asyncio
import json

import pytest

from tidemill_host.log import FORMAT, LEVEL, Log
from tidemill_wire.log_lines import Level
from tidemill_wire.settings import SettingsError


def test_events_below_the_level_are_not_said(capsys: pytest.CaptureFixture[str]) -> None:
    log = Log()
    log.begin("broker", {LEVEL: "warning", FORMAT: "json"})
    log.name("g0-0")
    log.say(Level.INFO, "quiet", "nobody hears it")
    log.say(Level.ERROR, "loud", "somebody does", bytes=3)
    [line] = capsys.readouterr().err.splitlines()
    said = json.loads(line)
    assert (said["event"], said["service"], said["name"], said["bytes"]) == ("loud", "broker", "g0-0", 3)


@pytest.mark.parametrize("name, value", [(FORMAT, "xml"), (LEVEL, "loud")])
def test_what_cannot_be_is_refused_with_what_can(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=f"{name} is '{value}': write "):
        Log().begin("broker", {name: value})


def test_level_goes_back_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    log = Log()
    log.begin("broker", {})

    async def live() -> None:
        loop = asyncio.get_running_loop()
        log.set_for(Level.ERROR, 60)
        log.set_for(Level.DEBUG, 0.01)
        assert log.state() == {"level": "debug", "usual": "info", "seconds": 0}
        log.say(Level.DEBUG, "detail", "while it lasts")
        past = loop.create_future()
        loop.call_later(0.05, past.set_result, None)
        await past
        log.say(Level.DEBUG, "detail", "when it is over")
        assert log.state() == {"level": "info", "usual": "info", "seconds": 0}

    asyncio.run(live())
    said = capsys.readouterr().err
    assert "while it lasts" in said
    assert "when it is over" not in said

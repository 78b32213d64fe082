"""An event is one line, for people or for programs, and says no secret in either."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill_wire.log_lines import Event, Form, Level, is_secret, log_line, shows

SECRETS = [
    "postgresql://queue:hunter2@db/meta is away",
    "it said Authorization: Bearer hunter2.hunter2.hunter2",
    "amqp://hunter:hunter2@host:5672",
]


@pytest.mark.parametrize("text", SECRETS)
@pytest.mark.parametrize("form", Form)
def test_no_secret_leaves(form: Form, text: str) -> None:
    event = Event("", Level.ERROR, "meta", text, {"url": text, "token": "hunter2", "db_password": "hunter2"})
    assert "hunter2" not in log_line(form, event)


def test_names_of_secrets_are_known() -> None:
    assert all(map(is_secret, ("token", "TIDEMILL_TOKEN", "meta_password", "client_secret", "tokens")))
    assert not any(map(is_secret, ("name", "tokenised_messages", "segment_bytes")))


@given(st.text(max_size=80), st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=4))
def test_whatever_is_said_is_one_line(text: str, fields: dict[str, str]) -> None:
    for form in Form:
        line = log_line(form, Event("", Level.INFO, "x", text, fields))
        assert line.endswith("\n")
        assert line[:-1].splitlines() in ([line[:-1]], []) or form is Form.JSON
        assert "\n" not in line[:-1]


def test_object_says_when_what_and_who() -> None:
    event = Event(
        "2026-09-21T14:13:20.123Z", Level.WARNING, "torn_tail", "cut 5 bytes", {"bytes": 5, "name": "g0-0"}
    )
    assert json.loads(log_line(Form.JSON, event)) == {
        "at": "2026-09-21T14:13:20.123Z", "level": "warning", "event": "torn_tail", "text": "cut 5 bytes",
        "bytes": 5, "name": "g0-0",
    }  # fmt: skip
    assert log_line(Form.TEXT, event) == "tidemill: cut 5 bytes\n"


def test_level_shows_what_is_at_least_as_important() -> None:
    assert [level for level in Level if shows(Level.WARNING, level)] == [Level.WARNING, Level.ERROR]

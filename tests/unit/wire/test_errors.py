"""The table of errors: numbers are for ever, and each error crosses wire and processes unharmed."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import pytest

from tidemill_wire.errors import (
    ERROR_KINDS,
    KIND_BY_NAME,
    ErrorKind,
    LocalProtocolError,
    ProtocolError,
    Refused,
    RemoteProtocolError,
    TidemillError,
    Unavailable,
    WireError,
    wire_error,
)

GIVEN_OUT = Path(__file__).with_name("error_numbers.txt")


def test_numbers_that_were_given_out_are_never_given_again() -> None:
    """Old clients know them. A row that is new is added to the file; one in the file stays, also when it is unused."""
    given_out = [line.split() for line in GIVEN_OUT.read_text().splitlines()]

    assert [[str(kind.number), kind.name] for kind in ERROR_KINDS] == given_out


def test_numbers_and_names_stand_once() -> None:
    numbers = [kind.number for kind in ERROR_KINDS]
    assert numbers == sorted(set(numbers))
    assert len({kind.name for kind in ERROR_KINDS}) == len(ERROR_KINDS)


@pytest.mark.parametrize("kind", ERROR_KINDS, ids=lambda kind: kind.name)
def test_each_error_says_what_to_do(kind: ErrorKind) -> None:
    error = wire_error(kind.number, "it went wrong")

    assert type(error) is (Unavailable if kind.retryable else Refused)
    assert str(error) == f"it went wrong: {kind.advice} ({kind.name})"
    assert kind.advice
    assert not kind.advice.endswith(".")


def test_number_of_a_newer_server_is_an_internal_error() -> None:
    for number in (0, len(ERROR_KINDS) + 1, 2**32 - 1):
        error = wire_error(number, "later")
        assert isinstance(error, Unavailable)
        assert error.kind.name == "internal"


@pytest.mark.parametrize(
    "error",
    [
        Refused("invalid_group", "no"),
        Unavailable("disk_full", "later"),
        RemoteProtocolError("malformed_frame", "a second HELLO"),
        LocalProtocolError("malformed_frame", "closed"),
    ],
)
def test_errors_cross_processes(error: TidemillError) -> None:
    """Handlers may run in a pool of processes; an exception that cannot be unpickled there breaks the whole pool."""
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert again.__dict__ == error.__dict__


def test_protocol_error_says_which_side_broke_it() -> None:
    with pytest.raises(TypeError, match="LocalProtocolError"):
        ProtocolError("malformed_frame", "")
    with pytest.raises(AssertionError):
        RemoteProtocolError("no_such_reason", "")
    assert str(RemoteProtocolError("too_slow", "30 s")) == "too_slow: 30 s"


def test_all_errors_are_tidemill_errors() -> None:
    for error in (WireError("internal", ""), RemoteProtocolError("too_slow", "")):
        assert isinstance(error, TidemillError)
    with pytest.raises(KeyError):
        Refused("no_such_name", "")
    assert KIND_BY_NAME["not_tidemill"].number == 3

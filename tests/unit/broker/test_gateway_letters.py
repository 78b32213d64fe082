"""Which dead letters a request over HTTP means."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest

from tidemill_broker.doors.gateway_letters import Chosen, allowed, parse_letters
from tidemill_broker.messages import Found
from tidemill_host.refusals import HttpRefused
from tidemill_wire.fields import DEAD_PROPERTY

IDS = [f"{number:032x}-{number}" for number in range(4)]


def letter(sequence: int, properties: bytes | None = None, **known: Any) -> Found:
    """It died a second after the one before it, and has been stored late."""
    said = {
        "failed_at": 1000 * sequence,
        "reason": f"no {sequence}",
        "fingerprint": f"f{sequence % 2}",
    } | known
    packed = msgpack.packb({DEAD_PROPERTY: said}) if properties is None else properties
    return Found("copy-0", "%dead%s%g", sequence, 9_000, 0, b"", None, (), packed, 1, IDS[sequence])


LETTERS = [letter(sequence) for sequence in range(4)]


@pytest.mark.parametrize(
    "said, sequences",
    [
        ({"ids": [IDS[2].upper(), IDS[0]]}, [0, 2]),
        ({"reason": "no"}, [0, 1, 2, 3]),
        ({"reason": "no 3"}, [3]),
        ({"fingerprint": "f1"}, [1, 3]),
        ({"fingerprint": "f"}, []),
        ({"from": 1000, "to": 3000}, [1, 2]),
        ({"from": 1000.0, "fingerprint": "f0"}, [2]),
        ({"from": "1970-01-01T00:00:03Z"}, [3]),
        ({"to": "1960-01-01T00:00:00Z"}, []),
    ],
)
def test_those_that_are_as_it_says_are_meant(said: dict[str, Any], sequences: list[int]) -> None:
    chosen = parse_letters(said)

    assert isinstance(chosen, Chosen)
    assert allowed(LETTERS, chosen, []) == sequences


def test_what_was_handled_is_not_meant_again() -> None:
    assert allowed(LETTERS, Chosen(), [0, 1, 3, 3]) == [2]


@pytest.mark.parametrize("properties", [b"", b"\xc1", b"\x01", msgpack.packb({DEAD_PROPERTY: 1})])
def test_a_copy_that_says_nothing_of_its_death_is_known_by_when_it_was_stored(properties: bytes) -> None:
    mute = [letter(0, properties)]

    assert allowed(mute, Chosen(from_ms=9_000), []) == [0]
    assert allowed(mute, Chosen(to_ms=9_000), []) == []
    assert allowed(mute, Chosen(reason="no"), []) == []


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"all": False},
        {"all": True, "sequences": [1]},
        {"all": False, "ids": IDS},
        {"sequences": [1], "reason": "no"},
        {"rehearsal": True},
        {"sequences": [1], "rehearsal": True},
        {"reason": "no", "rehearsal": 1},
        {"ids": []},
        {"ids": "x"},
        {"ids": ["x"]},
        {"ids": [1]},
        {"from": -1},
        {"to": "noon"},
        {"fingerprint": None},
    ],
)
def test_what_means_none_or_two_things_is_refused(said: dict[str, Any]) -> None:
    with pytest.raises(HttpRefused) as refused:
        parse_letters(said)
    assert refused.value.code == "malformed_request"


def test_sequences_and_all_of_them_are_ranges() -> None:
    assert parse_letters({"all": True}) == []
    assert parse_letters({"sequences": [3, 1, 2.0, 7, 3]}) == [1, 3, 7, 7]

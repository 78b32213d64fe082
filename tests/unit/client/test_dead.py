"""Dead letters of several brokers and partitions: one list, each with its place, and who cannot be asked is said."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

import pytest

from tidemill import BrokerUnreachable, ClientSettings, Refused
from tidemill.dead import Chosen, DeadLetters, merged_errors
from tidemill.looking import Holder, Holders
from tidemill.routes import Address
from tidemill_wire.fields import DEAD_PROPERTY

NOBODY = Refused("not_found", "no such group")


class Grave:
    """What a broker says over HTTP: partitions, and in each when its letters died; those at ``handled`` are settled."""

    def __init__(self, group: str, died: Mapping[str, list[int]], handled: tuple[int, ...] = ()) -> None:
        self.group = group
        self.died = died
        self.handled = handled
        self.silent_at = ""
        """A path that is not answered."""

    @property
    def holder(self) -> Holder:
        return Holder(Address(self.group, "127.0.0.1", 1), self.look)

    async def look(self, path: str, parameters: Mapping[str, str]) -> Any:
        if self.silent_at and path.endswith(self.silent_at):
            raise BrokerUnreachable(f"{self.group} is away")
        if path.endswith("/dead"):
            if not self.died:
                raise NOBODY
            return self.status()
        partition = unquote(path.split("/")[3]).split("%")[2]
        first = int(parameters["after"]) if "after" in parameters else 0
        rows = [self.row(partition, number) for number in range(len(self.died[partition]))]
        page = rows[first : first + 2]
        return {"messages": page, "after": str(first + 2) if first + 2 < len(rows) else None}

    def status(self) -> dict[str, Any]:
        handled = [bound for number in self.handled for bound in (number, number)]
        places = [
            {"partition": name, "subject": f"%dead%{name}%g", "first": 0, "next": len(died), "handled": handled,
             "waiting": len(died) - len(self.handled)}
            for name, died in self.died.items()
        ]  # fmt: skip
        error = {"reason": self.group, "error": "", "place": "", "fingerprint": "f", "messages": 2}
        return {"partitions": places, "errors": [{**error, "last_ms": ord(self.group[-1])}]}

    def row(self, partition: str, number: int) -> dict[str, Any]:
        said = {
            "attempts": 3,
            "reason": "no",
            "failed_at": 1000 * self.died[partition][number],
            "fingerprint": "f",
        }
        at = datetime.fromtimestamp(0, UTC).isoformat()
        return {
            "id": "0-0", "origin": f"{self.group}/{partition}-{number}", "subject": f"%dead%{partition}%g",
            "sequence": number, "body": base64.b64encode(b"x").decode(), "key": None, "tags": [],
            "properties": {DEAD_PROPERTY: said}, "attempts": 3, "stored_at": at, "created_at": None,
        }  # fmt: skip


def letters_of(*graves: Grave, away: tuple[str, ...] = ()) -> DeadLetters:
    async def find(subject: str) -> Holders:
        assert subject == "s"
        return Holders([grave.holder for grave in graves], away)

    return DeadLetters(find, ClientSettings(), ("s", "g"))


async def ids(letters: DeadLetters, limit: int | None = None) -> list[str]:
    return [letter.id async for letter in letters.chosen(Chosen(), limit)]


async def test_letters_of_all_brokers_and_partitions_come_the_oldest_first_and_each_with_its_place() -> None:
    letters = letters_of(Grave("g0", {"s": [1, 4, 6], "s#1": [3]}), Grave("g1", {"s": [2, 5]}))
    found = [letter async for letter in letters]

    assert [letter.id for letter in found] == ["g0/s-0", "g1/s-0", "g0/s#1-0", "g0/s-1", "g1/s-1", "g0/s-2"]
    assert [(letter.broker, letter.partition, letter.sequence) for letter in found[1:4]] == [
        ("g1", "s", 0),
        ("g0", "s#1", 0),
        ("g0", "s", 1),
    ]
    assert await ids(letters, 2) == ["g0/s-0", "g1/s-0"]


async def test_what_was_settled_before_is_passed_over_and_counts_add_up() -> None:
    letters = letters_of(Grave("g0", {"s": [1, 3, 5]}, handled=(1,)), Grave("g1", {"s": [2, 4]}))
    status = await letters.status()

    assert await ids(letters) == ["g0/s-0", "g1/s-0", "g1/s-1", "g0/s-2"]
    assert status["waiting"] == 4
    assert [(one["broker"], one["partition"], one["waiting"]) for one in status["partitions"]] == [
        ("g0", "s", 2),
        ("g1", "s", 2),
    ]
    assert [(one["reason"], one["messages"]) for one in status["errors"]] == [("g1", 4)]


async def test_a_broker_where_the_group_never_was_has_none() -> None:
    assert await ids(letters_of(Grave("g0", {}), Grave("g1", {"s": [1]}))) == ["g1/s-0"]
    with pytest.raises(Refused, match="not_found"):
        await ids(letters_of(Grave("g0", {}), Grave("g1", {})))


@pytest.mark.parametrize("silent_at", ["/dead", "/messages"])
async def test_who_cannot_be_asked_is_said_behind_what_the_others_have(silent_at: str) -> None:
    gone = Grave("g1", {"s": [1]})
    gone.silent_at = silent_at
    letters, found = letters_of(Grave("g0", {"s": [1, 2]}), gone), []
    with pytest.raises(BrokerUnreachable, match="of s on g1 cannot be reached"):
        async for letter in letters:
            found.append(letter.id)  # noqa: PERF401 - it ends with an error

    assert found == ["g0/s-0", "g0/s-1"]


async def test_broker_groups_that_nobody_serves_are_missing() -> None:
    letters = letters_of(Grave("g0", {"s": [1]}), away=("g7",))

    assert (await letters.status())["away"] == ["g7"]
    assert await ids(letters, 1) == ["g0/s-0"]
    with pytest.raises(BrokerUnreachable, match="g7"):
        await ids(letters)


async def test_sequences_alone_are_refused_where_they_are_of_several_places() -> None:
    for graves in ([Grave("g0", {"s": [1], "s#1": [1]})], [Grave("g0", {"s": [1]}), Grave("g1", {"s": [1]})]):
        with pytest.raises(Refused, match="2 places"):
            await letters_of(*graves).redrive([0])


def test_the_same_mistake_is_one_with_its_newest_words() -> None:
    rows = [
        {"fingerprint": "a", "reason": "old", "messages": 1, "last_ms": 1},
        {"fingerprint": "b", "reason": "other", "messages": 5, "last_ms": 2},
        {"fingerprint": "a", "reason": "new", "messages": 2, "last_ms": 3},
    ]
    assert [(row["reason"], row["messages"]) for row in merged_errors(rows)] == [("new", 3), ("other", 5)]

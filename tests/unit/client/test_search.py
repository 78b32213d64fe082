"""Finding and browsing: pages that are put together, bounds as sequences and times, and the queue in memory."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tidemill import BrokerUnreachable, Refused, blocking, testing
from tidemill.memory import MemoryBroker
from tidemill.search import Search, parse_message

ROW = {
    "id": "0" * 32 + "-0", "subject": "a", "sequence": 4, "stored_at": "2026-09-01T12:00:00.123Z", "created_at": None,
    "key": None, "tags": ["x"], "properties": None, "attempts": 2, "origin": "b", "body": "/wA=", "text": None,
}  # fmt: skip


class Pages:
    """Answers with pages, and notes what was asked."""

    def __init__(self, *pages: tuple[list[int], str | None]) -> None:
        self.pages = list(pages)
        self.asked: list[dict[str, str]] = []

    async def look(self, path: str, parameters: Mapping[str, str]) -> Any:
        assert path == "/v1/messages"
        self.asked.append(dict(parameters))
        sequences, after = self.pages.pop(0)
        return {"messages": [{**ROW, "sequence": number} for number in sequences], "after": after}


async def test_pages_are_asked_for_one_after_the_other_also_empty_ones() -> None:
    pages = Pages(([1, 2], "b"), ([], "c"), ([3], None))
    found = await Search(pages.look, "/v1/messages", {"key": "k"}, None).all()
    assert [one.sequence for one in found] == [1, 2, 3]
    assert [asked.get("after") for asked in pages.asked] == [None, "b", "c"]
    assert all(asked["key"] == "k" for asked in pages.asked)


async def test_a_limit_ends_a_search_and_is_not_asked_beyond() -> None:
    pages = Pages(([1, 2], "b"), ([3], "c"))
    found = await Search(pages.look, "/v1/messages", {}, 3).all()
    assert [one.sequence for one in found] == [1, 2, 3]
    assert [asked["limit"] for asked in pages.asked] == ["3", "1"]
    with pytest.raises(ValueError, match="one message at least"):
        Search(pages.look, "/v1/messages", {}, 0)


async def test_what_is_no_page_is_no_broker() -> None:
    async def look(_path: str, _parameters: Mapping[str, str]) -> Any:
        return {"rows": []}

    with pytest.raises(BrokerUnreachable, match="no page"):
        await Search(look, "/v1/messages", {}, None).all()


def test_a_message_is_parsed_or_refused() -> None:
    message = parse_message(ROW)
    assert (message.body, message.tags, message.properties, message.origin) == (b"\xff\x00", {"x"}, {}, "b")
    assert message.stored_at == datetime(2026, 9, 1, 12, 0, 0, 123_000, tzinfo=UTC)
    assert message.created_at is None
    for wrong in (None, {}, {**ROW, "body": "?"}, {**ROW, "stored_at": "noon"}, {**ROW, "sequence": "x"}):
        with pytest.raises(BrokerUnreachable):
            parse_message(wrong)


async def test_a_queue_in_memory_finds_what_was_sent() -> None:
    async with testing.Client() as mq:
        receipt = await mq.send("a", b"0", key="k", tags={"t"}, properties={"p": 1})
        await mq.send_many("a", [b"1", b"2", b"3"])
        await mq.send("b", b"4", key="k")
        found = await mq.find(receipt.id)
        assert found is not None
        assert (found.body, found.key, found.tags, found.properties) == (b"0", "k", {"t"}, {"p": 1})
        assert await mq.find("f" * 32 + "-0") is None
        assert [one.body for one in await mq.find_by_key("a", "k").all()] == [b"0"]
        assert [one.body for one in await mq.find_by_key(None, "k", newest=True).all()] == [b"4", b"0"]
        assert [one.body for one in await mq.browse("a", start=1, end=3).all()] == [b"1", b"2"]
        assert [one.body for one in await mq.browse("a", newest=True, limit=2).all()] == [b"3", b"2"]
        assert await mq.browse("a", start=3, end=3).all() == []
        later = found.stored_at + timedelta(days=1)
        assert await mq.browse("a", start=later).all() == []
        assert len(await mq.browse("a", end=later).all()) == 4
        assert await mq.find_by_key(None, "k", start=later).all() == []
        assert len(await mq.find_by_key(None, "k", start=found.stored_at, end=later).all()) == 2
        assert await mq.find_by_key("a", "k", end=found.stored_at).all() == []
        with pytest.raises(Refused, match="no subject"):
            await mq.browse("never").all()
        assert mq.broker.groups == {}


async def test_what_cannot_be_asked_is_refused_before_it_is() -> None:
    async with testing.Client() as mq:
        with pytest.raises(ValueError, match="no message id"):
            await mq.find("nonsense")
        with pytest.raises(ValueError, match="time zone"):
            mq.browse("a", start=datetime(2026, 9, 1))  # noqa: DTZ001
        with pytest.raises(ValueError, match="time zone"):
            mq.find_by_key("a", "k", end=datetime(2026, 9, 1))  # noqa: DTZ001
        with pytest.raises(ValueError, match="negative"):
            mq.browse("a", start=-1)
        with pytest.raises(ValueError, match="empty key"):
            mq.find_by_key("a", "")
        with pytest.raises(Refused, match="key"):
            mq.find_by_key("a", "k" * 2000)


def test_the_same_without_a_loop() -> None:
    broker = MemoryBroker()
    with blocking.Client(make=lambda: testing.Client(broker)) as mq:
        receipt = mq.send("a", b"0", key="k")
        found = mq.find(receipt.id)
        assert found is not None
        assert found.body == b"0"
        assert [one.body for one in mq.find_by_key("a", "k", start=found.stored_at)] == [b"0"]
        assert [one.id for one in mq.browse("a")] == [receipt.id]


@pytest.mark.parametrize(
    "bounds",
    [
        {"start": "latest"},
        {"start": "2026-11-20"},
        {"start": "x"},
        {"end": "earliest"},
        {"end": 1.5},
        {"start": True},
    ],
)
def test_a_bound_that_nobody_understands_is_not_all_messages(bounds):
    with pytest.raises(TypeError, match="newest=True begins with the newest"):
        testing.Client().browse("a", **bounds)


@pytest.mark.parametrize("bounds", [{"start": 5}, {"end": "latest"}, {"start": "2026-11-20"}])
def test_a_time_of_a_search_by_key_is_a_datetime(bounds):
    with pytest.raises(TypeError, match="is no datetime"):
        testing.Client().find_by_key("a", "k", **bounds)


async def test_the_word_of_a_start_is_understood():
    async with testing.Client() as mq:
        await mq.send_many("a", [b"0", b"1"])
        found = await mq.browse("a", start="earliest", end="latest").all()
    assert [one.body for one in found] == [b"0", b"1"]

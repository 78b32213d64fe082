"""How much may be sent, on values alone: buckets that fill by a clock that comes in, and who pays."""

from __future__ import annotations

from typing import Any

import pytest

from e2e.peers import Numbers
from tidemill_wire.access import Access, Charter, Operation, Permission, TokenRow, digest_of
from tidemill_wire.commands import Failed, Pull, SendBatches, Sent, encode_command, parse_command
from tidemill_wire.connection import Received
from tidemill_wire.declarations import parse_manifest
from tidemill_wire.errors import Refused, Unavailable
from tidemill_wire.frame import FrameDecoder
from tidemill_wire.granted import declared_grant, parse_grant
from tidemill_wire.guarding import Gate, Guard
from tidemill_wire.quotas import (
    UNBOUNDED,
    Bound,
    Meter,
    Quota,
    Rates,
    Usage,
    charge,
    check_quota,
    full,
    least,
)
from tidemill_wire.resources import parse_resource
from tidemill_wire.schema import ManifestError
from tidemill_wire.transacting import Half

TOKEN = "t" * 43
WHO = "token:shop"


def taken(meter: Meter, seconds: int, messages: int, step_ms: int = 10, size: int = 100) -> int:
    """How many messages somebody gets through who tries all the time."""
    return messages * sum(
        charge((meter,), messages, size, now_ms) is None for now_ms in range(0, seconds * 1000, step_ms)
    )


@pytest.mark.parametrize("messages", [1, 7, 100, 333])
def test_the_rate_holds_whatever_the_size_of_the_batches(messages: int) -> None:
    """Over a minute, but for what a second brings and one batch."""
    got = taken(Meter(WHO, Rates(messages=100), 0), 60, messages)
    assert 6000 - messages <= got <= 6000 + 100 + messages


def test_bytes_are_bounded_as_messages_are() -> None:
    got = taken(Meter(WHO, Rates(bytes=1000), 0), 60, 1, size=100)
    assert 600 <= got <= 611


def test_both_bounds_hold() -> None:
    assert taken(Meter(WHO, Rates(1000, 1000), 0), 60, 1) <= 611
    assert taken(Meter(WHO, Rates(5, 1_000_000), 0), 60, 1) <= 306


@pytest.mark.parametrize(("messages", "size"), [(50, 1), (1, 5000), (50, 5000)])
def test_what_is_told_to_wait_is_taken_after_the_wait_and_not_before(messages: int, size: int) -> None:
    meter = Meter(WHO, Rates(10, 1000), 0)
    assert charge((meter,), messages, size, 0) is None
    wait_ms = meter.wait_ms(0)
    assert wait_ms > 0
    assert charge((meter,), 1, 1, wait_ms - 2) is meter
    assert charge((meter,), 1, 1, wait_ms) is None


def test_who_is_told_to_wait_does_not_pay() -> None:
    one, other = Meter("one", Rates(10), 0), Meter("other", Rates(1), 0)
    assert charge((one, other), 1, 1, 0) is None
    for _ in range(20):
        assert charge((one, other), 1, 1, 0) is other
    assert one.wait_ms(0) == 0


def test_what_was_not_used_for_long_is_a_second_and_no_more() -> None:
    meter = Meter(WHO, Rates(10), 0)
    assert [charge((meter,), 1, 1, 3_600_000) is None for _ in range(12)] == [True] * 10 + [False] * 2


def test_a_clock_that_is_set_back_neither_brings_nor_takes() -> None:
    meter = Meter(WHO, Rates(10), 1_000_000)
    for _ in range(10):
        assert charge((meter,), 1, 1, 1_000_000) is None
    assert meter.wait_ms(5) == 100
    assert charge((meter,), 1, 1, 105) is None


def test_another_rate_holds_at_once_and_forgives_no_debt() -> None:
    meter = Meter(WHO, Rates(10), 0)
    charge((meter,), 110, 1, 0)
    meter.become(Rates(1000), 0)
    assert meter.wait_ms(0) == 101
    meter.become(Rates(), 0)
    assert meter.wait_ms(0) == 0
    assert charge((meter,), 1 << 20, 1 << 30, 0) is None


def test_the_sentence_says_whose_quota_how_much_and_how_long() -> None:
    meter = Meter("subject order.paid", Rates(10, 2048), 0)
    check_quota(meter, 59, 1, 0)
    with pytest.raises(Unavailable) as caught:
        check_quota(meter, 1, 1, 0)
    assert caught.value.wait_ms == 5000
    assert "subject order.paid is used up for 5 s: 10 messages and 2048 bytes a second" in str(caught.value)
    assert "(over_quota)" in str(caught.value)


def test_parts_add_up_to_the_whole() -> None:
    parts = [Rates(10, 1000).part(here, 8) for here in (1, 2, 5)]
    assert sum(one.messages for one in parts) == 10
    assert sum(one.bytes for one in parts) == 1000


def test_of_several_quotas_the_least_of_each_holds() -> None:
    some = (UNBOUNDED, Quota(Rates(10, 0), 3, 8), Quota(Rates(20, 500), in_flight=7))
    assert least(some) == Quota(Rates(10, 500), 3, 7)
    assert not least(())


# -- identities -------------------------------------------------------------------------------------------------------


def test_what_somebody_used_stays_used_whatever_is_granted_to_others() -> None:
    usage = Usage()
    usage.obey({WHO: Quota(Rates(1))})
    payer = usage.payer(WHO, 0)
    assert payer is not None
    check_quota(payer, 5, 1, 0)
    usage.obey({WHO: Quota(Rates(2)), "token:other": Quota(Rates(1))})
    again = usage.payer(WHO, 0)
    assert again is payer
    assert again.wait_ms(0) == 2500
    usage.obey({})
    assert usage.payer(WHO, 0) is None


def test_connections_are_counted_until_they_end() -> None:
    usage = Usage()
    usage.obey({WHO: Quota(connections=2)})
    usage.came(WHO)
    usage.came(WHO)
    usage.came("token:other")
    with pytest.raises(Unavailable, match="2 connections here") as caught:
        usage.came(WHO)
    assert caught.value.kind.name == "over_quota"
    assert caught.value.wait_ms > 0
    usage.went(WHO)
    usage.came(WHO)
    usage.obey({WHO: Quota(connections=1)})  # those that are there stay
    usage.went(WHO)
    with pytest.raises(Unavailable):
        usage.came(WHO)


def guard_with(quota: Quota) -> Guard:
    access = Access(locked=True)
    permission = Permission(frozenset({Operation.SEND, Operation.CONSUME}), ("order.*",))
    row = TokenRow("1", WHO, digest_of(TOKEN), 0)
    access.obey(Charter.from_map(Charter(1, {WHO: (permission,)}, {row.digest: row}, {WHO: quota}).to_map()))
    guard = Gate(access).admit(TOKEN, (), 0)
    assert guard is not None
    return guard


def test_the_judge_says_how_much_who_consumes_may_hold() -> None:
    pull = Received(1, Pull("g", "c", ("order.a",), 10, 1 << 20, 0))
    event = guard_with(Quota(in_flight=7)).judge(pull, 0)
    assert isinstance(event, Received)
    assert isinstance(event.command, Pull)
    assert event.command.bound == Bound(WHO, 7)
    for quota in (UNBOUNDED, Quota(Rates(10), 3)):
        assert guard_with(quota).judge(pull, 0) is pull


def test_how_much_is_in_flight_crosses_no_wire_and_comes_from_none() -> None:
    """Else who consumes would say how much it may hold, or who it is."""
    bounded = Pull("g", "c", ("order.a",), 10, 1 << 20, 0, bound=Bound("token:other", 1))
    assert bounded.fields() == Pull("g", "c", ("order.a",), 10, 1 << 20, 0).fields()
    [frame] = FrameDecoder().feed(encode_command(bounded, 1))
    heard = parse_command(frame)
    assert isinstance(heard, Pull)
    assert heard.bound is None


@pytest.mark.parametrize(("waited_ms", "wait_ms"), [(0, 500), (499, 1), (500, 1), (30_000, 1)])
def test_who_has_waited_at_the_broker_is_told_to_wait_for_so_much_less(waited_ms: int, wait_ms: int) -> None:
    error = full(Bound("subject order.paid", 1), waited_ms)
    assert (error.kind.name, error.wait_ms) == ("over_quota", wait_ms)
    assert "the quota of subject order.paid is used up: 1 message in flight here" in str(error)


@pytest.mark.parametrize("kind", ["send", "half"])
def test_the_judge_says_who_pays_for_what_is_sent(kind: str) -> None:
    batch = Numbers().batch("order.a")
    said = SendBatches(batch) if kind == "send" else Half("shop", memoryview(bytes(batch)))
    event = guard_with(Quota(Rates(10))).judge(Received(1, said), 0)
    assert isinstance(event, Received)
    assert isinstance(event.command, SendBatches | Half)
    assert event.command.payer is not None
    assert event.command.payer.name == WHO
    untouched = Received(1, said)
    assert guard_with(UNBOUNDED).judge(untouched, 0) is untouched


def test_a_connection_is_counted_for_whom_it_was_opened() -> None:
    guard = guard_with(Quota(connections=1))
    gate = guard._gate
    with pytest.raises(Unavailable, match="over_quota"):
        gate.admit(TOKEN, (), 0)
    guard.left()
    assert gate.admit(TOKEN, (), 0) is not None


# -- what people write ------------------------------------------------------------------------------------------------

GRANT: dict[str, Any] = {
    "principals": ["token:shop"], "permissions": [{"subjects": ["a"], "operations": ["Send"]}],
}  # fmt: skip


def test_a_grant_says_its_quota_and_says_it_again() -> None:
    granted = parse_grant({**GRANT, "quota": {"messages": 10, "connections": 2, "in_flight": 9}})
    assert granted.quota == Quota(Rates(10, 0), 2, 9)
    assert parse_grant(granted.to_map()) == granted
    assert "quota" not in parse_grant(GRANT).to_map()


@pytest.mark.parametrize(
    "quota",
    [{"messages": 0}, {"messages": -1}, {"messages": "10"}, {"messages": 1.5}, {"messages": True}, {"bytes": 1},
     {"connections": 1 << 30}, {"in_flight": 0}, {"inFlight": 1}, [], "10", None],
)  # fmt: skip
def test_a_quota_that_is_none_is_refused(quota: object) -> None:
    with pytest.raises(Refused, match="quota"):
        parse_grant({**GRANT, "quota": quota})


def test_manifests_say_quotas() -> None:
    api = "tidemill.dev/v1alpha1"
    subject = {"apiVersion": api, "kind": "Subject", "metadata": {"name": "a"}}
    bounded = parse_manifest(
        {**subject, "spec": {"quota": {"messagesPerSecond": 100, "bytesPerSecond": "1Mi"}}}
    )
    assert bounded.rates == Rates(100, 1 << 20)  # type: ignore[union-attr]
    assert not parse_manifest({**subject, "spec": {}}).rates  # type: ignore[union-attr]
    assert not bounded.in_flight_max  # type: ignore[union-attr]
    held = parse_manifest({**subject, "spec": {"quota": {"inFlight": 12}}})
    assert held.in_flight_max == 12  # type: ignore[union-attr]
    with pytest.raises(ManifestError, match="inFlight"):
        parse_manifest({**subject, "spec": {"quota": {"inFlight": 0}}})
    with pytest.raises(ManifestError, match="messagesPerSecond"):
        parse_manifest({**subject, "spec": {"quota": {"messagesPerSecond": 0}}})
    grant = parse_resource(
        {"apiVersion": api, "kind": "Grant", "metadata": {"name": "shop"}, "spec": {
            "clusterRef": {"name": "here"}, "principals": [{"kind": "Token", "name": "shop"}],
            "permissions": [{"subjects": ["a"], "operations": ["Send"]}],
            "quota": {"messagesPerSecond": 5, "bytesPerSecond": 4096, "connections": 3, "inFlight": 8},
        }}
    )  # fmt: skip
    assert declared_grant(grant).quota == Quota(Rates(5, 4096), 3, 8)


def test_an_answer_carries_the_wait_to_whoever_raises_it() -> None:
    sent = Sent([-1, 5], [(0, 83, "used up")], waits=(0, 1500))
    assert {index: (error.kind.name, error.wait_ms) for index, error in sent.errors.items()} == {
        0: ("over_quota", 1500)
    }
    assert Failed(83, "used up", 20).error.wait_ms == 20
    assert Failed(16, "unknown").error.wait_ms == 0

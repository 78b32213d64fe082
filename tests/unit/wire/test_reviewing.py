"""Tokens that somebody else has to look at: believed for as long as was said, and asked about again in time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill_wire.access import Access, Charter, Operation, Permission, digest_of
from tidemill_wire.commands import Ping, Pull
from tidemill_wire.connection import Received, Rejected
from tidemill_wire.errors import Refused, Unavailable, WireError
from tidemill_wire.guarding import Gate
from tidemill_wire.reviewing import (
    ASKED_MAX,
    FOUND_MAX,
    NOBODY_MS,
    WANTED_MAX,
    Finding,
    Reviews,
    findings_map,
    is_reviewed,
    parse_findings,
)

TOKEN = "eyJhbGciOi.payload.signature"
DIGEST = digest_of(TOKEN)
SHOP = "serviceaccount:queues/shop"
BELIEVED_MS = 60_000


def locked() -> Access:
    access = Access(locked=True)
    access.reviews.on = True
    access.obey(Charter(1, {SHOP: (Permission(frozenset({Operation.SEND}), ("order.*",)),)}))
    return access


def test_only_what_looks_signed_is_asked_about() -> None:
    assert is_reviewed(TOKEN)
    others = ("", "ey", "a.b.c", "x" * 43, "ey.a.b.c", "eyJ.a", "eyJ..c", "eyé.b.c", "ey\udcff.b.c")
    assert not any(map(is_reviewed, others))
    with pytest.raises(Refused, match="none, or was revoked"):
        locked().identify("x" * 43, (), 0)
    with pytest.raises(Refused, match="none, or was revoked"):
        locked().identify("bytes that are no text \udcff", (), 0)


def test_who_is_not_known_yet_comes_again_and_is_known_then() -> None:
    access, woken = locked(), list[int]()
    access.reviews.wake = lambda: woken.append(1)
    for _ in range(3):
        with pytest.raises(Unavailable, match="asked whose"):
            access.identify(TOKEN, (), 0)
    assert access.reviews.wanted() == [(DIGEST, TOKEN)]
    assert woken == [1]

    access.reviews.answered(DIGEST, Finding(SHOP, BELIEVED_MS), 0)

    identity = access.identify(TOKEN, (), 1)
    assert identity.who == SHOP
    assert identity.may(Operation.SEND, "order.a")
    assert not identity.may(Operation.SEND, "secret")
    assert access.reviews.wanted() == []


def test_a_service_that_can_ask_nobody_refuses() -> None:
    access = locked()
    access.reviews.on = False

    with pytest.raises(Refused):
        access.identify(TOKEN, (), 0)


def test_what_is_believed_is_asked_about_again_after_half_of_its_time_and_holds_meanwhile() -> None:
    access = locked()
    access.reviews.answered(DIGEST, Finding(SHOP, BELIEVED_MS), 0)

    assert access.identify(TOKEN, (), BELIEVED_MS // 2 - 1).who == SHOP
    assert access.reviews.wanted() == []
    assert access.identify(TOKEN, (), BELIEVED_MS // 2).who == SHOP
    assert access.reviews.wanted() == [(DIGEST, TOKEN)]
    access.reviews.unanswered(DIGEST)
    assert access.identify(TOKEN, (), BELIEVED_MS - 1).who == SHOP
    with pytest.raises(Unavailable):
        access.identify(TOKEN, (), BELIEVED_MS)


def test_an_open_connection_is_lost_when_its_token_is_found_to_be_nobodys() -> None:
    access = locked()
    access.reviews.answered(DIGEST, Finding(SHOP, BELIEVED_MS), 0)
    guard = Gate(access).admit(TOKEN, (), 0)
    assert guard is not None
    ping = Received(1, Ping())
    assert guard.judge(ping, BELIEVED_MS // 2 - 1) is ping

    assert guard.lost(BELIEVED_MS // 2) is None, "it is asked about, and holds"
    access.reviews.answered(DIGEST, Finding("", BELIEVED_MS), BELIEVED_MS // 2)

    lost = guard.lost(BELIEVED_MS // 2 + 1_000)
    assert lost is not None
    assert lost.kind.name == "unauthenticated"


def test_a_connection_whose_token_nobody_can_look_at_waits_and_goes_on() -> None:
    access = locked()
    access.reviews.answered(DIGEST, Finding(SHOP, BELIEVED_MS), 0)
    guard = Gate(access).admit(TOKEN, (), 0)
    assert guard is not None

    refused = guard.judge(Received(1, Ping()), BELIEVED_MS)
    assert isinstance(refused, Rejected)
    assert refused.error.kind.retryable
    assert guard.lost(BELIEVED_MS) is None
    access.reviews.answered(DIGEST, Finding(SHOP, BELIEVED_MS), BELIEVED_MS)

    assert isinstance(guard.judge(Received(2, Ping()), BELIEVED_MS + 1), Received)


def test_who_consumes_waits_for_nothing_when_nobody_can_say_any_more_who_it_is() -> None:
    """What such a connection waits for would be given to somebody unknown."""
    access = locked()
    permission = Permission(frozenset({Operation.CONSUME}), ("order.*",), ("billing",))
    access.obey(Charter(2, {SHOP: (permission,)}))
    access.reviews.answered(DIGEST, Finding(SHOP, BELIEVED_MS), 0)
    guard = Gate(access).admit(TOKEN, (), 0)
    assert guard is not None
    pull = Received(1, Pull("billing", "till", ["order.a"], 1, 1, 60_000))
    assert guard.judge(pull, 1) is pull

    assert guard.lost(BELIEVED_MS - 1) is None
    lost = guard.lost(BELIEVED_MS)
    assert lost is not None
    assert lost.kind.name == "grants_unknown"


def test_a_believed_token_is_asked_about_again_however_many_unknown_ones_wait() -> None:
    access = locked()
    access.reviews.answered(DIGEST, Finding(SHOP, BELIEVED_MS), 0)
    for number in range(WANTED_MAX + 50):
        with pytest.raises(Unavailable):
            access.identify(f"ey.{number}.x", (), 1)

    assert access.identify(TOKEN, (), BELIEVED_MS // 2).who == SHOP

    assert access.reviews.wanted()[0] == (DIGEST, TOKEN)


def test_who_is_shown_is_not_forgotten_for_a_crowd_of_nobodies() -> None:
    access = locked()
    access.reviews.answered(DIGEST, Finding(SHOP, BELIEVED_MS), 0)
    for number in range(FOUND_MAX + 10):
        if number % 1_000 == 0:
            assert access.identify(TOKEN, (), 1).who == SHOP
        access.reviews.answered(str(number), Finding("", 0), 1)

    assert access.identify(TOKEN, (), 1).who == SHOP


def test_nobodys_token_is_refused_for_a_while_and_then_looked_at_again() -> None:
    access = locked()
    access.reviews.answered(DIGEST, Finding("", BELIEVED_MS), 0)

    with pytest.raises(Refused, match="nobody's"):
        access.identify(TOKEN, (), NOBODY_MS - 1)
    with pytest.raises(Unavailable):
        access.identify(TOKEN, (), NOBODY_MS)


def test_a_flood_of_tokens_is_bounded() -> None:
    reviews = Reviews()
    for number in range(WANTED_MAX + 50):
        with pytest.raises(Unavailable):
            reviews.look(str(number), f"ey.{number}.x", 0)

    assert len(reviews.wanted()) == ASKED_MAX
    for _ in range(WANTED_MAX // ASKED_MAX):
        for digest, _ in reviews.wanted():
            reviews.unanswered(digest)
    assert reviews.wanted() == []


def test_findings_survive_their_way_and_garbage_is_refused() -> None:
    found = {DIGEST: Finding(SHOP, 5), "x": Finding("", 0)}

    assert parse_findings(findings_map(found)) == found
    for garbage in (None, [], {}, {"found": 1}, {"found": [["a", "b"]]}, {"found": [["a", "b", -1]]}):
        with pytest.raises(ValueError, match="meta says"):
            parse_findings(garbage)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("pass"), st.integers(1, 40_000)),
            st.tuples(st.just("revoke"), st.just(0)),
            st.tuples(st.just("answer"), st.just(0)),
            st.tuples(st.just("fail"), st.just(0)),
        ),
        max_size=40,
    )
)
def test_a_token_that_was_taken_back_holds_no_longer_than_was_said(events: list[tuple[str, int]]) -> None:
    """Whenever it is shown, asked about and answered: after its end plus that time nobody is let in by it."""
    access, now_ms, revoked_ms = locked(), 0, None
    for what, ms in events:
        match what:
            case "pass":
                now_ms += ms
            case "revoke" if revoked_ms is None:
                revoked_ms = now_ms
            case "answer":
                for digest, _ in access.reviews.wanted():
                    who = SHOP if revoked_ms is None else ""
                    access.reviews.answered(digest, Finding(who, BELIEVED_MS), now_ms)
            case _:
                for digest, _ in access.reviews.wanted():
                    access.reviews.unanswered(digest)
        try:
            known = access.identify(TOKEN, (), now_ms)
        except WireError:
            continue
        assert known.who == SHOP
        assert revoked_ms is None or now_ms < revoked_ms + BELIEVED_MS

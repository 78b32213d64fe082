"""Who may do what, decided on values alone."""

from __future__ import annotations

import pytest

from e2e.peers import Numbers
from tidemill_wire.access import (
    ANYBODY,
    Access,
    Charter,
    Identity,
    Operation,
    Permission,
    Right,
    TokenRow,
    covers,
    digest_of,
)
from tidemill_wire.commands import Ack, Ping, Pull, SendBatches
from tidemill_wire.connection import Received, Rejected
from tidemill_wire.errors import Refused, Unavailable, WireError
from tidemill_wire.granted import parse_grant, parse_who
from tidemill_wire.guarding import Gate, Guard
from tidemill_wire.timing import Cancel, Reschedule, Show, Target
from tidemill_wire.transacting import Check

TOKEN = "t" * 43


def charter(*permissions: Permission, version: int = 1, expires_ms: int = 0) -> Charter:
    row = TokenRow("1", "token:shop", digest_of(TOKEN), expires_ms)
    return Charter(version, {"token:shop": permissions, "certificate:till": permissions}, {row.digest: row})


def permission(*subjects: str, operations: str = "Send", groups: tuple[str, ...] = ()) -> Permission:
    return Permission(frozenset(map(Operation, operations.split())), subjects, groups)


def guard_of(*permissions: Permission, expires_ms: int = 0) -> tuple[Access, Guard]:
    access = Access(locked=True)
    access.obey(charter(*permissions, expires_ms=expires_ms))
    guard = Gate(access).admit(TOKEN, (), 0)
    assert guard is not None
    return access, guard


@pytest.mark.parametrize(
    ("pattern", "asked", "covered"),
    [
        ("*", "order.a", True), ("*", "*", True), ("order.*", "order.a", True), ("order.*", "order.*", True),
        ("order.*", "order.a*", True), ("order.*", "order", False), ("order.*", "ord*", False),
        ("order.a", "order.a", True),
        ("order.a", "order.ab", False), ("order.a", "order.*", False), ("order.*", "*", False), ("a", "", False),
    ],
)  # fmt: skip
def test_a_pattern_covers_what_begins_so(pattern: str, asked: str, covered: bool) -> None:
    assert covers(pattern, asked) is covered


def test_what_is_not_granted_is_refused() -> None:
    identity = Identity("token:shop", [permission("order.*")])
    assert identity.may(Operation.SEND, "order.a")
    for operation, subject in (
        (Operation.SEND, "other"),
        (Operation.CONSUME, "order.a"),
        (Operation.ADMIN, "order.a"),
    ):
        assert not identity.may(operation, subject)
        with pytest.raises(Refused, match="was not granted"):
            identity.check(Right(operation, subject))


@pytest.mark.parametrize("name", ["%dead%order.a%billing", "order.a#3", "%lane%4%order.a"])
def test_what_belongs_to_a_subject_is_judged_as_it(name: str) -> None:
    assert Identity("x", [permission("order.a", operations="Browse")]).may(Operation.BROWSE, name)
    assert not Identity("x", [permission("other", operations="Browse")]).may(Operation.BROWSE, name)


def test_who_administers_may_browse_and_nothing_else() -> None:
    identity = Identity("x", [permission("a", operations="Admin")])
    assert [one for one in Operation if identity.may(one, "a")] == [Operation.BROWSE, Operation.ADMIN]


def test_groups_are_those_that_are_named() -> None:
    identity = Identity("x", [permission("a", operations="Consume", groups=("billing", "ship.*"))])
    may = {
        name: identity.may(Operation.CONSUME, "a", name)
        for name in ("billing", "billing.pod-1", "ship.x", "billings", "")
    }
    assert may == {"billing": True, "billing.pod-1": True, "ship.x": True, "billings": False, "": False}
    assert identity.may_any("a")
    assert not identity.may_any("b")


def test_an_unlocked_service_lets_everybody_in() -> None:
    access = Access()
    assert access.identify("", (), 0) is ANYBODY
    assert Gate(access).admit("", (), 0) is None


def test_a_locked_one_knows_only_the_cluster_before_it_was_told() -> None:
    access = Access(locked=True, own=lambda: {digest_of("c" * 43)})
    assert access.identify("c" * 43, (), 0).all
    with pytest.raises(Refused, match="nothing was shown"):
        access.identify("", (), 0)
    with pytest.raises(Unavailable, match="was not told yet"):
        access.identify(TOKEN, (), 0)


def test_a_token_is_known_until_it_is_over() -> None:
    access, _ = guard_of(permission("a"), expires_ms=1_000)
    assert access.identify(TOKEN, (), 999).who == "token:shop"
    for token, now_ms in ((TOKEN, 1_000), ("other", 0), (digest_of(TOKEN), 0)):
        with pytest.raises(Refused):
            access.identify(token, (), now_ms)


def test_a_certificate_is_whom_it_names() -> None:
    access, _ = guard_of(permission("a"))
    assert access.identify("", ("unknown", "till"), 0).may(Operation.SEND, "a")
    assert not access.identify("", ("unknown",), 0).may(Operation.SEND, "a")
    with pytest.raises(Refused, match="is none, or was revoked"):
        access.identify("wrong", ("till",), 0)


def test_a_charter_crosses_the_cluster_unharmed() -> None:
    said = charter(permission("a", "b*", operations="Send Consume", groups=("g",)), expires_ms=5)
    assert Charter.from_map(said.to_map()) == said


def sent(*subjects: str) -> Received:
    numbers = Numbers()
    return Received(7, SendBatches(bytearray(b"".join(bytes(numbers.batch(one)) for one in subjects))))


def test_single_batches_of_a_send_are_refused_and_the_others_go_on() -> None:
    _, guard = guard_of(permission("a", "b*"))
    for _ in range(2):  # what is remembered of the first time must say the same
        judged = guard.judge(sent("a", "c", "b.x", "c#1", "%again%a%g", "%dead%c%g"), 0)
        assert isinstance(judged, Received)
        assert isinstance(judged.command, SendBatches)
        assert sorted(judged.command.refused or {}) == [1, 3, 4]
    allowed, refused = sent("a"), sent("c")
    assert guard.judge(allowed, 0) is allowed
    judged = guard.judge(refused, 0)
    assert isinstance(judged, Received)
    assert isinstance(judged.command, SendBatches)
    assert sorted(judged.command.refused or {}) == [0]


def test_what_was_remembered_is_forgotten_with_the_grant() -> None:
    access, guard = guard_of(permission("a"))
    assert guard.judge(event := sent("a"), 0) is event
    access.obey(charter(permission("b"), version=2))
    judged = guard.judge(sent("a"), 0)
    assert isinstance(judged, Received)
    assert isinstance(judged.command, SendBatches)
    assert judged.command.refused


def pull(subject: str, group: str = "g", **more: object) -> Received:
    return Received(1, Pull(group, "c", [subject], 1, 1, 0, **more))  # type: ignore[arg-type]


def test_a_connection_that_consumes_is_closed_when_it_may_not_any_more() -> None:
    access, guard = guard_of(permission("a", operations="Consume Send"))
    assert isinstance(guard.judge(pull("a"), 0), Received)
    assert guard.lost(0) is None
    access.obey(charter(permission("a"), version=2))
    error = guard.lost(0)
    assert isinstance(error, WireError)
    assert error.kind.name == "forbidden"


def test_a_connection_is_closed_when_its_token_is_over_or_revoked() -> None:
    access, guard = guard_of(permission("a"), expires_ms=10)
    assert guard.lost(9) is None
    assert guard.lost(10) is not None
    assert isinstance(guard.judge(Received(1, Ping()), 10), Rejected)
    access.obey(Charter(2))
    assert guard.lost(0) is not None


def test_a_broadcast_needs_the_group_that_it_names_and_has() -> None:
    _, guard = guard_of(permission("a", operations="Consume", groups=("g",)))
    assert isinstance(guard.judge(pull("a", "g.c", base="g"), 0), Received)
    assert isinstance(guard.judge(pull("a", "other", base="g"), 0), Rejected)
    assert isinstance(guard.judge(Received(1, Ack("other", "c", "a", [0, 0])), 0), Rejected)


@pytest.mark.parametrize(
    "body",
    [
        None, [], {}, {"principals": ["x"]}, {"principals": ["x"], "permissions": []},
        {"principals": ["cluster:x"], "permissions": [1]},
        {"principals": ["x"], "permissions": [{"subjects": ["a*b"], "operations": ["Send"]}]},
        {"principals": ["x"], "permissions": [{"subjects": ["a"], "operations": ["Own"]}]},
        {"principals": ["x"], "permissions": [{"subjects": ["a"], "operations": ["Send"], "groups": ["g"]}]},
        {"principals": ["x"], "permissions": [{"subjects": ["%dead%a%g"], "operations": ["Send"]}]},
        {"principals": ["x"], "permissions": [{"subjects": ["a"], "operations": ["Send"], "more": 1}]},
    ],
)  # fmt: skip
def test_a_grant_that_cannot_be_is_refused(body: object) -> None:
    with pytest.raises(Refused):
        parse_grant(body)


@pytest.mark.parametrize("who", ["cluster:", "nobody:x", "token:", "token:a b", "token:\n", 7, None])
def test_nobody_is_called_so(who: object) -> None:
    with pytest.raises(Refused):
        parse_who(who)


BY_ID = Target(id="0" * 32 + "-0")


@pytest.mark.parametrize(
    "command", [Cancel(BY_ID), Reschedule(BY_ID, 1), Show(BY_ID), Check("shop", 0)], ids=repr
)
def test_what_is_known_by_its_id_alone_is_judged_by_whoever_looks_and_by_what_holds_then(
    command: Cancel | Reschedule | Show | Check,
) -> None:
    access, guard = guard_of(permission("order.*", operations="Send Browse"))
    event = guard.judge(Received(1, command), 0)
    assert isinstance(event, Received)
    assert isinstance(event.command, Cancel | Reschedule | Show | Check)
    may = event.command.may
    assert may is not None
    assert (may("order.a"), may("secret"), may("order.a#3")) == (True, False, True)
    access.obey(charter(version=2))
    guard.lost(0)
    assert not may("order.a")


def test_the_cluster_is_asked_nothing() -> None:
    access = Access(locked=True, own=lambda: (digest_of(TOKEN),))
    guard = Gate(access).admit(TOKEN, (), 0)
    assert guard is not None
    event = Received(1, Cancel(BY_ID))
    assert guard.judge(event, 0) is event

"""What is kept of the last checkpoint is good until it is touched, and only what was touched is packed anew."""

from __future__ import annotations

import pytest

from samples.actions import ACTIONS, AT_MS, BOOT, PART, PULL, TRANSACTION
from samples.brokers import TINY, Rig, files_of, read_file
from tidemill_broker import packing, state
from tidemill_broker.actions import (
    Action,
    Buried,
    ConsumerForgotten,
    ConsumerNamed,
    FailedDeliveries,
    GroupForgotten,
    GroupNamed,
    Pulled,
    PullRun,
    Reason,
    Released,
    Removed,
    Started,
    SubjectNamed,
    Voided,
)
from tidemill_broker.packing import Packing
from tidemill_broker.settings import BrokerSettings
from tidemill_broker.snapshots import pack_state
from tidemill_broker.state import State
from tidemill_broker.transaction_actions import HalfKept
from tidemill_journal.checkpoint import checkpoint_file, unwrap
from tidemill_wire.lanes import first_of_lane, lane_name
from tidemill_wire.limits import DOOMED_MS

SETTINGS = {"durability": "high", "retention": 259_200, "bytes": 0, "message": 1_048_576}
LANE = 2
SUITABLE = {  # the same kinds as in the samples, of groups and deliveries that ``busy`` has
    "ack": ACTIONS["ack"],
    "fail-detail": ACTIONS["fail-detail"],
    "fail": ACTIONS["fail"],
    "extend": ACTIONS["extend"],
    "park": ACTIONS["park"],
    "release": ACTIONS["release"],
    "pull": Pulled(5, AT_MS, [PullRun(PULL + 20, 30, 3, 0), PullRun(PULL + 23, 10, 1, 1)]),
    "pull-limit": Pulled(5, AT_MS, [PullRun(PULL + 20, 30, 3, 0)], AT_MS + 1000),
    "pull-in-lane": Pulled(6, AT_MS, [PullRun(PULL + 30, first_of_lane(LANE), 3, 0)]),
    "forever-offline": ConsumerForgotten(7),
    "consumer": ConsumerNamed(9, 2, "pod-9"),
    "group-again": GroupNamed(2, 1, "billing", 0, 0, {"lease_ms": 77}),
    "group": GroupNamed(8, 1, "more", 0, 0, {"lease_ms": 77}),
    "subject-again": SubjectNamed(1, "order.created", SETTINGS | {"bytes": 77}),
    "subject-lane": SubjectNamed(4, lane_name("order.created", 7), SETTINGS),
    "void": Voided(2, 12, 1),
    "dead": Buried(2, 12, 1, 4096),
    "forget": GroupForgotten(3),
    "remove": Removed("order.paid", "", 5, [(2, 17)]),
    **{
        name: ACTIONS[name]
        for name in (
            "fence", "start", "start-back", "pause", "resume", "redrive", "purge", "seek", "lock", "unlock", "allocate",
            "exhume", "skip", "synced", "epoch", "half", "check", "commit", "rollback", "reopen",
        )
    },
}  # fmt: skip


def busy() -> State:
    """A subject with a lane; a group that has deliveries and failures, and another one."""
    made = State()
    actions: list[Action] = [
        Started(BOOT),
        SubjectNamed(1, "order.created", SETTINGS),
        SubjectNamed(2, "order.paid", SETTINGS),
        GroupNamed(2, 1, "billing", 0, 0, {"lease_ms": 1000}),
        GroupNamed(3, 2, "audit", 0, 0, {"lease_ms": 1000}),
        SubjectNamed(3, lane_name("order.created", LANE), SETTINGS),
        ConsumerNamed(5, 2, "pod-7"),
        ConsumerNamed(6, 2 | LANE << 28, "pod-7"),
        ConsumerNamed(7, 2, "pod-gone"),
        Pulled(5, AT_MS + 1, [PullRun(PULL, 0, 20, 0)]),
        FailedDeliveries(5, AT_MS + 9, Reason.NACK, [PULL + 10, PULL + 11]),
        FailedDeliveries(5, DOOMED_MS, Reason.NACK, [PULL + 12, PULL + 14]),
        Released(5, [PULL + 15, PULL + 15]),
        HalfKept(TRANSACTION, "shop", PART, AT_MS, AT_MS + 6000),
    ]
    for action in actions:
        made.apply(action)
    for partition in made.partitions.values():
        partition.next_sequence += 1 << 33
    return made


@pytest.mark.parametrize("name", SUITABLE)
def test_what_an_action_changes_is_not_taken_for_good(name: str) -> None:
    made = busy()
    kept = Packing(made)
    assert b"".join(kept.parts(1, 2, 3)) == pack_state(made, 1, 2, 3)
    made.apply(SUITABLE[name])

    kept.check()
    assert b"".join(kept.parts(4, 5, 6)) == pack_state(made, 4, 5, 6)
    assert made.touched == set()
    assert set(kept._groups) == set(made.groups)


def test_every_kind_of_action_is_tried() -> None:
    assert {type(action) for action in SUITABLE.values()} == {type(action) for action in ACTIONS.values()}


def test_check_notices_a_change_that_nobody_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the test above rests on."""
    monkeypatch.setattr(state, "touched_by", lambda _state, _action: ())
    noticed: list[str] = []
    for name, action in SUITABLE.items():
        made = busy()
        kept = Packing(made)
        kept.parts(1, 2, 3)
        made.apply(action)
        try:
            kept.check()
        except (AssertionError, KeyError):
            noticed.append(name)

    quiet = {
        "start",
        "group",
        "subject-again",
        "subject-lane",
        "synced",
        "epoch",
        "unlock",
        "lock",
        "allocate",
        "resume",
        "remove",
        "fence",
        "half",
        "check",
        "commit",
        "rollback",
        "reopen",
    }
    assert set(noticed) == set(SUITABLE) - quiet, "those change no row of a group that was there"


def test_only_what_was_touched_is_packed_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(BrokerSettings(durability="low"))
    subjects = [f"order.{number}" for number in range(20)]
    for subject in subjects:
        rig.send(b"x", subject=subject)
        rig.pull(subjects=(subject,))
    rig.broker.keeping.checkpoint(rig.now_ms)
    rig.pump()
    monkeypatch.setattr(rig.broker, "check", lambda: None)
    packed = counted(monkeypatch)

    rig.send(b"y", subject=subjects[3])
    rig.pull(subjects=(subjects[3],))
    rig.broker.keeping.checkpoint(rig.now_ms)
    rig.pump()
    assert sorted(packed) == ["Group", "Partition"]
    rig.restart()
    assert rig.broker.state.by_name[b"order.3"].next_sequence == 2


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is packed from now on."""
    packed: list[str] = []
    for name in ("pack_group", "pack_partition"):
        real = getattr(packing, name)

        def noted(one: object, real: object = real) -> bytes:
            packed.append(type(one).__name__)
            assert callable(real)
            return bytes(real(one))

        monkeypatch.setattr(packing, name, noted)
    return packed


@pytest.fixture
def small_shares(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(packing, "SHARE", 3)
    return 3


def test_much_is_packed_ahead_a_share_a_turn(small_shares: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Touched meanwhile: a group that was packed already, and one that was not; and one is forgotten."""
    settings = BrokerSettings(
        durability="low",
        checkpoint_events=10,
        checkpoint_pause_ms=5000,
        lease_ms=600_000,
        consumer_gone_ms=600_000,
    )
    rig = Rig(settings)
    subjects = [f"order.{number}" for number in range(10)]
    for subject in subjects:
        rig.send(b"x", b"y", subject=subject)
        rig.pull(1, subjects=(subject,))
    monkeypatch.setattr(rig.broker, "check", lambda: None)
    packed, keeping = counted(monkeypatch), rig.broker.keeping
    rig.now_ms += 6_000
    turns: list[int] = []
    while not files_of(rig.disk, "checkpoint"):
        before = len(packed)
        keeping.ticked(rig.now_ms)
        turns.append(len(packed) - before)
        if len(turns) <= 6:
            assert keeping.wake_at_ms == rig.now_ms + 1, "it goes on at once"
            rig.send(b"z", subject=subjects[0])
            rig.pull(1, subjects=(subjects[0],))
        rig.sync()
        rig.pump()
        rig.now_ms += 1

    assert len(packed) == 22, "all of them, and once more what was touched meanwhile"
    assert turns == [small_shares] * 6 + [2 + 2]
    keeping.check()
    at_ms = rig.now_ms - 1
    logs = rig.broker.logs
    state_now = pack_state(rig.broker.state, logs.messages.end, logs.actions.end, at_ms)
    assert unwrap(read_file(rig.disk, checkpoint_file(1))) == state_now


def test_group_that_is_forgotten_is_kept_no_longer(small_shares: int) -> None:
    made = busy()
    kept = Packing(made)
    assert kept.ahead()
    made.apply(GroupForgotten(3))
    while kept.ahead():
        pass

    assert b"".join(kept.parts(1, 2, 3)) == pack_state(made, 1, 2, 3)
    assert set(kept._groups) == set(made.groups)


def test_a_group_that_is_forgotten_after_it_was_packed_ahead_is_kept_no_longer(small_shares: int) -> None:
    made = busy()
    kept = Packing(made)
    while kept.ahead():
        pass
    made.apply(GroupForgotten(3))
    kept.check()

    assert b"".join(kept.parts(1, 2, 3)) == pack_state(made, 1, 2, 3)
    assert set(kept._groups) == set(made.groups)


def test_a_stop_makes_its_checkpoint_in_one_go(small_shares: int) -> None:
    rig = Rig(TINY)
    for number in range(10):
        rig.send(b"x", subject=f"order.{number}")
    rig.broker.keeping.checkpoint(rig.now_ms)
    rig.pump()
    assert files_of(rig.disk, "checkpoint") == [checkpoint_file(1)]

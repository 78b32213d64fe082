"""One action of each kind, by name."""

from __future__ import annotations

from tidemill_broker.actions import (
    Acked,
    Action,
    Allocated,
    Buried,
    ConsumerForgotten,
    ConsumerNamed,
    EpochBegun,
    Exhumed,
    Extended,
    FailedDeliveries,
    FailureDetail,
    FencePut,
    GroupForgotten,
    GroupNamed,
    GroupPaused,
    GroupResumed,
    Locked,
    Parked,
    Pulled,
    PullRun,
    Purged,
    Reason,
    Redriven,
    Released,
    Removed,
    Skipped,
    Sought,
    Started,
    SubjectNamed,
    Synced,
    Unlocked,
    Voided,
)
from tidemill_broker.transaction_actions import (
    Checked,
    Committed,
    HalfKept,
    Part,
    Reopened,
    RolledBack,
    Why,
)

TRANSACTION = 0x8000_0000_0000_1234
PART = Part(0, 4096, 256, "order.paid", 3)
BOOT = 3
PULL = BOOT << 40
DEADLINE_MS = 1_780_000_060_000
AT_MS = 1_780_000_000_000
DETAIL = FailureDetail("no such customer", "ValueError", "shop/orders.py:17 handle", "1f2e3d4c")
SETTINGS = {"durability": "high", "retention": 259_200, "bytes": 0, "message": 1_048_576}

ACTIONS: dict[str, Action] = {
    "start": Started(BOOT),
    "start-back": Started(BOOT, 3_600_000),
    "subject": SubjectNamed(1, "order.created", SETTINGS),
    "group": GroupNamed(2, 1, "billing", 17, AT_MS, {"lease": 60_000}),
    "group-lanes": GroupNamed(
        2, 1, "billing", 17, AT_MS, {"lease": 60_000}, [[7, (7 << 48) + 3, 0], [2, 2 << 48, AT_MS]]
    ),
    "consumer": ConsumerNamed(5, 2, "pod-7"),
    "synced": Synced(4096, 8192),
    "pull": Pulled(5, DEADLINE_MS, [PullRun(PULL, 17, 3, 0), PullRun(PULL + 3, 4, 1, 2)]),
    "pull-limit": Pulled(5, DEADLINE_MS, [PullRun(PULL, 17, 3, 0)], AT_MS + 3_600_000),
    "ack": Acked(5, [PULL, PULL + 1, PULL + 3, PULL + 3]),
    "ack-kept": Acked(5, [PULL, PULL], DEADLINE_MS),
    "fail": FailedDeliveries(5, DEADLINE_MS, Reason.LEASE_ENDED, [PULL, PULL], AT_MS),
    "fail-detail": FailedDeliveries(5, DEADLINE_MS, Reason.NACK, [PULL, PULL + 3], AT_MS, 0, DETAIL),
    "extend": Extended(5, DEADLINE_MS, [PULL, PULL + 2]),
    "park": Parked(5, DEADLINE_MS, [PULL, PULL + 2], DEADLINE_MS - 1000, DETAIL),
    "release": Released(5, [PULL + 1, PULL + 2]),
    "forever-offline": ConsumerForgotten(5),
    "forever-offline-named": ConsumerForgotten(5, 2, "pod-7"),
    "void": Voided(2, 17, 3),
    "dead": Buried(2, 17, 3, 4096),
    "pause": GroupPaused(2, AT_MS, "1f2e3d4c"),
    "resume": GroupResumed(2),
    "redrive": Redriven(3, AT_MS, [0, 4, 9, 9]),
    "redrive-adopted": Redriven(3, AT_MS, [10, 10], 4),
    "purge": Purged(3, [5, 8]),
    "seek": Sought(2, 4, 1_780_000_000_000),
    "lock": Locked(2, 5, DEADLINE_MS),
    "unlock": Unlocked(2, DEADLINE_MS),
    "forget": GroupForgotten(2),
    "skip": Skipped(2, 17, 4_294_967_296),
    "epoch": EpochBegun(3, 4096, 8192),
    "allocate": Allocated(2, 17, "pod-7"),
    "remove": Removed("order.created", "billing", AT_MS, [(3, 17), (4, (7 << 48) + 2)]),
    "fence": FencePut(1, 3, [0, 256, 512, 640], [1, 17, 4, 4_294_967_300]),
    "exhume": Exhumed(2, 17, 3, 5, AT_MS, "1f2e3d4c"),
    "half": HalfKept(TRANSACTION, "shop", PART, AT_MS, DEADLINE_MS),
    "check": Checked(TRANSACTION, 3, DEADLINE_MS),
    "commit": Committed(TRANSACTION, 8192, 3),
    "rollback": RolledBack(TRANSACTION, Why.SILENCE),
    "reopen": Reopened(TRANSACTION, "shop", AT_MS, [PART]),
    "exhume-detail": Exhumed(2, 17, 3, 5, AT_MS, DETAIL.fingerprint, DETAIL),
}

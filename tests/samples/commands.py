"""At least one of each command, by a name that says what is special about it."""

from __future__ import annotations

from dataclasses import replace

from samples.batches import BATCHES
from tidemill_wire.appointments import Appointment
from tidemill_wire.commands import (
    Ack,
    Adopt,
    Command,
    Done,
    Extend,
    Failed,
    Goodbye,
    Grant,
    Hello,
    Kind,
    Mode,
    Nack,
    Ping,
    Pull,
    Pulled,
    Purge,
    Redrive,
    Release,
    SendBatches,
    Sent,
    Start,
    Welcome,
    encode_command,
)
from tidemill_wire.connection import Role
from tidemill_wire.deduplication import Duplicate, packed_rows
from tidemill_wire.fencing import Fence, Fenced, FenceRow, Passed
from tidemill_wire.filters import parse_filter
from tidemill_wire.kinds import Place
from tidemill_wire.replication import (
    Appoint,
    Begin,
    Chunk,
    Ends,
    EpochStart,
    Follow,
    Followed,
    Handover,
    Log,
    Marks,
    Reached,
    Stand,
    Stood,
)
from tidemill_wire.steering import Seek, Sought, Suspend
from tidemill_wire.timing import Cancel, Changed, ListTimers, Reschedule, Show, Target, TimerRow, Waiting
from tidemill_wire.transacting import Check, CheckRow, Checks, Decide, Half, Verdict
from tidemill_wire.yielding import Yield

APPOINTMENT = Appointment("g0", 3, "g0-0", ("g0-0", "g0-1"), ("g0-0",), 17)
TIMER = ("000102030405060708090a0b0c0d0e0f-0", "reminder", "order-17", 1_780_000_090_000, 1_780_000_000_003)
SETTLED = ("billing", "pod-7", "order.created", [0, 0, 5, 9])

COMMANDS: dict[str, Command] = {
    "hello": Hello(1, 1, "tidemill 0.1.0"),
    "welcome": Welcome(1, "broker-0", 7),
    "error": Failed(16, "subject 'order.created' is unknown"),
    "done": Done(),
    "done-lost": Done([3, 4]),
    "done-count": Done(count=12),
    "ping": Ping(),
    "goodbye": Goodbye("the pod is about to stop"),
    "send": SendBatches(BATCHES["single"] + BATCHES["several"]),
    "sent": Sent([0, 4_294_967_296]),
    "sent-waits": Sent([-1, 12, -1], [(0, 83, "used up"), (2, 83, "used up")], waits=(0, 1_500, 2, 20)),
    "error-wait": Failed(83, "used up", 2_500),
    "sent-refused": Sent([12, -1], [(1, 10, "the checksum of a batch does not match its bytes")]),
    "sent-duplicates": Sent(
        [12, -1],
        duplicates=[
            (0, packed_rows([Duplicate(1, 3, 9, bytes(range(16)))])),
            (1, packed_rows([Duplicate(0, 0, 4_294_967_296, bytes(16)), Duplicate(1, 7, 11, bytes(16))])),
        ],
    ),
    "pull": Pull("billing", "pod-7", ["order.created", "order.paid"], 1000, 1_048_576, 15_000),
    "pull-latest": Pull("billing", "pod-7", ["order.created"], 1, 1, 0, Start.LATEST),
    "pull-held": Pull(
        "billing", "pod-7", ["order.created"], 1000, 1_048_576, 15_000, held=[1 << 40, (1 << 40) + 4]
    ),
    "pull-fresh": Pull("billing", "pod-7", ["order.created"], 1, 1, 0, held=[], fresh=True),
    "pull-once": Pull("billing", "pod-7", ["order.created"], 1, 1, 0, once=True, mode=Mode.EXCLUSIVE),
    "pull-broadcast": Pull(
        "billing.pod-7", "pod-7", ["order.created"], 1, 1, 0, mode=Mode.BROADCAST, base="billing"
    ),
    "pulled-ordered": Pulled([], 60_000, ordered=True),
    "pull-tags": Pull(
        "billing", "pod-7", ["order.*"], 1000, 1_048_576, 15_000, filter=parse_filter(["vip", "eu"], True)
    ),
    "pulled-nothing": Pulled([], 60_000),
    "pulled": Pulled([Grant("order.created", 0, 17, 1, 1, 1)], 60_000, memoryview(BATCHES["stamped"])),
    "pulled-masked": Pulled(
        [Grant("order.created", 5, 0, 2, 0, 1, b"\x05")],
        60_000,
        memoryview(BATCHES["several"]),
        filter=parse_filter(["vip"], False),
    ),
    "pulled-gathered": Pulled(
        [Grant("order.created", 5, 17, 2, 0, 1)],
        60_000,
        memoryview(BATCHES["gathered"]),
        filter=parse_filter(["vip"], False),
    ),
    "ack": Ack(*SETTLED),
    "ack-kept": Ack(*SETTLED, 1_780_000_000_000),
    "nack": Nack(*SETTLED),
    "nack-delay": Nack(*SETTLED, delay_ms=30_000, reason="ValueError: no such customer"),
    "nack-reject": Nack(
        *SETTLED, reason="no such customer", error="ValueError", place="shop/orders.py:17 handle", reject=True
    ),
    "extend": Extend(*SETTLED),
    "extend-parked": Extend(
        *SETTLED, 30_000, "ValueError: no such customer", "ValueError", "shop/orders.py:17 handle"
    ),
    "release": Release(*SETTLED),
    "redrive": Redrive("order.created", "billing", [0, 4, 9, 9]),
    "redrive-all": Redrive("order.created", "billing", []),
    "purge": Purge("order.created", "billing", [5, 8]),
    "seek": Seek("billing", "order.created", Place.TIME, 1_780_000_000_000, True),
    "sought": Sought(17, 4, 13, 0, 3, 1),
    "pull-allocated": Pull(
        "billing", "pod-7", ["order.paid", "order.paid#3"], 1, 1, 0, mode=Mode.EXCLUSIVE, allocation=17
    ),
    "pull-allocated-each": Pull(
        "billing",
        "pod-7",
        ["order.paid", "order.changed"],
        1,
        1,
        0,
        mode=Mode.KEYED,
        allocation=4,
        allocations=(17, 4),
    ),
    "yield": Yield("billing", "pod-7", ["order.paid", "order.paid#3"]),
    "adopt": Adopt(
        "billing",
        "order.paid",
        3,
        -1,
        "no amount",
        "ValueError",
        "shop.py:7 in pay",
        True,
        memoryview(BATCHES["stamped"]),
    ),
    "suspend": Suspend("billing", "order.created", True),
    "follow": Follow("g0-1", 3, [EpochStart(1, 0, 0), EpochStart(3, 4096, 8192)], Ends(12288, 16384)),
    "followed": Followed(3, Ends(12288, 16384)),
    "followed-anew": Followed(3, Ends(4096, 8192), anew=True),
    "followed-snapshot": Followed(3, Ends(0, 4096), False, 100, Ends(12288, 16384)),
    "chunk": Chunk(
        3, Log.MESSAGES, 0, 4096, Marks.SYNC | Marks.LEVEL, Ends(4096, 8192), memoryview(BATCHES["stamped"])
    ),
    "chunk-nothing": Chunk(3, Log.ACTIONS, 0, 0, Marks(0), Ends(4096, 8192)),
    "chunk-of-a-file": Chunk(3, Log.FILES, 4, 1048576, Marks(0), Ends(0, 0), memoryview(b"an hour")),
    "reached": Reached(3, Ends(12288, 16384), Ends(4096, 8192)),
    "reached-copying": Reached(3, Ends(12288, 16384), Ends(4096, 8192), 1 << 30),
    "appoint": Appoint(APPOINTMENT, {"g0-0": "10.0.0.1:7400", "g0-1": "10.0.0.2:7400"}),
    "appoint-lease": Appoint(APPOINTMENT, {"g0-0": "10.0.0.1:7400"}, 5_000, 1_780_000_000_000),
    "stand": Stand(True),
    "stood": Stood(
        "g0-0",
        "master",
        3,
        17,
        3,
        Ends(12288, 16384),
        Ends(4096, 8192),
        "g0-0",
        ("g0-0",),
        {"g0-1": Ends(4096, 8192)},
    ),
    "stood-in-sync": Stood(
        "g0-0", "master", 3, 17, 3, Ends(0, 0), Ends(0, 0), "g0-0", in_sync=("g0-0", "g0-1")
    ),
    "stood-at": Stood("g0-0", "fenced", 0, 0, 0, Ends(0, 0), Ends(0, 0), at_ms=1_780_000_000_000),
    "handover": Handover("g0-1"),
    "begin-lease": Begin(Appoint(APPOINTMENT, {}, 5_000, 1_780_000_000_000)),
    "begin": Begin(Appoint(APPOINTMENT, {}), Ends(4096, 8192), True),
    "cancel": Cancel(Target(id=TIMER[0])),
    "cancel-key": Cancel(Target(subject="reminder", timer_key="order-17")),
    "reschedule": Reschedule(Target(subject="reminder", timer_key="order-17"), 1_780_003_600_000),
    "reschedule-id": Reschedule(Target(id=TIMER[0]), 1_780_003_600_000),
    "changed": Changed(3, 1),
    "show": Show(Target(id=TIMER[0])),
    "show-key": Show(Target(subject="reminder", timer_key="order-17")),
    "list": ListTimers("reminder", "order-", 0, 1_780_003_600_000, "1779998400000.17", 100),
    "waiting-cron": Waiting([TimerRow(*TIMER, 6, None, "0 9 * * mon-fri Europe/Berlin")]),
    "waiting": Waiting([TimerRow(*TIMER, 6), TimerRow(*TIMER, 6, b"remind")], "1779998400000.19"),
    "fence": Fence([FenceRow("order.paid", 3, ((0, 256), (512, 640))), FenceRow("order.paid#2", 1, ())]),
    "half": Half("shop", memoryview(BATCHES["stamped"])),
    "decide": Decide(0x8000_0000_0000_1234, Verdict.COMMIT),
    "check": Check("shop", 15_000),
    "checks": Checks(
        [CheckRow(0x8000_0000_0000_1234, 1_780_000_000_000, 3, 1)], memoryview(BATCHES["stamped"])
    ),
    "checks-none": Checks([]),
    "fenced": Fenced([("order.paid", 3)], [Passed("order.paid", "billing", 2)], "partition 'orders': no"),
}

HEARD_BY_SERVER = frozenset(
    {Kind.SEND, Kind.PULL, Kind.ACK, Kind.NACK, Kind.EXTEND, Kind.RELEASE, Kind.REDRIVE, Kind.PURGE}
    | {Kind.SEEK, Kind.SUSPEND, Kind.YIELD, Kind.ADOPT, Kind.FOLLOW, Kind.REACHED}
    | {Kind.HALF, Kind.DECIDE, Kind.CHECK}
    | {Kind.CANCEL, Kind.RESCHEDULE, Kind.SHOW, Kind.LIST}
    | {Kind.PING, Kind.GOODBYE, Kind.DONE, Kind.ERROR}
)
HEARD_BY_CLIENT = frozenset(
    {Kind.WELCOME, Kind.SENT, Kind.PULLED, Kind.SOUGHT, Kind.PING, Kind.GOODBYE, Kind.DONE, Kind.ERROR}
    | {Kind.FOLLOWED, Kind.CHUNK, Kind.CHECKS, Kind.CHANGED, Kind.WAITING}
)
HEARD = {Role.SERVER: HEARD_BY_SERVER, Role.CLIENT: HEARD_BY_CLIENT}
"""What each end may be told once it is open, but for the greeting that opens it. Written by hand."""

WITHIN = frozenset({Kind.APPOINT, Kind.STAND, Kind.STOOD, Kind.BEGIN, Kind.HANDOVER, Kind.FENCE, Kind.FENCED})
"""What never crosses a wire."""

GREETING = {Role.SERVER: COMMANDS["hello"], Role.CLIENT: COMMANDS["welcome"]}


def frame_of(command: Command, correlation: int = 1) -> bytes:
    return encode_command(command, correlation)


def comparable(command: Command) -> Command:
    """The command with lists where parsing gives lists, and bytes where buffers differ in type."""
    match command:
        case SendBatches():
            return replace(command, batches=bytearray(command.batches))
        case Sent():
            refused = [(index, number, detail) for index, number, detail in command.refused]
            return Sent(
                list(command.first_sequences), refused, tuple(command.duplicates), tuple(command.waits)
            )
        case Done():
            return replace(command, lost=list(command.lost))
        case Pulled():
            return replace(command, grants=list(command.grants), batches=memoryview(bytes(command.batches)))
        case Adopt() | Half():
            return replace(command, batch=memoryview(bytes(command.batch)))
        case Checks():
            return replace(command, rows=list(command.rows), batches=memoryview(bytes(command.batches)))
        case Chunk():
            return replace(command, data=memoryview(bytes(command.data)))
        case Ack() | Nack() | Extend() | Release() | Redrive() | Purge():
            return replace(command, ranges=list(command.ranges))
        case Yield():
            return replace(command, subjects=list(command.subjects))
        case Waiting():
            return replace(command, rows=list(command.rows))
        case Pull():
            held = None if command.held is None else list(command.held)
            return replace(command, subjects=list(command.subjects), held=held)
        case _:
            return command

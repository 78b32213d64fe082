"""A delay service on a simulated disk, beside a real broker on another one, with a host of a few lines."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from samples.batches import CREATED_MS
from samples.brokers import Rig, empty_disk, read_file
from samples.hosting import Hosting
from sim.disk import SimDisk
from tidemill_delay.doors.service import settle
from tidemill_delay.recovery import FOLDERS, Recovery
from tidemill_delay.settings import DelaySettings
from tidemill_host.files import Files
from tidemill_host.machine import Peer, Send
from tidemill_host.storage import Storage
from tidemill_wire.batch import Flags, Origin, message_id, read_header
from tidemill_wire.codec import Codec
from tidemill_wire.columns import Batch, Column, Content, build_batch
from tidemill_wire.commands import Command, SendBatches, Sent, Welcome, parse_command
from tidemill_wire.connection import Received
from tidemill_wire.frame import FrameDecoder

HOUR_MS = 300_000
NOW_MS = CREATED_MS // HOUR_MS * HOUR_MS + 10 * HOUR_MS
SUBJECT, OTHER_SUBJECT = SUBJECTS = ("order.created", "order.paid")
BROKER = Peer(7)
SMALL = DelaySettings(
    hour_ms=HOUR_MS,
    segment_bytes=2048,
    action_segment_bytes=1024,
    checkpoint_events=12,
    checkpoint_pause_ms=1000,
    kept_bytes=20_000,
)


def later(
    bodies: Sequence[bytes],
    due_ms: Sequence[int],
    *,
    sequence: int = 1,
    subject: str = SUBJECT,
    codec: Codec = Codec.NONE,
    content: Content | None = None,
    timer_keys: Sequence[str | None] | None = None,
) -> bytearray:
    """A batch for later, of a producer that counts."""
    origin = Origin(subject.encode(), 99, sequence, batch_id_of(sequence), CREATED_MS, codec, Flags.DELAYED)
    content = content or Content(list(bodies), timer_keys=timer_keys)
    content.deliver_deltas = [due - CREATED_MS for due in due_ms]
    return build_batch(origin, content)


def batch_id_of(sequence: int) -> bytes:
    """Of the producer's batch of that number."""
    return (CREATED_MS << 16 | sequence).to_bytes(8, "big") + bytes(8)


def id_of(sequence: int, index: int = 0) -> str:
    """The id of a message of it."""
    return message_id(batch_id_of(sequence), index)


class DelayRig(Hosting):
    """Lives of one delay service; ``broker`` is where its messages go."""

    def __init__(
        self,
        settings: DelaySettings = SMALL,
        disk: SimDisk | None = None,
        now_ms: int = NOW_MS,
        broker: Rig | None = None,
        arrived: list[tuple[int, str, bytes]] | None = None,
    ) -> None:
        self.settings = settings
        super().__init__(disk or empty_disk(), now_ms)
        self.broker = broker or Rig(now_ms=now_ms)
        self.arrived: list[tuple[int, str, bytes]] = [] if arrived is None else arrived
        """When, id and body of each message that the broker stored."""
        self.deaf = False
        """The broker takes what it is sent, and its answers get lost."""
        self.away = False
        """Nobody reaches the broker."""
        self._correlation = 0
        self._sent = 0
        self.start()

    def start(self) -> None:
        """A life begins."""
        storage = Storage(self.disk.mount(), FOLDERS)
        recovery = Recovery(storage, self.settings)
        self.delay = recovery.run(self.now_ms)
        self.delay.keeping.settle_by(partial(settle, Files(self.disk.mount())))
        storage.close()
        self.report = recovery.report
        self.begin_life(self.delay)
        self.delay.connected(Peer(1), self.now_ms)
        for subject in SUBJECTS:
            self.delay.route(subject, ("g0",), self.now_ms)
        self.meet()

    def meet(self) -> None:
        """The connection to the broker."""
        if not self.away:
            self.delay.received(BROKER, Received(0, Welcome(1, "g0-0", 1)), self.now_ms)
        self.delay.ticked(self.now_ms)
        self.pump()

    def restart(self) -> None:
        self.disk.kill()
        self.start()

    def power_cut(self) -> None:
        self.disk.power_cut()
        self.start()

    def ask(self, command: Command) -> Command | None:
        """The answer, ``None`` when there is none yet."""
        self._correlation += 1
        self.delay.received(Peer(1), Received(self._correlation, command), self.now_ms)
        self.pump()
        return self.answers.pop(self._correlation, None)

    def send(self, bodies: Sequence[bytes], *due_ms: int, **options: object) -> Sent:
        """One batch; one due time for all, or one each."""
        self._sent += 1
        return self.send_as(self._sent, bodies, *due_ms, **options)

    def send_as(self, sequence: int, bodies: Sequence[bytes], *due_ms: int, **options: object) -> Sent:
        """The same, as the producer's batch of that number."""
        due = due_ms if len(due_ms) == len(bodies) else due_ms * len(bodies)
        batch = later(bodies, due, sequence=sequence, **options)  # type: ignore[arg-type]
        answer = self.ask(SendBatches(batch))
        assert isinstance(answer, Sent), answer
        return answer

    def _deliver(self, send: Send) -> None:
        if send.peer != BROKER:
            super()._deliver(send)
            return
        [frame] = FrameDecoder().feed(send.head)
        command = parse_command(frame)
        assert isinstance(command, SendBatches)
        self._at_broker(frame.correlation, command)

    def _at_broker(self, correlation: int, command: SendBatches) -> None:
        """The broker stores it, or has it already."""
        answer, stored = at_broker(self.broker, command, self.now_ms)
        for batch in stored:
            sources = batch.numbers(Column.SOURCES, "i", batch.header.messages)
            for row, body in enumerate(batch.bodies()):
                identity = batch.message_id(row if sources is None else sources[row])
                self.arrived.append((self.now_ms, identity, body))
        if not self.deaf:
            self.delay.received(BROKER, Received(correlation, answer), self.now_ms)


def at_broker(rig: Rig, command: SendBatches, now_ms: int) -> tuple[Command, list[Batch]]:
    """A broker is sent something: its answer, and what it stored."""
    rig.now_ms = max(rig.now_ms, now_ms)
    segments = rig.broker.logs.messages
    seen, found = segments.end, list[Batch]()
    answer = rig.ask(command)
    assert answer is not None
    while seen < segments.end:
        file, at = segments.locate(seen)
        data = read_file(rig.disk, file)
        batch = Batch(data[at : at + read_header(data, at).length])
        found.append(batch)
        seen += batch.header.length
    return answer, found

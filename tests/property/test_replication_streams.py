"""However the stream to a slave is cut, it has the same bytes; and two histories part where they do."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from samples.actions import ACTIONS
from samples.brokers import batch_of
from tidemill_broker.action_records import encode_action
from tidemill_journal.records import encode_record
from tidemill_ledger.membership import common_ends
from tidemill_ledger.receiving import Receiving, batch_length, batches_in, record_length, records_in
from tidemill_wire.batch import stamp
from tidemill_wire.replication import Ends, EpochStart

SIZES = st.lists(st.integers(0, 400), min_size=1, max_size=8)
CUTS = st.lists(st.integers(1, 700), max_size=60)


def message_log(sizes: list[int], base: int) -> bytes:
    log = b""
    for number, size in enumerate(sizes):
        batch = batch_of(bytes(size), sequence=number)
        stamp(batch, 0, len(batch), number, base + len(log), 1_780_000_000_000, 1)
        log += batch
    return log


def action_log(names: list[str], base: int) -> bytes:
    log = b""
    for name in names:
        log += encode_record(*encode_action(ACTIONS[name]), base + len(log), 1_780_000_000_000, 1)
    return log


def pieces(log: bytes, cuts: list[int]) -> list[bytes]:
    found, at = [], 0
    for cut in cuts:
        found.append(log[at : at + cut])
        at += cut
    return [piece for piece in [*found, log[at:]] if piece]


@given(SIZES, CUTS, st.integers(0, 1 << 40).map(lambda base: base * 8))
def test_batches_come_out_whole_and_in_order_however_they_are_cut(
    sizes: list[int], cuts: list[int], base: int
) -> None:
    log = message_log(sizes, base)
    stream = Receiving(batch_length, base)
    got, sequences, position = b"", [], base
    for piece in pieces(log, cuts):
        whole = stream.take(base, position, memoryview(piece))
        position += len(piece)
        if whole is not None:
            assert whole.position == base + len(got)
            got += bytes(whole.data)
            sequences += [header.first_sequence for header, _, _ in batches_in(whole)]

    assert got == log
    assert sequences == list(range(len(sizes)))
    assert stream.whole


@given(st.lists(st.sampled_from(sorted(ACTIONS)), min_size=1, max_size=12), CUTS)
def test_records_come_out_whole_and_in_order_however_they_are_cut(names: list[str], cuts: list[int]) -> None:
    log = action_log(names, 0)
    stream = Receiving(record_length, 0)
    got, kinds, position = b"", [], 0
    for piece in pieces(log, cuts):
        whole = stream.take(0, position, memoryview(piece))
        position += len(piece)
        if whole is not None:
            got += bytes(whole.data)
            kinds += [record.kind for record in records_in(whole)]

    assert got == log
    assert kinds == [encode_action(ACTIONS[name])[0] for name in names]


@given(st.lists(st.sampled_from(sorted(ACTIONS)), min_size=1, max_size=6), st.data())
def test_a_stream_that_ends_anywhere_leaves_whole_records(names: list[str], data: st.DataObject) -> None:
    log = action_log(names, 0)
    end = data.draw(st.integers(0, len(log)))
    stream = Receiving(record_length, 0)

    whole = stream.take(0, 0, memoryview(log[:end]))

    size = 0 if whole is None else len(whole.data)
    assert log[:size] == (b"" if whole is None else bytes(whole.data))
    assert size <= end
    assert action_log(names, 0)[:size] == b"".join(
        encode_record(record.kind, record.body, record.position, record.at_ms, record.epoch)
        for record in (records_in(whole) if whole is not None else ())
    )


@dataclass
class Model:
    """A replica whose logs are lists of who wrote what: entries of two masters are never equal."""

    messages: list[tuple[int, int]] = field(default_factory=list)
    actions: list[tuple[int, int]] = field(default_factory=list)
    history: list[EpochStart] = field(default_factory=list)

    @property
    def ends(self) -> Ends:
        return Ends(len(self.messages), len(self.actions))

    def begin(self, epoch: int) -> None:
        self.history.append(EpochStart(epoch, *self.ends))
        self.actions.append((epoch, -1))

    def write(self, epoch: int, number: int, *, message: bool) -> None:
        (self.messages if message else self.actions).append((epoch, number))

    def cut(self, ends: Ends) -> None:
        del self.messages[ends.message :]
        del self.actions[ends.action :]
        self.history = [start for start in self.history if start.action < ends.action]

    def copy_from(self, other: Model, ends: Ends) -> None:
        """Go on with what another one has, up to there."""
        self.messages += other.messages[len(self.messages) : ends.message]
        self.actions += other.actions[len(self.actions) : ends.action]
        self.history = [start for start in other.history if start.action < len(self.actions)]
        self.recover()

    def recover(self) -> None:
        """A power cut may keep messages of an epoch and take the EPOCH: they are cut, or they could be taken for
        what another master wrote there.
        """
        newest = self.history[-1].epoch if self.history else 1
        stray = next(
            (at for at, (epoch, _) in enumerate(self.messages) if epoch > newest), len(self.messages)
        )
        del self.messages[stray:]


def prefix(one: list[tuple[int, int]], two: list[tuple[int, int]]) -> int:
    return next(
        (at for at, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), min(len(one), len(two))
    )


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("begin"), st.integers(0, 2), st.just(0)),
        st.tuples(st.just("write"), st.integers(0, 1), st.just(0)),
        st.tuples(st.just("copy"), st.integers(0, 2), st.integers(0, 6)),
    ),
    max_size=60,
)


@given(STEPS)
def test_histories_part_where_the_logs_do(steps: list[tuple[str, int, int]]) -> None:
    """Masters of growing epochs, each writing for itself, slaves that get as much as they get: whatever two replicas
    have become, what they are told to have in common is exactly what is equal in their logs.
    """
    replicas = [Model(), Model(), Model()]
    replicas[0].begin(1)
    master, epoch = 0, 1
    for number, (step, who, size) in enumerate(steps):
        if step == "begin":
            master, epoch = who, epoch + 1
            replicas[master].begin(epoch)
        elif step == "write":
            replicas[master].write(epoch, number, message=bool(who))
        elif who != master:
            leader, slave = replicas[master], replicas[who]
            common = common_ends(leader.history, leader.ends, slave.history, slave.ends) or Ends(0, 0)
            slave.cut(common)
            more = Ends(
                min(common.message + size, leader.ends.message), min(common.action + size, leader.ends.action)
            )
            slave.copy_from(leader, more)
    leader = replicas[master]
    for slave in replicas:
        common = common_ends(leader.history, leader.ends, slave.history, slave.ends)
        if common is not None:
            assert common == Ends(
                prefix(leader.messages, slave.messages), prefix(leader.actions, slave.actions)
            )
        else:
            assert prefix(leader.actions, slave.actions) == 0

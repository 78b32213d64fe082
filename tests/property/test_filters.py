"""A group with a filter is given exactly the messages it wants, each once and in order, whatever lies between them.

Any tags, any sizes of batches, compressed or not, any filter, any bounds of pulls; and wherever the broker's life is
cut, the cursor never passes over what is wanted.
"""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from samples.brokers import SUBJECT, TINY, Rig, copy_of, files_of, pulls, put_file, read_file, remove_file
from samples.sifted import Shown, content_of, pull, send, shown
from sim.disk import SimDisk
from tidemill_broker import filtered
from tidemill_wire.codec import Codec
from tidemill_wire.commands import Ack, Pulled
from tidemill_wire.filters import TagFilter, parse_filter

TAGS = ("eu", "new", "us", "vip")
FILTERS = st.builds(parse_filter, st.lists(st.sampled_from(TAGS), min_size=1, max_size=3), st.booleans())
BATCHES = st.lists(
    st.tuples(
        st.sampled_from((1, 2, 9, 40, 130)),
        st.sampled_from((0.0, 0.02, 0.3, 0.9)),
        st.sampled_from((0, 30, 200)),
        st.sampled_from((Codec.NONE, Codec.NONE, Codec.ZSTD)),
    ),
    min_size=1,
    max_size=12,
)
STEPS = st.sampled_from(("pull", "pull", "nothing", "restart", "power"))


class Flow:
    """One subject, what was sent and what was shown."""

    def __init__(self, seed: int, segment_bytes: int) -> None:
        self.rng = random.Random(seed)
        rules = replace(
            TINY, segment_bytes=segment_bytes, durability="high", lease_ms=10**7, consumer_gone_ms=10**7
        )
        self.rig = Rig(rules)
        self.sent: list[Shown] = []
        self.given: list[Shown] = []

    def send(self, batch: tuple[int, float, int, Codec]) -> None:
        count, share, size, codec = batch
        tags = [[tag for tag in TAGS if self.rng.random() < share] for _ in range(count)]
        content = content_of(tags, size)
        [first] = send(self.rig, content, codec=codec).first_sequences
        batch_id = (99).to_bytes(8, "big") + self.rig.sent_batches.to_bytes(8, "big")
        self.sent += [
            Shown(
                SUBJECT, first + index, f"{batch_id.hex()}-{index}", content.bodies[index], tuple(tags[index])
            )
            for index in range(count)
        ]

    def pull(self, wanted: TagFilter) -> Pulled:
        bounds = self.rng.choice((1, 3, 50, 1000)), self.rng.choice((1, 500, 1 << 20))
        answer = pull(self.rig, wanted, messages=bounds[0], size=bounds[1])
        self.given += shown(answer)
        return answer


@given(st.integers(0, 2**32), st.sampled_from((1 << 13, 1 << 16, 1 << 24)), FILTERS, BATCHES, st.lists(STEPS))
def test_exactly_the_wanted_messages_are_given_once_and_in_order(
    seed, segment_bytes, wanted, batches, steps
) -> None:
    flow = Flow(seed, segment_bytes)
    for number, batch in enumerate(batches):
        flow.send(batch)
        match steps[number] if number < len(steps) else "nothing":
            case "pull":
                flow.pull(wanted)
            case "restart":
                flow.rig.restart()
            case "power":
                flow.rig.sync()
                flow.rig.power_cut()
    while flow.pull(wanted).grants:
        pass

    assert flow.given == [message for message in flow.sent if wanted.wants(message.tags)]
    group = flow.rig.broker.state.group_of(SUBJECT, "g")
    assert group.in_flight == len(flow.given)
    assert group.reached == len(flow.sent)


@given(st.integers(0, 2**32), FILTERS, BATCHES)
def test_failures_of_a_filtered_group_come_again_and_nothing_else_does(seed, wanted, batches) -> None:
    flow = Flow(seed, 1 << 24)
    for batch in batches:
        flow.send(batch)
    while flow.pull(wanted).grants:
        pass
    first = list(flow.given)
    flow.rig.wait(10**7 + 1)
    for _ in range(len(first) + 1):
        flow.rig.wait(1000)
        flow.pull(wanted)

    assert sorted(flow.given) == sorted([*first, *first])


def cut_log(disk: SimDisk, folder: str, end: int) -> None:
    """The log ends there."""
    for name in files_of(disk, folder):
        base = int(name.rpartition("/")[2].partition(".")[0])
        data = read_file(disk, name)
        if base >= end:
            remove_file(disk, name)
        elif base + len(data) > end:
            put_file(disk, name, data[: end - base])


WANTED = parse_filter(["vip"], False)


def lived() -> Flow:
    """A life with deliveries, acks and skips, and nothing that a checkpoint keeps."""
    usual, filtered.SKIP_MESSAGES = filtered.SKIP_MESSAGES, 30
    try:
        flow = Flow(7, 1 << 14)
        for number in range(40):
            flow.send((5 + number % 9, (0.0, 0.0, 0.1)[number % 3], 20, Codec.NONE))
            answer = flow.pull(WANTED)
            if number % 2 and answer.grants:
                flow.rig.ask(Ack("g", "c", SUBJECT, pulls(answer)))
        assert any(b"\x22" in read_file(flow.rig.disk, name) for name in files_of(flow.rig.disk, "action"))
    finally:
        filtered.SKIP_MESSAGES = usual
    flow.rig.disk.kill()
    return flow


LIVED = lived()


@settings(max_examples=200)
@given(st.integers(0, 1 << 20), st.integers(0, 1 << 20))
def test_cursor_passes_over_nothing_that_is_wanted_at_whatever_byte_the_logs_end(messages, actions) -> None:
    disk = copy_of(LIVED.rig.disk)
    for folder, number in (("message", messages), ("action", actions)):
        size = sum(len(read_file(disk, name)) for name in files_of(disk, folder))
        cut_log(disk, folder, number % (size + 1))
    rig = Rig(replace(LIVED.rig.settings), disk)
    group = rig.broker.state.group_of(SUBJECT, "g")
    cursor = group.cursor if group is not None else 0
    stored = rig.pull(group="all", messages=1 << 20)
    there = {message.sequence for message in shown(stored)}
    again: list[Shown] = []
    while new := shown(pull(rig, WANTED, consumer="d")):
        again += new

    wanted = [message for message in LIVED.sent if WANTED.wants(message.tags) and message.sequence in there]
    given = {message.sequence for message in LIVED.given}
    assert again == [message for message in wanted if message.sequence >= cursor]
    assert all(message.sequence in given for message in wanted if message.sequence < cursor)

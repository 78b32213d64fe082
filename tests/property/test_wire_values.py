"""For all values: what is built is read back, and what is said is understood, however it was cut on the way."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from samples.commands import GREETING, HEARD, comparable, frame_of
from samples.strategies import COMMANDS, contents, origins, pieces
from tidemill_wire.batch import Origin, check_stamp, partition_name, read_header, stamp
from tidemill_wire.columns import Batch, Column, Content, bloom_of, build_batch, hash_text, split_batches
from tidemill_wire.commands import Command, encode_command, parse_command
from tidemill_wire.connection import Connection, Event, Received, Rejected, Role, State
from tidemill_wire.frame import Frame, FrameDecoder, encode_frame

FRAMES = st.lists(
    st.tuples(st.integers(0, 2**16 - 1), st.integers(0, 2**64 - 1), st.binary(max_size=60)), max_size=8
)


def texts(values: Sequence[str | None] | None) -> list[str] | None:
    """``None`` and no text are the same on the wire."""
    return None if values is None else [value or "" for value in values]


def assert_same(batch: Batch, content: Content) -> None:
    count = len(content.bodies)
    batch.check()
    assert batch.bodies() == list(content.bodies)
    assert batch.keys() == texts(content.keys)
    assert batch.tags() == content.tags
    assert batch.order_keys() == texts(content.order_keys)
    assert batch.properties() == content.properties
    assert batch.numbers(Column.CREATED_DELTAS, "i", count) == content.created_deltas
    assert batch.numbers(Column.DELIVER_DELTAS, "q", count) == content.deliver_deltas
    assert batch.numbers(Column.ATTEMPTS, "i", count) == content.attempts
    assert batch.origins() == content.origins
    assert batch.timer_keys() == texts(content.timer_keys)


@given(origins(), contents())
def test_batches_are_read_as_they_were_built(origin: Origin, content: Content) -> None:
    data = build_batch(origin, content)
    batch = Batch(data)

    assert_same(batch, content)
    assert len(data) % 8 == 0
    assert partition_name(data, 0, batch.header) == origin.partition
    assert batch.partition == origin.partition.decode()
    assert batch.header[8:11] == (1, origin.codec, origin.flags)
    assert batch.header[15:19] == (
        origin.producer_id,
        origin.producer_sequence,
        origin.batch_id,
        origin.created_at_ms,
    )


@given(origins(), contents())
def test_bloom_word_never_hides_a_tag(origin: Origin, content: Content) -> None:
    word = Batch(build_batch(origin, content)).header.bloom

    for tag in (tag for row in content.tags or [] for tag in row):
        bits = bloom_of([hash_text(tag.encode())])
        assert word & bits == bits


@given(origins(), contents(), st.data())
def test_any_part_of_a_batch_is_that_part(origin: Origin, content: Content, data: st.DataObject) -> None:
    count = len(content.bodies)
    first = data.draw(st.integers(0, count - 1))
    last = data.draw(st.integers(first, count - 1))

    assert Batch(build_batch(origin, content)).bodies(first, last) == list(content.bodies[first : last + 1])


@given(st.lists(st.tuples(origins(), contents(3)), max_size=4), st.integers(0, 2**64 - 1))
def test_batches_back_to_back_are_stamped_and_found(
    made: list[tuple[Origin, Content]], sequence: int
) -> None:
    buffer, places = bytearray(), list[int]()
    for origin, content in made:
        places.append(len(buffer))
        buffer += build_batch(origin, content)
    for at in places:
        stamp(buffer, at, read_header(buffer, at).length, sequence, at, 1, 2)

    batches = split_batches(buffer)

    assert [batch.header.position for batch in batches] == places
    for at, batch, (_, content) in zip(places, batches, made, strict=True):
        check_stamp(buffer, at, batch.header)
        assert_same(batch, content)


@given(FRAMES, st.data())
def test_any_split_of_the_stream_gives_the_same_frames(
    said: list[tuple[int, int, bytes]], data: st.DataObject
) -> None:
    stream = b"".join(encode_frame(kind, correlation, body) for kind, correlation, body in said)
    whole = [Frame(kind, 0, correlation, bytearray(body)) for kind, correlation, body in said]
    split, single = FrameDecoder(), FrameDecoder()

    assert FrameDecoder().feed(stream) == whole
    assert [frame for piece in data.draw(pieces(stream)) for frame in split.feed(piece)] == whole
    assert [frame for at in range(len(stream)) for frame in single.feed(stream[at : at + 1])] == whole


@given(COMMANDS, st.integers(0, 2**64 - 1))
def test_every_command_is_understood_as_it_was_meant(command: Command, correlation: int) -> None:
    [frame] = FrameDecoder().feed(encode_command(command, correlation))

    assert frame.correlation == correlation
    assert comparable(parse_command(frame)) == comparable(command)


@given(st.sampled_from(Role), st.lists(COMMANDS, max_size=6), st.data())
def test_both_ends_hear_what_the_other_says(role: Role, said: list[Command], data: st.DataObject) -> None:
    """The one end is told what the other sends, cut anywhere; only what is not for it is rejected."""
    greetings = {type(greeting) for greeting in GREETING.values()}
    said = [command for command in said if type(command) not in greetings]
    stream = b"".join(frame_of(command, number) for number, command in enumerate([GREETING[role], *said]))
    connection = Connection(role)

    events: list[Event] = []
    for piece in data.draw(pieces(stream)):
        events += connection.feed(piece)

    assert connection.state is State.OPEN
    assert [event.correlation for event in events] == list(range(1 + len(said)))
    for event, command in zip(events[1:], said, strict=True):
        if command.kind in HEARD[role]:
            assert isinstance(event, Received)
            assert comparable(event.command) == comparable(command)
        else:
            assert isinstance(event, Rejected)


@given(st.text(max_size=200), st.text(max_size=300), st.integers(0, 2**32 - 1))
def test_any_client_and_broker_greet_each_other(name: str, broker: str, epoch: int) -> None:
    client, server = Connection(Role.CLIENT), Connection(Role.SERVER)

    server.feed(client.greet(name))
    client.feed(server.welcome(broker, epoch))

    assert client.state is server.state is State.OPEN

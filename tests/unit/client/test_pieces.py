"""The pure pieces of the client."""

from __future__ import annotations

import asyncio
import random
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill import ClientSettings, CodecMissing
from tidemill.backoff import Backoff
from tidemill.delivery import Delivery, add_range, cut_bodies
from tidemill.encode import encode_single, renamed, renumbered
from tidemill.errors import BrokerUnreachable, ClientClosed, ConnectionLost, OutcomeUnknown, Refused, again
from tidemill.gather import Gather, Signature, cut
from tidemill.inbox import Window
from tidemill.message import parse_delay
from tidemill.parcel import Partition
from tidemill.router import Router
from tidemill.routes import Address, parse_routes, parse_server
from tidemill.tasks import Tasks
from tidemill_wire.batch import Origin, aligned
from tidemill_wire.codec import Codec
from tidemill_wire.columns import Batch, Content, build_batch
from tidemill_wire.errors import WireError


@pytest.mark.parametrize("compression, module", [("lz4", "lz4.block"), (Codec.ZSTD, "zstandard")])
def test_compression_without_its_package_is_refused_before_anything_is_sent(
    compression, module, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, module, None)  # as if it were not installed
    with pytest.raises(CodecMissing, match=r"pip install 'tidemill\[compression\]'") as caught:
        ClientSettings(compression=compression)
    assert "\n" not in str(caught.value)
    assert ClientSettings().codec is Codec.NONE


class Nobody:
    def stored(self, place, part): ...

    def failed(self, error): ...


@given(st.binary(max_size=300), st.from_regex(r"[a-z]{1,100}", fullmatch=True), st.integers(0, 2**63 - 1))
def test_a_single_message_has_the_bytes_that_wire_gives_it(body, name, number):
    raw = name.encode()
    origin = Origin(raw, 7, number, bytes(range(16)), 123)
    padded = raw.ljust(aligned(len(raw)), b"\0")
    assert encode_single(padded, len(raw), (7, number, bytes(range(16)), 123), body) == build_batch(
        origin, Content([body])
    )


def test_a_batch_under_a_new_number_differs_in_nothing_else():
    origin = Origin(b"a", 7, 1, bytes(16), 123)
    batch = Batch(renumbered(build_batch(origin, Content([b"x", b"y"])), 99))
    batch.check()
    assert batch.header.producer_sequence == 99
    assert batch.bodies() == [b"x", b"y"]


@given(
    st.from_regex(r"[a-z]{1,20}", fullmatch=True),
    st.from_regex(r"[a-z]{1,20}#[1-9]", fullmatch=True),
    st.lists(st.binary(max_size=900), min_size=1, max_size=4),
    st.sampled_from(Codec),
    st.booleans(),
)
def test_a_batch_for_another_partition_is_as_if_it_had_been_built_for_it(name, other, bodies, codec, keyed):
    content = Content(bodies, ["k"] * len(bodies) if keyed else None, tags=[("t",)] * len(bodies))
    origin = Origin(name.encode(), 7, 1, bytes(16), 123, codec)
    moved = renumbered(renamed(build_batch(origin, content), other.encode()), 9, 8)
    assert moved == build_batch(Origin(other.encode(), 8, 9, bytes(16), 123, codec), content)
    Batch(moved).check()


@given(st.lists(st.binary(max_size=50), max_size=60), st.integers(1, 1000))
def test_pieces_are_all_of_it_in_order_and_none_is_too_large(bodies, batch_bytes):
    ends = cut(bodies, batch_bytes)
    pieces = [bodies[a:b] for a, b in zip([0, *ends], ends, strict=False)]
    assert [body for piece in pieces for body in piece] == bodies
    assert all(len(piece) == 1 or sum(len(body) + 64 for body in piece) <= batch_bytes for piece in pieces)
    assert all(pieces)


@given(st.integers(64, 200), st.integers(0, 30), st.data())
def test_bodies_of_one_size_are_cut_as_wire_cuts_them(count, size, data):
    bodies = [(b"%030d" % number)[-size:] if size else b"" for number in range(count)]
    batch = Batch(build_batch(Origin(b"a", 1, 1, bytes(16), 0), Content(bodies)))
    first = data.draw(st.integers(0, count - 1))
    wanted = data.draw(st.integers(1, count - first))
    assert cut_bodies(batch, first, wanted) == batch.bodies(first, first + wanted - 1)


def test_bodies_that_only_look_equal_at_first_are_cut_by_their_offsets():
    bodies = [b"1234"] * 70 + [b"12", b"123456"] + [b"1234"] * 10
    batch = Batch(build_batch(Origin(b"a", 1, 1, bytes(16), 0), Content(bodies)))
    assert cut_bodies(batch, 0, len(bodies)) == bodies


class Told:
    def __init__(self):
        self.settled_deliveries = []

    def parted(self, delivery, into):
        assert into == []
        self.settled_deliveries.append(delivery)


@given(st.integers(1, 12), st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=12))
def test_a_delivery_settles_each_message_once(count, steps):
    delivery = Delivery("a", 0, 100, (memoryview(b""), 0, count))
    delivery.settler = told = Told()
    settled: set[int] = set()
    for first, last in steps:
        if first > last or last >= count:
            continue
        ranges = delivery.settle(first, last)
        pulls = [pull for a, b in zip(ranges[::2], ranges[1::2], strict=True) for pull in range(a, b + 1)]
        assert len(pulls) == len(set(pulls))
        assert set(pulls) == {100 + index for index in range(first, last + 1)} - settled
        settled |= set(pulls)
        open_ranges = delivery.unsettled() if delivery.done < count else []
        rest = {
            pull for a, b in zip(open_ranges[::2], open_ranges[1::2], strict=True) for pull in range(a, b + 1)
        }
        assert rest == {100 + index for index in range(count)} - settled
    assert bool(told.settled_deliveries) == (len(settled) == count)


def test_ranges_that_touch_become_one():
    ranges: list[int] = []
    for first, last in ((1, 3), (4, 4), (6, 9), (10, 12)):
        add_range(ranges, first, last)
    assert ranges == [1, 4, 6, 12]


def gather_of(batch_bytes: int) -> Gather:
    return Gather(Signature(7, Codec.NONE, lambda: 0), batch_bytes)


def test_a_frame_has_one_batch_a_partition_and_partitions_take_turns():
    gather = gather_of(1_000)
    many, few = Partition("many"), Partition("few")
    for _ in range(30):
        gather.add(many, b"x" * 100, None, Nobody(), 0)
    gather.add(few, b"y", None, Nobody(), 0)
    frames = []
    while frame := gather.take():
        frames.append([parcel.partition.name for parcel in frame])
    assert all(len(names) == len(set(names)) for names in frames)
    assert "few" in [*frames[0], *frames[1]]
    assert many.sequence == len([names for names in frames if "many" in names])


def test_a_partition_with_a_refused_batch_is_held():
    gather = gather_of(1_000)
    held, free = Partition("held"), Partition("free")
    gather.add(held, b"x", None, Nobody(), 0)
    gather.add(free, b"y", None, Nobody(), 0)
    held.refused.append(object())
    assert [parcel.partition for parcel in gather.take()] == [free]
    assert not gather.take()
    held.refused.clear()
    assert [parcel.partition for parcel in gather.take()] == [held]


def test_waits_double_and_are_bounded_and_begin_anew_after_a_success():
    class High(random.Random):
        def random(self):
            return 1.0

    backoff = Backoff(0.1, 1.0, High())
    assert [round(backoff.next(), 3) for _ in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    backoff.reset()
    assert round(backoff.next(), 3) == 0.1


class Longest(random.Random):
    """Draws the longest wait each time."""

    def random(self) -> float:
        return 1.0


async def test_a_crowd_of_refusals_is_one_failure(serve):
    """A broker that hands over refuses all that is in flight: waits of their own would double with each."""
    refusals = iter([WireError("not_master", "it hands over")] * 20)
    settings = ClientSettings(backoff_base_s=0.01, backoff_max_s=600.0, linger_ms=0, random=Longest())
    async with serve() as place, place.client(settings=settings) as mq:
        await mq.send("a", b"warm")
        place.broker.refuse_batch = lambda _name: next(refusals, None)
        await asyncio.gather(*(mq.send(f"s{number}", b"x") for number in range(20)))


async def test_waits_of_a_producer_begin_anew_after_a_success(serve):
    settings = ClientSettings(backoff_base_s=0.01, backoff_max_s=600.0, linger_ms=0, random=Longest())
    async with serve() as place, place.client(settings=settings) as mq:
        for _ in range(20):
            refusals = iter([WireError("not_master", "it hands over")])
            place.broker.refuse_batch = lambda _name, refusals=refusals: next(refusals, None)
            await mq.send("a", b"refused once")
            await mq.send("a", b"taken at once")


def test_the_window_follows_the_handler():
    window = Window(2000)
    window.starved()
    assert window.size == 256, "nothing is known of the handler: more might be too much for it"
    window.handled(256, 0.32)
    window.starved()
    assert window.size == 800, "what it handles in a second"
    window.handled(1000, 0.001)
    for _ in range(5):
        window.starved()
    assert window.size == 2000
    for _ in range(20):
        window.stale()
    assert window.size == 16


@pytest.mark.parametrize(
    "text, parsed",
    [
        ("localhost:7401", ("localhost", 7401)),
        ("http://queue.svc:80/", ("queue.svc", 80)),
        ("[::1]:7401", ("::1", 7401)),
    ],
)
def test_a_server_is_a_host_and_a_port(text, parsed):
    assert parse_server(text) == parsed


def test_the_environment_names_the_server(monkeypatch):
    monkeypatch.setenv("TIDEMILL_SERVER", "queue:1234")
    assert parse_server(None) == ("queue", 1234)
    monkeypatch.delenv("TIDEMILL_SERVER")
    assert parse_server(None) == ("127.0.0.1", 7401)


@pytest.mark.parametrize(
    "text", ["localhost", "localhost:", ":7401", "localhost:0", "localhost:65536", "a:b"]
)
def test_what_is_no_server_is_said_so(text):
    with pytest.raises(ValueError, match="HOST:PORT"):
        parse_server(text)


def test_a_broker_without_a_host_is_on_the_host_that_was_asked():
    answer = {
        "version": 1,
        "brokers": [{"group": "g0", "host": None, "port": 7400, "state": "RW", "name": "x"}],
    }
    assert parse_routes(answer, "queue") == (Address("g0", "queue", 7400, "RW"),)


@pytest.mark.parametrize("answer", [None, [], {}, {"brokers": 1}, {"brokers": [{"group": 1}]}])
def test_routes_that_are_none_are_said_so(answer):
    with pytest.raises(BrokerUnreachable):
        parse_routes(answer, "queue")


def test_the_last_good_routes_are_kept_while_nobody_answers():
    answers = [(Address("g0", "a", 1, "R"), Address("g1", "b", 2, "W"), Address("g2", "c", 3, "NRW"))]

    async def fetch():
        if answers:
            return answers.pop()
        raise BrokerUnreachable("gone")

    async def case():
        router = Router(fetch)
        assert (await router.writable()).group == "g1"
        assert [one.group for one in await router.readable()] == ["g0"]
        assert (await router.of_group("g0")).port == 1
        with pytest.raises(BrokerUnreachable, match="g9"):
            await router.of_group("g9")
        with pytest.raises(BrokerUnreachable, match="gone"):
            await Router(fetch).writable()

    asyncio.run(case())


@pytest.mark.parametrize(
    "options",
    [
        {"linger_ms": 6},
        {"batch_bytes": 0},
        {"pull_bytes": 1 << 30},
        {"compression": "gzip"},
        {"send_timeout_s": 0},
        {"pull_wait_ms": -1},
        {"prefetch_bytes": 0},
    ],
)
def test_a_setting_out_of_its_range_is_refused(options):
    with pytest.raises(ValueError, match=r"setting|compression"):
        ClientSettings(**options)


def test_a_delay_is_in_seconds():
    assert [parse_delay(None), parse_delay(0), parse_delay(1.5)] == [-1, 0, 1500]


def test_an_error_that_is_raised_again_is_another_object_and_says_the_same():
    for error in (Refused("disk_full", "x"), ConnectionLost("y"), OutcomeUnknown("z")):
        copy = again(error)
        assert copy is not error
        assert type(copy) is type(error)
        assert str(copy) == str(error)
    assert again(Refused("disk_full", "x")).kind.name == "disk_full"


def test_a_task_that_dies_is_told_to_its_owner():
    async def case():
        told = []
        tasks = Tasks(told.append)

        async def die():
            raise ClientClosed("of this")

        async def live():
            await asyncio.Event().wait()

        tasks.start(die(), "die")
        tasks.start(live(), "live")
        while not told:  # noqa: ASYNC110
            await asyncio.sleep(0)
        await tasks.close()
        assert [str(error) for error in told] == ["of this"]

    asyncio.run(case())

"""TCP in memory behaves as a protocol may expect, and as badly as it may not hope."""

from __future__ import annotations

import asyncio

import pytest

from sim.weather import Weather

PORT = 7000


class Recorder(asyncio.Protocol):
    def __init__(self):
        self.transport = None
        self.data = bytearray()
        self.reads = 0
        self.events = []
        self.lost = asyncio.get_running_loop().create_future()

    def connection_made(self, transport):
        self.transport = transport
        self.events.append("made")

    def data_received(self, data):
        self.data += data
        self.reads += 1

    def eof_received(self):
        self.events.append("eof")

    def pause_writing(self):
        self.events.append("pause")

    def resume_writing(self):
        self.events.append("resume")

    def connection_lost(self, exc):
        self.events.append("lost" if exc is None else type(exc).__name__)
        self.lost.set_result(exc)


class Buffered(Recorder, asyncio.BufferedProtocol):
    def connection_made(self, transport):
        super().connection_made(transport)
        self.buffer = bytearray(100)

    def get_buffer(self, sizehint):
        return self.buffer

    def buffer_updated(self, nbytes):
        self.data += self.buffer[:nbytes]


def connect(stage, server=Recorder, client=Recorder):
    """A connection from a to b: (client's protocol, server's protocol)."""
    accepted = []

    def factory():
        accepted.append(server())
        return accepted[-1]

    async def listen():
        await stage.loop.create_server(factory, "0.0.0.0", PORT)

    async def dial():
        _, protocol = await stage.loop.create_connection(client, "b", PORT)
        return protocol

    stage.run("b", listen())
    near = stage.run("a", dial())
    stage.run_for(0.01)
    return near, accepted[0]


def act(stage, node, function, *args):
    stage.lives[node].context.run(stage.loop.call_soon, function, *args)


@pytest.mark.parametrize("kind", [Recorder, Buffered])
@pytest.mark.parametrize("weather", [Weather(), Weather(chunked_reads=0.5, segment_loss=0.05)])
def test_bytes_arrive_whole_and_in_order(make_stage, kind, weather):
    stage = make_stage(weather)
    near, far = connect(stage, server=kind)
    sent = bytes(range(256)) * 2000

    for start in range(0, len(sent), 7777):
        act(stage, "a", near.transport.write, sent[start : start + 7777])
    stage.run_for(200)

    assert far.data == sent


def test_chunked_reads_cut_what_was_written_together(make_stage):
    stage = make_stage(Weather(chunked_reads=0.5))
    near, far = connect(stage)

    for _ in range(50):
        act(stage, "a", near.transport.write, b"0123456789")
        stage.run_for(0.01)

    assert far.data == b"0123456789" * 50
    assert far.reads > 60


def test_a_reader_that_does_not_read_pauses_the_writer(stage):
    near, far = connect(stage)

    act(stage, "b", far.transport.pause_reading)
    stage.run_for(0.01)
    act(stage, "a", near.transport.write, bytes(400_000))
    stage.run_for(1)
    paused = list(near.events)
    act(stage, "b", far.transport.resume_reading)
    stage.run_for(1)

    assert paused[-1] == "pause"
    assert near.events[-1] == "resume"
    assert len(far.data) == 400_000


def test_close_flushes_and_the_peer_sees_eof(stage):
    near, far = connect(stage)

    act(stage, "a", near.transport.write, bytes(300_000))
    act(stage, "a", near.transport.close)
    stage.run_for(2)

    assert len(far.data) == 300_000
    assert far.events == ["made", "eof", "lost"]
    assert near.events[-1] == "lost"


def test_half_close_leaves_the_way_back_open(stage):
    class StaysOpen(Recorder):
        def eof_received(self):
            super().eof_received()
            return True

    near, far = connect(stage, server=StaysOpen)

    act(stage, "a", near.transport.write_eof)
    stage.run_for(0.1)
    act(stage, "b", far.transport.write, b"still here")
    stage.run_for(0.1)

    assert far.events == ["made", "eof"]
    assert near.data == b"still here"


def test_abort_resets_the_peer(stage):
    near, far = connect(stage)

    act(stage, "a", near.transport.abort)
    stage.run_for(0.1)

    assert far.events[-1] == "ConnectionResetError"
    assert near.events[-1] == "lost"


def test_connecting_to_nobody_is_refused_and_through_a_partition_times_out(stage):
    async def dial():
        await stage.loop.create_connection(Recorder, "b", PORT)

    with pytest.raises(ConnectionRefusedError):
        stage.run("a", dial())
    stage.network.block([("b", "a")])
    started = stage.loop.now
    with pytest.raises(TimeoutError):
        stage.run("a", dial())

    assert 60 < stage.loop.now - started < 128


def test_a_killed_process_says_goodbye_through_its_kernel(stage):
    near, _far = connect(stage)

    stage.loop.end(stage.lives["b"])
    stage.network.process_died("b")
    stage.run_for(0.1)

    assert near.events == ["made", "eof", "lost"]


def test_a_power_cut_is_silent_until_the_host_is_back_and_the_peer_says_something(stage):
    near, _far = connect(stage)

    stage.loop.end(stage.lives["b"])
    stage.network.power_lost("b")
    stage.run_for(100)
    act(stage, "a", near.transport.write, b"hello?")
    stage.run_for(10)
    silent = list(near.events)
    stage.network.power_back("b")
    stage.run_for(30)

    assert silent == ["made"]
    assert near.events[-1] == "ConnectionResetError"


def test_blocked_data_arrives_in_order_after_the_heal(stage):
    near, far = connect(stage)
    pairs = [("a", "b"), ("b", "a")]

    act(stage, "a", near.transport.write, b"1")
    stage.run_for(0.1)
    stage.network.block(pairs)
    for byte in (b"2", b"3", b"4"):
        act(stage, "a", near.transport.write, byte)
        stage.run_for(0.5)
    blocked = bytes(far.data)
    stage.network.unblock(pairs)
    act(stage, "a", near.transport.write, b"5")
    stage.run_for(10)

    assert blocked == b"1"
    assert far.data == b"12345"


def test_a_partition_may_be_one_way(stage):
    near, far = connect(stage)

    stage.network.block([("b", "a")])
    act(stage, "a", near.transport.write, b"there")
    act(stage, "b", far.transport.write, b"back")
    stage.run_for(1)

    assert far.data == b"there"
    assert near.data == b""


def test_overlapping_partitions_heal_one_by_one(stage):
    near, far = connect(stage)

    stage.network.block([("a", "b")])
    stage.network.block([("a", "b")])
    stage.network.unblock([("a", "b")])
    act(stage, "a", near.transport.write, b"x")
    stage.run_for(5)
    still = bytes(far.data)
    stage.network.unblock([("a", "b")])
    stage.run_for(10)

    assert still == b""
    assert far.data == b"x"


def test_data_blocked_for_too_long_fails_the_connection(make_stage):
    stage = make_stage(Weather(give_up_s=30))
    near, _far = connect(stage)

    stage.network.block([("a", "b")])
    act(stage, "a", near.transport.write, b"x")
    stage.run_for(200)

    assert near.events[-1] == "TimeoutError"


def test_a_clogged_link_delivers_late(stage):
    near, far = connect(stage)

    stage.network.clog("a", "b", stage.loop.now + 3)
    act(stage, "a", near.transport.write, b"x")
    stage.run_for(2.9)
    early = bytes(far.data)
    stage.run_for(0.2)

    assert (early, far.data) == (b"", b"x")


def test_the_nth_segment_can_be_the_last(stage):
    near, far = connect(stage)
    host = stage.network.hosts["a"]
    host.reset_at_segment = host.segments + 3

    for byte in (b"1", b"2", b"3", b"4"):
        act(stage, "a", near.transport.write, byte)
        stage.run_for(0.1)

    assert far.data == b"12"
    assert near.events[-1] == far.events[-1] == "ConnectionResetError"


def test_a_cancelled_connect_leaves_nothing_behind(stage):
    near, _far = connect(stage)

    async def dial(seconds):
        try:
            async with asyncio.timeout(seconds):
                await stage.loop.create_connection(Recorder, "b", PORT)
        except TimeoutError:
            return
        near.transport.pause_reading()

    for microseconds in range(0, 1500, 50):
        stage.run("a", dial(microseconds / 1e6))
    stage.run_for(1)

    assert not stage.loop.errors


def test_a_paused_process_still_accepts_in_its_kernel(stage):
    connect(stage)
    stage.loop.pause(stage.lives["b"])

    async def dial():
        _, protocol = await stage.loop.create_connection(Recorder, "b", PORT)
        return protocol

    protocol = stage.run("a", dial())

    assert protocol.events == ["made"]


def test_streams_of_asyncio_work(stage):
    async def echo(reader, writer):
        while line := await reader.readline():
            writer.write(line.upper())
            await writer.drain()
        writer.close()
        await writer.wait_closed()

    async def serve():
        await asyncio.start_server(echo, "0.0.0.0", PORT)

    async def ask():
        reader, writer = await asyncio.open_connection("b", PORT)
        writer.write(b"hello\n")
        answer = await reader.readline()
        writer.close()
        await writer.wait_closed()
        return answer

    stage.run("b", serve())

    assert stage.run("a", ask()) == b"HELLO\n"


def test_aiohttp_runs_unmodified(stage):
    web = pytest.importorskip("aiohttp.web")
    aiohttp = pytest.importorskip("aiohttp")

    async def hello(request):
        return web.json_response({"got": (await request.json())["n"], "peer": request.remote})

    async def serve():
        app = web.Application()
        app.router.add_post("/", hello)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "0.0.0.0", PORT).start()

    async def ask():
        async with aiohttp.ClientSession() as session:
            answers = []
            for n in range(3):
                async with session.post(f"http://b:{PORT}/", json={"n": n}) as response:
                    answers.append(await response.json())
            return answers

    stage.run("b", serve())
    answers = stage.run("a", ask())

    assert [answer["got"] for answer in answers] == [0, 1, 2]
    assert answers[0]["peer"] == stage.network.hosts["a"].address

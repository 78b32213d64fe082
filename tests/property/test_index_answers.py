"""For any batches, any seals, any restart or power cut: the index and browsing answer as a scan of the log does."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from samples.brokers import (
    NOW_MS,
    TINY,
    Rig,
    batch_of,
    empty_disk,
    files_of,
    put_file,
    read_file,
    remove_file,
)
from samples.searches import Search
from sim.disk import SimDisk
from sim.weather import Weather
from tidemill_broker.settings import BrokerSettings
from tidemill_wire.columns import Content
from tidemill_wire.commands import SendBatches, Sent

KEYS = (None, "", "o-1", "o-2", "ö-3", "o-1 ")
SUBJECTS = ("order.created", "order.paid")
WEATHER = Weather(torn_pages=0.5, short_io=0.2)

batches = st.tuples(
    st.sampled_from(SUBJECTS),
    st.lists(st.sampled_from(KEYS), min_size=1, max_size=5),
    st.booleans(),
)
steps = st.lists(
    st.one_of(
        batches, st.sampled_from(["restart", "power cut", "sync", "lose an index", "spoil an index", "wait"])
    ),
    max_size=30,
)
limits = st.builds(
    replace,
    st.just(TINY),
    segment_bytes=st.sampled_from([600, 1200, 5000, 1 << 20]),
    segment_batches=st.sampled_from([1, 2, 5, 1 << 20]),
    checkpoint_events=st.sampled_from([1, 5, 1000]),
    checkpoint_pause_ms=st.just(1),
)


def spoil(disk: SimDisk, lose: bool) -> None:
    for name in files_of(disk, "index"):
        if lose:
            remove_file(disk, name)
        else:
            data = bytearray(read_file(disk, name))
            data[24] ^= 1
            put_file(disk, name, bytes(data))


def take(rig: Rig, step: object, number: int) -> None:
    match step:
        case "restart":
            rig.restart()
        case "power cut":
            rig.power_cut()
        case "sync":
            rig.broker.keeping.checkpoint(rig.now_ms)
            rig.pump()
        case "lose an index" | "spoil an index":
            rig.disk.kill()
            spoil(rig.disk, step == "lose an index")
            rig.start()
        case "wait":
            rig.wait(700)
        case (str(subject), list(keys), bool(keyed)):
            bodies = [b"%d.%d" % (number, index) for index in range(len(keys))]
            content = Content(bodies, keys if keyed else None)
            batch = batch_of(subject=subject, producer=7, sequence=number, content=content)
            answer = rig.ask(SendBatches(batch))
            assert isinstance(answer, Sent)
            assert not answer.refused


def play(rules: BrokerSettings, story: list[object]) -> None:
    rig = Rig(rules, empty_disk(3, WEATHER), NOW_MS)
    search = Search(rig.broker, rig.disk.mount())
    for number, step in enumerate(story):
        take(rig, step, number)
        search = Search(rig.broker, rig.disk.mount())
    assert search.problems() == []
    rig.restart()
    assert Search(rig.broker, rig.disk.mount()).problems() == []


@settings(max_examples=150)
@given(limits, steps)
def test_the_index_answers_as_a_scan_does(rules: BrokerSettings, story: list[object]) -> None:
    play(rules, story)

"""The same names without an event loop, and the stand-in for tests."""

from __future__ import annotations

import inspect
import os
import threading
import warnings

import pytest

from tidemill import Client, ClientClosed, blocking, testing
from tidemill.dead import DeadLetters
from tidemill.memory import MemoryBroker
from tidemill.message import Message, MessageBatch


@pytest.fixture
def broker():
    return MemoryBroker()


def client_of(broker: MemoryBroker) -> blocking.Client:
    return blocking.Client(make=lambda: testing.Client(broker))


def test_messages_are_sent_and_handled_without_a_loop(broker):
    with client_of(broker) as mq:
        assert mq.send("a", b"0", key="k").sequence == 0
        assert len(mq.send_many("a", (b"%d" % number for number in range(1, 1000)))) == 1000 - 1
        assert len(mq.send_each([("b", b"1"), ("c", b"2")])) == 2
        with mq.consume("a", group="g") as messages:
            seen = []
            for message in messages:
                seen.append(message.body)
                if len(seen) == 1:
                    assert message.key == "k"
                    message.extend()
                if len(seen) == 500:
                    message.ack()
                if len(seen) == 1000:
                    break
        assert seen == [b"%d" % number for number in range(1000)]
        assert broker.groups["a", "g"].acked == 1000
        assert [row["name"] for row in mq.subjects()] == ["a", "b", "c"]
        assert mq.groups()[0]["acked"] == 1000


def test_batches_are_handled_without_a_loop(broker):
    with client_of(broker) as mq:
        mq.send_many("a", [b"%d" % number for number in range(10)])
        with mq.consume("a", group="g", name="me") as messages:
            for batch in messages.batches():
                assert [message.body for message in batch] == batch.bodies
                assert messages.name == "me"
                batch[1].nack(delay=60)
                batch.extend()
                batch.ack()
                break
        assert broker.groups["a", "g"].acked == 9


def test_an_exception_nacks_and_leaving_releases(broker):
    with client_of(broker) as mq:
        mq.send_many("a", [b"%d" % number for number in range(10)])
        with pytest.raises(KeyError):
            with mq.consume("a", group="g") as messages:
                for message in messages:
                    if message.sequence == 4:
                        raise KeyError("no")
        group = broker.groups["a", "g"]
        assert group.acked == 4
        assert sorted(group.due) == [(4, 1), (5, 0), (6, 0), (7, 0), (8, 0), (9, 0)]


def in_a_thread(call):
    """What it returned or raised, and the thread."""
    found = []

    def run():
        try:
            found.append(call())
        except Exception as error:  # it is what is asked for
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return found, thread


def test_two_threads_cannot_share_a_consumer(broker):
    """The second one's asking would ack what the first one has in its hands."""
    with client_of(broker) as mq:
        mq.send_many("a", [b"0", b"1"])
        with mq.consume("a", group="g") as messages:
            iterator = iter(messages)
            assert next(iterator).body == b"0"
            found, thread = in_a_thread(lambda: next(iterator))
            thread.join(30)
            assert "one loop per consumer" in str(found)
            assert next(iterator).body == b"1"
        assert broker.groups["a", "g"].acked == 2


def test_what_another_thread_has_in_its_hands_is_given_back_when_the_block_is_left(broker):
    taken, gate = threading.Event(), threading.Event()

    def work(messages):
        for _ in messages:
            taken.set()
            gate.wait(30)
            return

    with client_of(broker) as mq:
        mq.send("a", b"0")
        with mq.consume("a", group="g") as messages:
            _, thread = in_a_thread(lambda: work(messages))
            assert taken.wait(30)
        assert broker.groups["a", "g"].acked == 0
        gate.set()
        thread.join(30)


def test_errors_are_raised_where_the_call_is(broker):
    mq = client_of(broker)
    with pytest.raises(ValueError, match="start"):
        mq.consume("a", group="g", start="whenever")
    mq.close()
    mq.close()
    with pytest.raises(ClientClosed):
        mq.send("a", b"x")


def test_acks_in_the_spool_are_counted_as_behind_it(tmp_path):
    with blocking.Client("localhost:1", spool=tmp_path / "spool") as mq:
        assert mq.spooled_acks["waiting"] == 0
        assert mq.spooled_acks.keys() == {"waiting", "spooled", "told", "too_late", "dropped", "unkept"}
    with blocking.Client("localhost:1") as mq:
        assert mq.spooled_acks == {}


def test_after_a_fork_the_child_has_a_client_of_its_own(broker):
    with client_of(broker) as mq:
        parent = mq.send("a", b"0").id
        with mq.consume("a", group="g") as messages, warnings.catch_warnings():
            # 3.12 warns of a fork with threads, which is the point.
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
            if child == 0:
                os._exit(fork_child(mq, messages, parent))
            assert os.waitpid(child, 0)[1] == 0
        assert mq.send("a", b"1").sequence == 1


def fork_child(mq, messages, parent):
    """0 when all is as it should be."""
    try:
        next(iter(messages))
    except ClientClosed:
        receipt = mq.send("a", b"child")
        return 0 if receipt.id[16:32] != parent[16:32] else 2
    return 1


def test_after_a_fork_the_child_s_threads_have_one_client(broker):
    """As a server has them that forks first: the first requests come at once, and one of two would never be closed."""
    with client_of(broker) as mq, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        mq.send("a", b"0")
        mq._lock.of_this_process().acquire()  # by a thread that the child does not have
        child = os.fork()
        if child == 0:
            os._exit(threads_of_child(mq))
        mq._lock.of_this_process().release()
        assert os.waitpid(child, 0)[1] == 0


def threads_of_child(mq):
    """0 when all is as it should be."""
    found = []
    together = threading.Barrier(8)

    def use():
        together.wait()
        found.append(mq._behind())

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return 0 if len(set(map(id, found))) == 1 and len(found) == 8 else 1


def test_who_calls_from_the_loop_s_own_thread_is_told_so(broker):
    """It would wait for itself: the bodies of ``send_many`` are read in that thread."""
    with client_of(broker) as mq:
        mq.send("a", b"0")
        with (
            mq.consume("a", group="g") as messages,
            pytest.raises(RuntimeError, match="would wait for itself"),
        ):
            mq.send_many("b", (message.body for message in messages))
        assert mq.send("b", b"0").sequence == 0


PAIRS = [
    (blocking.Client, Client),
    (blocking.Message, Message),
    (blocking.MessageBatch, MessageBatch),
    (blocking.DeadLetters, DeadLetters),
]


@pytest.mark.parametrize(("plain", "behind"), PAIRS)
def test_every_method_has_the_parameters_of_the_one_behind_it(plain, behind):
    """So ``help()`` says the same of both."""
    only_here = {
        "consumer",
        "fail",
        "fail_soon",
        "settle",
        "release",
        "still_held",
        "begin",
        "rest",
        "park",
    }  # for workers, who have a loop
    for name, method in inspect.getmembers(behind, inspect.isfunction):
        if name.startswith("_") or name in only_here:
            continue
        ours = getattr(plain, name)
        assert inspect.signature(ours).parameters == inspect.signature(method).parameters, name
        assert ours.__doc__, name
        assert not inspect.iscoroutinefunction(ours), name


def test_client_that_cannot_be_made_leaves_no_loop_behind():
    def refuse():
        raise ValueError("no such server")

    before = set(threading.enumerate())
    with pytest.raises(ValueError, match="no such server"):
        blocking.Client(make=refuse).send("a", b"")

    assert set(threading.enumerate()) <= before

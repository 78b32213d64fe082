"""Handlers in other processes: real children, because what is promised is about them."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
from datetime import UTC, datetime

import pytest

from tidemill import Reject, RetryAfter, Skip, Worker
from tidemill.testing import Client, running
from tidemill.why import FailedElsewhere
from tidemill.worker.handler import check_found
from tidemill.worker.plain import PlainMessage
from tidemill.worker.processes import Child, ProcessDied, Processes, pickled
from tidemill_wire.commands import Nack

ENDLESS = "import signal\nsignal.pause()"


@pytest.fixture
def importable(tmp_path, monkeypatch):
    """A handler that does what the body says, in a module that children can import: those of tests have no name."""
    (tmp_path / "user_handlers.py").write_text(
        "from tidemill import Reject, RetryAfter, Skip\n\n\ndef run_body(message):\n    exec(message.body.decode())\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import user_handlers

    return user_handlers.run_body


def message(body: str) -> PlainMessage:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    return PlainMessage("id", "a", 0, body.encode(), None, frozenset(), {}, 0, now, now)


@pytest.mark.parametrize(
    "body, error, text",
    [
        ("1 / 0", FailedElsewhere, "ZeroDivisionError: division by zero"),
        ("raise SystemExit(3)", FailedElsewhere, "SystemExit: 3"),
        ("raise RetryAfter(7, 'later')", RetryAfter, "later"),
        ("raise Reject('never')", Reject, "never"),
        ("raise Skip('done')", Skip, "done"),
        ("import os; os._exit(3)", ProcessDied, "exit code 3"),
    ],
)
async def test_what_a_process_raises_arrives_as_it_was_meant(importable, body, error, text):
    processes = Processes(importable)
    try:
        with pytest.raises(error, match=text.replace("(", r"\(")):
            await processes.call(message(body))
        await processes.call(message("pass"))
    finally:
        await processes.close()


async def test_one_child_serves_call_after_call(importable, tmp_path):
    processes = Processes(importable)
    try:
        for _ in range(3):
            path = str(tmp_path / "pids")
            await processes.call(message(f"import os; print(os.getpid(), file=open({path!r}, 'a'))"))
    finally:
        await processes.close()
    [pid] = set((tmp_path / "pids").read_text().split())
    assert int(pid) != os.getpid()
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)


async def test_a_process_that_takes_too_long_is_killed_and_replaced(importable, tmp_path):
    worker = Worker()
    worker.on("a", group="g", pool="process", concurrency=1, timeout=5, retry_after=3600)(importable)
    path = str(tmp_path / "pids")
    pid = f"import os\nprint(os.getpid(), file=open({path!r}, 'a'))\n"

    async with Client() as mq, running(worker, mq) as run:
        said = []
        plain = mq.broker.handle
        mq.broker.handle = lambda peer, number, command: (said.append(command), plain(peer, number, command))
        for body in (pid + ENDLESS, pid):
            await mq.send("a", body.encode())
        await run.idle()

    first, second = (tmp_path / "pids").read_text().split()
    assert first != second
    with pytest.raises(ProcessLookupError):
        os.kill(int(first), 0)
    total = worker.statistics().total
    assert (total.timed_out, total.failed, total.handled, total.stuck) == (1, 1, 1, 0)
    [nack] = [command for command in said if isinstance(command, Nack)]
    assert nack.reason == "HandlerTimeout: the handler did not return within 5 s"
    assert nack.place


async def test_a_child_ignores_the_signals_that_are_for_its_worker(importable):
    child = Child(pickled(importable), "a")
    try:
        assert await child.ask(message("pass")) is None
        assert child._process.pid is not None
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(child._process.pid, number)
        assert await child.ask(message("pass")) is None
    finally:
        child.kill()


async def test_a_child_ends_when_its_pipe_does(importable):
    child = Child(pickled(importable), "a")
    try:
        assert await child.ask(message("pass")) is None
        child._pipe.close()
        child._process.join(20)
        assert child._process.exitcode == 0
    finally:
        child.kill()


async def test_a_process_awaits_nothing():
    """What was returned to be awaited has not run: the message is not handled."""

    async def late(message):
        pytest.fail("nobody awaits it")

    with pytest.raises(TypeError, match="its process has no event loop"):
        check_found(late, late(message("")), awaited=False)


async def test_a_module_that_imports_for_long_does_not_take_the_time_of_its_messages(tmp_path, monkeypatch):
    """Else one with a short timeout and a large library would handle nothing, ever: each new child begins anew."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    (tmp_path / "slow_handlers.py").write_text(
        "import multiprocessing\n\nif multiprocessing.parent_process():\n"
        f"    open({str(gate)!r}).read()\n\n\ndef handle(message):\n    pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import slow_handlers

    processes = Processes(slow_handlers.handle)
    try:
        calling = asyncio.ensure_future(processes.call(message(""), timeout_s=3))
        with await asyncio.to_thread(gate.open, "w"):  # the import has begun
            done, _ = await asyncio.wait([calling], timeout=4)
        assert not done
        await calling
    finally:
        await processes.close()


async def test_what_a_handler_forks_answers_for_no_message(importable):
    """It comes back from the handler as its parent does; its answer would be that of the next message."""
    processes = Processes(importable)
    try:
        for _ in range(5):
            await processes.call(message("import os; os.fork()"))
        with pytest.raises(FailedElsewhere, match="ZeroDivisionError"):
            await processes.call(message("1 / 0"))
    finally:
        await processes.close()


async def test_a_process_that_dies_is_missed_though_what_it_forked_lives_on(importable, tmp_path):
    fork = "import os, signal\npid = os.fork()\nif pid == 0: signal.pause()\n"
    path = tmp_path / "forked"
    processes = Processes(importable)
    try:
        with pytest.raises(ProcessDied, match="exit code 3"):
            await processes.call(
                message(f"{fork}print(pid, file=open({str(path)!r}, 'w'), flush=True)\nos._exit(3)"), 60
            )
    finally:
        await processes.close()
        os.kill(int(path.read_text()), signal.SIGKILL)


async def test_a_child_that_is_not_there_yet_is_killed_all_the_same(importable, tmp_path):
    path = tmp_path / "pid"
    processes = Processes(importable)
    calling = asyncio.ensure_future(processes.call(message(f"import os\nopen({str(path)!r}, 'w')")))
    await asyncio.sleep(0)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    await processes.close()
    assert not multiprocessing.active_children()
    assert not path.exists()

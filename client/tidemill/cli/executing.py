"""`tidemill consume --exec`: a command handles each message, and its exit code says how that ended.

It has the message on its standard input and in its environment, and its standard output is ours. What it says on
standard error goes on to ours, and the last line of that is the reason when it fails.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tidemill.cli.tables import message_as_json, timestamp

if TYPE_CHECKING:
    from tidemill import Message

LINE_BYTES_MAX = 4096
"""Of the last line: more of it is not for a person."""
PIECE_BYTES = 64 << 10
SHUTDOWN_SECONDS = 5.0


async def handle(message: Message, command: str, given: bytes, group: str) -> str:
    """Run it and settle the message by its exit code; the reason when it failed, else nothing."""
    failure = await _run(command, given, {**os.environ, **variables_of(message, group)})
    if failure:
        await message.nack(reason=failure)
    else:
        await message.ack()
    return failure


def variables_of(message: Message, group: str) -> dict[str, str]:
    """What the command finds in its environment. No variable can hold a NUL."""
    whole = message_as_json(message)
    said = {
        "ID": message.id,
        "SUBJECT": message.subject,
        "GROUP": group,
        "SEQUENCE": str(message.sequence),
        "KEY": message.key or "",
        "ORDER_KEY": message.order_key or "",
        "TAGS": ",".join(sorted(message.tags)),
        "PROPERTIES": json.dumps(whole["properties"], ensure_ascii=False, default=str),
        "PRIORITY": str(message.priority),
        "ATTEMPTS": str(message.attempts),
        "STORED_AT": timestamp(message.stored_at),
    }
    return {f"TIDEMILL_{name}": value.replace("\0", "\ufffd") for name, value in said.items()}


async def _run(command: str, given: bytes, environment: Mapping[str, str]) -> str:
    """How it failed, in words; nothing when it did not.

    It has a process group of its own: a Ctrl-C is for us, who let it end.
    """
    process = await asyncio.create_subprocess_shell(
        command, stdin=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=environment, process_group=0
    )  # fmt: skip
    try:
        assert process.stdin is not None
        assert process.stderr is not None
        _, last = await asyncio.gather(_feed(process.stdin, given), _last_line(process.stderr))
        code = await process.wait()
    except asyncio.CancelledError:
        await _end(process)
        raise
    if not code:
        return ""
    how = f"exit code {code}" if code > 0 else f"killed by {signal.Signals(-code).name}"
    return f"{how}: {last}" if last else how


async def _feed(stdin: asyncio.StreamWriter, given: bytes) -> None:
    """Who does not read it does not want it."""
    try:
        stdin.write(given)
        await stdin.drain()
    except (BrokenPipeError, ConnectionResetError):
        pass
    finally:
        stdin.close()


async def _last_line(stderr: asyncio.StreamReader) -> str:
    """The last line with something in it, of all that is passed on to our own standard error."""
    last, rest = b"", b""
    while piece := await stderr.read(PIECE_BYTES):
        sys.stderr.buffer.write(piece)
        sys.stderr.buffer.flush()
        *lines, rest = (rest + piece).split(b"\n")
        rest = rest[:LINE_BYTES_MAX]
        last = next((line for line in reversed(lines) if line.strip()), last)
    last = rest if rest.strip() else last
    return " ".join(last[:LINE_BYTES_MAX].decode(errors="replace").split())


async def _end(process: asyncio.subprocess.Process) -> None:
    """We are to end at once, and it with us: with all that it has started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.returncode is None:
            os.killpg(process.pid, number)
            try:
                async with asyncio.timeout(SHUTDOWN_SECONDS):
                    await process.wait()
            except TimeoutError:
                continue

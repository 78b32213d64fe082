# ruff: noqa: E501 - an expected sentence stands on one line
"""Whatever a person can cause is one sentence on standard error, with what to do, and never a traceback."""

import asyncio
import os
import socket
import subprocess
import sys

import pytest

from tidemill.cli import session
from tidemill.cli.consume import NOT_ACKED
from tidemill.cli.failures import CommandFailed, explained
from tidemill_wire.errors import Refused


@pytest.mark.parametrize(
    "error, said",
    [
        (ConnectionRefusedError(111, "Connection refused"), "nothing answers at 127.0.0.1:7401 (Connection refused): start a queue with `tidemill up`"),
        (TimeoutError(), "no answer from 127.0.0.1:7401 in time"),
        (Refused("message_too_large", "a message of 9 bytes"), "a message of 9 bytes: send a smaller body"),
        (OSError(113, "No route to host"), "No route to host (127.0.0.1:7401): look at the address"),
        (KeyboardInterrupt(), "interrupted before it was done"),
        (BaseExceptionGroup("", [asyncio.CancelledError()]), ""),
    ],
)  # fmt: skip
def test_an_error_of_the_client_is_one_sentence(command, queue, error: BaseException, said: str) -> None:
    queue.error = error
    if not said:
        assert explained(error, "") is None
        return
    outcome = command("subjects")
    assert outcome.code == 1
    assert outcome.err.startswith("tidemill: ")
    assert said in outcome.err
    assert len(outcome.err.splitlines()) == 1


def test_where_nothing_listens_there_is_no_waiting() -> None:
    with (
        socket.socket() as bound,
        pytest.raises(CommandFailed, match=r"nothing answers at .* \(Connection refused\)"),
    ):
        bound.bind(("127.0.0.1", 0))  # bound, not listening: nobody else gets the port meanwhile
        asyncio.run(session.find_server(f"127.0.0.1:{bound.getsockname()[1]}"))


@pytest.mark.parametrize(
    "answer", [b"", b"\x10\x00\x00\x00\x03\x00", b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"]
)
def test_a_port_of_something_else_is_said_to_be_one(answer: bytes) -> None:
    async def look() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            await session.find_server(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")

    with pytest.raises(CommandFailed, match="is not the HTTP port of a queue: name that"):
        asyncio.run(look())


def test_the_error_in_a_group_of_errors_is_shown() -> None:
    failure = explained(ExceptionGroup("", [ExceptionGroup("", [CommandFailed("it broke: mend it")])]), "")
    assert str(failure) == "it broke: mend it"


def test_a_bug_keeps_its_traceback(command, queue) -> None:
    queue.error = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        command("subjects")


@pytest.mark.parametrize(
    "server", ["localhost", "localhost:", ":7401", "ftp://localhost:7401", "localhost:0", "a:99999", ""]
)
def test_a_wrong_server_is_refused_before_anything_is_connected(command, server: str) -> None:
    outcome = command("subjects", "--server", server)
    assert outcome.code == 2
    assert "is no address, write HOST:PORT, for example 127.0.0.1:7401" in outcome.err


@pytest.mark.parametrize("server", ["localhost:7401", "10.0.0.1:1", "[::1]:7401", "a-b.c_d:65535"])
def test_a_right_server_is_taken_from_the_environment(
    command, monkeypatch: pytest.MonkeyPatch, server: str
) -> None:
    monkeypatch.setenv("TIDEMILL_SERVER", server)
    assert command("subjects").code == 0


@pytest.mark.parametrize(
    "arguments, said",
    [
        (("snd",), "Did you mean 'send'?"),
        (("send", "--propery", "a=b"), "--property"),
        (("subjects", "extra"), "extra"),
        (("bench", "speed"), "speed"),
        (("bench", "produce", "--count", "many"), "--count"),
    ],
)
def test_a_typo_is_one_sentence(command, arguments: tuple[str, ...], said: str) -> None:
    outcome = command(*arguments)
    assert outcome.code == 2
    assert said in outcome.err
    assert outcome.err.rstrip().endswith("--help`)")
    assert len(outcome.err.splitlines()) == 1


def test_without_a_command_there_is_help(command) -> None:
    outcome = command()
    assert outcome.code == 2
    assert "consume" in outcome.text + outcome.err


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_the_version_is_printed(command, option: str) -> None:
    outcome = command(option)
    assert outcome.code == 0
    assert outcome.text.startswith("tidemill ")


def test_help_loads_neither_client_nor_tables() -> None:
    """Start-up must be quick: what costs most is not even imported for help, nor for finding the command."""
    code = (
        "import sys, tidemill.cli\n"
        "assert tidemill.cli.run(['send', '--help']) == 0\n"
        "print([name for name in ('aiohttp', 'rich', 'uvloop', 'numpy', 'yaml') if name in sys.modules])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, env={**os.environ}, text=True
    )
    assert ran.stdout.endswith("[]\n")


@pytest.mark.parametrize(
    "given, what",
    [
        ("", "what it did not read is not shown"),
        (f", unread={NOT_ACKED!r}", "what it did not read was not acknowledged"),
    ],
)
def test_a_reader_that_leaves_is_one_sentence(given: str, what: str) -> None:
    """`tidemill … | head -1`: of `consume` what the reader did not take is not acknowledged; the other commands
    acknowledge nothing. Nothing is spilled at exit.
    """
    code = (
        "import sys, tidemill.cli as cli\n"
        "from tidemill.cli.session import perform\n"
        "async def endless():\n"
        "    while True:\n"
        "        sys.stdout.buffer.write(b'x' * 65536); sys.stdout.buffer.flush()\n"
        "try:\n"
        f"    perform(endless(), 'h:1'{given})\n"
        "except cli.CommandFailed as failure:\n"
        "    cli.print_failure(str(failure)); sys.exit(failure.exit_code)\n"
    )
    ran = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert ran.stdout is not None
    ran.stdout.read(1)
    ran.stdout.close()
    assert ran.stderr is not None
    said = ran.stderr.read()
    ran.stderr.close()
    assert ran.wait() == 1
    assert said == f"tidemill: the reader of the output is gone: {what}\n"


def test_silence_is_not_taken_for_absence() -> None:
    """Who hangs is not started again by `tidemill up`, and a certificate is not the network."""
    import ssl

    import aiohttp
    from aiohttp.client_reqrep import ConnectionKey

    from tidemill.cli.asking import unanswered

    key = ConnectionKey(
        "queue", 7401, is_ssl=True, ssl=True, proxy=None, proxy_auth=None, proxy_headers_hash=None
    )
    expired = ssl.SSLCertVerificationError()
    expired.verify_message = "certificate has expired"
    for error, named in (
        (TimeoutError(), "does not answer in time"),
        (ConnectionRefusedError(111, "Connection refused"), "start a queue with `tidemill up`"),
        (aiohttp.ServerDisconnectedError(), "it speaks TLS"),
        (aiohttp.ClientConnectorSSLError(key, ssl.SSLError(1, "wrong version")), "speaks no TLS"),
        (aiohttp.ClientConnectorCertificateError(key, expired), "is not believed (certificate has expired)"),
    ):
        said = unanswered("queue:7401", error)
        assert "queue:7401" in said
        assert named in said


def test_a_group_that_takes_nothing_against_the_will_of_people_is_wrong() -> None:
    """Its disk is full: whoever looks at the status must not be told that all is well."""
    from tidemill.cli.status import problems_of

    group = {"group": "g0", "problem": "", "brokers": [], "allowed": "RW", "state": "R", "draining": False}
    assert ["g0 is R" in said for said in problems_of(group)] == [True]
    for well in ({"state": "RW"}, {"allowed": "R"}, {"draining": True}, {"retired": True}):
        assert problems_of({**group, **well}) == []

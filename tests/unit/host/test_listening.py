"""Why nothing can listen at a place: one sentence that names what is to be chosen anew."""

from __future__ import annotations

import asyncio
import socket

import pytest
import uvloop

from tidemill_host.listening import CannotListen, listening


async def listen(host: str, port: int) -> None:
    with listening(host, port, "--http-port"):
        server = await asyncio.get_running_loop().create_server(asyncio.Protocol, host, port)
        server.close()


@pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize(
    "host, said",
    [
        ("nowhere.invalid", "--host 'nowhere.invalid' cannot be looked up"),
        ("192.0.2.1", "--host 192.0.2.1 is no address of this machine"),
        ("2001:db8::1", "--host 2001:db8::1 is no address of this machine"),
        ("x" * 300, "is no name of a machine"),
        (".", "--host '.' "),
    ],
)
def test_host_that_is_none_here_is_said_to_be_none(make_loop, host: str, said: str) -> None:
    with asyncio.Runner(loop_factory=make_loop) as runner, pytest.raises(CannotListen) as caught:
        runner.run(listen(host, 0))
    assert said in str(caught.value)
    assert "name an address of this machine with --host" in str(caught.value)
    assert "--http-port" not in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_port_that_is_taken_is_to_be_chosen_anew(make_loop) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, asyncio.Runner(loop_factory=make_loop) as runner:
        port = taken.getsockname()[1]
        with pytest.raises(CannotListen, match=f"at 127.0.0.1:{port} already: .* another --http-port"):
            runner.run(listen("127.0.0.1", port))


def test_other_errors_are_said_as_the_system_says_them() -> None:
    with pytest.raises(CannotListen, match=r"at \[::1\]:80: .*1024"), listening("::1", 80, "--port"):
        raise PermissionError(13, "Permission denied")
    with pytest.raises(CannotListen, match="too many"), listening("::1", 80, "--port"):
        raise OSError(24, "too many open files")

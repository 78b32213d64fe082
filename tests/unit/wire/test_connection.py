"""One end of a connection: every frame in every state, for both ends."""

from __future__ import annotations

import pytest

from samples.commands import COMMANDS, GREETING, HEARD, WITHIN, comparable, frame_of
from tidemill_wire.commands import PROTOCOL_VERSION, Command, Failed, Hello, Kind, SendBatches, Welcome
from tidemill_wire.connection import Connection, Received, Rejected, Role, State
from tidemill_wire.errors import LocalProtocolError, RemoteProtocolError
from tidemill_wire.frame import FRAME_HEADER, encode_frame
from tidemill_wire.limits import FRAME_BYTES_MAX, HELLO_BYTES_MAX

GARBAGE = {
    "http": b"GET / HTTP/1.1\r\nHost: broker:7400\r\n\r\n",
    "tls": bytes.fromhex("160301020001000001fc0303") + bytes(40),
    "zeros": bytes(64),
    "ones": b"\xff" * 64,
    "ssh": b"SSH-2.0-OpenSSH_9.6\r\n",
}


def opened(role: Role) -> Connection:
    connection = Connection(role)
    connection.feed(frame_of(GREETING[role]))
    assert connection.state is State.OPEN
    return connection


def broken(connection: Connection, data: bytes) -> str:
    with pytest.raises(RemoteProtocolError) as caught:
        connection.feed(data)
    assert connection.state is State.CLOSED
    return caught.value.reason


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("name", COMMANDS)
def test_first_frame_opens_closes_or_breaks(role: Role, name: str) -> None:
    connection, command = Connection(role), COMMANDS[name]
    if type(command) is type(GREETING[role]):
        assert connection.feed(frame_of(command, 5)) == [Received(5, comparable(command))]
        assert connection.state is State.OPEN
    elif isinstance(command, Failed) and role is Role.CLIENT:
        [event] = connection.feed(frame_of(command, 5))
        assert isinstance(event, Rejected)
        assert event.error.kind.number == command.number
        assert connection.state is State.CLOSED
    else:
        assert broken(connection, frame_of(command)) == "not_tidemill"


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("name", COMMANDS)
def test_frames_of_an_open_connection_are_heard_or_rejected(role: Role, name: str) -> None:
    connection, command = opened(role), COMMANDS[name]
    if type(command) is type(GREETING[role]):
        assert broken(connection, frame_of(command)) == "malformed_frame"
        return
    [event] = connection.feed(frame_of(command, 9))
    assert event.correlation == 9
    assert connection.state is State.OPEN
    if command.kind in HEARD[role]:
        assert event == Received(9, comparable(command))
    else:
        assert isinstance(event, Rejected)
        assert event.error.kind.name == "malformed_command"


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("name", COMMANDS)
def test_closed_connection_hears_nothing(role: Role, name: str) -> None:
    connection = Connection(role)
    broken(connection, GARBAGE["zeros"])

    with pytest.raises(LocalProtocolError):
        connection.feed(frame_of(COMMANDS[name]))


def test_every_kind_that_crosses_a_wire_is_heard_by_one_end_at_least() -> None:
    greetings = {command.kind for command in GREETING.values()}

    assert HEARD[Role.SERVER] | HEARD[Role.CLIENT] | greetings == set(Kind) - WITHIN


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_is_recognised_by_its_first_bytes(role: Role, name: str) -> None:
    assert broken(Connection(role), GARBAGE[name][:16]) == "not_tidemill"


@pytest.mark.parametrize("role", Role)
def test_malformed_frames_break_nothing_that_is_open(role: Role) -> None:
    connection = opened(role)
    events = connection.feed(
        encode_frame(Kind.PING, 3, b"\xc1") + encode_frame(999, 4) + frame_of(COMMANDS["ping"], 5)
    )

    assert [type(event) for event in events] == [Rejected, Rejected, Received]
    assert [event.correlation for event in events] == [3, 4, 5]


@pytest.mark.parametrize("role", Role)
def test_frame_too_large_breaks_what_is_open(role: Role) -> None:
    for before in (b"", frame_of(COMMANDS["ping"])):
        header = FRAME_HEADER.pack(FRAME_BYTES_MAX + 1, Kind.PING, 0, 1)
        assert broken(opened(role), before + header) == "frame_too_large"


@pytest.mark.parametrize("role", Role)
def test_greeting_is_small(role: Role) -> None:
    header = FRAME_HEADER.pack(HELLO_BYTES_MAX + 1, GREETING[role].kind, 0, 1)

    assert broken(Connection(role), header) == "not_tidemill"


def test_client_may_send_before_it_is_welcome() -> None:
    """Also what is larger than a HELLO may be, and in the same read."""
    send = SendBatches(bytearray(50_000))
    for count in (1, 3):
        events = Connection(Role.SERVER).feed(frame_of(COMMANDS["hello"]) + frame_of(send) * count)
        assert [type(event) for event in events] == [Received] * (1 + count)


@pytest.mark.parametrize("low, high, fits", [(1, 1, True), (1, 9, True), (2, 9, False), (2, 1, False)])
def test_versions_must_overlap(low: int, high: int, fits: bool) -> None:
    connection = Connection(Role.SERVER)
    if fits:
        connection.feed(frame_of(Hello(low, high, "c")))
        assert connection.state is State.OPEN
    else:
        assert broken(connection, frame_of(Hello(low, high, "c"))) == "unsupported_version"


def test_broker_that_answers_in_another_version_is_refused() -> None:
    assert broken(Connection(Role.CLIENT), frame_of(Welcome(2, "b", 0))) == "unsupported_version"


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("body", [b"", b"\xc1", b"\x80", b"\x90"])
def test_greeting_that_is_malformed_breaks(role: Role, body: bytes) -> None:
    assert broken(Connection(role), encode_frame(GREETING[role].kind, 0, body)) == "malformed_frame"


@pytest.mark.parametrize("body", [b"", b"\xc1", b"\x80"])
def test_refusal_that_is_malformed_breaks(body: bytes) -> None:
    assert broken(Connection(Role.CLIENT), encode_frame(Kind.ERROR, 0, body)) == "malformed_frame"


@pytest.mark.parametrize("behind", [frame_of(COMMANDS["ping"]), GARBAGE["ones"], bytes(200_000)])
def test_nothing_is_heard_behind_a_refusal(behind: bytes) -> None:
    connection = Connection(Role.CLIENT)

    [event] = connection.feed(frame_of(COMMANDS["error"]) + behind)

    assert isinstance(event, Rejected)
    assert connection.state is State.CLOSED


def test_both_ends_understand_each_other() -> None:
    client, server = Connection(Role.CLIENT), Connection(Role.SERVER)
    hello: list[Command] = [Hello(PROTOCOL_VERSION, PROTOCOL_VERSION, "c")]

    assert server.feed(client.greet("c")) == [Received(0, hello[0])]
    assert client.feed(server.welcome("b", 3)) == [Received(0, Welcome(PROTOCOL_VERSION, "b", 3))]
    assert server.pending == client.pending == 0
    assert server.feed(frame_of(COMMANDS["ping"])[:5]) == []
    assert server.pending == 5

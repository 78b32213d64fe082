"""Attacks on the data port of a locked queue: commands and batches that are not granted, and bytes that are none."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import pytest

from e2e.peers import Numbers, RawPeer
from e2e.towers import Tower
from tidemill import blocking
from tidemill.security import Security
from tidemill.settings import ClientSettings
from tidemill_wire.access import digest_of
from tidemill_wire.adopting import Adopt
from tidemill_wire.commands import (
    Ack,
    Command,
    Extend,
    Failed,
    Hello,
    Mode,
    Nack,
    Ping,
    Pull,
    Purge,
    Redrive,
    Release,
    SendBatches,
    Sent,
    Yield,
    encode_command,
)
from tidemill_wire.connection import Rejected
from tidemill_wire.errors import KIND_BY_NAME, KIND_BY_NUMBER
from tidemill_wire.frame import FRAME_HEADER
from tidemill_wire.kinds import Kind
from tidemill_wire.limits import FRAME_BYTES_MAX
from tidemill_wire.replication import Ends, Reached
from tidemill_wire.steering import Place, Seek, Suspend
from tidemill_wire.transacting import Decide, Half, Verdict

pytestmark = pytest.mark.e2e

Refused: TypeAlias = Callable[[str], None]
REFUSED_TOKENS = ["", "x" * 43, "expired", "revoked", "digest", "two"]


@pytest.mark.parametrize("shown", REFUSED_TOKENS)
def test_a_connection_of_nobody_is_closed(tower: Tower, refused: Refused, shown: str) -> None:
    tokens = {
        **tower.tokens,
        "digest": digest_of(tower.tokens["victim"]),
        "two": f"{tower.tokens['victim']} x",
    }
    with RawPeer(tower, token=tokens.get(shown, shown)) as peer:
        assert KIND_BY_NUMBER[peer.refusal()].name == "unauthenticated"
        assert peer.closed
    refused("unauthenticated")


def test_nothing_said_behind_a_refused_hello_is_heard(tower: Tower) -> None:
    """In the same bytes: the connection is closed, and nothing is stored."""
    before = stored(tower, "secret")
    with RawPeer(tower, greeted=False) as peer:
        send = encode_command(SendBatches(Numbers().batch("secret")), 7)
        peer.say(encode_command(Hello(1, 1, "an enemy", "wrong"), 0) + send + send)
        assert KIND_BY_NUMBER[peer.refusal()].name == "unauthenticated"
        assert peer.closed
    assert stored(tower, "secret") == before


def stored(tower: Tower, subject: str) -> int:
    rows = tower.ask("GET", "/v1/subjects")[1]
    return int(next(row["messages"] for row in rows if row["name"] == subject))


def test_a_token_that_is_too_long_is_no_hello(tower: Tower) -> None:
    with RawPeer(tower, token="x" * 2_600) as peer:
        assert KIND_BY_NUMBER[peer.refusal()].name == "malformed_frame"
        assert peer.closed


def entered(tower: Tower, who: str = "shop") -> RawPeer:
    peer = RawPeer(tower, token=tower.tokens[who])
    peer.hear()
    return peer


SUBJECTS_REFUSED = {
    "secret": "forbidden", "secret#1": "forbidden", "order": "forbidden", "Order.a": "forbidden", "orders": "forbidden",
    "%dead%secret%billing": "invalid_subject", "%dead%order.a%billing": "invalid_subject", "%half": "invalid_subject",
    "%lane%1%secret": "invalid_subject", "%again%secret%billing": "forbidden", "%again%order.a%theirs": "forbidden",
    "%": "invalid_subject", "": "forbidden", "order.*/../secret": "invalid_subject", "order.\x00": "invalid_subject",
}  # fmt: skip


@pytest.mark.parametrize("subject", SUBJECTS_REFUSED)
def test_a_batch_for_what_is_not_granted_is_refused(tower: Tower, subject: str) -> None:
    """And no other batch of its frame."""
    numbers = Numbers(producer_id=hash(subject) & 0xFFFF_FFFF)
    with entered(tower) as peer:
        frame = numbers.batch("order.a") + numbers.batch(subject) + numbers.batch("order.a")
        answer = peer.ask(SendBatches(bytearray(frame)))
        assert isinstance(answer, Sent)
        assert [(index, KIND_BY_NUMBER[number].name) for index, number, _ in answer.refused] == [
            (1, SUBJECTS_REFUSED[subject])
        ]
        assert answer.first_sequences[1] == -1
        assert min(answer.first_sequences[0], answer.first_sequences[2]) >= 0


def test_frames_of_somebody_else_that_are_replayed_store_nothing(tower: Tower) -> None:
    """Over a connection of one's own; over the same one they are answered as before, and stored once."""
    batch = Numbers(producer_id=99).batch("secret")
    with entered(tower, "victim") as victim:
        first = victim.ask(SendBatches(bytearray(batch)))
        again = victim.ask(SendBatches(bytearray(batch)))
        assert isinstance(first, Sent)
        assert isinstance(again, Sent)
        assert list(first.first_sequences) == list(again.first_sequences)
    with entered(tower) as peer:
        assert [number for number, _ in peer.refused_batches(batch)] == [KIND_BY_NAME["forbidden"].number]


def pull(*subjects: str, group: str = "billing", **more: Any) -> Pull:
    return Pull(group, "c", list(subjects), 10, 1000, 0, **more)


HALF = Half("shop", memoryview(bytes(Numbers().batch("secret"))))
COMMANDS: dict[str, Command] = {
    "pull of another subject": pull("secret"),
    "pull of one's own and another one": pull("order.a", "secret"),
    "pull of all": pull("*"),
    "pull of more than is granted": pull("ord*"),
    "pull as another group": pull("order.a", group="theirs"),
    "pull as another group, by a lie about a broadcast": pull(
        "order.a", group="theirs", mode=Mode.BROADCAST, base="billing"
    ),
    "ack of others": Ack("billing", "c", "secret", [0, 0]),
    "ack as another group": Ack("theirs", "c", "order.a", [0, 0]),
    "nack of others": Nack("billing", "c", "secret", [0, 0]),
    "extend of others": Extend("billing", "c", "secret", [0, 0]),
    "release of others": Release("billing", "c", "secret", [0, 0]),
    "yield of others": Yield("billing", "c", ["secret"]),
    "adopt for others": Adopt("billing", "secret", 1, 0, batch=memoryview(bytes(Numbers().batch("secret")))),
    "seek": Seek("billing", "order.a", Place.EARLIEST),
    "seek of others": Seek("billing", "secret", Place.EARLIEST),
    "suspend": Suspend("billing", "order.a", True),
    "redrive": Redrive("order.a", "billing", []),
    "purge": Purge("order.a", "billing", []),
    "half message for others": HALF,
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_that_is_not_granted_is_refused(tower: Tower, refused: Refused, name: str) -> None:
    """And the connection goes on."""
    with entered(tower) as peer:
        answer = peer.ask(COMMANDS[name])
        assert isinstance(answer, Failed), answer
        assert KIND_BY_NUMBER[answer.number].name == "forbidden"
        assert not isinstance(peer.ask(Ping()), Failed)
    refused("forbidden")


@pytest.mark.parametrize(
    "kind", [Kind.FOLLOW, Kind.REACHED, Kind.APPOINT, Kind.HANDOVER, Kind.FENCE, Kind.STAND, Kind.CHUNK]
)
def test_nobody_passes_for_a_slave_or_a_master(tower: Tower, kind: Kind) -> None:
    """Neither is it said what is in the logs, nor is anything taken into them."""
    with entered(tower, "victim") as peer:
        peer.say(FRAME_HEADER.pack(1, kind, 0, 5) + b"\x80")
        event = peer.hear()
        code = event.command.number if event is not None and not isinstance(event, Rejected) else 0  # type: ignore[union-attr]
        assert KIND_BY_NUMBER[code].name in {"forbidden", "malformed_command"}


def test_a_slave_is_not_believed_by_its_words(tower: Tower, refused: Refused) -> None:
    with entered(tower, "victim") as peer:
        answer = peer.ask(Reached(1, Ends(0, 0), Ends(0, 0)))
        assert isinstance(answer, Failed)
        assert KIND_BY_NUMBER[answer.number].name == "forbidden"
    refused("forbidden")


def test_a_transaction_of_others_is_not_decided(tower: Tower, refused: Refused) -> None:
    with pending(tower) as number, entered(tower) as peer:
        for verdict in (Verdict.COMMIT, Verdict.ROLLBACK):
            answer = peer.ask(Decide(number, verdict))
            assert isinstance(answer, Failed)
            assert KIND_BY_NUMBER[answer.number].name == "forbidden"
    refused("forbidden")


@contextmanager
def pending(tower: Tower) -> Iterator[int]:
    """A transaction of the victim's that nobody has decided; its number."""
    settings = ClientSettings(security=Security(token=tower.tokens["victim"]))
    with blocking.Client(tower.server, settings=settings) as mq:
        tx = mq.transaction("victims")
        tx.send("secret", "half")
        yield int(tx.id, 16)
        tx.rollback()


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (FRAME_HEADER.pack(FRAME_BYTES_MAX + 1, Kind.SEND, 0, 1), "frame_too_large"),
        (FRAME_HEADER.pack(0xFFFF_FFFF, Kind.SEND, 0, 1), "frame_too_large"),
        (encode_command(Hello(1, 1, "again", "wrong"), 0), "malformed_frame"),
    ],
    ids=["larger than may be", "gigabytes", "a second hello"],
)
def test_what_breaks_the_framing_ends_the_connection(tower: Tower, said: bytes, code: str) -> None:
    with entered(tower) as peer:
        peer.say(said)
        assert KIND_BY_NUMBER[peer.refusal()].name == code
        assert peer.closed


@pytest.mark.parametrize(
    "said",
    [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64), bytes(64),
     encode_command(SendBatches(Numbers().batch("secret")), 1), encode_command(Ping(), 1)],
    ids=["HTTP", "TLS", "zeros", "a send", "a ping"],
)  # fmt: skip
def test_what_comes_before_a_hello_is_no_word(tower: Tower, said: bytes) -> None:
    with RawPeer(tower, greeted=False) as peer:
        peer.say(said)
        assert KIND_BY_NUMBER[peer.refusal()].name == "not_tidemill"
        assert peer.closed


def test_who_says_nothing_is_not_waited_for(tower: Tower) -> None:
    """Slowloris at both ports: nothing, half a HELLO, half a request, a head that goes on for ever."""
    starts = [
        (tower.port, b""),
        (tower.port, b"\x10\x00"),
        (tower.http_port, b""),
        (tower.http_port, b"GET / HT"),
    ]
    peers = [socket.create_connection((tower.host, port), timeout=60) for port, _ in starts]
    for peer, (_, said) in zip(peers, starts, strict=True):
        peer.sendall(said)
    for peer in peers:
        with peer:
            while peer.recv(4096):
                pass

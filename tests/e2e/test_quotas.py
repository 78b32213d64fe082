"""Quotas on a real queue: nothing is lost, and no way leads around them."""

from __future__ import annotations

import asyncio
import http.client
import json
import time
from pathlib import Path

import pytest

from e2e.peers import Numbers, RawPeer
from e2e.queues import run_command, wait_until
from e2e.towers import Tower
from tidemill import blocking
from tidemill.errors import Unavailable
from tidemill.security import Security
from tidemill.settings import ClientSettings
from tidemill_wire.batch import SINGLES_FROM, Flags, Origin
from tidemill_wire.columns import Content, build_batch
from tidemill_wire.commands import Done, Failed, SendBatches, Sent
from tidemill_wire.connection import Rejected
from tidemill_wire.errors import KIND_BY_NAME, KIND_BY_NUMBER
from tidemill_wire.transacting import Half

pytestmark = pytest.mark.e2e

OVER = KIND_BY_NAME["over_quota"].number
PATIENCE_SECONDS = 60.0
HOURLY = 1
"""Messages a second, of who is to have used it up for as long as a test takes: by a batch of thousands."""
MANY = [b"x"] * 5_000


def bound_subject(tower: Tower, subject: str, **quota: int) -> None:
    manifest = {
        "apiVersion": "tidemill.dev/v1alpha1", "kind": "Subject", "metadata": {"name": subject},
        "spec": {"quota": quota},
    }  # fmt: skip
    status, said = tower.ask("POST", "/v1/declarations", [manifest])
    assert status == 200, said


def bound_token(tower: Tower, name: str, subjects: str = "*", **quota: int) -> None:
    tower.make_token(name)
    permissions = [{"subjects": [subjects], "operations": ["Send", "Consume", "Browse"]}]
    body = {"principals": [f"token:{name}"], "permissions": permissions, "quota": quota}
    status, said = tower.ask("PUT", f"/v1/access/grants/{name}", body)
    assert status == 200, said


def stored(tower: Tower, subject: str) -> int:
    rows = tower.ask("GET", "/v1/subjects")[1]
    return sum(int(row["messages"]) for row in rows if row["name"] == subject)


def used_up(tower: Tower, name: str) -> Numbers:
    """Somebody has sent so much at once that nothing is left for an hour."""
    bound_token(tower, name, messages=HOURLY)
    numbers = Numbers(producer_id=hash(name) & 0xFFFF_FFFF)
    with RawPeer(tower, token=tower.tokens[name]) as peer:
        peer.hear()
        answer = peer.ask(SendBatches(numbers.batch("used.up", MANY)))
        assert isinstance(answer, Sent)
        assert not answer.refused
    return numbers


def test_a_blocking_client_sends_all_of_it_as_fast_as_it_may(tower: Tower) -> None:
    """100 messages at 40 a second: a second's worth at once, the rest as it fills."""
    bound_subject(tower, "paced", messagesPerSecond=40)
    settings = ClientSettings(security=Security(token=tower.tokens["victim"]))
    tower.ask("PUT", "/v1/access/grants/pacer", {
        "principals": ["token:victim"], "permissions": [{"subjects": ["paced"], "operations": ["Send"]}],
    })  # fmt: skip
    with blocking.Client(tower.server, settings=settings) as mq:
        began = time.monotonic()
        sequences = [mq.send("paced", str(number), key=str(number)).sequence for number in range(100)]
        took = time.monotonic() - began
    assert sequences == list(range(100))
    assert took > 1.3
    metrics = str(tower.ask("GET", "/metrics")[1])
    assert 'tidemill_over_quota_total{quota="subject paced"}' in metrics


def test_who_would_wait_too_long_is_told_so_at_once(tower: Tower) -> None:
    used_up(tower, "hasty")

    async def main() -> None:
        async with asyncio.timeout(PATIENCE_SECONDS), tower.client("hasty", send_timeout_s=20.0) as mq:
            began = time.monotonic()
            with pytest.raises(Unavailable, match=r"quota of token:hasty is used up.*over_quota"):
                await mq.send("used.up", b"x")
            assert time.monotonic() - began < 15

    before = stored(tower, "used.up")
    asyncio.run(main())
    assert stored(tower, "used.up") == before


def test_http_says_429_and_when_to_come_again(tower: Tower) -> None:
    used_up(tower, "web")
    connection = http.client.HTTPConnection(tower.host, tower.http_port, timeout=60)
    try:
        heads = {"Authorization": f"Bearer {tower.tokens['web']}", "Content-Type": "application/json"}
        for body in ({"text": "now"}, {"text": "later", "delay": 60}):
            connection.request("POST", "/v1/subjects/used.up/messages", json.dumps(body), heads)
            answer = connection.getresponse()
            said = json.loads(answer.read())
            assert answer.status == 429, said
            assert said["error"]["code"] == "over_quota"
            assert said["error"]["retryable"]
            assert int(answer.headers["Retry-After"]) > 60
    finally:
        connection.close()


def test_a_quota_is_set_and_shown_by_the_command_line(tower: Tower, tmp_path: Path) -> None:
    root, server = ("--token-file", str(tower.cluster_file)), tower.server
    said = ("--to", "token:cli", "--on", "from.*", "--allow", "send", "--messages-per-second", "7")
    done = run_command(*root, "grants", "set", "cli", *said, "--connections", "3", server=server)
    assert done.returncode == 0, done.stderr
    assert "7 messages, 3 connections" in run_command(*root, "grants", "list", server=server).stdout
    file = tmp_path / "grant.yaml"
    file.write_text(
        "apiVersion: tidemill.dev/v1alpha1\nkind: Grant\nmetadata: {name: cli}\nspec:\n  clusterRef: {name: here}\n"
        "  principals: [{kind: Token, name: cli}]\n  permissions: [{subjects: [from.*], operations: [Send]}]\n"
        "  quota: {messagesPerSecond: 9, bytesPerSecond: 2Ki}\n"
    )
    done = run_command(*root, "grants", "set", "-f", str(file), server=server)
    assert done.returncode == 0, done.stderr
    assert "9 messages, 2048 bytes" in run_command(*root, "grants", "list", server=server).stdout
    done = run_command(*root, "grants", "set", "cli", *said[:-1], "0", server=server)
    assert done.returncode == 1
    assert "messages of a quota" in done.stderr


# -- attacks: ways around it ------------------------------------------------------------------------------------------


def refused_with(tower: Tower, shown: str, said: SendBatches | Half) -> str:
    with RawPeer(tower, token=shown) as peer:
        peer.hear()
        answer = peer.ask(said)
        if isinstance(answer, Done):
            return ""
        if isinstance(answer, Failed):
            assert answer.wait_ms > 0
            return KIND_BY_NUMBER[answer.number].name
        assert isinstance(answer, Sent)
        assert [error.wait_ms > 0 for error in answer.errors.values()] == [True] * len(answer.refused)
        names = {KIND_BY_NUMBER[number].name for _, number, _ in answer.refused}
        assert len(answer.refused) in (0, len(answer.first_sequences))
        return names.pop() if names else ""


WAYS = ("another connection", "another token of the same name", "another producer", "another subject", "empty bodies",
        "a priority", "many small batches", "a transaction")  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_no_way_leads_around_a_quota(tower: Tower, way: str) -> None:
    name = f"sly-{WAYS.index(way)}"
    numbers = used_up(tower, name)
    if way == "another token of the same name":
        tower.make_token(name)
    if way == "another producer":
        numbers = Numbers(producer_id=99_000 + WAYS.index(way))
    subject = "elsewhere" if way == "another subject" else "used.up"
    bodies = (b"",) if way == "empty bodies" else (b"x",)
    more = {"priority": 7} if way == "a priority" else {}
    said: SendBatches | Half = SendBatches(numbers.batch(subject, bodies, **more))
    if way == "many small batches":
        said = SendBatches(bytearray(b"".join(bytes(numbers.batch(subject)) for _ in range(50))))
    if way == "a transaction":
        number = SINGLES_FROM | 4711
        origin = Origin(subject.encode(), number, 0, bytes(16), 1_780_000_000_000, flags=Flags.TRANSACTIONAL)
        said = Half("shop", memoryview(bytes(build_batch(origin, Content([b"x"])))))
    before = stored(tower, subject)
    assert refused_with(tower, tower.tokens[name], said) == "over_quota"
    assert stored(tower, subject) == before
    assert tower.refused()["over_quota"] > 0


def test_the_way_by_the_delay_service_has_the_same_bound(tower: Tower) -> None:
    bound_token(tower, "patient", messages=HOURLY)

    async def main() -> None:
        async with asyncio.timeout(PATIENCE_SECONDS), tower.client("patient", send_timeout_s=5.0) as mq:
            await mq.send_many("used.up", MANY, delay=3600)
            await mq.send("used.up", b"x", delay=3600)

    def known() -> bool:
        """It is told with a beat; before that everything is taken."""
        try:
            asyncio.run(main())
        except Unavailable as error:
            return error.kind.name == "over_quota"
        return False

    wait_until("the delay service knows of the quota", known, 60)


def test_others_do_not_pay_for_it(tower: Tower) -> None:
    used_up(tower, "greedy")
    bound_token(tower, "modest")
    with RawPeer(tower, token=tower.tokens["modest"]) as peer:
        peer.hear()
        answer = peer.ask(SendBatches(Numbers(producer_id=77_777).batch("used.up")))
        assert isinstance(answer, Sent)
        assert not answer.refused


def test_connections_are_bounded_and_come_back_when_others_end(tower: Tower) -> None:
    bound_token(tower, "many", connections=3)
    peers = [RawPeer(tower, token=tower.tokens["many"]) for _ in range(3)]
    try:
        for peer in peers:
            peer.hear()
        with RawPeer(tower, token=tower.tokens["many"]) as one_more:
            assert one_more.refusal() == OVER
            assert one_more.closed
        peers.pop().socket.close()

        def enters() -> bool:
            with RawPeer(tower, token=tower.tokens["many"]) as peer:
                return not isinstance(peer.hear(), Rejected)

        wait_until("a place is free", enters, 30)
    finally:
        for peer in peers:
            peer.socket.close()

"""What somebody still gets by a token that was revoked, on connections that were open: of a queue and of a cluster."""

from __future__ import annotations

import asyncio
import secrets
import time
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from e2e.clusters import Cluster
from e2e.conftest import STANDALONE
from e2e.queues import Queue, run_command
from tidemill import Client
from tidemill.errors import ConnectionLost, Refused
from tidemill.link import Answer, Link, dial
from tidemill.routes import Address
from tidemill.security import Security
from tidemill.settings import ClientSettings
from tidemill_wire.batch import BatchIds, Origin
from tidemill_wire.columns import Content, build_batch
from tidemill_wire.commands import Sent

pytestmark = pytest.mark.e2e

PATIENCE_SECONDS = 60.0
HOLDS_SECONDS = 2.0
"""How long what was revoked may hold."""
SLACK = 5.0
"""As much more on a machine that does ten other things."""


async def wait_granted(mq: Client, subject: str) -> None:
    """A new token is known a moment later; who calls has the deadline."""
    while True:
        try:
            await mq.send(subject, b"may I")
            return
        except Refused:
            await asyncio.sleep(0.1)


async def last_taken(link: Link, subject: str) -> float:
    """One message after the other on a connection that is open, until it is refused or closed: when the last one began
    that was taken.
    """
    producer, taken = Producers(), 0.0
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            began = time.monotonic()
            answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
            batch = producer.batch(subject)
            try:
                link.send([batch], len(batch), answered.set_result)
                answer = await answered
            except ConnectionLost:
                answer = await link.lost  # it says why
            if isinstance(answer, Sent) and not answer.refused:
                taken = began
                continue
            assert isinstance(answer, ConnectionLost | Refused), answer
            assert "unauthenticated" in str(answer)
            return taken


class Producers:
    """Batches of one message, of one producer."""

    def __init__(self) -> None:
        self._id, self._sent = secrets.randbits(60), 0
        self._ids = BatchIds(self._id)

    def batch(self, subject: str) -> bytearray:
        self._sent += 1
        now_ms = time.time_ns() // 1_000_000
        origin = Origin(subject.encode(), self._id, self._sent, self._ids.next(now_ms), now_ms)
        return build_batch(origin, Content([b"still"]))


async def revoke_under_load(
    mq: Client, addresses: Sequence[Address], settings: ClientSettings, revoke: Callable[[], None]
) -> float:
    """Connections that send to each of several brokers, and one that waits for messages; for how many seconds behind
    the answer any of them went on.
    """
    links = [await dial(address, settings) for address in addresses]
    try:
        async with asyncio.timeout(PATIENCE_SECONDS), mq.consume("order.none", group="billing") as messages:
            assert (await anext(messages)).body == b"first"
            waiting = asyncio.ensure_future(anext(messages))
            sending = [
                asyncio.ensure_future(last_taken(link, f"order.{place}")) for place, link in enumerate(links)
            ]
            await asyncio.wait((*sending, waiting), timeout=0.5)
            assert not any(one.done() for one in (*sending, waiting))
            await asyncio.to_thread(revoke)
            answered = time.monotonic()
            found = await asyncio.gather(*sending)
            with pytest.raises(Refused, match="unauthenticated"):
                await waiting
            return max(0.0, *(taken - answered for taken in found))
    finally:
        for link in links:
            link.close()


@pytest.mark.parametrize("brokers", [0, 3])
def test_what_a_revoked_token_is_given_ends_within_two_seconds_at_every_broker(
    tmp_path: Path, brokers: int
) -> None:
    """One queue, and a cluster of three broker groups, each with connections that were open before."""
    secret = tmp_path / "cluster.token"
    secret.write_text("k" * 43 + "\n")
    told = {"TIDEMILL_CLUSTER_TOKEN_FILE": str(secret)}
    queue = Cluster(tmp_path / "data", brokers, 0, (), told) if brokers else Queue(
        tmp_path / "data", (), told, STANDALONE
    )  # fmt: skip
    queue.token = "k" * 43
    root = ("--token-file", str(secret))

    def run(*words: str) -> str:
        done = run_command(*root, *words, server=queue.server)
        assert done.returncode == 0, done.stderr
        return done.stdout

    try:
        queue.start()
        token = run("tokens", "create", "shop").strip()
        said = ("--to", "token:shop", "--on", "order.*", "--allow", "send,consume")
        run("grants", "set", "shop", *said)
        for place in range(max(1, brokers)):
            run("send", f"order.{place}", "first")
        run("send", "order.none", "first")
        identity = next(
            line.split()[0] for line in run("tokens", "list").splitlines() if "token:shop" in line
        )
        rows = queue.get("/v1/routes")["brokers"]
        addresses = [Address(row["group"], row["host"] or queue.host, row["port"]) for row in rows]
        settings = ClientSettings(security=Security(token=token))

        def revoke() -> None:
            request = urllib.request.Request(queue.url(f"/v1/access/tokens/{identity}"), method="DELETE")
            with queue.open(request) as answer:
                assert answer.status == 200

        async def main() -> float:
            async with Client(queue.server, settings=settings) as mq:
                for place in range(len(addresses)):
                    await wait_granted(mq, f"order.{place}")
                return await revoke_under_load(mq, addresses, settings, revoke)

        seconds = asyncio.run(main())
        print(
            f"revoked: the last message was taken {1000 * seconds:.1f} ms after the answer, by {len(addresses)}"
        )
        assert seconds < HOLDS_SECONDS + SLACK
    finally:
        queue.close()

"""Real queues that speak TLS: at both ports, between their processes, and while their certificates change."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
import subprocess
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from e2e.clusters import Cluster
from e2e.conftest import STANDALONE
from e2e.queues import COMMAND, Queue, wait_until
from e2e.services import environment
from samples.authorities import Authority
from tidemill import Client
from tidemill.errors import TidemillError
from tidemill.security import Security
from tidemill.settings import ClientSettings

pytestmark = pytest.mark.e2e

PATIENCE_SECONDS = 60.0
ROTATIONS = 4


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def served(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Queue]:
    """A queue with meta and a delay service beside it; a client may show a certificate, and need not."""
    settings = {**authority.serve(), "TIDEMILL_TLS_CLIENT_CA": str(authority.ca)}
    queue = Queue(tmp_path_factory.mktemp("served") / "data", (), settings, STANDALONE)
    queue.ca = str(authority.ca)
    yield queue.start()
    queue.close()


def client(queue: Queue, authority: Authority, **more: object) -> Client:
    """One that trusts the authority."""
    security = Security(ca=authority.ca)
    return Client(queue.server, settings=ClientSettings(security=security, **more))  # type: ignore[arg-type]


async def round_trip(mq: Client, subject: str) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS), mq.consume(subject, group="g") as messages:
        await mq.send(subject, b"by tls", delay=0.1)
        sent = await mq.send(subject, b"x" * 3_000_000 if subject == "large" else b"at once")
        bodies = {(await anext(messages)).id: True for _ in range(2)}
    assert sent.id in bodies


def test_sends_consumes_and_delays(served: Queue, authority: Authority) -> None:
    async def main() -> None:
        async with client(served, authority) as mq:
            await round_trip(mq, "small")

    asyncio.run(main())


def test_the_environment_and_the_address_say_so_too(served: Queue, authority: Authority) -> None:
    more = environment({"TIDEMILL_SERVER": f"https://{served.server}", "SSL_CERT_FILE": str(authority.ca)})
    for asked in (["send", "hello", "first"], ["status"], ["subjects"]):
        done = subprocess.run([*COMMAND, *asked], capture_output=True, env=more, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
    by_option = [*COMMAND, "--ca", str(authority.ca), "status", "--output", "json", "-s", served.server]
    done = subprocess.run(by_option, capture_output=True, env=environment(), timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_clear_text_is_refused_at_both_ports_and_counted(served: Queue) -> None:
    before = served.refused().get("tls_failed", 0)
    for port in (served.port, served.http_port):
        with socket.create_connection((served.host, port), timeout=20) as peer:
            peer.sendall(b"GET /v1/subjects HTTP/1.1\r\nHost: x\r\n\r\n")
            heard = b""
            while data := peer.recv(4096):
                heard += data
        assert b"HTTP/1.1" not in heard
    wait_until("both are counted", lambda: served.refused().get("tls_failed", 0) >= before + 2)
    assert served.errors == ""


def test_old_versions_of_tls_are_refused(served: Queue, authority: Authority) -> None:
    context = ssl.create_default_context(cafile=str(authority.ca))
    context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():  # that it should not be used is what is tested
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    with (
        socket.create_connection((served.host, served.port), timeout=20) as peer,
        pytest.raises(ssl.SSLError),
    ):
        context.wrap_socket(peer, server_hostname="localhost")


def test_a_client_trusts_no_other_authority_and_no_other_name(served: Queue, tmp_path: Path) -> None:
    async def main(security: Security) -> None:
        settings = ClientSettings(security=security, send_timeout_s=1.0)
        async with Client(served.server, settings=settings) as mq:
            with pytest.raises(TidemillError, match="certificate verify failed"):
                await mq.subjects()

    asyncio.run(main(Security(ca=Authority(tmp_path).ca)))
    asyncio.run(main(Security(tls=True)))


def test_a_handshake_that_is_not_finished_ends(served: Queue) -> None:
    """Slowloris below HTTP and below frames; what is well-behaved does not notice."""
    peers = [
        socket.create_connection((served.host, port), timeout=PATIENCE_SECONDS)
        for port in (served.port, served.http_port)
    ]
    for peer in peers:
        peer.sendall(b"\x16\x03\x01")
    served.get("/healthz")
    for peer in peers:
        with peer:
            assert peer.recv(4096) == b""


def test_certificates_change_under_load_and_no_send_fails(authority: Authority, served: Queue) -> None:
    """New connections all the time, a steady one, and four new certificates, each of which is seen."""
    seen: set[bytes] = set()
    sent = {"steady": 0, "new": 0}

    async def look() -> bytes:
        context = ssl.create_default_context(cafile=str(authority.ca))
        _, writer = await asyncio.open_connection(
            served.host, served.port, ssl=context, server_hostname="localhost"
        )
        found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
        return bytes(found)

    async def keep_sending(over: asyncio.Event) -> None:
        async with client(served, authority) as mq:
            while not over.is_set():
                await mq.send("load", b"steady")
                sent["steady"] += 1

    async def begin_anew(over: asyncio.Event) -> None:
        while not over.is_set():
            async with client(served, authority) as mq:
                await mq.send("load", b"new")
                sent["new"] += 1

    async def main() -> None:
        over = asyncio.Event()
        async with asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as tasks:
            working = [tasks.create_task(keep_sending(over)), tasks.create_task(begin_anew(over))]
            for number in range(ROTATIONS):
                seen.add(await look())
                authority.issue("server", "127.0.0.1", "localhost")
                while len(seen) < number + 2:
                    seen.add(await look())
            over.set()
            await asyncio.gather(*working)

    asyncio.run(main())
    assert len(seen) == ROTATIONS + 1
    assert min(sent.values()) >= ROTATIONS
    stored = next(row["messages"] for row in served.get("/v1/subjects") if row["name"] == "load")
    assert stored == sum(sent.values())


def test_a_cluster_speaks_tls_between_its_processes(tmp_path: Path) -> None:
    """Meta, two brokers and a delay service, all of which require certificates of each other, too; a slave follows, and
    a planned hand-over goes through.
    """
    authority = Authority(tmp_path / "authority")
    mine: Mapping[str, str] = {
        **authority.serve(),
        "TIDEMILL_TLS_CLIENT_CA": str(authority.ca),
        "TIDEMILL_TLS_CLIENT_REQUIRED": "true",
    }
    cert, key = authority.issue("client", common_name="shop")
    cluster = Cluster(tmp_path / "data", 1, 1, (), mine, ("--delays", "1"))
    cluster.ca, cluster.cert = str(authority.ca), (str(cert), str(key))
    security = Security(ca=authority.ca, cert=cert, key=key)

    async def main() -> None:
        async with Client(cluster.server, settings=ClientSettings(security=security)) as mq:
            await round_trip(mq, "across")

    try:
        cluster.start()
        wait_until("the slave is in sync", lambda: len(cluster.group("g0")["in_sync"]) == 2, 60)
        asyncio.run(main())
        more = environment(
            {"TIDEMILL_CA": str(authority.ca), "TIDEMILL_CERT": str(cert), "TIDEMILL_KEY": str(key)}
        )
        asked = [*COMMAND, "broker", "handover", "g0", "-s", cluster.server]
        done = subprocess.run(asked, capture_output=True, env=more, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        asyncio.run(main())
        with pytest.raises(TidemillError):
            asyncio.run(_nobody(cluster, authority))
    finally:
        cluster.close()
    assert os.path.exists(tmp_path / "data" / "g0-1"), json.dumps(os.listdir(tmp_path / "data"))


async def _nobody(cluster: Cluster, authority: Authority) -> None:
    async with client(cluster, authority, send_timeout_s=2.0) as mq:
        await mq.subjects()

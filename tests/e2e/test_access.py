"""Who may do what, on real queues: grants that come and go under load, tokens that are rotated, a cluster that asks."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from e2e.clusters import Cluster
from e2e.conftest import STANDALONE
from e2e.queues import Queue, run_command, wait_until
from e2e.towers import GRANTS, Tower
from tidemill import Client
from tidemill.errors import Refused, TidemillError
from tidemill.security import Security
from tidemill.settings import ClientSettings

pytestmark = pytest.mark.e2e

PATIENCE_SECONDS = 60.0
HOLDS_SECONDS = 2.0
"""How long what was revoked may hold."""
SLACK = 5.0
"""As much more on a machine that does ten other things."""


async def seconds_until_refused(mq: Client, subject: str, code: str) -> float:
    """Send until it is refused with that code, on a connection that was open before."""
    began = time.monotonic()
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                await mq.send(subject, b"still")
            except Refused as error:
                if error.kind.name == code:
                    return time.monotonic() - began
                raise


def test_who_was_granted_it_sends_and_consumes(tower: Tower) -> None:
    async def main() -> None:
        async with asyncio.timeout(PATIENCE_SECONDS), tower.client("shop") as mq:
            async with mq.consume("order.*", group="billing") as messages:
                sent = await mq.send("order.b", b"coffee")
                later = await mq.send("order.b", b"later", delay=0.2)
                awaited = {sent.id, later.id}
                while awaited:
                    awaited.discard((await anext(messages)).id)

    asyncio.run(main())


@pytest.mark.parametrize("subject", ["secret", "new.one"])
def test_what_was_not_granted_fails_at_once_and_makes_nothing(tower: Tower, subject: str) -> None:
    async def main() -> None:
        async with tower.client("shop") as mq:
            began = time.monotonic()
            with pytest.raises(Refused, match="forbidden"):
                await mq.send(subject, b"x")
            with pytest.raises(Refused, match="forbidden"):
                await mq.send(subject, b"x", delay=5)
            with pytest.raises(Refused, match="forbidden"):
                async with mq.consume(subject, group="billing") as messages:
                    await anext(messages)
            with pytest.raises(Refused, match="forbidden"):
                await mq.seek("order.a", "billing", "earliest")
            assert time.monotonic() - began < 20

    asyncio.run(main())


def test_a_client_without_a_token_is_told_so(tower: Tower) -> None:
    async def main(token: str) -> None:
        settings = ClientSettings(security=Security(token=token), send_timeout_s=2.0)
        async with Client(tower.server, settings=settings) as mq:
            with pytest.raises(TidemillError, match="unauthenticated"):
                await mq.send("order.a", b"x")

    for token in ("", "x" * 43):
        asyncio.run(main(token))


def test_a_revoked_token_is_refused_within_two_seconds_on_open_connections(tower: Tower) -> None:
    tower.make_token("shop")

    async def main() -> float:
        async with tower.client("shop") as mq:
            await mq.send("order.a", b"before")
            assert tower.ask("DELETE", f"/v1/access/tokens/{tower.ids['shop']}")[0] == 200
            began = time.monotonic()
            async with asyncio.timeout(PATIENCE_SECONDS):
                while tower.refused().get("unauthenticated", 0) == before:
                    with_token = asyncio.ensure_future(mq.send("order.a", b"still"))
                    await asyncio.wait((with_token,), timeout=0.1)
                    with_token.cancel()
            return time.monotonic() - began

    before = tower.refused().get("unauthenticated", 0)
    assert asyncio.run(main()) < HOLDS_SECONDS + SLACK
    tower.make_token("shop")


def test_a_grant_that_is_taken_back_ends_sends_and_waiting_pulls(tower: Tower) -> None:
    """Whoever waits for a message when the grant goes is given none of what comes after."""
    for who in ("till", "guest"):
        tower.make_token(who)
        grant = {
            "principals": [f"token:{who}"],
            "permissions": [{"subjects": ["fair"], "operations": ["Send", "Consume"]}],
        }
        assert tower.ask("PUT", f"/v1/access/grants/{who}", grant)[0] == 200

    async def main() -> float:
        async with tower.client("till") as till, tower.client("guest") as guest:
            await till.send("fair", b"first")
            async with asyncio.timeout(PATIENCE_SECONDS), guest.consume("fair", group="g") as messages:
                assert (await anext(messages)).body == b"first"
                waiting = asyncio.ensure_future(anext(messages))
                await guest.send("fair", b"of a guest")
                await asyncio.wait((waiting,), timeout=30)
                waiting = asyncio.ensure_future(anext(messages))
                assert tower.ask("DELETE", "/v1/access/grants/guest")[0] == 200
                seconds = await seconds_until_refused(guest, "fair", "forbidden")
                await till.send("fair", b"not for guests")
                with pytest.raises(Refused, match="forbidden"):
                    while True:
                        assert (await waiting).body == b"still"
                        waiting = asyncio.ensure_future(anext(messages))
            return seconds

    assert asyncio.run(main()) < HOLDS_SECONDS + SLACK


def test_tokens_are_rotated_without_a_failed_send(tower: Tower, tmp_path: Path) -> None:
    """Another one is made, written into the file, and only then is the former revoked."""
    tower.make_token("shop")
    file = tmp_path / "token"
    file.write_text(tower.tokens["shop"])
    sent = 0

    async def main() -> None:
        nonlocal sent
        settings = ClientSettings(security=Security(token_file=file))
        async with asyncio.timeout(PATIENCE_SECONDS):
            for _ in range(3):
                async with Client(tower.server, settings=settings) as mq:
                    await mq.send("order.r", b"x")
                    former = tower.ids["shop"]
                    tower.make_token("shop")
                    file.write_text(tower.tokens["shop"])
                    await mq.send("order.r", b"x")
                    assert tower.ask("DELETE", f"/v1/access/tokens/{former}")[0] == 200
                    await mq.send("order.r", b"x")
                    sent += 3

    asyncio.run(main())
    assert sent == 9


def test_grants_and_tokens_outlive_a_restart(tmp_path: Path) -> None:
    tower = Tower(tmp_path)
    try:
        tower.start()
        tower.furnish()
        tower.kill()
        tower.start()
        wait_until("it knows again", lambda: tower.ask("GET", "/v1/subjects", token="shop")[0] == 200, 30)
        assert tower.ask("GET", "/v1/subjects", token="revoked")[0] == 401
        assert tower.ask("GET", "/v1/subjects/secret/messages", token="shop")[0] == 403
    finally:
        tower.close()


def test_the_command_line_makes_grants_and_tokens(tower: Tower, tmp_path: Path) -> None:
    root = ("--token-file", str(tower.cluster_file))
    server = tower.server
    made = run_command(*root, "tokens", "create", "cli", "--expires", "1h", server=server)
    assert made.returncode == 0, made.stderr
    (tmp_path / "cli").write_text(made.stdout)
    mine = ("--token-file", str(tmp_path / "cli"))
    assert run_command(*mine, "send", "from.cli", "x", server=server).returncode == 1
    said = ("grants", "set", "cli", "--to", "token:cli", "--on", "from.*", "--allow", "send")
    done = run_command(*root, *said, server=server)
    assert done.returncode == 0, done.stderr
    done = run_command(*mine, "send", "from.cli", "x", server=server)
    assert done.returncode == 0, done.stderr
    listed = run_command(*root, "grants", "list", server=server).stdout
    assert "from.*" in listed
    rows = run_command(*root, "tokens", "list", server=server).stdout
    assert "token:cli" in rows
    assert made.stdout.strip() not in rows
    identity = next(line.split()[0] for line in rows.splitlines() if "token:cli" in line)
    assert run_command(*root, "tokens", "revoke", identity, server=server).returncode == 0
    assert run_command(*root, "grants", "remove", "cli", server=server).returncode == 0
    done = run_command(*mine, "send", "from.cli", "x", server=server)
    assert done.returncode == 1
    assert "was revoked" in done.stderr
    whats = [(line["what"], line["outcome"]) for line in tower.audited() if line["who"] == "cluster"]
    for what in ("POST /v1/access/tokens", "PUT /v1/access/grants/cli", "DELETE /v1/access/grants/cli"):
        assert (what, "done") in whats


def test_an_unlocked_queue_takes_no_grants(tmp_path: Path) -> None:
    """What nobody looks at must not seem to hold: neither over HTTP, nor from a file."""
    manifest = tmp_path / "grant.yaml"
    manifest.write_text(
        "apiVersion: tidemill.dev/v1alpha1\nkind: Grant\nmetadata: {name: shop}\nspec:\n  clusterRef: {name: here}\n"
        "  principals: [{kind: Token, name: shop}]\n  permissions: [{subjects: [order.*], operations: [Send]}]\n"
    )
    queue = Queue(tmp_path / "data", (), {}, STANDALONE)
    try:
        queue.start()
        done = run_command("grants", "set", "-f", str(manifest), server=queue.server)
        assert done.returncode == 1
        assert "--cluster-token" in done.stderr
    finally:
        queue.close()
    done = run_command(
        "up", "-f", str(manifest), "--data", str(tmp_path / "other"), "--port", "0", "--http-port", "0"
    )
    assert done.returncode == 1
    assert "asks nobody who they are" in done.stderr


async def wait_granted(mq: Client, subject: str) -> None:
    """A grant is told to all services, to the delay service, too; who calls has the deadline."""
    for delay in (None, 0.1):
        while True:
            try:
                await mq.send(subject, b"may I", delay=delay)
                break
            except Refused:
                await asyncio.sleep(0.1)


def test_a_cluster_asks_at_every_port_and_its_services_know_each_other(tmp_path: Path) -> None:
    """By the cluster's token alone, and with grants of a file; what is revoked at meta is refused at the broker."""
    secret = tmp_path / "cluster.token"
    secret.write_text("k" * 43 + "\n")
    cluster = Cluster(
        tmp_path / "data", 1, 1, (), {"TIDEMILL_CLUSTER_TOKEN_FILE": str(secret)}, ("--delays", "1")
    )
    cluster.token = "k" * 43
    root = ("--token-file", str(secret))

    async def main(token: str) -> float:
        security = Security(token=token)
        async with asyncio.timeout(PATIENCE_SECONDS):
            async with Client(cluster.server, settings=ClientSettings(security=security)) as mq:
                await wait_granted(mq, "order.z")
                async with mq.consume("order.a", group="billing") as messages:
                    await mq.send("order.a", b"later", delay=0.1)
                    await mq.send("order.a", b"now")
                    assert {(await anext(messages)).body for _ in range(2)} == {b"now", b"later"}
                with pytest.raises(TidemillError, match="forbidden"):
                    await mq.send("secret", b"x")
                assert run_command(*root, "grants", "remove", "shop", server=cluster.server).returncode == 0
                return await seconds_until_refused(mq, "order.a", "forbidden")

    try:
        cluster.start()
        wait_until("the slave is in sync", lambda: len(cluster.group("g0")["in_sync"]) == 2, 60)
        made = run_command(*root, "tokens", "create", "shop", server=cluster.server)
        assert made.returncode == 0, made.stderr
        permissions = GRANTS["shop"]["permissions"]
        assert permissions
        said = ("--to", "token:shop", "--on", "order.*", "--allow", "send,consume")
        assert run_command(*root, "grants", "set", "shop", *said, server=cluster.server).returncode == 0
        assert asyncio.run(main(made.stdout.strip())) < HOLDS_SECONDS + SLACK
        done = run_command(*root, "broker", "handover", "g0", server=cluster.server)
        assert done.returncode == 0, done.stderr
        done = run_command("status", server=cluster.server)
        assert done.returncode == 1
    finally:
        cluster.close()

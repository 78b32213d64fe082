"""What is passed on for the console is done by who asks, and never by meta: with certificates that both sides show."""

from __future__ import annotations

import json
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from samples.authorities import Authority
from tidemill_broker.doors.permits import PERMITS as BROKERS
from tidemill_console.permits import PERMITS as CONSOLE
from tidemill_console.relay import OWN_HEADER, Relay
from tidemill_host.audit import Audit
from tidemill_host.calling import Caller
from tidemill_host.certificates import KeyFiles, Watched, client_context, server_context
from tidemill_host.doorman import PASSED_ON, Doorman, asker
from tidemill_host.permits import Permits
from tidemill_host.refusals import json_response
from tidemill_host.routing import Route, Variables
from tidemill_host.settings import LockSettings
from tidemill_host.web import Web
from tidemill_wire.access import Access, Charter, Operation, Permission, TokenRow, digest_of

SUSPEND = "/v1/subjects/{subject}/groups/{group}/suspend"
ASKED = "/v1/subjects/order.a/groups/billing/suspend"
ADMIN = (Permission(frozenset({Operation.ADMIN}), ("*",)),)
BROWSE = (Permission(frozenset({Operation.BROWSE}), ("*",)),)
TOKENS = {"t" * 43: "token:admin", "u" * 43: "token:reader"}
GRANTS = {
    "certificate:meta": ADMIN, "certificate:admin": ADMIN, "certificate:reader": BROWSE, "token:admin": ADMIN,
    "token:reader": BROWSE,
}  # fmt: skip

Ask = Callable[..., Awaitable[tuple[int, Any]]]


async def suspend(_request: web.BaseRequest, _variables: Variables) -> web.StreamResponse:
    return json_response({"by": asker().who})


def lock(permits: Permits, *, locked: bool) -> Doorman:
    """Of a service that knows all these people."""
    access = Access(locked=locked)
    rows = {digest_of(token): TokenRow(who, who, digest_of(token), 0) for token, who in TOKENS.items()}
    access.obey(Charter(1, GRANTS, rows))
    return Doorman(access, permits, Audit(LockSettings(), "test", lambda: 0), lambda: 0, Counter())


class Towards:
    """One service, and how it is asked with a certificate."""

    def __init__(self, authority: Authority, port: int) -> None:
        self._authority = authority
        self._port = port

    async def ask(self, path: str, certificate: str, heads: Mapping[str, str]) -> tuple[int, Any]:
        trust = context_of(self._authority, certificate)
        async with (
            aiohttp.ClientSession() as session,
            session.post(
                f"https://localhost:{self._port}{path}", headers=heads, ssl=trust.current()
            ) as answer,
        ):
            return answer.status, json.loads(await answer.read())


def context_of(authority: Authority, name: str) -> Watched:
    cert, key = authority.issue(name, common_name=name)
    return Watched(KeyFiles(str(cert), str(key), str(authority.ca)), client_context)


@asynccontextmanager
async def mutual(folder: Path, *, locked: bool = True) -> AsyncIterator[tuple[Towards, Towards]]:
    """Meta with the console, and a broker behind it; both take nobody without a certificate."""
    authority = Authority(folder)
    cert, key = authority.issue("server", "localhost")
    tls: ssl.SSLContext = server_context(KeyFiles(str(cert), str(key), str(authority.ca), required=True))
    broker = Web({}, bytes, Counter(), [Route("POST", SUSPEND, suspend)], lock(BROKERS, locked=locked))
    port = await broker.listen("127.0.0.1", 0, tls=tls)
    relay = Relay(lambda _group, _name: f"localhost:{port}", Caller(context_of(authority, "meta")))
    meta = Web({}, bytes, Counter(), relay.routes(), lock(CONSOLE, locked=locked))
    front = await meta.listen("127.0.0.1", 0, tls=tls)
    try:
        yield Towards(authority, front), Towards(authority, port)
    finally:
        await meta.close()
        await relay.close()
        await broker.close()


def bearing(token: str) -> dict[str, str]:
    return {OWN_HEADER: "1", **({"Authorization": f"Bearer {token}"} if token else {})}


BY_TOKEN = {who: token for token, who in TOKENS.items()}


@pytest.mark.parametrize("certificate", ["reader", "admin", "stranger"])
async def test_who_shows_a_certificate_alone_is_refused_and_not_taken_for_meta(
    tmp_path: Path, certificate: str
) -> None:
    """Also who may: meta cannot show a certificate that is not its own, and its own is no person's."""
    async with mutual(tmp_path) as (meta, _):
        status, said = await meta.ask(f"/console/at/b1/b1-0{ASKED}", certificate, bearing(""))
    assert (status, said["error"]["code"]) == (403, "forbidden")
    assert f"certificate:{certificate} has shown a certificate" in said["error"]["detail"]


@pytest.mark.parametrize("certificate", ["reader", "admin", "stranger"])
async def test_what_is_passed_on_is_done_by_whose_token_it_is(tmp_path: Path, certificate: str) -> None:
    async with mutual(tmp_path) as (meta, _):
        path = f"/console/at/b1/b1-0{ASKED}"
        done = await meta.ask(path, certificate, bearing(BY_TOKEN["token:admin"]))
        status, said = await meta.ask(path, certificate, bearing(BY_TOKEN["token:reader"]))
    assert done == (200, {"by": "token:admin"})
    assert (status, said["error"]["detail"]) == (403, "token:reader was not granted Admin on 'order.a'")


async def test_a_broker_takes_what_is_passed_on_for_nobodys_whose_certificate_it_came_by(
    tmp_path: Path,
) -> None:
    """Whoever passes it on, and whatever that one forgot to look at: the mark takes rights, and gives none."""
    async with mutual(tmp_path) as (_, broker):
        assert await broker.ask(ASKED, "meta", {}) == (200, {"by": "certificate:meta"})
        status, said = await broker.ask(ASKED, "meta", {PASSED_ON: "1"})
        assert (status, said["error"]["code"]) == (401, "unauthenticated")
        heads = {PASSED_ON: "1", **bearing(BY_TOKEN["token:admin"])}
        assert await broker.ask(ASKED, "reader", heads) == (200, {"by": "token:admin"})


async def test_where_nothing_is_locked_a_certificate_opens_the_connection_and_names_nobody(
    tmp_path: Path,
) -> None:
    async with mutual(tmp_path, locked=False) as (meta, _):
        answer = await meta.ask(f"/console/at/b1/b1-0{ASKED}", "stranger", bearing(""))
    assert answer == (200, {"by": "nobody"})

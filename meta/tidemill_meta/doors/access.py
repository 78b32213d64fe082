"""The paths of grants and tokens, and who is told what of them.

Whoever holds the cluster's token, or administers everything, makes and takes back the others. A token is shown once,
when it is made.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from typing import Any

from aiohttp import web

from tidemill_host.bodies import Bodies
from tidemill_host.refusals import HttpRefused, json_response
from tidemill_host.routing import Route, Variables
from tidemill_meta.asked import Asked
from tidemill_meta.charter import GRANTS_MAX, TOKENS_MAX, GrantRecord, TokenRecord, charter_of
from tidemill_meta.doors.access_watch import AccessWatch
from tidemill_meta.doors.replica import Replica
from tidemill_meta.doors.requests import denials, parse_body
from tidemill_meta.registry import Draft
from tidemill_wire.access import Access, Charter, digest_of
from tidemill_wire.errors import Refused
from tidemill_wire.fields import parse_group
from tidemill_wire.granted import Granted, parse_grant, parse_who
from tidemill_wire.limits import KIB, MIB

GRANTS, TOKENS, CHARTER = "/v1/access/grants", "/v1/access/tokens", "/v1/brokers/access"
KINDS = (GrantRecord.KIND, TokenRecord.KIND)
BODY_BYTES_MAX = 64 * KIB
TOKEN_BYTES = 32
DIGEST = re.compile(r"[0-9a-f]{64}")
EXPIRES_SECONDS_MAX = 10 * 366 * 24 * 3600


class AccessDoor:
    """Those of one replica, which obeys what it tells the others."""

    def __init__(self, replica: Replica, access: Access) -> None:
        self._replica = replica
        self._access = access
        self._bodies = Bodies(4 * MIB)
        self._watch = AccessWatch(lambda: replica.meta.registry.access_version)

    def routes(self) -> list[Route]:
        """Methods, paths, and who answers."""
        return [
            Route("GET", GRANTS, self._list_grants),
            Route("PUT", f"{GRANTS}/{{grant}}", self._put_grant),
            Route("DELETE", f"{GRANTS}/{{grant}}", self._drop_grant),
            Route("GET", TOKENS, self._list_tokens),
            Route("POST", TOKENS, self._make_token),
            Route("PUT", f"{TOKENS}/{{token}}", self._put_token),
            Route("DELETE", f"{TOKENS}/{{token}}", self._drop_token),
            Route("POST", CHARTER, self._tell),
            Route("POST", f"{CHARTER}/watch", self._watching),
        ]

    def changed(self, keys: Sequence[tuple[str, str]]) -> bool:
        """Something is stored; whether anybody may do more or less by it."""
        if not any(kind in KINDS for kind, _ in keys):
            return False
        self.obey()
        self._watch.changed()
        return True

    def obey(self) -> None:
        """What is stored now is what holds here."""
        self._access.obey(self.charter())

    def charter(self) -> Charter:
        """All of it."""
        registry = self._replica.meta.registry
        grants, tokens = list(registry.all(GrantRecord)), list(registry.all(TokenRecord))
        return charter_of(registry.access_version, grants, tokens)

    async def declare(self, grants: dict[str, Granted]) -> None:
        """Grants of the files that a queue was started with."""
        for name, granted in grants.items():
            await self._keep(name, granted)

    async def _list_grants(self, _: web.BaseRequest, __: Variables) -> web.StreamResponse:
        rows = sorted(self._replica.meta.registry.all(GrantRecord), key=lambda one: one.name)
        return json_response([one.row() for one in rows])

    async def _put_grant(self, request: web.BaseRequest, variables: Variables) -> web.StreamResponse:
        self._check_locked()
        granted = parse_grant(await self._json(request))
        with denials():
            record = await self._keep(parse_group(variables["grant"]), granted)
        return json_response(record.row())

    async def _keep(self, name: str, granted: Granted) -> GrantRecord:
        def decide(draft: Draft, _now_ms: int) -> GrantRecord:
            known = draft.get(GrantRecord, name)
            if known is not None and known.granted == granted:
                return known
            if known is None and sum(1 for _ in draft.all(GrantRecord)) >= GRANTS_MAX:
                raise Refused("limit_exceeded", f"there are {GRANTS_MAX} grants")
            return draft.put(GrantRecord(name, granted))

        return await self._replica.change(decide)

    async def _drop_grant(self, _: web.BaseRequest, variables: Variables) -> web.StreamResponse:
        return await self._drop(GrantRecord, variables["grant"])

    async def _list_tokens(self, _: web.BaseRequest, __: Variables) -> web.StreamResponse:
        rows = sorted(self._replica.meta.registry.all(TokenRecord), key=lambda one: (one.who, one.created_ms))
        return json_response([one.row() for one in rows])

    async def _make_token(self, request: web.BaseRequest, _: Variables) -> web.StreamResponse:
        self._check_locked()
        with denials():
            asked = Asked(await self._json(request), frozenset({"who", "expires_seconds"}))
            who = parse_who(asked.text("who"))
            seconds = asked.whole("expires_seconds", 0, EXPIRES_SECONDS_MAX)
        if not who.startswith("token:"):
            raise Refused("malformed_command", "of those, only who is called token:NAME has tokens")
        token, identity = secrets.token_urlsafe(TOKEN_BYTES), secrets.token_hex(8)
        now_ms = self._replica.clock.now_ms()
        until_ms = now_ms + 1000 * seconds if seconds else 0

        def decide(draft: Draft, _now_ms: int) -> TokenRecord:
            if sum(1 for _ in draft.all(TokenRecord)) >= TOKENS_MAX:
                raise Refused("limit_exceeded", f"there are {TOKENS_MAX} tokens")
            return draft.put(TokenRecord(identity, who, digest_of(token), now_ms, until_ms))

        with denials():
            record = await self._replica.change(decide)
        return json_response({**record.row(), "secret": token})

    async def _put_token(self, request: web.BaseRequest, variables: Variables) -> web.StreamResponse:
        """One that was made elsewhere, and of which meta is told the digest alone."""
        self._check_locked()
        identity = parse_group(variables["token"])
        with denials():
            asked = Asked(await self._json(request), frozenset({"who", "digest"}))
            who, digest = parse_who(asked.text("who")), asked.text("digest")
        if not who.startswith("token:") or not DIGEST.fullmatch(digest):
            raise Refused(
                "malformed_command", "write who as token:NAME, and as digest 64 hexadecimal digits of SHA-256"
            )
        now_ms = self._replica.clock.now_ms()

        def decide(draft: Draft, _now_ms: int) -> TokenRecord:
            known = draft.get(TokenRecord, identity)
            if known is not None and (known.who, known.digest) == (who, digest):
                return known
            if any(one.digest == digest and one.who != who for one in draft.all(TokenRecord)):
                raise Refused("malformed_command", "that very token is somebody else's already")
            if known is None and sum(1 for _ in draft.all(TokenRecord)) >= TOKENS_MAX:
                raise Refused("limit_exceeded", f"there are {TOKENS_MAX} tokens")
            return draft.put(TokenRecord(identity, who, digest, now_ms, 0))

        with denials():
            record = await self._replica.change(decide)
        return json_response(record.row())

    async def _drop_token(self, _: web.BaseRequest, variables: Variables) -> web.StreamResponse:
        return await self._drop(TokenRecord, variables["token"])

    async def _drop(self, kind: type[GrantRecord | TokenRecord], key: str) -> web.StreamResponse:
        def decide(draft: Draft, _now_ms: int) -> None:
            if draft.get(kind, key) is None:
                raise Refused("not_found", f"there is no {kind.KIND} {key[:100]!r}")
            draft.drop(kind, key)

        with denials():
            await self._replica.change(decide)
        return json_response({"removed": key})

    async def _watching(self, request: web.BaseRequest, _: Variables) -> web.StreamResponse:
        """Of services, which ask for the charter when it is another one."""
        await self._json(request)
        return await self._watch.serve(request)

    async def _tell(self, request: web.BaseRequest, _: Variables) -> web.StreamResponse:
        await self._json(request)
        return json_response(self.charter().to_map())

    async def _json(self, request: web.BaseRequest) -> Any:
        with denials(), self._bodies.room() as room:
            return parse_body(await room.read(request, BODY_BYTES_MAX))

    def _check_locked(self) -> None:
        """What nobody looks at must not seem to hold."""
        if not self._access.locked:
            raise HttpRefused(
                409, "not_locked", "this queue asks nobody who they are",
                "start its services with TIDEMILL_CLUSTER_TOKEN_FILE, or `tidemill up --cluster-token FILE`",
            )  # fmt: skip

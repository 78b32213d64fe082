"""Kubernetes is asked whose a ServiceAccount's token is, by its TokenReview; for the other services, too.

What it says is believed for ``review_ms``, and asked for anew by who asks when half of that is over: so a token that is
taken back holds for that long at most, here and at every service, for those are told how much of it is left.

What Kubernetes does not answer is not answered: nobody is refused because the API server is away, and nobody is let in.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import aiohttp
from aiohttp import web

from tidemill_host.bodies import Bodies
from tidemill_host.certificates import KeyFiles, Watched, client_context
from tidemill_host.refusals import json_response
from tidemill_host.reviewing import PATH, settle
from tidemill_host.routing import Route, Variables
from tidemill_meta.asked import Asked, wrong
from tidemill_meta.doors.requests import denials, parse_body
from tidemill_meta.settings import PREFIX, MetaSettings
from tidemill_wire.access import Access, digest_of
from tidemill_wire.limits import KIB, MIB, TOKEN_CHARS_MAX
from tidemill_wire.reviewing import ASKED_MAX, Finding, Reviews, findings_map, is_reviewed
from tidemill_wire.settings import SettingsError

TIMEOUT_S = 5.0
AT_A_TIME = 16
WAITING_MAX = 200
"""Unknown tokens about which Kubernetes is asked or will be; who shows one more comes again."""
PREFIX_OF_ACCOUNTS = "system:serviceaccount:"
REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
BODY_BYTES_MAX = 512 * KIB
WHERE = ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT")
"""What Kubernetes says in every pod."""


class Kubernetes:
    """The API server, and who meta is there: files of a folder, which the kubelet makes anew before they end."""

    def __init__(self, folder: str, audience: str, environment: Mapping[str, str] = os.environ) -> None:
        host, port = (environment.get(name, "") for name in WHERE)
        if not host or not port:
            raise SettingsError(f"{PREFIX}REVIEW_AUDIENCE needs Kubernetes, and {WHERE[0]} is not set here")
        self._url = f"https://{f'[{host}]' if ':' in host else host}:{port}{REVIEWS}"
        self._audience = audience
        self._token = Path(folder, "token")
        self._trust = Watched(KeyFiles(authorities=str(Path(folder, "ca.crt"))), client_context)
        self._room = asyncio.Semaphore(AT_A_TIME)

    async def whose(self, session: aiohttp.ClientSession, token: str) -> str | None:
        """As a principal is called; empty: nobody's; None: it did not answer."""
        said = {"token": token, "audiences": [self._audience]}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": said}
        try:
            own = self._token.read_text(encoding="ascii").strip()
            head = {"Authorization": f"Bearer {own}"}
            asking = session.post(self._url, json=body, headers=head, ssl=self._trust.current())
            async with self._room, asking as response:
                if response.status not in {200, 201}:
                    return None
                answer: object = await response.json()
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
            return None
        return account_of(answer, self._audience)


def account_of(answer: object, audience: str) -> str | None:
    """Of a TokenReview: a ServiceAccount for that audience, or nobody; None when it says nothing of it."""
    status: object = cast("Mapping[str, object]", answer).get("status") if isinstance(answer, dict) else None
    if not isinstance(status, dict):
        return None
    said = cast("Mapping[str, Any]", status)
    user = cast("Mapping[str, object]", said.get("user") or {})
    name = str(user.get("username", ""))
    if said.get("authenticated") is not True or audience not in (said.get("audiences") or ()):
        return ""
    if not name.startswith(PREFIX_OF_ACCOUNTS):
        return ""
    namespace, _, account = name.removeprefix(PREFIX_OF_ACCOUNTS).partition(":")
    return f"serviceaccount:{namespace}/{account}" if namespace and account else ""


class ReviewDoor:
    """One replica's: it answers the others, and looks for itself at whoever asks it."""

    def __init__(self, access: Access, settings: MetaSettings, now_ms: Callable[[], int]) -> None:
        self._kubernetes = (
            Kubernetes(settings.review_folder, settings.review_audience) if settings.review_audience else None
        )
        self._reviews: Reviews = access.reviews
        self._reviews.on = self._kubernetes is not None and access.locked
        self._for_ms = settings.review_ms
        self._now_ms = now_ms
        self._bodies = Bodies(4 * MIB)
        self._session: aiohttp.ClientSession | None = None
        self._asking: dict[str, asyncio.Task[None]] = {}

    def routes(self) -> list[Route]:
        return [Route("POST", PATH, self._answer)]

    async def close(self) -> None:
        for task in list(self._asking.values()):
            task.cancel()
        if self._session is not None:
            await self._session.close()

    async def look(self, token: str) -> None:
        """So that what is believed of it here is not older than half of the time for which it may be."""
        if self._reviews.on and is_reviewed(token):
            await self._look([token])

    async def _answer(self, request: web.BaseRequest, _: Variables) -> web.StreamResponse:
        with denials(), self._bodies.room() as room:
            asked = Asked(parse_body(await room.read(request, BODY_BYTES_MAX)), frozenset({"tokens"}))
            tokens = parse_tokens(asked.items("tokens"))
        found: dict[str, Finding] = {}
        if not self._reviews.on:
            found = {digest_of(one): Finding("", self._for_ms) for one in tokens}
        else:
            await self._look(tokens)
            now_ms = self._now_ms()
            for digest in map(digest_of, tokens):
                known = self._reviews.known(digest, now_ms)
                found |= {digest: known} if known is not None else {}
        return json_response(findings_map(found))

    async def _look(self, tokens: Iterable[str]) -> None:
        """Who comes while Kubernetes is asked about the same waits for that answer."""
        now_ms = self._now_ms()
        stale = {digest_of(one): one for one in tokens}
        stale = {digest: one for digest, one in stale.items() if self._reviews.is_stale(digest, now_ms)}
        for digest, token in stale.items():
            known = self._reviews.known(digest, now_ms)
            if digest not in self._asking and (len(self._asking) < WAITING_MAX or (known and known.who)):
                task = self._asking[digest] = asyncio.ensure_future(self._ask(digest, token))
                task.add_done_callback(partial(self._answered, digest))
        if asked := [self._asking[digest] for digest in stale if digest in self._asking]:
            await asyncio.wait(asked, timeout=TIMEOUT_S)

    def _answered(self, digest: str, _: asyncio.Task[None]) -> None:
        del self._asking[digest]

    async def _ask(self, digest: str, token: str) -> None:
        assert self._kubernetes is not None
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_S))
        began_ms = self._now_ms()
        who = await self._kubernetes.whose(self._session, token)
        found = {} if who is None else {digest: Finding(who, self._for_ms)}
        settle(self._reviews, {digest: token}, found, began_ms)


def parse_tokens(rows: Sequence[object]) -> list[str]:
    """Of a request."""
    if len(rows) > ASKED_MAX or not all(
        isinstance(one, str) and 0 < len(one) <= TOKEN_CHARS_MAX for one in rows
    ):
        raise wrong(f"tokens is no list of at most {ASKED_MAX} texts")
    return cast("list[str]", list(rows))

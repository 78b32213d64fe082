"""Who is let in at an HTTP port: who asks, whether that is granted, and a note of what people did.

a path that needs nothing            answered
nobody known                         401, whatever the path, so that nobody learns which there are
not granted                          403, which names no subject that the asker did not name
granted                              answered; of lists, what the asker may know of
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from functools import partial
from typing import Any, NamedTuple, cast

from aiohttp import web

from tidemill_host.audit import Audit
from tidemill_host.certificates import names_of
from tidemill_host.long_lists import Listed
from tidemill_host.permits import UNLISTED, Need, Permit, Permits
from tidemill_host.refusals import json_response, wire_response
from tidemill_wire.access import ANYBODY, EVERYTHING, NOBODY, Access, Identity, Operation, Right
from tidemill_wire.errors import Refused, WireError
from tidemill_wire.limits import TOKEN_CHARS_MAX

READING = ("GET", "HEAD", "OPTIONS")
PASSED_ON = "Tidemill-Passed-On"
"""In the head of what another service passes on for somebody: that one's certificate says nothing of who asks."""
_ASKER: ContextVar[Identity] = ContextVar("asker", default=ANYBODY)
_BY_NOW: ContextVar[Callable[[], Awaitable[Identity]] | None] = ContextVar("by_now", default=None)


def asker() -> Identity:
    """Who asks for what is being answered; for those who see only then what it needs."""
    return _ASKER.get()


async def asker_by_now() -> Identity:
    """The same by what holds now; for those who have waited. ``WireError`` when nobody knows it any more."""
    by_now = _BY_NOW.get()
    return asker() if by_now is None else await by_now()


class Asked(NamedTuple):
    """A request, the path as it is written in the tables, empty when there is none, and its variables."""

    request: web.BaseRequest
    template: str
    variables: Mapping[str, str]

    @property
    def what(self) -> str:
        return f"{self.request.method} {self.request.path[:200]}"

    @property
    def site(self) -> str:
        return str(self.request.remote or "")


class Doorman:
    """One port's."""

    def __init__(
        self, access: Access, permits: Permits, audit: Audit, now_ms: Callable[[], int], refused: Counter[str]
    ) -> None:
        self._access = access
        self._permits = permits
        self._audit = audit
        self._now_ms = now_ms
        self._refused = refused
        self.review: Callable[[str], Awaitable[None]] | None = None
        """Who finds out whose a token is, before it is asked here; None: nobody can."""

    async def serve(
        self, asked: Asked, answer: Callable[[], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """The answer, or why there is none."""
        method = "GET" if asked.request.method == "HEAD" else asked.request.method
        permit = self._permits.get((method, asked.template), UNLISTED)
        who = NOBODY
        try:
            identity = ANYBODY
            if self._access.locked and permit.need is not Need.NOTHING:
                token, names = shown_by(asked.request)
                by_now = partial(self._identity, token, names)
                _BY_NOW.set(by_now)
                identity = await by_now()
                who = identity.who
                if asked.template:
                    check(identity, permit, asked)
            _ASKER.set(identity)
            response = await answer()
            if not identity.all and permit.need is Need.A_NAME and response.status == 200:
                response = narrowed(response, permit, identity)
        except WireError as error:
            return self._no(asked, who, error)
        self._note(asked, who, permit, response.status)
        return response

    async def _identity(self, token: str, names: tuple[str, ...]) -> Identity:
        if self.review is not None:
            await self.review(token)
        return self._access.identify(token, names, self._now_ms())

    def shown(self, template: str) -> Callable[[Mapping[str, Any]], bool]:
        """Whether whoever asks may see a row of a list."""
        field, identity = self._permits.get(("GET", template), UNLISTED).rows, asker()
        if not field or identity.may(Operation.BROWSE, EVERYTHING):
            return lambda _row: True
        return lambda row: identity.may_any(str(row[field]))

    def note_foreign(self, request: web.BaseRequest, code: str) -> None:
        """A page of somebody else asked, and was refused before anything was looked at."""
        asked = Asked(request, "", {})
        self._audit.refused(NOBODY, asked.what, code, site=asked.site)

    def _no(self, asked: Asked, who: str, error: WireError) -> web.StreamResponse:
        name = error.kind.name
        self._refused[name] += 1
        self._audit.refused(who, asked.what, name, site=asked.site)
        response = wire_response(error)
        if name == "unauthenticated":
            response.headers["WWW-Authenticate"] = 'Bearer realm="tidemill"'
        return response

    def _note(self, asked: Asked, who: str, permit: Permit, status: int) -> None:
        if status == 403:
            self._refused["forbidden"] += 1
            self._audit.refused(who, asked.what, "forbidden", site=asked.site)
        elif permit.audited and asked.request.method not in READING and asked.template:
            outcome = "done" if status < 400 else "failed"
            self._audit.note(who, asked.what, outcome, status=status, site=asked.site)


def shown_by(request: web.BaseRequest) -> tuple[str, tuple[str, ...]]:
    """The token of a request, and the names in its connection's certificate, unless that is of who passes it on."""
    transport = request.transport
    names = names_of(transport.get_extra_info("peercert")) if transport is not None else ()
    if PASSED_ON in request.headers:
        names = ()
    said = request.headers.getall("Authorization", [])
    if not said:
        return "", names
    scheme, _, token = said[0].partition(" ")
    if len(said) > 1 or scheme.lower() != "bearer" or not 0 < len(token.strip()) <= TOKEN_CHARS_MAX:
        raise Refused("unauthenticated", "the head has no single Authorization of the kind Bearer")
    return token.strip(), names


def check(identity: Identity, permit: Permit, asked: Asked) -> None:
    """``Refused`` when it is not granted."""
    if permit.need is Need.THE_CLUSTER and not identity.all:
        raise Refused("forbidden", "this is what the cluster's services say to each other")
    if permit.need is not Need.A_RIGHT:
        return
    assert permit.operation is not None
    group = _variable(permit.group, asked)
    for subject in _subjects(permit, asked):
        identity.check(Right(permit.operation, subject, group))


def _subjects(permit: Permit, asked: Asked) -> list[str]:
    if permit.subject.startswith("?"):
        return list(asked.request.rel_url.query.getall(permit.subject[1:], [])) or [EVERYTHING]
    return [_variable(permit.subject, asked)]


def _variable(written: str, asked: Asked) -> str:
    return asked.variables.get(written[1:-1], EVERYTHING) if written.startswith("{") else written


def narrowed(response: web.StreamResponse, permit: Permit, identity: Identity) -> web.StreamResponse:
    """What of an answer somebody may see who may not see everything."""
    if not (permit.rows or permit.answer) or identity.may(Operation.BROWSE, EVERYTHING):
        return response
    if isinstance(response, Listed):
        return response
    said = _body_of(response)
    if permit.answer:
        subject = cast("dict[str, Any]", said).get(permit.answer) if isinstance(said, dict) else None
        identity.check_found(Right(Operation.BROWSE, str(subject or EVERYTHING)))
        return response
    field = permit.rows
    return json_response(
        [row for row in cast("list[dict[str, Any]]", said) if identity.may_any(str(row[field]))]
    )


def _body_of(response: web.StreamResponse) -> Any:
    assert isinstance(response, web.Response)
    assert isinstance(response.body, bytes)
    return json.loads(response.body)

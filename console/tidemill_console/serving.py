"""The files of the console at ``/console/``: a fixed table, so no path leads anywhere else.

Nothing on a page comes from another place than this port, and no text becomes markup or code: the policy below says so
to the browser, which then refuses what a mistake in the pages would allow.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from aiohttp import web

from tidemill_host.refusals import HttpRefused
from tidemill_host.routing import Route, Variables

ROOT = "/console/"
INDEX = "index.html"
KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = {
    "Server": "tidemill",
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",  # asked for each time, and answered with 304 while it is the same
    "Vary": "Accept-Encoding",
}


@dataclass(frozen=True, slots=True)
class Page:
    """A file as it is sent."""

    kind: str
    data: bytes
    packed: bytes
    tag: str


class Pages:
    """Answers ``routes``."""

    def routes(self) -> list[Route]:
        """What this door answers."""
        return [
            Route("GET", "/", _to_the_console),
            Route("GET", ROOT.rstrip("/"), _redirected),
            Route("GET", ROOT, self._answer),
            Route("GET", f"{ROOT}{{file}}", self._answer),
            Route("GET", f"{ROOT}views/{{view}}", self._answer),
        ]

    async def _answer(self, request: web.BaseRequest, variables: Variables) -> web.StreamResponse:
        view = variables.get("view")
        name = variables.get("file", INDEX) if view is None else f"views/{view}"
        page = pages().get(name)
        if page is None:
            raise HttpRefused(
                404, "not_found", f"the console has no file {name[:100]!r}", f"it begins at {ROOT}"
            )
        if request.headers.get("If-None-Match") == page.tag:
            return web.Response(status=304, headers={**HEADERS, "ETag": page.tag})
        headers = {**HEADERS, "ETag": page.tag, "Content-Type": page.kind}
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            return web.Response(body=page.packed, headers={**headers, "Content-Encoding": "gzip"})
        return web.Response(body=page.data, headers=headers)


async def _to_the_console(request: web.BaseRequest, variables: Variables) -> web.StreamResponse:
    """A browser at the root wants the console; a program has mistyped a path."""
    if "text/html" not in request.headers.get("Accept", ""):
        raise HttpRefused(
            404, "not_found", "GET /: there is no such path", "see /openapi.json for what there is"
        )
    return await _redirected(request, variables)


async def _redirected(_request: web.BaseRequest, _variables: Variables) -> web.StreamResponse:
    return web.Response(status=302, headers={"Location": ROOT, **HEADERS})


@cache
def pages() -> dict[str, Page]:
    """All files, by their names below the root; read when the first one is asked for."""
    return dict(_read(files("tidemill_console").joinpath("pages"), ""))


def _read(folder: Traversable, prefix: str) -> Iterator[tuple[str, Page]]:
    for entry in sorted(folder.iterdir(), key=lambda one: one.name):
        ending = f".{entry.name.rpartition('.')[2]}"
        if entry.is_dir():
            yield from _read(entry, f"{prefix}{entry.name}/")
        elif ending in KINDS:
            data = entry.read_bytes()
            tag = f'"{hashlib.sha256(data).hexdigest()[:20]}"'
            yield f"{prefix}{entry.name}", Page(KINDS[ending], data, gzip.compress(data, 9, mtime=0), tag)

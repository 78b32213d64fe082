"""Asking the HTTP ports of meta and brokers, for people: every answer that is no is one sentence with what to do."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from typing import Any, cast

from tidemill.cli.failures import FAILURE, NO_ANSWER, CommandFailed, nothing_listens

PATIENCE_SECONDS = 10.0
LOCAL = ("localhost", "::1", "")
ANY = ("0.0.0.0", "::", "")


class PortRefused(CommandFailed):
    """It answered no. ``code`` is the error's name, ``more`` what was told beside it."""

    def __init__(self, sentence: str, status: int, code: str, more: Mapping[str, Any]) -> None:
        self.status = status
        self.code = code
        self.more = more
        super().__init__(sentence, FAILURE)


class Unanswered(CommandFailed):
    """Nobody answered."""


async def ask(
    server: str, method: str, path: str, body: object = None, timeout_s: float = PATIENCE_SECONDS
) -> Any:
    """The JSON that is answered."""
    status, data = await _exchange(server, (method, path, body), timeout_s)
    try:
        answer: Any = json.loads(data)
    except ValueError:
        raise CommandFailed(
            f"what answers at {server} is not tidemill's HTTP port: name that of meta or of a queue with --server"
        ) from None
    if status >= 400:
        raise _refused(server, path, status, answer)
    return answer


async def ask_text(server: str, path: str, timeout_s: float = PATIENCE_SECONDS) -> str:
    """The text that is answered."""
    status, data = await _exchange(server, ("GET", path, None), timeout_s)
    if status >= 400:
        raise _refused(server, path, status, None)
    return data.decode(errors="replace")


async def _exchange(server: str, asked: tuple[str, str, object], timeout_s: float) -> tuple[int, bytes]:
    import aiohttp

    method, path, body = asked
    from tidemill.routes import WRONG_PORT, is_no_http
    from tidemill.security import security_of

    security = security_of(server)
    base, options = security.url(server), security.options()
    timeout = aiohttp.ClientTimeout(total=timeout_s)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.request(method, f"{base}{path}", json=body, **options) as response,
        ):
            return response.status, await response.read()
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        if is_no_http(error):
            raise CommandFailed(f"what answers at {server} speaks no HTTP: {WRONG_PORT}") from None
        raise Unanswered(unanswered(server, error)) from None


def unanswered(server: str, error: BaseException | None) -> str:
    """Why nobody answered, in words."""
    import aiohttp

    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        said = getattr(error.certificate_error, "verify_message", "") or "it does not verify"
        return (
            f"the certificate at {server} is not believed ({said}): name its authorities with --ca or TIDEMILL_CA, or "
            "renew it, docs/oncall/rotate-certificates.md"
        )
    if isinstance(error, aiohttp.ClientSSLError):
        return f"{server} speaks no TLS, or another one: leave out --ca and TIDEMILL_CA, or name another port"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return (
            f"what answers at {server} hangs up, and is not the HTTP port of a queue: name that one with --server, or "
            "if it speaks TLS, its authorities with --ca"
        )
    cause = error.errno if isinstance(error, OSError) else None
    return nothing_listens(server, os.strerror(cause) if cause and cause > 0 else NO_ANSWER)


def _refused(server: str, path: str, status: int, answer: Any) -> PortRefused:
    fields: Mapping[str, Any] = cast("Mapping[str, Any]", answer) if isinstance(answer, dict) else {}
    match fields.get("error"):
        case {"code": str(code), "detail": str(detail), "advice": str(advice)}:
            return PortRefused(f"{detail}: {advice}", status, code, fields)
        case _:
            return PortRefused(
                f"{server} answered {status} at {path}: look into its log", status, str(status), fields
            )


def control_of(broker: Mapping[str, Any], server: str) -> str:
    """Where a broker's HTTP port is; one that names no host is where ``server`` is."""
    host, _, port = str(broker["addresses"]["control"]).rpartition(":")
    if host.strip("[]") in ANY:
        host = server.rpartition(":")[0]
    return f"{host}:{port}"


def is_local(address: str) -> bool:
    """Whether an address is this machine's, as far as its text says."""
    host = address.rpartition(":")[0].strip("[]")
    return host in LOCAL or host.startswith("127.") or host == socket.gethostname()

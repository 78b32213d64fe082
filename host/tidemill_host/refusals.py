"""Errors as HTTP says them: one shape, and a status for each row of the wire's error table.

``{"error": {"code", "detail", "advice", "retryable"}}``; with some, fields beside ``error`` say what was done all the
same. What may be tried again later comes with ``Retry-After``, in whole seconds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from tidemill_wire.errors import WireError

STATUS_BY_NAME = {
    "internal": 500,
    "frame_too_large": 413,
    "too_slow": 408,
    "too_many_requests": 429,
    "batch_too_large": 413,
    "message_too_large": 413,
    "unknown_subject": 404,
    "too_many_subjects": 409,
    "lease_lost": 409,
    "filter_conflict": 409,
    "wrong_consumption": 409,
    "too_many_in_flight": 429,
    "not_found": 404,
    "unknown_transaction": 404,
    "transaction_decided": 409,
    "too_many_transactions": 429,
    "over_quota": 429,
    "unauthenticated": 401,
    "forbidden": 403,
}
"""Other rows are 503 when they may be tried again later, and 400 when not."""

RETRY_AFTER_SECONDS = {429: 1, 503: 1}


class HttpRefused(Exception):
    """A request that is refused at the HTTP port itself; it is counted there."""

    def __init__(
        self, status: int, code: str, detail: str, advice: str, more: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.advice = advice
        self.more = more or {}

    @property
    def retryable(self) -> bool:
        return self.status in {408, 429, 503}

    def response(self) -> web.Response:
        return error_response(
            self.status, self.code, self.detail, self.advice, retryable=self.retryable, more=self.more
        )


def status_of(error: WireError) -> int:
    """The HTTP status of a row of the table."""
    return STATUS_BY_NAME.get(error.kind.name, 503 if error.kind.retryable else 400)


def wire_response(error: WireError) -> web.Response:
    """An error of the wire as HTTP says it."""
    kind = error.kind
    response = error_response(
        status_of(error), kind.name, error.detail, kind.advice, retryable=kind.retryable, more={}
    )
    if error.wait_ms:
        response.headers["Retry-After"] = str(-(-error.wait_ms // 1000))
    return response


def refusal_of(error: WireError, place: str = "", more: Mapping[str, Any] | None = None) -> HttpRefused:
    """An error of the wire that was found before the machine was asked; ``place`` is where in the request."""
    detail = f"{place}: {error.detail}" if place else error.detail
    return HttpRefused(status_of(error), error.kind.name, detail, error.kind.advice, more)


def json_response(value: object, status: int = 200) -> web.Response:
    """A value as every client sees it."""
    return web.Response(
        body=json.dumps(value).encode(),
        status=status,
        content_type="application/json",
        headers={"Server": "tidemill"},
    )


def error_response(
    status: int,
    code: str,
    detail: str,
    advice: str,
    *,
    retryable: bool = False,
    more: Mapping[str, Any] | None = None,
) -> web.Response:
    """An error as every client sees it."""
    error = {"code": code, "detail": detail, "advice": advice, "retryable": retryable}
    response = json_response({"error": error, **(more or {})}, status)
    if status in RETRY_AFTER_SECONDS:
        response.headers["Retry-After"] = str(RETRY_AFTER_SECONDS[status])
    return response

"""The gateway's part of the OpenAPI page. Bounds are those of ``wire/limits.py``, so the page cannot promise others."""

from __future__ import annotations

from tidemill_broker.doors import gateway_sending_page
from tidemill_broker.doors.gateway_consumers import NAMELESS
from tidemill_broker.doors.gateway_sending_page import SEND_ERRORS, SUBJECT, message_fields, sending
from tidemill_host.openapi import (
    Part,
    answers,
    error_answer,
    error_fields,
    json_content,
    pattern,
    record,
    ref,
    variable,
    whole,
)
from tidemill_wire import limits

RECEIPT = "eyJ1AAAAAAAAAAFhbnk"
CONSUME_ERRORS = SEND_ERRORS
GROUP = variable("group", "the consumer group's name")
SUBSCRIBED = "[A-Za-z0-9._-]{1,100}|[A-Za-z0-9._-]{0,100}\\*"

RECEIVED: Part = {
    **SUBJECT,
    "description": "a subject, or the beginning of one and a star: all that begin so, and those to come",
    "schema": pattern(SUBSCRIBED, "a subject's name, or a pattern"),
}


def schemas() -> Part:
    """Messages as they are sent and received, and what settles them."""
    receipts = {
        "type": "array",
        "minItems": 1,
        "maxItems": limits.HTTP_MESSAGES_MAX,
        "items": {"type": "string", "minLength": 1, "maxLength": limits.HTTP_RECEIPT_CHARS_MAX},
        "description": "as they came with the messages",
    }
    delay = whole(
        0, limits.NACK_DELAY_MS_MAX, description="when again; without it, as the group's policy says"
    )
    failure = _failure()
    reject = {"type": "boolean", "default": False, "description": "never again: it is a dead letter at once"}
    settled: dict[str, Part] = {
        "count": whole(0, description="messages for which it was done"),
        "lost": {
            "type": "array",
            "items": {"type": "string"},
            "description": "receipts of no lease any more",
        },
    }
    return {
        **gateway_sending_page.schemas(),
        "Receive": _receive(),
        "Received": _received(),
        "Receipts": record({"receipts": receipts}),
        "Nack": record(
            {"receipts": receipts, "delay_ms": delay, **failure, "reject": reject},
            ("delay_ms", *failure, "reject"),
        ),
        "Settled": record(settled),
        "LeaseLost": record({**error_fields(), **settled}, ("count", "lost")),
    }


def _failure() -> dict[str, Part]:
    """What a nack says of what went wrong."""
    return {
        name: {"type": "string", "maxLength": limits.DETAIL_CHARS_MAX, "description": why}
        for name, why in (
            ("reason", "why, for a person"),
            (
                "error",
                "the exception's type: with it and the place the same mistake has the same fingerprint",
            ),
            ("place", "where it was raised, as shop.py:12 in charge"),
        )
    }


def _receive() -> Part:
    properties: dict[str, Part] = {
        "max": whole(1, limits.HTTP_MESSAGES_MAX, default=10, description="at most so many messages"),
        "wait_ms": whole(
            0, limits.PULL_WAIT_MS_MAX, default=1000, description="how long to wait for the first message"
        ),
        "consumer": pattern(
            f"[!-~]{{1,{limits.HTTP_CONSUMER_NAME_MAX}}}",
            "who receives; consumers without a name share one",
            default="any",
        ),
        "start": {
            "anyOf": [{"enum": ["earliest", "latest"]}, whole(0, (1 << 63) - 1)],
            "default": "earliest",
            "description": "where the group begins when it is new; a number is a time in ms since 1970",
        },
        "tags": {
            **message_fields()["tags"],
            "description": "the group is given only messages with these tags; the filter is the group's",
        },
        "match": {
            "enum": ["any", "all"],
            "default": "any",
            "description": "how many of the tags a message must have",
        },
        "exclusive": {
            "type": "boolean",
            "default": False,
            "description": "in order, one consumer of the group at a time; needs `consumer`",
        },
        "broadcast": {
            "type": "boolean",
            "default": False,
            "description": "in order, and every consumer is given all messages; it needs a name, and no exclusive",
        },
        "subjects": {
            "type": "array",
            "maxItems": limits.HTTP_MESSAGES_MAX - 1,
            "items": pattern(SUBSCRIBED, "a subject, or the beginning of one and a star"),
            "description": "received from besides that of the path",
        },
        "at_most_once": {
            "type": "boolean",
            "default": False,
            "description": "what is given counts as handled: there are no receipts, and nothing comes again",
        },
    }
    return record(
        properties,
        tuple(properties),
        anyOf=[
            {"not": {"anyOf": [_is_set("exclusive"), _is_set("broadcast")]}},
            {"not": _is_set("exclusive"), "required": ["consumer"]},
            {
                "not": _is_set("broadcast"),
                "required": ["consumer"],
                "properties": {"consumer": {"not": {"const": NAMELESS}}},
            },
        ],
    )


def _is_set(name: str) -> Part:
    return {"required": [name], "properties": {name: {"const": True}}}


def _received() -> Part:
    row = record(
        {
            "id": {"type": "string"},
            "subject": {"type": "string"},
            "sequence": whole(0),
            "body": {"type": "string", "contentEncoding": "base64"},
            "text": {"type": "string", "description": "the body, when it is UTF-8"},
            "key": {"type": ["string", "null"]},
            "order_key": {"type": ["string", "null"]},
            "tags": {"type": "array", "items": {"type": "string"}},
            "properties": {"type": "object"},
            "priority": whole(0, limits.PRIORITY_MAX),
            "attempts": whole(0, description="how often it was given out before"),
            "stored_at": {"type": "string", "format": "date-time"},
            "receipt": {
                "type": "string",
                "description": "what ack, nack, extend and release take; at most once has none",
            },
        },
        ("text", "receipt"),
    )
    return record(
        {
            "consumer": {"type": "string"},
            "group": {
                "type": "string",
                "description": "below which they are settled: a broadcast has its own",
            },
            "lease_ms": whole(0, description="how long they are yours; 0 when there is none"),
            "messages": {"type": "array", "items": row},
        }
    )


def paths() -> dict[str, Part]:
    """Path items; the keys are those of ``gateway.py``."""
    base = "/v1/subjects/{subject}/groups/{group}"
    return {
        "/v1/subjects/{subject}/messages": {"post": sending()},
        f"{base}/receive": {"post": _receiving()},
        f"{base}/ack": _settling(
            "ack", "They were handled: they are never given out to this group again", "Receipts"
        ),
        f"{base}/nack": _settling("nack", "They failed: they are given out again, after a delay", "Nack"),
        f"{base}/extend": _settling(
            "extend", "They are still being handled: the lease begins anew", "Receipts"
        ),
        f"{base}/release": _settling(
            "release", "They were not begun: somebody else gets them at once", "Receipts"
        ),
    }


def _receiving() -> Part:
    example = {
        "consumer": "any",
        "group": "billing",
        "lease_ms": 60000,
        "messages": [
            {
                "id": "0192" + "0" * 28 + "-0", "subject": "order.created", "sequence": 0, "body": "b25lIGNvZmZlZQ==",
                "text": "one coffee", "key": "order-1", "order_key": None, "tags": ["hot"], "properties": {"sugar": 2},
                "priority": 0, "attempts": 0, "stored_at": "2026-11-18T16:00:00.000Z", "receipt": RECEIPT,
            },
        ],
    }  # fmt: skip
    summary = "Messages for the group, under a lease"
    return {
        "operationId": "receive",
        "summary": summary,
        "parameters": [RECEIVED, GROUP],
        "description": (
            "Answers as soon as there is a message, or with none when the wait is over. What is not acked, nacked or "
            "released before the lease ends is given out again. A consumer needs no connection: its leases live "
            "until they end."
        ),
        "requestBody": {
            "required": False,
            "content": json_content(ref("Receive"), {"max": 10, "wait_ms": 0, "consumer": "worker-1"}),
        },
        "responses": answers(ref("Received"), example, summary, CONSUME_ERRORS),
    }


def _settling(name: str, summary: str, body: str) -> Part:
    example: Part = {"receipts": [RECEIPT]}
    if body == "Nack":
        example |= {
            "delay_ms": 5000,
            "reason": "the printer is out of paper",
            "error": "PaperError",
            "place": "p.py:9",
        }
    responses = answers(ref("Settled"), {"count": 1, "lost": []}, "Done for all of them", CONSUME_ERRORS)
    responses["409"] = error_answer(409, ref("LeaseLost"))
    operation = {
        "operationId": name,
        "summary": summary,
        "parameters": [SUBJECT, GROUP],
        "description": (
            "200 when it was done for all receipts. 409 `lease_lost` when some are of no lease any more: `lost` has "
            "them, `count` says for how many it was done."
        ),
        "requestBody": {"required": True, "content": json_content(ref(body), example)},
        "responses": responses,
    }
    return {"post": operation}

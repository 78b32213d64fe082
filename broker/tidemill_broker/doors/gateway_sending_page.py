"""What the OpenAPI page says of sending. Bounds are those of ``wire/limits.py``, so the page cannot promise others."""

from __future__ import annotations

import sys
from typing import Any

from tidemill_broker.doors.gateway_messages import TIMES, TRACEPARENT, TRACESTATE
from tidemill_broker.doors.gateway_sending import RULE, rule_fields
from tidemill_broker.doors.gateway_times import NOT_BOTH, when_fields, when_headers
from tidemill_host.openapi import Part, answers, header, pattern, record, ref, variable, whole
from tidemill_wire import limits

BASE64 = "(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"
SEND_ERRORS = (400, 404, 408, 409, 413, 415, 429, 500, 503)
CONTEXT = {
    TRACEPARENT: "the context of a trace, for properties that have none; passed over when it is not as W3C says",
    TRACESTATE: "what goes with it",
}
SUBJECT = variable("subject", "the subject's name")


def schemas() -> dict[str, Part]:
    """Messages as they are sent, and the answer."""
    said = message_fields()
    priority: Part = {
        "priority": whole(
            0,
            limits.PRIORITY_MAX,
            default=0,
            description="of all messages of the request; higher ones come first",
        )
    }
    base64 = pattern(BASE64, "the body in base64", contentEncoding="base64")
    text: Part = {"type": "string", "description": "the body as text; it is kept as UTF-8"}
    one = {"anyOf": [ref("TextMessage"), ref("BytesMessage")]}
    times = when_fields()
    fields = {**said, **times}
    timed = (*said, *TIMES)
    alone = (*timed, "priority")
    many = {"type": "array", "minItems": 1, "maxItems": limits.HTTP_MESSAGES_MAX, "items": one}
    recurring = {**{name: part for name, part in said.items() if name != "dedup_key"}, **rule_fields()}
    optional = (*(name for name in (*said, *RULE) if name not in ("timer_key", "cron")), "priority")
    return {
        "Value": _value(),
        "TextMessage": record({"text": text, **fields}, timed, **NOT_BOTH),
        "BytesMessage": record({"body": base64, **fields}, timed, **NOT_BOTH),
        "SendText": record({"text": text, **fields, **priority}, alone, **NOT_BOTH),
        "SendBytes": record({"body": base64, **fields, **priority}, alone, **NOT_BOTH),
        "SendMessages": record({"messages": many, **times, **priority}, (*TIMES, "priority"), **NOT_BOTH),
        "RecurringText": record({"text": text, **recurring, **priority}, optional),
        "RecurringBytes": record({"body": base64, **recurring, **priority}, optional),
        "Sent": _sent(),
    }


def message_fields() -> dict[str, Part]:
    """What a message may have besides its body and its time."""
    return {
        "key": {
            "type": "string",
            "maxLength": limits.KEY_BYTES_MAX,
            "description": f"a text to find the message by; at most {limits.KEY_BYTES_MAX} bytes of UTF-8",
        },
        "order_key": {
            "type": "string",
            "minLength": 1,
            "maxLength": limits.KEY_BYTES_MAX,
            "description": f"messages of one are handled in their order; at most {limits.KEY_BYTES_MAX} bytes of UTF-8",
        },
        "dedup_key": {
            "type": "string",
            "minLength": 1,
            "maxLength": limits.KEY_BYTES_MAX,
            "description": "of messages with one the first is stored, within the subject's window; without an order key"
            " it is that, too",
        },
        "timer_key": {
            "type": "string",
            "minLength": 1,
            "maxLength": limits.KEY_BYTES_MAX,
            "description": "by which a message for later is found, cancelled and rescheduled while it waits",
        },
        "tags": {
            "type": "array",
            "maxItems": limits.TAGS_MAX,
            "items": {"type": "string", "minLength": 1, "maxLength": limits.TAG_BYTES_MAX},
            "description": f"short texts, each at most {limits.TAG_BYTES_MAX} bytes of UTF-8",
        },
        "properties": {
            "type": "object",
            "additionalProperties": ref("Value"),
            "description": f"whatever the consumer shall know; at most {limits.PROPERTIES_BYTES_MAX} bytes packed",
        },
    }


def _value() -> Part:
    integers = {"type": "integer", "minimum": -(1 << 63), "maximum": (1 << 64) - 1}
    return {
        "description": "text, number, true, false, null, and lists and maps of them",
        "anyOf": [
            {"type": "string"}, {"type": "boolean"}, {"type": "null"}, integers,
            {"type": "number", "minimum": -sys.float_info.max, "maximum": sys.float_info.max},
            {"type": "array", "items": ref("Value")},
            {"type": "object", "additionalProperties": ref("Value")},
        ],
    }  # fmt: skip


def _sent() -> Part:
    row = record(
        {
            "id": {"type": "string", "pattern": "^[0-9a-f]{32}-[0-9]+$"},
            "sequence": whole(
                0, description="the message's number in its subject; for later, at the delay service"
            ),
            "due": {"type": "string", "format": "date-time", "description": "when it is given out, if later"},
            "duplicate": {
                "const": True,
                "description": "it was stored before: id and sequence are that one's",
            },
        },
        ("due", "duplicate"),
    )
    return record({"subject": ref("Subject"), "messages": {"type": "array", "minItems": 1, "items": row}})


def sending() -> Part:
    """The path item."""
    one: Any = {"text": "one coffee", "key": "order-1", "tags": ["hot"], "properties": {"sugar": 2}}
    sent = {"subject": "order.created", "messages": [{"id": "0192" + "0" * 28 + "-0", "sequence": 0}]}
    kinds = ("SendText", "SendBytes", "SendMessages", "RecurringText", "RecurringBytes")
    schema = {"anyOf": [ref(name) for name in kinds]}
    report: Any = {
        "text": "daily",
        "cron": "0 9 * * mon-fri",
        "time_zone": "Europe/Berlin",
        "timer_key": "report",
    }
    examples: Part = {
        "one": {"value": one},
        "bytes": {"value": {"body": "AAEC"}},
        "several": {"value": {"messages": [one, {"text": "one tea"}]}},
        "later": {"value": {"text": "your table at eight", "delay": "1h30m"}},
        "timer": {"value": {"text": "pay order 17", "delay": "3d", "timer_key": "order-17"}},
        "recurring": {"value": report},
        "urgent": {"value": {"text": "the milk boils over", "priority": 7}},
    }
    raw = {"schema": {"type": "string", "format": "binary"}}
    word, tag = "[!-~](?:[ -~]{0,1000}[!-~])?", "[!-+\\--~]{1,255}"
    return {
        "operationId": "send",
        "summary": "Store messages: all of them, or none",
        "description": (
            "The answer comes when they are as durable as the subject asks for. With a `delay`, or a time `at` which, "
            "they are kept until then; beside `messages` it is that of all which say nothing else. A `timer_key` is of "
            "a message that has a time. With `cron` a message comes again and again, until its timer key is cancelled. "
            "A raw body is one message as it is."
        ),
        "parameters": [
            SUBJECT,
            header(
                "Idempotency-Key",
                "a request that is repeated with the same key is stored once; the subject remembers the last 1024",
                "[!-~]{1,200}",
            ),
            header("Tidemill-Key", "the key of messages that name none of their own", word),
            header("Tidemill-Order-Key", "the order key of messages that name none of their own", word),
            header("Tidemill-Dedup-Key", "the dedup key of messages that name none of their own", word),
            header("Tidemill-Timer-Key", "the timer key of messages that name none of their own", word),
            header("Tidemill-Priority", "the priority, when the body names none", "[0-7]"),
            *when_headers(),
            *context_headers(),
            header("Tidemill-Tags", "tags of messages that name none of their own", f"{tag}(?:,{tag}){{0,9}}"),
        ],
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {"schema": schema, "examples": examples},
                "application/octet-stream": raw,
            },
        },
        "responses": answers(ref("Sent"), sent, "They are stored", SEND_ERRORS),
    }  # fmt: skip


def context_headers() -> list[Part]:
    """Any text is taken."""
    return [
        {"name": name, "in": "header", "required": False, "description": says, "schema": {"type": "string"}}
        for name, says in CONTEXT.items()
    ]

"""What the OpenAPI page says of the paths in ``timers.py``."""

from __future__ import annotations

from typing import Any

from tidemill_broker.doors.gateway_times import NOT_BOTH, when_fields
from tidemill_broker.doors.timers import AFTER, LIMIT_DEFAULT, OF_SUBJECT, ONE
from tidemill_host.openapi import Part, answers, json_content, pattern, record, ref, variable, whole
from tidemill_wire import limits
from tidemill_wire.batch import MESSAGE_ID

ERRORS = (400, 404, 408, 413, 415, 429, 500, 503)
MILLISECONDS = "[0-9]{1,18}"
EXAMPLE: Part = {
    "id": "000102030405060708090a0b0c0d0e0f-0", "subject": "reminder", "timer_key": "order-17",
    "due": "2027-01-01T01:00:00.000Z", "stored_at": "2026-11-18T16:36:36.376Z", "size": 12, "cron": None,
}  # fmt: skip
GONE = "`gone` are those that were too far: on their way to their subject, or there."


def paths() -> dict[str, Part]:
    """Path items; the keys are those of ``timers.py``."""
    said = "the message's id, as its receipt says it"
    identity: Part = {
        "name": "id", "in": "path", "required": True, "description": said,
        "schema": pattern(MESSAGE_ID.pattern, said),
    }  # fmt: skip
    subject = variable("subject", "the subject's name")
    later: Part = {"delay": "7d"}
    return {
        OF_SUBJECT: {"get": _listing(subject)},
        f"{OF_SUBJECT}/cancel": _changing(
            "cancel_timers", "Never give out what waits under a timer key", subject,
            ("TimerKey", {"timer_key": "order-17"}),
        ),
        f"{OF_SUBJECT}/reschedule": _changing(
            "reschedule_timers", "Give out what waits under a timer key at another time", subject,
            ("RescheduleKey", {"timer_key": "order-17", **later}),
        ),
        ONE: {"get": _showing(identity)},
        f"{ONE}/cancel": _changing("cancel_timer", "Never give out a message that waits", identity, None),
        f"{ONE}/reschedule": _changing(
            "reschedule_timer", "Give out a message that waits at another time", identity, ("Reschedule", later)
        ),
    }  # fmt: skip


def _listing(subject: Part) -> Part:
    summary = "Messages that wait under timer keys, about in the order in which they are due"
    key: Part = {"type": "string", "maxLength": limits.KEY_BYTES_MAX}
    time: Part = {
        "anyOf": [
            {"type": "string", "format": "date-time"},
            {"type": "string", "pattern": f"^{MILLISECONDS}$"},
        ]
    }
    limit = whole(1, limits.TIMERS_PAGE_MAX, default=LIMIT_DEFAULT)
    parameters = [
        subject,
        _asked("prefix", "of timer keys that begin so", key),
        _asked("timer_key", "of exactly this timer key", {**key, "minLength": 1}),
        _asked("recurring", "only those that recur, or only those that do not", {"type": "boolean"}),
        _asked("from", "due then or later; a timestamp, or milliseconds since 1970", time),
        _asked("to", "due before then", time),
        _asked("limit", "messages in one answer", limit),
        _asked("after", "what the page before this one said in `after`", pattern(AFTER.pattern, "a place")),
    ]
    example = {"timers": [EXAMPLE], "after": None}
    return {
        "operationId": "timers",
        "summary": summary,
        "parameters": parameters,
        "responses": answers(ref("Timers"), example, summary, ERRORS),
    }


def _asked(name: str, description: str, schema: Part) -> Part:
    return {"name": name, "in": "query", "required": False, "description": description, "schema": schema}


def _showing(identity: Part) -> Part:
    example = {**EXAMPLE, "body": "cGF5IG9yZGVyIDE3", "text": "pay order 17"}
    return {
        "operationId": "timer",
        "summary": "A message that waits for its time",
        "parameters": [identity],
        "responses": answers(ref("Timer"), example, "It waits", ERRORS),
    }


def _changing(name: str, summary: str, of: Part, body: tuple[str, Any] | None) -> Part:
    operation: Part = {
        "operationId": name,
        "summary": summary,
        "description": f"To say it twice does no harm. {GONE} A message that nobody knows is neither.",
        "parameters": [of],
        "responses": answers(ref("Changed"), {"changed": 1, "gone": 0}, "Done, and on the disk", ERRORS),
    }
    if body is not None:
        operation["requestBody"] = {"required": True, "content": json_content(ref(body[0]), body[1])}
    return {"post": operation}


def schemas() -> dict[str, Part]:
    """What is asked and answered."""
    key: Part = {
        "type": "string",
        "minLength": 1,
        "maxLength": limits.KEY_BYTES_MAX,
        "description": f"as it was sent; at most {limits.KEY_BYTES_MAX} bytes of UTF-8",
    }
    times = when_fields()
    one_of: Part = {**NOT_BOTH, "anyOf": [{"required": [name]} for name in times]}
    text: Part = {"type": "string"}
    maybe: Part = {"type": ["string", "null"]}
    moment: Part = {**text, "format": "date-time"}
    row = record(
        {
            "id": text,
            "subject": text,
            "timer_key": maybe,
            "due": moment,
            "stored_at": moment,
            "size": whole(0, description="of its body, in bytes"),
            "cron": {**maybe, "description": "expression and time zone, when it recurs"},
            "body": {
                **text,
                "contentEncoding": "base64",
                "description": "not in lists, and not above 256 KiB",
            },
            "text": {**text, "description": "the body, when it is UTF-8"},
        },
        ("body", "text"),
    )
    after: Part = {
        **maybe,
        "description": "give it as `after` for the next page; null when there is none. A page may be empty and not "
        "the last",
    }
    changed = whole(0, description="cancelled, or due at the other time")
    gone = whole(0, description="too far: on their way to their subject, or there")
    return {
        "Timer": row,
        "Timers": record({"timers": {"type": "array", "items": ref("Timer")}, "after": after}),
        "TimerKey": record({"timer_key": key}),
        "Reschedule": record(times, tuple(times), **one_of),
        "RescheduleKey": record({"timer_key": key, **times}, tuple(times), **one_of),
        "Changed": record({"changed": changed, "gone": gone}),
    }

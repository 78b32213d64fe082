"""What a request of the gateway says, proven: names in its path, headers, and the JSON in its body."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias, cast

from aiohttp import web

from tidemill_broker.doors.gateway_consumers import NAMELESS, PREFIX
from tidemill_broker.doors.gateway_messages import (
    TRACEPARENT,
    TRACESTATE,
    Defaults,
    check_fields,
    integer,
    malformed,
    parse_json,
    parse_tags,
)
from tidemill_broker.doors.gateway_times import NUMBER, When, parse_when
from tidemill_broker.groups import Group
from tidemill_host.bodies import Room
from tidemill_host.refusals import HttpRefused, refusal_of
from tidemill_host.routing import Variables
from tidemill_wire import limits
from tidemill_wire.commands import Ack, Extend, Nack, Pull, Release, Start
from tidemill_wire.errors import Refused, WireError
from tidemill_wire.fields import broadcast_group, parse_consumer, parse_group, parse_stored, parse_subject
from tidemill_wire.filters import EVERYTHING, TagFilter, parse_filter, parse_subscribed
from tidemill_wire.kinds import Mode
from tidemill_wire.lanes import parse_priority

WAIT_MS_DEFAULT = 1_000
"""Who forgets to say how long does not keep the broker busy, and a person does not wait long."""
MESSAGES_DEFAULT = 10
KEY_CHARS_MAX = 200
CONTEXT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
STATE_CHARS_MAX = 512
RECEIVE_FIELDS = frozenset(
    {
        *("at_most_once", "broadcast", "consumer", "exclusive", "match", "max", "start", "subjects", "tags"),
        "wait_ms",
    }
)
NACK_FIELDS = frozenset({"delay_ms", "error", "place", "reason", "reject"})
STARTS = {"earliest": Start.EARLIEST, "latest": Start.LATEST}
Make: TypeAlias = Callable[[str, str, str, list[int]], Ack | Nack | Extend | Release]


def subject_of(request: web.BaseRequest, variables: Variables) -> str:
    """What a message is sent to, and settled below."""
    return _named(request, variables, parse_subject)


def subscribed_of(request: web.BaseRequest, variables: Variables) -> str:
    """What is received: a subject, or the beginning of one and a star."""
    return _named(request, variables, parse_subscribed)


def partition_of(request: web.BaseRequest, variables: Variables) -> str:
    """What is steered: a subject with all its partitions here, or one of them."""
    return _named(request, variables, parse_stored)


def _named(request: web.BaseRequest, variables: Variables, parse: Callable[[str], str]) -> str:
    if request.query_string:
        raise malformed("this path takes nothing behind a question mark")
    try:
        return parse(variables["subject"])
    except WireError as error:
        raise refusal_of(error) from None


def group_of(variables: Variables) -> str:
    try:
        return parse_group(variables["group"])
    except WireError as error:
        raise refusal_of(error) from None


def idempotency_key(request: web.BaseRequest) -> str | None:
    return _header(request, "Idempotency-Key", KEY_CHARS_MAX)


def defaults_of(request: web.BaseRequest) -> Defaults:
    key = _header(request, "Tidemill-Key", limits.KEY_BYTES_MAX)
    order_key = _header(request, "Tidemill-Order-Key", limits.KEY_BYTES_MAX)
    dedup_key = _header(request, "Tidemill-Dedup-Key", limits.KEY_BYTES_MAX)
    timer_key = _header(request, "Tidemill-Timer-Key", limits.KEY_BYTES_MAX)
    priority = _priority(request)
    texts = _header(request, "Tidemill-Tags", limits.TAGS_MAX * (limits.TAG_BYTES_MAX + 1))
    context = context_of(request)
    if texts is None:
        return Defaults(key, (), priority, order_key, dedup_key, timer_key, context)
    tags = [tag.strip() for tag in texts.split(",")]
    if "" in tags or len(tags) > limits.TAGS_MAX:
        raise malformed(
            f"header Tidemill-Tags is no list of 1 to {limits.TAGS_MAX} texts with commas between"
        )
    return Defaults(key, tuple(sorted(set(tags))), priority, order_key, dedup_key, timer_key, context)


def context_of(request: web.BaseRequest) -> dict[str, str]:
    """The context of a trace that the request is in. As W3C wants it, what is none is passed over and not refused."""
    parent = request.headers.get(TRACEPARENT, "")
    if CONTEXT.fullmatch(parent) is None:
        return {}
    state = request.headers.get(TRACESTATE, "")
    fits = 0 < len(state) <= STATE_CHARS_MAX and state.isascii() and state.isprintable()
    return {TRACEPARENT: parent, TRACESTATE: state} if fits else {TRACEPARENT: parent}


def when_of(request: web.BaseRequest) -> When | None:
    """When messages that say nothing themselves are to be given out."""
    delay = _header(request, "Tidemill-Delay", KEY_CHARS_MAX)
    at = _header(request, "Tidemill-At", KEY_CHARS_MAX)
    seconds = delay is not None and re.fullmatch(NUMBER, delay)
    said = {"delay": float(delay) if delay and seconds else delay, "at": at}
    return parse_when({name: value for name, value in said.items() if value is not None}, "header Tidemill-")


def _priority(request: web.BaseRequest) -> int:
    written = _header(request, "Tidemill-Priority", KEY_CHARS_MAX) or "0"
    try:
        return parse_priority(int(written) if written.isdigit() and len(written) == 1 else -1)
    except Refused:
        raise refusal_of(Refused("invalid_priority", f"{written[:40]!r} is no priority")) from None


def _header(request: web.BaseRequest, name: str, most: int) -> str | None:
    """Printable ASCII only: nobody agrees what other bytes in a head mean."""
    value = request.headers.get(name)
    if value is not None and not (0 < len(value) <= most and value.isascii() and value.isprintable()):
        raise malformed(f"header {name} is not 1 to {most} printable ASCII characters")
    return value


async def value_of(request: web.BaseRequest, room: Room, *, empty: bool = False) -> dict[str, Any]:
    """The JSON object in a body."""
    if empty and not request.body_exists:
        return {}
    if request.content_type != "application/json":
        raise unknown_kind("application/json")
    return parse_json(await room.read(request, limits.HTTP_JSON_BYTES_MAX))


def unknown_kind(kinds: str) -> HttpRefused:
    return HttpRefused(
        415, "unsupported_media_type", "the body's Content-Type is not known here", f"send {kinds}"
    )


def parse_pull(subject: str, group: str, value: Mapping[str, Any]) -> tuple[Pull, str]:
    """What to ask the broker, and the consumer's name."""
    check_fields(value, RECEIVE_FIELDS)
    name = value.get("consumer", NAMELESS)
    if not isinstance(name, str) or len(name) > limits.HTTP_CONSUMER_NAME_MAX:
        raise malformed(f"consumer is no text of at most {limits.HTTP_CONSUMER_NAME_MAX} characters")
    try:
        parse_consumer(name)
    except WireError as error:
        raise refusal_of(error) from None
    start = value.get("start", "earliest")
    if isinstance(start, str) and start in STARTS:
        start_number = int(STARTS[start])
    elif isinstance(start, str):
        raise malformed("start is neither earliest nor latest nor a time in ms")
    else:
        start_number = integer(value, "start", (0, (1 << 63) - 1), 0)
    mode = _mode(value)
    broadcast = mode is Mode.BROADCAST
    return (
        Pull(
            broadcast_group(group, name) if broadcast else group,
            PREFIX + name,
            _subjects(subject, value),
            integer(value, "max", (1, limits.HTTP_MESSAGES_MAX), MESSAGES_DEFAULT),
            limits.HTTP_RECEIVE_BYTES,
            integer(value, "wait_ms", (0, limits.PULL_WAIT_MS_MAX), WAIT_MS_DEFAULT),
            start_number,
            once=flag(value, "at_most_once"),
            mode=mode,
            base=group if broadcast else "",
            filter=_filter(value),
        ),
        name,
    )


def check_named(name: str, groups: Iterable[Group], mode: Mode) -> None:
    """In order only one consumer may hold messages, and those without a name share one: two programs would."""
    if name != NAMELESS:
        return
    advice = "give each program a consumer of its own"
    if mode is Mode.EXCLUSIVE:
        raise HttpRefused(400, "malformed_request", "exclusive, and no consumer is named", advice)
    if any(group.ordered for group in groups):
        detail = "the group is consumed in order, by one consumer at a time, and this receive names none"
        raise HttpRefused(409, "wrong_consumption", detail, advice)


def _mode(value: Mapping[str, Any]) -> Mode:
    exclusive, broadcast = flag(value, "exclusive"), flag(value, "broadcast")
    if exclusive and broadcast:
        raise malformed("a broadcast has its messages to itself: exclusive and broadcast are not both true")
    if broadcast and "consumer" not in value:
        raise malformed("a broadcast needs a consumer: by its name it goes on where it was")
    return Mode.EXCLUSIVE if exclusive else Mode.BROADCAST if broadcast else Mode.AS_DECLARED


def _subjects(first: str, value: Mapping[str, Any]) -> list[str]:
    """That of the path, and those that the body names besides."""
    more: object = value.get("subjects", [])
    most = limits.HTTP_MESSAGES_MAX - 1
    if not isinstance(more, list) or len(cast("list[object]", more)) > most:
        raise malformed(f"subjects is no list of at most {most} texts")
    names = [first]
    for at, name in enumerate(cast("list[object]", more)):
        if not isinstance(name, str):
            raise malformed(f"subjects[{at}] is no text")
        try:
            names.append(parse_subscribed(name))
        except WireError as error:
            raise refusal_of(error) from None
    return list(dict.fromkeys(names))


def _filter(value: Mapping[str, Any]) -> TagFilter:
    match = value.get("match", "any")
    if match not in ("any", "all"):
        raise malformed("match is neither any nor all")
    if "tags" not in value:
        return EVERYTHING
    return parse_filter(parse_tags(value["tags"], "tags"), match == "all")


def flag(value: Mapping[str, Any], name: str) -> bool:
    """True or false, and false when it is not there."""
    found: object = value.get(name, False)
    if not isinstance(found, bool):
        raise malformed(f"{name} is neither true nor false")
    return found


def parse_nack(value: Mapping[str, Any]) -> Make:
    """A NACK with the delay and the reason of a request; without a delay the group's policy says when."""
    delay_ms = integer(value, "delay_ms", (0, limits.NACK_DELAY_MS_MAX), 0) if "delay_ms" in value else -1
    reason, error, place = (text_of(value, name) for name in ("reason", "error", "place"))
    reject = flag(value, "reject")
    return lambda group, consumer, subject, ranges: Nack(
        group, consumer, subject, ranges, delay_ms, reason, error, place, reject
    )


def text_of(value: Mapping[str, Any], name: str) -> str:
    """A sentence, or nothing."""
    found = cast("object", value.get(name, ""))
    if not isinstance(found, str) or len(found) > limits.DETAIL_CHARS_MAX:
        raise malformed(f"{name} is no text of at most {limits.DETAIL_CHARS_MAX} characters")
    return found

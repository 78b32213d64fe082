"""What the paths of meta answer, as the page describes it; ``page.py`` has the paths."""

from __future__ import annotations

from typing import Any

from tidemill_host.openapi import Part, record, ref, whole
from tidemill_meta.asked import NAMES_MAX, WHOLE_MAX
from tidemill_meta.beats import CONSUMPTIONS
from tidemill_wire.routes import LOGICAL_PARTITIONS, STATES

TEXT: Part = {"type": "string"}
COUNT = whole(0, WHOLE_MAX)
STATE: Part = {"enum": list(STATES), "description": "what it takes: reads, writes, both, neither"}
FLAG: Part = {"type": "boolean"}
ROWS: Part = {"type": "array", "items": {"type": "array"}, "maxItems": WHOLE_MAX}
"""Of fences, as docs/format.md has them under FENCE and FENCED."""
GROUP_STATE: dict[str, Part] = {
    "group": TEXT, "state": STATE, "draining": FLAG, "retired": FLAG, "version": COUNT,
}  # fmt: skip


def many(items: Part, limit: int = NAMES_MAX, **more: Any) -> Part:
    return {"type": "array", "items": items, "maxItems": limit, **more}


def schemas() -> dict[str, Part]:
    """By name."""
    return {**_broker_schemas(), **_subject_schemas(), **_client_schemas()}


def _broker_schemas() -> dict[str, Part]:
    appointment: dict[str, Part] = {
        "group": TEXT,
        "epoch": COUNT,
        "master": {**TEXT, "description": "empty: nobody is, wait"},
        "replicas": many(TEXT),
        "in_sync": many(TEXT),
        "version": COUNT,
        "lease_ms": {
            **COUNT,
            "description": "how long the only replica in sync may go on; 0: it has no lease",
        },
    }
    addresses = {
        "type": "object",
        "additionalProperties": TEXT,
        "description": "HOST:PORT of each replica's data",
    }
    return {
        "Appointment": record(appointment),
        "Stand": record(
            {
                **appointment, "addresses": addresses, "beat_ms": COUNT, "state": STATE, "declared": COUNT,
                "revision": {**COUNT, "description": "meta's own, when it answers a heartbeat"},
            },
            ("revision",),
        ),
        "Declared": record({"revision": COUNT, "removed": many({"type": "array"}, WHOLE_MAX),
                            "declarations": many({"type": "object"}, WHOLE_MAX), "read_only": many(TEXT, WHOLE_MAX),
                            "fences": ROWS, "emptying": many(TEXT, WHOLE_MAX), "vanished": many(TEXT),
                            "archived": ROWS, "released": many(TEXT, WHOLE_MAX), "shares": ROWS,
                            "later": {**ROWS, "description": "of a delay group: subjects, and seconds ahead at most"}},
                           ("later",)),
        "GroupState": record(GROUP_STATE),
        "GroupMoved": record({**GROUP_STATE, "moved": {**COUNT, "description": "subjects whose route has changed"}}),
        "BrokerGroup": {
            "type": "object", "required": ["group", "epoch", "master", "in_sync", "problem", "brokers"],
            "properties": {"brokers": many(ref("BrokerRow"))},
        },
        "BrokerRow": {
            "type": "object", "required": ["name", "role", "alive", "in_sync", "safe_to_stop", "why_not"],
            "properties": {
                "safe_to_stop": {**FLAG, "description": "stopped now, its group goes on being written"},
                "why_not": {**TEXT, "description": "empty when it is"},
                "hand_over_to": {**TEXT, "description": "of a master: who can take over now"},
                "restarts_in_place": {**FLAG, "description": "it is alone in its group"},
            },
        },
    }  # fmt: skip


def _subject_schemas() -> dict[str, Part]:
    ranges = many({"type": "array", "items": whole(0, LOGICAL_PARTITIONS), "minItems": 2, "maxItems": 2})
    partitions = many(record({"group": TEXT, "name": TEXT, "ranges": ranges}))
    declared: Part = {"type": ["object", "null"]}
    return {
        "Route": record(
            {
                "subject": TEXT, "version": COUNT, "state": STATE,
                "order_strategy": {"enum": ["Strict", "BestTried"]}, "partitions": partitions,
                "former": many(record({"version": COUNT, "partitions": partitions})),
                "moving": record({"partitions": partitions, "waits_for": many(TEXT)}),
            },
            ("moving",),
        ),
        "SubjectRow": record(
            {
                "name": TEXT, "state": STATE, "version": COUNT, "made": COUNT, "declared": declared,
                "route": {"anyOf": [{"type": "null"}, ref("Route")]},
            }
        ),
        "Group": record(
            {
                "group": TEXT, "subject": TEXT, "consumption": {"enum": list(CONSUMPTIONS)}, "declared": declared,
                "version": COUNT,
            }
        ),
        "Allocation": record(
            {
                "subject": TEXT, "group": TEXT, "version": COUNT, "closed": many(TEXT),
                "owners": {"type": "object", "additionalProperties": TEXT},
                "waiting": many(record({"partition": TEXT, "for": TEXT, "since": COUNT}), WHOLE_MAX),
            }
        ),
    }  # fmt: skip


def _client_schemas() -> dict[str, Part]:
    broker = {
        "group": TEXT,
        "name": TEXT,
        "host": {"type": ["string", "null"], "description": "null: the host that was asked"},
        "port": COUNT,
        "state": STATE,
        "epoch": COUNT,
        "control": TEXT,
    }
    consumed = record({"subject": TEXT, "group": TEXT, "consumer": TEXT})
    granted = record(
        {
            "subject": TEXT, "group": TEXT, "consumer": TEXT, "strategy": {"enum": ["shared", "exclusive"]},
            "allocation": COUNT, "partitions": many(TEXT),
            "authorised_ms": {**COUNT, "description": "counted from when the heartbeat was sent"},
        },
        ("allocation", "partitions", "authorised_ms"),
    )  # fmt: skip
    refused = record(
        {"subject": TEXT, "group": TEXT, "code": TEXT, "detail": TEXT, "advice": TEXT}, ("group",)
    )
    routes = many(ref("Route"), WHOLE_MAX)
    return {
        "Routes": record({"version": whole(1), "brokers": many(record(broker)), "delays": many(record(broker)),
                          "routes": routes}, ("delays", "routes")),
        "Client": record({"client": TEXT, "silent_ms": COUNT, "produces": many(TEXT), "consumes": many(consumed)}),
        "ClientAnswer": record(
            {
                "revision": COUNT, "beat_ms": COUNT, "routes": routes, "consumes": many(granted),
                "refused": many(refused, WHOLE_MAX),
            }
        ),
    }  # fmt: skip

"""The page that describes the HTTP port. Its examples are those of docs/meta.md."""

from __future__ import annotations

from functools import cache
from typing import Any

from tidemill_host.openapi import (
    Part,
    answers,
    assemble,
    error_answer,
    json_content,
    pattern,
    process_paths,
    reading,
    record,
    ref,
    whole,
)
from tidemill_host.system import system_paths
from tidemill_meta.asked import ADDRESS_CHARS_MAX, LABELS_MAX, WHOLE_MAX
from tidemill_meta.beats import CONSUMPTIONS, ROLES
from tidemill_meta.doors import access_page
from tidemill_meta.doors.archives_page import archive_paths, archive_schemas
from tidemill_meta.doors.schemas import COUNT, ROWS, STATE, TEXT, many, schemas
from tidemill_meta.routing import PARTITIONS_MAX
from tidemill_meta.storing import KNOWN_MAX
from tidemill_meta.values import SERVICES
from tidemill_wire.fields import CONSUMER, NAME
from tidemill_wire.pods import POD

DESCRIPTION = (
    "Who serves what: brokers register and are appointed, clients learn where subjects lie and what they may consume, "
    "people declare and change. Every error has one shape, says what to do, and whether to try again."
)
A_NAME = pattern(NAME.pattern, "1 to 100 characters of A-Z a-z 0-9 . _ -")
A_CONSUMER = pattern(CONSUMER.pattern, "1 to 200 printable characters")
KNOWN = whole(0, KNOWN_MAX, description="the latest revision of meta that it was answered")
ADDRESS: Part = {"type": "string", "maxLength": ADDRESS_CHARS_MAX, "description": "HOST:PORT"}
FORCE: Part = {
    "name": "force", "in": "query", "schema": {"enum": ["0", "1"]},
    "description": "1: also what programs that are there use, or what nobody else has",
}  # fmt: skip
IF_EMPTY: Part = {
    "name": "if_empty", "in": "query", "schema": {"enum": ["0", "1"]},
    "description": "1: only when its brokers say that nothing is left of it",
}  # fmt: skip
ERRORS = (400, 404, 408, 409, 413, 415, 503)
FENCED = record({"group": A_NAME, "closed": ROWS, "passed": ROWS}, ("closed", "passed"))
EMPTYING = record(
    {
        "group": A_NAME, "epoch": COUNT, "known": COUNT,
        "rows": many(
            record({"subject": A_NAME, "left": COUNT, "kept": COUNT, "groups": many(TEXT)}, ("groups",))
        ),
    },
    ("rows",),
)  # fmt: skip
APPOINTMENT = {
    "group": "g1", "epoch": 3, "master": "g1-0", "replicas": ["g1-0", "g1-1"], "in_sync": ["g1-0", "g1-1"],
    "version": 9, "lease_ms": 0,
}  # fmt: skip


@cache
def page() -> Part:
    """The whole page."""
    paths = (
        _brokers(),
        _reports(),
        _people(),
        _subjects(),
        _clients(),
        archive_paths(_of, _asking),
        access_page.paths(),
        process_paths("Whether the replica serves"),
        system_paths(),
    )
    return assemble(paths, (schemas(), archive_schemas()), "1", DESCRIPTION)


DECLARED_OBJECT = record(
    {"kind": TEXT, "name": TEXT, "subject": TEXT, "became": TEXT}, ("kind", "name", "became")
)


def _asking(
    name: str, summary: str, body: Part, schema: Part, example: Any, names: tuple[str, ...] = (), **more: Any
) -> Part:
    """A path that is posted to."""
    return {
        "post": {
            "operationId": name,
            "summary": summary,
            **({"parameters": [_variable(one) for one in names]} if names else {}),
            "requestBody": {"required": True, "content": json_content(body)},
            "responses": answers(schema, example, summary, ERRORS),
            **more,
        }
    }


def _variable(name: str) -> Part:
    return {"name": name, "in": "path", "required": True, "schema": A_NAME}


def _of(
    method: str,
    name: str,
    summary: str,
    names: tuple[str, ...],
    schema: Part,
    example: Any,
    more: tuple[Part, ...] = (),
) -> Part:
    """A path with variables that takes no body; ``more`` are other parameters."""
    failures = (400,) * bool(more) + ((404, 409, 503) if method == "delete" else (404,))
    operation = {
        "operationId": name,
        "summary": summary,
        "parameters": [*(_variable(one) for one in names), *more],
        "responses": answers(schema, example, summary, failures),
    }
    return {method: operation}


def _brokers() -> dict[str, Part]:
    addresses = record({"data": ADDRESS, "control": ADDRESS})
    labels = {
        "type": "object",
        "additionalProperties": {"type": "string", "maxLength": 63},
        "maxProperties": LABELS_MAX,
    }
    registration = record(
        {
            "group": A_NAME, "name": A_NAME, "addresses": addresses, "labels": labels, "boot": COUNT, "folder": TEXT,
            "epoch": COUNT, "service": {"enum": list(SERVICES)}, "known": KNOWN,
        },
        ("labels", "folder", "epoch", "service", "known"),
    )  # fmt: skip
    beat = record(
        {
            "group": A_NAME, "name": A_NAME, "boot": COUNT, "epoch": COUNT,
            "positions": record({"messages": COUNT, "actions": COUNT}, ("messages", "actions")),
            "load": {"type": "number", "minimum": 0, "exclusiveMaximum": 1e12}, "state": STATE,
            "role": {"enum": list(ROLES)}, "told": COUNT, "in_sync": many(A_NAME), "known": KNOWN,
        },
        ("epoch", "positions", "load", "state", "role", "told", "in_sync", "known"),
    )  # fmt: skip
    leave = record({"group": A_NAME, "name": A_NAME, "boot": COUNT})
    in_sync = record({"master": A_NAME, "epoch": COUNT, "version": COUNT, "in_sync": many(A_NAME)})
    handover = record({"to": A_NAME, "epoch": COUNT, "version": COUNT}, ("epoch", "version"))
    stand = {**APPOINTMENT, "addresses": {"g1-0": "10.0.0.1:7400", "g1-1": "10.0.0.2:7400"}}
    stand |= {"beat_ms": 1000, "state": "RW", "declared": 17}
    declared: Part = {"revision": 17, "removed": [], "declarations": [], "read_only": ["order.created"]}
    declared |= {"fences": [["order.paid", 3, [0, 512]]], "emptying": [], "vanished": []}
    declared |= {"archived": [["order.paid", 41]], "released": [], "shares": [["order.paid", 1, 2]]}
    appointment = ref("Appointment")
    group = ("group",)
    listed = reading("brokers", "Broker groups and their brokers", many(ref("BrokerGroup")), [])
    return {
        "/v1/delays": reading("delays", "Delay groups and their services", many(ref("BrokerGroup")), []),
        "/v1/brokers": {
            **listed,
            **_asking("register", "A broker begins to live", registration, ref("Stand"), stand),
        },
        "/v1/brokers/heartbeat": _asking("heartbeat", "A broker is there", beat, ref("Stand"), stand),
        "/v1/brokers/declared": _asking(
            "declared", "What people said of a broker group's subjects",
            record({"group": A_NAME, "known": COUNT}, ("known",)), ref("Declared"), declared,
        ),
        "/v1/brokers/leave": _asking(
            "leave", "A broker stops", leave, record({"left": TEXT}), {"left": "g1-0"}
        ),
        "/v1/groups/{group}/in-sync": _asking(
            "in_sync", "A master wants other slaves in sync", in_sync, appointment, APPOINTMENT, group
        ),
        "/v1/groups/{group}/handover": _asking(
            "handover", "A replica in sync becomes master", handover, appointment, APPOINTMENT, group
        ),
    }  # fmt: skip


def _reports() -> dict[str, Part]:
    """What masters tell when meta wants to know it."""
    return {
        "/v1/brokers/fenced": _asking(
            "fenced", "What became of fences", FENCED, record({"noted": TEXT}), {"noted": "g1"}
        ),
        "/v1/brokers/emptying": _asking(
            "emptying",
            "What is left of subjects that are to go if they are empty",
            EMPTYING,
            record({"noted": TEXT}),
            {"noted": "g1"},
        ),
    }


def _people() -> dict[str, Part]:
    """What people do with broker groups, and hear of them."""
    state = record({"state": STATE, "draining": whole(0, 1)}, ("state", "draining"))
    nothing = record({})
    appointment = ref("Appointment")
    group = ("group",)
    seen = record(
        {
            "address": TEXT,
            "problem": TEXT,
            "page": {"type": ["object", "null"], "description": "docs/canary.md"},
        }
    )
    none = {"address": "", "problem": "", "page": None}
    return {
        "/v1/canary": reading("canary", "What the queue's canary says", seen, none),
        "/v1/groups/{group}/elect": _asking(
            "elect", "A replica becomes master that may lack messages", record({"to": A_NAME}), appointment,
            APPOINTMENT, group,
        ),
        "/v1/groups/{group}/state": _asking(
            "group_state", "What a broker group takes", state, ref("GroupState"),
            {"group": "g1", "state": "R", "draining": False, "retired": False, "version": 10}, group,
        ),
        "/v1/groups/{group}/drain": _asking(
            "drain", "A broker group is only read, and gets no new partitions", nothing, ref("GroupMoved"),
            {"group": "g1", "state": "RW", "draining": True, "retired": False, "version": 11, "moved": 0}, group,
        ),
        "/v1/groups/{group}/retire": _asking(
            "retire", "A drained broker group goes out of all routes", nothing, ref("GroupMoved"),
            {"group": "g1", "state": "NRW", "draining": True, "retired": True, "version": 12, "moved": 3}, group,
        ),
        "/v1/groups/{group}/brokers/{broker}": _of(
            "delete", "remove_broker", "Forget a broker that will not come back", ("group", "broker"),
            record({"removed": TEXT}), {"removed": "g1/g1-1"}, (FORCE,),
        ),
    }  # fmt: skip


def _subjects() -> dict[str, Part]:
    manifest = {"type": "object", "description": "a manifest, as docs/operations.md has it"}
    body = {"anyOf": [manifest, many(manifest)]}
    expand = record(
        {"partitions": whole(1, PARTITIONS_MAX), "groups": many(A_NAME), "version": COUNT},
        ("partitions", "groups"),
    )
    subject = ("subject",)
    changed = {"subject": "order.created", "state": "R", "version": 2}
    pair = ("subject", "group")
    return {
        "/v1/declarations": _asking(
            "declare", "Declare subjects and groups", body,
            record({"declared": COUNT, "revision": COUNT, "objects": many(DECLARED_OBJECT, WHOLE_MAX)}),
            {"declared": 1, "revision": 4, "objects": [
                {"kind": "Subject", "name": "order.created", "became": "created"}
            ]},
        ),
        "/v1/subjects": reading("subjects", "Subjects there are", many(ref("SubjectRow"), WHOLE_MAX), []),
        "/v1/subjects/{subject}": {
            **_of("get", "subject", "A subject and its route", subject, ref("SubjectRow"), None),
            **_of(
                "delete", "remove_subject", "Remove a subject with its groups and messages", subject,
                record({"removed": TEXT}), {"removed": "order.created"}, (FORCE, IF_EMPTY),
            ),
        },
        "/v1/subjects/{subject}/route": _of("get", "route", "Where a subject lies", subject, ref("Route"), None),
        "/v1/subjects/{subject}/expand": _asking(
            "expand", "More partitions", expand, ref("Route"), None, subject
        ),
        "/v1/subjects/{subject}/move": _of(
            "delete", "give_up_move", "Let order keys that move stay", subject, ref("Route"), None
        ),
        "/v1/subjects/{subject}/state": _asking(
            "subject_state", "What a subject takes", record({"state": STATE}),
            record({"subject": TEXT, "state": STATE, "version": COUNT}), changed, subject,
        ),
        "/v1/groups": reading("groups", "Consumer groups there are", many(ref("Group"), WHOLE_MAX), []),
        "/v1/subjects/{subject}/groups/{group}": _of(
            "delete", "remove_group", "Remove a consumer group with its dead letters", pair, record({"removed": TEXT}),
            {"removed": "order.created/billing"}, (FORCE,),
        ),
        "/v1/subjects/{subject}/groups/{group}/allocation": _of(
            "get", "allocation", "Which consumer has which partition", pair, ref("Allocation"), None
        ),
    }  # fmt: skip


def _clients() -> dict[str, Part]:
    consumes = record(
        {
            "subject": A_NAME, "group": A_NAME, "consumer": A_CONSUMER, "consumption": {"enum": list(CONSUMPTIONS)},
            "allocation": COUNT,
        },
        ("consumer", "consumption", "allocation"),
    )  # fmt: skip
    beat = record(
        {"client": A_CONSUMER, "produces": many(A_NAME), "consumes": many(consumes), "known": COUNT},
        ("produces", "consumes", "known"),
    )
    prefixed = many({"type": "string", "maxLength": 101, "pattern": r"^[^*]*\*$"})
    watch = record(
        {
            "subjects": many(A_NAME), "patterns": prefixed,
            "groups": many(record({"subject": A_NAME, "group": A_NAME})), "broker_groups": many(A_NAME),
            "known": COUNT,
        },
        ("subjects", "patterns", "groups", "broker_groups", "known"),
    )  # fmt: skip
    stream = {
        "description": "lines of JSON, as long as somebody reads them",
        "content": {"application/x-ndjson": {"schema": TEXT}},
    }
    watching = _asking("watch", "Hear what changes", watch, TEXT, None)
    watching["post"]["responses"] = {
        "200": stream, **{str(status): error_answer(status) for status in (400, 405, 408, 413, 415, 503)},
    }  # fmt: skip
    named: Part = {
        "name": "subject", "in": "query", "required": False, "schema": many(A_NAME, 50),
        "description": "subjects whose routes are wanted",
    }  # fmt: skip
    routes = reading("routes", "Where brokers are, and subjects lie", ref("Routes"), None)
    routes["get"]["parameters"] = [named]
    routes["get"]["responses"] |= {"400": error_answer(400), "404": error_answer(404)}
    return {
        "/v1/routes": routes,
        "/v1/clients": reading("clients", "Clients heard of late", many(ref("Client"), WHOLE_MAX), []),
        "/v1/clients/heartbeat": _asking(
            "client_heartbeat", "A client is there", beat, ref("ClientAnswer"), None
        ),
        "/v1/clients/leave": _asking(
            "client_leave",
            "A client ends",
            record({"client": A_CONSUMER}),
            record({"left": TEXT}),
            {"left": "shop-1"},
        ),
        "/v1/clients/vanished": _asking(
            "vanished",
            "A pod is gone: what its consumers held is given to others",
            record({"pod": pattern(POD.pattern, "its uid")}),
            record({"vanished": TEXT}),
            {"vanished": "0e4f6c1a-5f0e-4a57-9d2c-8a3a4d1f2b6e"},
        ),
        "/v1/watch": watching,
    }

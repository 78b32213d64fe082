"""What the OpenAPI page says of the paths in ``archives.py``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidemill_host.openapi import Part, record, ref, whole
from tidemill_meta.archives import ACTIVE, ENDED, RUN_STATES
from tidemill_meta.asked import WHOLE_MAX
from tidemill_meta.silence import EVERY_MS_MAX, LOST

TEXT: Part = {"type": "string"}
COUNT = whole(0, WHOLE_MAX)
MARKS: Part = {
    "type": "object",
    "additionalProperties": {"type": "object", "additionalProperties": COUNT},
    "description": "by broker group and partition, the sequence below which all is archived",
}
STATE: Part = {"enum": [ACTIVE, ENDED], "description": "one that has ended holds nothing"}
SUBJECTS: Part = {
    "type": "array",
    "items": TEXT,
    "maxItems": 1000,
    "description": "subjects, or such as order.*",
}
COUNTS: Part = {"type": "object", "additionalProperties": COUNT, "maxProperties": 32}
SAID: dict[str, Part] = {
    "state": {"enum": list(RUN_STATES)},
    "started_at": {**COUNT, "description": "milliseconds since 1970, as all times here"},
    "ended_at": COUNT,
    "through": {**COUNT, "description": "the time up to which it is done"},
    "counts": COUNTS,
    "error": {"type": "string", "maxLength": 1000},
}
MADE = {
    "type": "object",
    "additionalProperties": COUNT,
    "description": "when each subject was made of which it tells watermarks, as GET /v1/subjects says it",
}
OPTIONAL = tuple(name for name in SAID if name != "state")
SHOWN: dict[str, Part] = {
    **SAID,
    "state": {
        "enum": [*RUN_STATES, LOST],
        "description": "Lost: its driver, which spoke every so often, is not heard any more",
    },
    "heard_at": {**COUNT, "description": "when its driver was last heard, while it has not ended"},
}
BEAT: Part = {
    "type": "object",
    "required": ["every_ms"],
    "properties": {"every_ms": whole(0, EVERY_MS_MAX, description="how often the driver speaks")},
}
RUN = {"state": "Succeeded", "ended_at": 1_795_000_000_000, "counts": {"messages": 3}}
ARCHIVE = {
    "name": "orders", "subjects": ["order.*"], "state": "Active", "watermarks": {"g0": {"order.paid": 3}},
    "runs": [{"run": "r1", **RUN}], "version": 1,
}  # fmt: skip
REPLAY = {"name": "again", "state": "Running", "counts": {"messages": 3}, "version": 1}


def archive_paths(
    of: Callable[..., dict[str, Part]], asking: Callable[..., dict[str, Part]]
) -> dict[str, Part]:
    """The path items; ``of`` makes those without a body, ``asking`` those with one."""

    def put(*arguments: Any) -> dict[str, Part]:
        item = asking(*arguments)["post"]
        item["requestBody"]["required"] = "required" in arguments[2]
        return {"put": item}

    archive = {"type": "object", "properties": _or_null({"subjects": SUBJECTS, "state": STATE})}
    said = {name: SAID[name] for name in OPTIONAL}
    of_run = {**said, "watermarks": MARKS, "made": MADE, "subjects": SUBJECTS}
    run = {
        "type": "object", "required": ["state"],
        "properties": {"state": SAID["state"], **_or_null(of_run)},
    }  # fmt: skip
    replay = {
        "type": "object", "required": ["state"],
        "properties": {
            "state": SAID["state"], **_or_null({**said, "run": TEXT, "dry_run": {"enum": ["true", "false"]}}),
        },
    }  # fmt: skip
    gone, heard = record({"removed": TEXT}), record({"heard": TEXT})
    return {
        "/v1/archives": of("get", "archives", "Archives that were told of", (), _many("Archive"), [ARCHIVE]),
        "/v1/archives/{archive}": {
            **of("get", "archive", "An archive", ("archive",), ref("Archive"), ARCHIVE),
            **of("delete", "remove_archive", "Forget an archive", ("archive",), gone, {"removed": "orders"}),
            **put(
                "put_archive",
                "There is an archive, or it has ended",
                archive,
                ref("Archive"),
                ARCHIVE,
                ("archive",),
            ),
        },
        "/v1/archives/{archive}/runs/{run}": put(
            "put_run", "How a run of an archive went", run, ref("Archive"), ARCHIVE, ("archive", "run")
        ),
        "/v1/archives/{archive}/runs/{run}/beat": put(
            "beat_run", "The driver of a run is there", BEAT, heard, {"heard": "r1"}, ("archive", "run")
        ),
        "/v1/replays": of("get", "replays", "Replays that were told of", (), _many("ReplayStatus"), [REPLAY]),
        "/v1/replays/{replay}": {
            **of("get", "replay", "A replay", ("replay",), ref("ReplayStatus"), REPLAY),
            **of("delete", "remove_replay", "Forget a replay", ("replay",), gone, {"removed": "again"}),
            **put("put_replay", "How a replay went", replay, ref("ReplayStatus"), REPLAY, ("replay",)),
        },
        "/v1/replays/{replay}/beat": put(
            "beat_replay", "The driver of a replay is there", BEAT, heard, {"heard": "again"}, ("replay",)
        ),
    }


def _or_null(fields: dict[str, Part]) -> dict[str, Part]:
    """What may be missing, or be said to be."""
    return {name: {"anyOf": [field, {"type": "null"}]} for name, field in fields.items()}


def _many(name: str) -> Part:
    return {"type": "array", "items": ref(name)}


def archive_schemas() -> dict[str, Part]:
    """What is answered."""
    optional = (*OPTIONAL, "heard_at")
    run = record({"run": TEXT, **SHOWN}, optional)
    archive = {
        "name": TEXT, "subjects": SUBJECTS, "state": STATE, "watermarks": MARKS,
        "runs": {"type": "array", "items": run}, "version": COUNT,
    }  # fmt: skip
    replay = {"name": TEXT, **SHOWN, "run": TEXT, "dry_run": {"type": "boolean"}, "version": COUNT}
    return {"Archive": record(archive), "ReplayStatus": record(replay, (*optional, "run", "dry_run"))}

"""What jobs tell meta: how far an archive has come, how a run or a replay went. A queue without meta is not told.

Watermarks of thousands of partitions go in pieces, for meta takes no longer requests: all but the last with a run that
goes on. What one does not hear, the next run tells again.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from typing import Any, TypeAlias, cast
from urllib.parse import quote

from tidemill_spark.calling import Port, connect, heads
from tidemill_spark.ranges import Key, NobodyAnswers
from tidemill_wire.fields import living_subject
from tidemill_wire.limits import KIB

PIECE_BYTES = 512 * KIB
"""Of watermarks and what belongs to them, in one request; meta takes twice that, with all else that is in it."""
NUMBERS_BYTES = 48
"""Of each, for two numbers and what stands between."""
Watermarks: TypeAlias = dict[str, dict[str, int]]


def put_run(server: str, archive: str, run: str, said: Mapping[str, Any]) -> bool:
    """How a run of an archive goes: ``state`` is Running, Succeeded or Failed; ``watermarks`` as ``watermarks_of``
    makes them, only of what is committed, and ``made`` when their subjects were. Whether there is a meta that heard it.
    """
    path = f"/v1/archives/{quote(archive)}/runs/{quote(run)}"
    *first, last = in_pieces(said.get("watermarks", {}))
    made: Mapping[str, int] | None = said.get("made")
    begun = {name: said[name] for name in ("started_at", "subjects") if name in said}
    for piece in first:
        if not tell(server, "PUT", path, {**begun, "state": "Running", **_with(piece, made)}):
            return False
    ended = {name: value for name, value in said.items() if name not in {"watermarks", "made"}}
    return tell(server, "PUT", path, {**ended, **_with(last, made)})


def _with(piece: Watermarks, made: Mapping[str, int] | None) -> dict[str, Any]:
    """Some watermarks, and what belongs to them."""
    if not piece:
        return {}
    if made is None:
        return {"watermarks": piece}
    subjects = {living_subject(name) for marks in piece.values() for name in marks}
    return {"watermarks": piece, "made": {name: made[name] for name in sorted(subjects & made.keys())}}


def in_pieces(marks: Mapping[str, Mapping[str, int]]) -> list[Watermarks]:
    """One at least, and none too long for a request with all that goes with it."""
    pieces: list[Watermarks] = [{}]
    held = 0
    for group, partitions in marks.items():
        for name, sequence in partitions.items():
            held += 2 * len(json.dumps(name)) + NUMBERS_BYTES
            if held > PIECE_BYTES and pieces[-1]:
                pieces.append({})
                held = 2 * len(json.dumps(name)) + NUMBERS_BYTES
            pieces[-1].setdefault(group, {})[name] = sequence
    return pieces


def made_of(server: str) -> dict[str, int] | None:
    """When each subject was made, as meta says; ``None`` where there is no meta, or an earlier one."""
    error: Exception = NobodyAnswers(f"{server!r} names nobody")
    for place in filter(None, server.split(",")):
        try:
            status, _, body = Port.ask(place, "/v1/subjects")
            if status == 200:
                rows = cast("list[Mapping[str, Any]]", json.loads(body))
                if not all(isinstance(row.get("made"), int) for row in rows):
                    return None
                return {str(row["name"]): int(row["made"]) for row in rows}
            if status in {404, 405}:
                return None
            error = NobodyAnswers(f"{place} answers {status}: {_detail(body)}")
        except (OSError, http.client.HTTPException, ValueError) as caught:
            error = caught
    raise NobodyAnswers(f"nobody says at {server} which subjects there are: {error}") from error


def beat_run(server: str, archive: str, run: str, every_ms: int) -> bool:
    """The driver of a run is there, and says so again; a meta of an earlier version does not listen."""
    return tell(
        server, "PUT", f"/v1/archives/{quote(archive)}/runs/{quote(run)}/beat", {"every_ms": every_ms}
    )


def beat_replay(server: str, replay: str, every_ms: int) -> bool:
    """The same of a replay."""
    return tell(server, "PUT", f"/v1/replays/{quote(replay)}/beat", {"every_ms": every_ms})


def put_replay(server: str, replay: str, said: Mapping[str, Any]) -> bool:
    """How a replay goes."""
    return tell(server, "PUT", f"/v1/replays/{quote(replay)}", said)


def watermarks_of(positions: Mapping[Key, int]) -> Watermarks:
    """As meta is told them."""
    found: Watermarks = {}
    for (group, partition), sequence in positions.items():
        found.setdefault(group, {})[partition] = sequence
    return found


def tell(server: str, method: str, path: str, said: Mapping[str, Any]) -> bool:
    """The first replica of meta that answers is told; ``False``: there is no meta here."""
    error: Exception = NobodyAnswers(f"{server!r} names nobody")
    for place in filter(None, server.split(",")):
        connection = connect(place)
        try:
            head = heads(content_type="application/json")
            connection.request(method, path, json.dumps(dict(said)), head)
            answer = connection.getresponse()
            body = answer.read()
        except (OSError, http.client.HTTPException) as caught:
            error = caught
            continue
        finally:
            connection.close()
        if answer.status < 400:
            return True
        if answer.status in {404, 405}:
            return False
        error = NobodyAnswers(f"{place} answers {answer.status}: {_detail(body)}")
    raise NobodyAnswers(f"nobody hears {method} {path} at {server}: {error}") from error


def _detail(body: bytes) -> str:
    try:
        said: object = json.loads(body)
    except ValueError:
        return ""
    found: object = cast("Mapping[str, object]", said).get("error") if isinstance(said, dict) else None
    return str(found)[:500]

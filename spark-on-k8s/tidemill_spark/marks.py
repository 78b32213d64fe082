"""What jobs tell meta: how far an archive has come, how a run or a replay went. A queue without meta is not told."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import quote

from tidemill_spark.calling import connect, heads
from tidemill_spark.ranges import Key, NobodyAnswers


def put_run(server: str, archive: str, run: str, said: Mapping[str, Any]) -> bool:
    """How a run of an archive goes: ``state`` is Running, Succeeded or Failed; ``watermarks`` as ``watermarks_of``
    makes them, only of what is committed. Whether there is a meta that heard it.
    """
    return tell(server, "PUT", f"/v1/archives/{quote(archive)}/runs/{quote(run)}", said)


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


def watermarks_of(positions: Mapping[Key, int]) -> dict[str, dict[str, int]]:
    """As meta is told them."""
    found: dict[str, dict[str, int]] = {}
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

"""Messages are found and looked at, by the command line and over HTTP, before and after the broker is killed."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

from e2e.queues import Queue, run_command
from tidemill.blocking import Client

pytestmark = pytest.mark.e2e

SMALL = {
    "TIDEMILL_SEGMENT_BATCHES": "4",
    "TIDEMILL_CHECKPOINT_EVENTS": "10",
    "TIDEMILL_CHECKPOINT_PAUSE_MS": "1",
}


def good(queue: Queue, *arguments: str, stdin: bytes = b"") -> list[str]:
    done = run_command(*arguments, server=queue.server, stdin=stdin)
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout.splitlines()


def sent(queue: Queue, subject: str, messages: list[tuple[str, str | None]]) -> list[str]:
    """One batch a message, each stored in a millisecond of its own; their ids."""
    ids: list[str] = []
    with Client(queue.server) as mq:
        for body, key in messages:
            ids.append(mq.send(subject, body, key=key, tags={"vip"}).id)
            stored = time.time_ns() // 1_000_000
            while time.time_ns() // 1_000_000 == stored:
                pass
    return ids


def found(queue: Queue, *arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in good(queue, *arguments, "--output", "json")]


def get(queue: Queue, path: str) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(f"http://{queue.server}{path}", timeout=20) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_what_was_sent_is_found_also_after_a_kill(make_queue: Callable[..., Queue]) -> None:
    queue = make_queue(settings=SMALL).start()
    ids = sent(queue, "find.orders", [(f"body {number}", f"o-{number % 2}") for number in range(6)])
    sent(queue, "find.other", [("elsewhere", "o-1")])
    for _ in range(2):
        [message] = found(queue, "find", ids[3])
        assert (message["id"], message["subject"], message["sequence"]) == (ids[3], "find.orders", 3)
        assert (message["body"], message["key"], message["tags"]) == ("body 3", "o-1", ["vip"])
        by_key = found(queue, "find", "--subject", "find.orders", "--key", "o-1")
        assert [one["sequence"] for one in by_key] == [1, 3, 5]
        everywhere = found(queue, "find", "--key", "o-1", "--newest", "--count", "2")
        assert [one["subject"] for one in everywhere] == ["find.other", "find.orders"]
        browsed = found(queue, "browse", "find.orders", "--sequence", "2")
        assert [one["id"] for one in browsed] == ids[2:]
        since = message["stored_at"]
        assert [
            one["id"] for one in found(queue, "find", "--subject", "find.orders", "--from", since)
        ] == ids[3:]
        assert [one["id"] for one in found(queue, "browse", "find.orders", "--to", since)] == ids[:3]
        later = found(queue, "find", "--key", "o-1", "--from", since, "--to", "2999-01-01")
        assert [one["subject"] for one in later] == ["find.orders", "find.orders", "find.other"]
        earlier = found(queue, "find", "--subject", "find.orders", "--key", "o-1", "--to", since)
        assert [one["sequence"] for one in earlier] == [1]
        queue.kill()
        queue.start()
    assert len(good(queue, "consume", "find.orders", "--group", "g", "--count", "6")) == 6


def test_what_is_not_there_is_a_failure_in_one_sentence(shared_queue: Queue) -> None:
    sent(shared_queue, "find.one", [("x", None)])
    for arguments, code in (
        (("find", "0" * 32 + "-0"), 1),
        (("find", "--key", "nobody's"), 1),
        (("find", "--subject", "find.one", "--from", "2999-01-01"), 1),
        (("browse", "find.never"), 1),
        (("find", "no-id"), 2),
        (("find",), 2),
        (("find", "--subject", "find.one"), 2),
        (("browse", "find.one", "--from", "yesterday"), 2),
        (("browse", "find.one", "--sequence", "1", "--from", "2026-09-01"), 2),
    ):
        done = run_command(*arguments, server=shared_queue.server)
        assert done.returncode == code, done
        assert done.stderr.startswith("tidemill: ")
        assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "path, status, code",
    [
        ("/v1/messages/nonsense", 400, "malformed_request"),
        ("/v1/messages/" + "0" * 32 + "-0", 404, "not_found"),
        ("/v1/messages", 400, "malformed_request"),
        ("/v1/messages?key=", 400, "malformed_request"),
        ("/v1/messages?key=a&key=b", 400, "malformed_request"),
        ("/v1/messages?key=a&limt=1", 400, "malformed_request"),
        ("/v1/messages?key=a&limit=0", 400, "limit_exceeded"),
        ("/v1/messages?key=a&limit=1001", 400, "limit_exceeded"),
        ("/v1/messages?key=a&after=x", 400, "malformed_request"),
        ("/v1/messages?key=a&after=7", 409, "malformed_request"),
        ("/v1/subjects/find.http/messages?after=7-1", 409, "malformed_request"),
        ("/v1/messages?key=a&order=up", 400, "malformed_request"),
        ("/v1/subjects/find.none/messages", 404, "not_found"),
        (f"/v1/messages/{'0' * 32}-9999999/why", 404, "not_found"),
        ("/v1/messages/x/why", 400, "malformed_request"),
        ("/v1/subjects/a%20b/messages", 400, "invalid_subject"),
        ("/v1/subjects/find.http/messages?from=noon", 400, "malformed_request"),
        ("/v1/subjects/find.http/messages?sequence=-1", 400, "malformed_request"),
    ],
)
def test_a_wrong_question_is_told_so(shared_queue: Queue, path: str, status: int, code: str) -> None:
    sent(shared_queue, "find.http", [("x", None)])
    answered, value = get(shared_queue, path)
    assert (answered, value["error"]["code"]) == (status, code)
    assert value["error"]["detail"]
    assert value["error"]["advice"]


def test_a_damaged_index_is_named_and_made_again(make_queue: Callable[..., Queue]) -> None:
    queue = make_queue(settings=SMALL).start()
    identity, *_ = sent(queue, "find.damaged", [("x", f"k-{number}") for number in range(9)])
    assert queue.stop() == 0
    files = sorted((queue.data / "index").iterdir())
    assert len(files) == 2
    whole = files[0].read_bytes()
    files[0].write_bytes(whole[:4100] + bytes([whole[4100] ^ 1]) + whole[4101:])
    queue.start()
    status, value = get(queue, f"/v1/messages/{identity}")
    assert (status, value["error"]["code"]) == (500, "read_failed")
    assert f"index/{files[0].name}" in value["error"]["detail"]
    assert queue.stop() == 0
    files[0].unlink()
    queue.start()
    assert found(queue, "find", identity)[0]["body"] == "x"
    assert files[0].read_bytes() == whole


def test_the_page_describes_the_paths(shared_queue: Queue) -> None:
    status, page = get(shared_queue, "/openapi.json")
    assert status == 200
    for path in ("/v1/messages/{id}", "/v1/messages", "/v1/subjects/{subject}/messages"):
        assert page["paths"][path]["get"]["responses"]["200"]
    assert {"StoredMessage", "StoredPage", "Error"} <= set(page["components"]["schemas"])

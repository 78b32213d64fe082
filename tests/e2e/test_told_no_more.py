"""Whoever is refused is told no more than they said: on every route there is, and on every port.

A subject that is there and one that is not are answered alike to who was granted nothing there; and what is asked for
by an id never names whose it is.
"""

from __future__ import annotations

import http.client
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from e2e.peers import RawPeer
from e2e.queues import wait_until
from e2e.test_attacks_others import timer
from e2e.towers import Tower
from tidemill import blocking
from tidemill.security import Security
from tidemill.settings import ClientSettings
from tidemill_broker.doors.permits import PERMITS as BROKERS
from tidemill_meta.doors.permits import PERMITS as METAS
from tidemill_wire.commands import Failed
from tidemill_wire.timing import Cancel, Reschedule, Show, Target
from tidemill_wire.transacting import Decide, Verdict

pytestmark = pytest.mark.e2e

SECRET, ABSENT, TREASURE = "vault.of.victims", "vault.of.nobodys", "treasure of victims"
VARIABLE = re.compile(r"\{[a-z]+\}")
ROUTES = sorted(key for key in {*BROKERS, *METAS} if not key[1].endswith("/watch"))
"""All there are, but for those that answer without end."""
OPEN = {("GET", "/v1/subjects/{subject}/route")}
"""What a subject lies on is told to whoever is known (docs/security.md)."""
WHO = ("shop", "reader", "nothing")


@pytest.fixture(scope="module", autouse=True)
def vault(tower: Tower) -> None:
    """A subject of the victim's, whose name is in no page."""
    everything = [{"subjects": [SECRET], "operations": ["Send", "Consume", "Browse", "Admin"]}]
    grant = {"principals": ["token:victim"], "permissions": everything}
    assert tower.ask("PUT", "/v1/access/grants/vault", grant)[0] == 200


@pytest.fixture(scope="module")
def ids(tower: Tower) -> Iterator[dict[str, list[str]]]:
    """What the victim has that may be asked for by an id: a message, one for later, a dead letter, a transaction."""
    for _ in range(2):
        assert (
            tower.ask("POST", f"/v1/subjects/{SECRET}/messages", {"text": TREASURE}, token="victim")[0] == 200
        )
    waiting = timer(tower, SECRET, "victim")
    message = tower.ask("GET", f"/v1/subjects/{SECRET}/messages")[1]["messages"][0]["id"]
    group = f"/v1/subjects/{SECRET}/groups/theirs"
    taken = tower.ask("POST", f"{group}/receive", {"max": 1, "wait_ms": 10_000}, token="victim")[1][
        "messages"
    ][0]
    body = {"receipts": [taken["receipt"]], "reject": True}
    assert tower.ask("POST", f"{group}/nack", body, token="victim")[0] == 200

    def letters() -> list[Any]:
        found: list[Any] = tower.ask("GET", f"/v1/subjects/%25dead%25{SECRET}%25theirs/messages")[1].get(
            "messages", []
        )
        return found

    wait_until("it is a dead letter", letters, 30)
    with pending(tower) as transaction:
        yield {"id": [message, waiting, letters()[0]["id"]], "transaction": [f"{transaction:x}"]}


@contextmanager
def pending(tower: Tower) -> Iterator[int]:
    settings = ClientSettings(security=Security(token=tower.tokens["victim"]))
    with blocking.Client(tower.server, settings=settings) as mq:
        tx = mq.transaction("theirs")
        tx.send(SECRET, "half")
        yield int(tx.id, 16)
        tx.rollback()


def asked(tower: Tower, who: str, method: str, path: str) -> tuple[int, str]:
    """Status and text, whatever kind that is."""
    heads = {"Authorization": f"Bearer {tower.tokens[who]}", "Content-Type": "application/json"}
    connection = http.client.HTTPConnection(tower.host, tower.http_port, timeout=60)
    try:
        connection.request(method, path, None if method in {"GET", "DELETE"} else b"{}", heads)
        answer = connection.getresponse()
        return answer.status, answer.read().decode("utf-8", "replace")
    finally:
        connection.close()


def test_a_subject_of_others_is_answered_as_one_that_is_not_there(tower: Tower) -> None:
    """By every route that names one."""
    walked = 0
    for method, template in ROUTES:
        if "{subject}" not in template or (method, template) in OPEN:
            continue
        for who in WHO:
            answers = []
            for subject in (SECRET, ABSENT):
                path = VARIABLE.sub("theirs", template.replace("{subject}", subject))
                status, said = asked(tower, who, method, path)
                answers.append((status, said.replace(subject, "SUBJECT")))
            assert answers[0] == answers[1], (method, template, who)
            assert answers[0][0] in {403, 404, 405}, (method, template, who, answers)
            walked += 1
    assert walked > 60


def test_what_is_asked_for_by_an_id_never_names_whose_it_is(tower: Tower, ids: dict[str, list[str]]) -> None:
    """Nor does any other answer: by every route, with whatever was granted elsewhere in the place of its names."""
    walked = 0
    for method, template in ROUTES:
        names = VARIABLE.findall(template)
        some = next((ids[name[1:-1]] for name in names if name[1:-1] in ids), ["billing"])
        for one in some:
            path = template.replace("{subject}", "order.a").replace("{id}", one).replace("{transaction}", one)
            for who in WHO:
                status, said = asked(tower, who, method, VARIABLE.sub("billing", path))
                assert SECRET not in said, (method, path, who, status, said[:300])
                assert TREASURE not in said, (method, path, who, status, said[:300])
                assert "theirs" not in said, (method, path, who, status, said[:300])
                assert status < 500 or status == 503, (method, path, who, status, said[:300])
                walked += 1
    assert walked > 300


def test_nor_do_answers_on_the_data_ports(tower: Tower, ids: dict[str, list[str]]) -> None:
    [delay] = tower.get("/v1/routes")["delays"]
    target = Target(id=ids["id"][1])
    number = int(ids["transaction"][0], 16)
    at_delay = [Cancel(target), Reschedule(target, 4_000_000_000_000), Show(target)]
    at_broker = [Decide(number, Verdict.COMMIT), Decide(number, Verdict.ROLLBACK)]
    for port, commands in ((int(delay["port"]), at_delay), (0, at_broker)):
        for command in commands:
            with RawPeer(tower, token=tower.tokens["shop"], port=port) as peer:
                peer.hear()
                answer = peer.ask(command)
                assert isinstance(answer, Failed), (command, answer)
                assert SECRET not in answer.detail, (command, answer)


@pytest.mark.parametrize("named", [SECRET, ABSENT, "vault*", "*"])
def test_what_a_body_names_is_judged_as_what_the_path_names(tower: Tower, named: str) -> None:
    """A receive may name more subjects in its body."""
    path = "/v1/subjects/order.a/groups/billing/receive"
    status, said = tower.ask("POST", path, {"subjects": [named], "wait_ms": 0}, token="shop")
    assert (status, said["error"]["code"]) == (403, "forbidden")
    assert said["error"]["detail"] == f"token:shop was not granted Consume on {named!r} as group 'billing'"
    status, said = tower.ask("POST", path, {"subjects": ["order.a"], "wait_ms": 0}, token="shop")
    assert status == 200

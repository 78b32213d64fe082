"""Attacks on a locked queue: each is refused with the right code, counted, and noted in the log of what people did."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from e2e.towers import Tower
from tidemill_broker.doors.permits import PERMITS as BROKERS
from tidemill_host.permits import Need, Permit
from tidemill_meta.doors.permits import PERMITS as METAS
from tidemill_wire.access import digest_of

pytestmark = pytest.mark.e2e

VARIABLES = {"subject": "secret", "group": "billing", "id": "0" * 32 + "-0", "transaction": "00000000000000000001",
             "grant": "shop", "token": "0" * 16, "log": "message", "base": "0", "broker": "g0-0", "partition": "secret",
             "archive": "a", "replay": "a", "run": "r"}  # fmt: skip
OF_GROUPS = ("/v1/replication", "/v1/segments")
"""What a broker has that is one of a group."""
ON_KUBERNETES = ("/v1/brokers/reviews",)
"""What meta has where there are ServiceAccounts: see tests/cluster/test_accounts.py."""
ROUTES = [
    (method, path, permit)
    for (method, path), permit in {**METAS, **BROKERS}.items()
    if permit.need is not Need.NOTHING and not path.startswith((*OF_GROUPS, *ON_KUBERNETES))
]
NAMED = [f"{method} {path}" for method, path, _ in ROUTES]


ELSEWHERE = {"data": "169.254.169.254:80", "control": "169.254.169.254:80"}
Refused: TypeAlias = Callable[[str], None]


def filled(path: str) -> str:
    return re.sub(r"\{(\w+)\}", lambda found: VARIABLES[found[1]], path)


def code_of(answer: Any) -> str:
    return str(answer["error"]["code"]) if isinstance(answer, dict) and "error" in answer else ""


# -- every path over HTTP ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "path", "permit"), ROUTES, ids=NAMED)
def test_a_path_is_shut_for_nobody(
    tower: Tower, refused: Refused, method: str, path: str, permit: Permit
) -> None:
    assert tower.ask(method, filled(path), {}, token=None)[0] == 401
    assert tower.ask(method, filled(path), {}, token="x" * 43)[0] == 401
    refused("unauthenticated")


@pytest.mark.parametrize(
    ("method", "path", "permit"),
    [one for one in ROUTES if one[2].need in {Need.A_RIGHT, Need.THE_CLUSTER}],
    ids=[
        name
        for name, one in zip(NAMED, ROUTES, strict=True)
        if one[2].need in {Need.A_RIGHT, Need.THE_CLUSTER}
    ],
)
def test_what_is_not_granted_is_shut(
    tower: Tower, refused: Refused, method: str, path: str, permit: Permit
) -> None:
    """To who may send and consume something else, to who may read something else, and to who may do nothing."""
    for who in ("shop", "reader", "nothing"):
        status, answer = tower.ask(method, filled(path), {}, token=who)
        assert (status, code_of(answer)) == (403, "forbidden"), (who, answer)
    refused("forbidden")


@pytest.mark.parametrize(
    "path",
    [
        "//v1/subjects", "/v1/subjects/", "/v1//subjects", "/V1/subjects", "/v1/./subjects", "/healthz/../v1/subjects",
        "/healthz/%2e%2e/v1/subjects", "/v1/subjects%00", "/v1/subjects;x=/healthz", "/v1/subjects?/healthz",
        "/healthz%2f..%2fv1%2fsubjects", "/%76%31/subjects", "/etc/passwd", "/../../../etc/passwd",
        "/v1/segments/message/..%2f..%2fcluster.token", "/v1/segments/..%2faction/0", "/static/../data/meta/meta.db",
         "/v1/nothing",
    ],
)  # fmt: skip
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_no_writing_of_a_path_gets_around_the_door(
    tower: Tower, refused: Refused, method: str, path: str
) -> None:
    status, answer = tower.ask(method, path, token=None)
    assert status == 401, answer
    assert b"treasure" not in str(answer).encode()
    status, answer = tower.ask(method, path, token="nothing")
    assert status in {400, 403, 404, 405} or answer in ([], {}), (status, answer)
    refused("unauthenticated")


@pytest.mark.parametrize(
    "heads",
    [
        {"Authorization": "Basic c2hvcDpzaG9w"}, {"Authorization": "Bearer"}, {"Authorization": "Bearer "},
        {"Authorization": "Bearer " + "x" * 3000}, {"Authorization": "Bearer x y"}, {"Authorization": "null"},
        {"Cookie": "token=TOKEN"}, {"X-Api-Token": "TOKEN"}, {"X-Forwarded-User": "cluster"},
        {"X-Forwarded-For": "127.0.0.1"}, {"X-Original-URL": "/healthz"}, {"X-HTTP-Method-Override": "GET"},
    ],
    ids=str,
)  # fmt: skip
def test_nothing_else_in_the_head_says_who_asks(
    tower: Tower, refused: Refused, heads: dict[str, str]
) -> None:
    said = {name: value.replace("TOKEN", tower.tokens["victim"]) for name, value in heads.items()}
    assert tower.ask("GET", "/v1/subjects/secret/messages", token=None, heads=said)[0] == 401
    refused("unauthenticated")


@pytest.mark.parametrize("who", ["expired", "revoked"])
def test_a_token_that_is_over_is_nobodys(tower: Tower, refused: Refused, who: str) -> None:
    assert tower.ask("GET", "/v1/subjects", token=who)[0] == 401
    refused("unauthenticated")


def test_a_token_in_the_address_is_none(tower: Tower, refused: Refused) -> None:
    path = (
        f"/v1/subjects/secret/messages?token={tower.tokens['victim']}&access_token={tower.tokens['victim']}"
    )
    assert tower.ask("GET", path, token=None)[0] == 401
    refused("unauthenticated")


def test_what_is_kept_of_a_token_opens_nothing(tower: Tower, refused: Refused) -> None:
    """Who has read the database has digests, and no token."""
    assert tower.ask("GET", "/v1/subjects", token=digest_of(tower.tokens["victim"]))[0] == 401
    refused("unauthenticated")


@pytest.mark.parametrize(
    "heads",
    [
        {"Origin": "https://evil.example"}, {"Origin": "null"}, {"Origin": "http://127.0.0.1"},
        {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"},
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("who", ["shop", None], ids=["with a token", "without"])
def test_a_page_of_another_site_gets_nothing_done(
    tower: Tower, refused: Refused, heads: dict[str, str], who: str | None
) -> None:
    """Whoever's browser it is, and whatever that browser shows by itself."""
    answer = tower.ask("POST", "/v1/subjects/order.a/messages", {"text": "forged"}, token=who, heads=heads)
    assert (answer[0], code_of(answer[1])) == (403, "foreign_page")
    refused("foreign_page")


@pytest.mark.parametrize("path", ["/v1/access/own", "/console/", "/healthz", "/v1/subjects/secret/messages"])
@pytest.mark.parametrize("who", ["victim", None], ids=["with a token", "without"])
def test_a_name_that_was_made_to_lead_here_reads_nothing(
    tower: Tower, refused: Refused, path: str, who: str | None
) -> None:
    """DNS rebinding: the page and the port are one origin to the browser, also where nothing has to be shown."""
    heads = {"Host": "evil.example:7401", "Accept-Language": "en", "Sec-Fetch-Site": "same-origin"}
    answer = tower.ask("GET", path, token=who, heads=heads)
    assert (answer[0], code_of(answer[1])) == (403, "foreign_host")
    refused("foreign_host")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/brokers", {"group": "g9", "name": "g9-0", "boot": 1, "addresses": ELSEWHERE}),
                ("/v1/brokers/heartbeat", {"group": "g0", "name": "g0-0", "boot": 1}),
        ("/v1/brokers/leave", {"group": "g0", "name": "g0-0", "boot": 1}),
        ("/v1/groups/g0/in-sync", {"master": "g0-0", "epoch": 1, "version": 1, "in_sync": []}),
        ("/v1/brokers/access", {}),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)  # fmt: skip
def test_nobody_passes_for_a_broker(tower: Tower, refused: Refused, path: str, body: object) -> None:
    """Nor makes one call an address of the enemy's choice."""
    for who in ("shop", "victim"):
        assert tower.ask("POST", path, body, token=who)[0] in {403, 404}
    refused("forbidden")


def test_lists_show_everybody_their_own(tower: Tower) -> None:
    names = {row["name"] for row in tower.ask("GET", "/v1/subjects", token="shop")[1]}
    assert "secret" not in names
    assert "order.a" in names
    assert tower.ask("GET", "/v1/subjects", token="nothing")[1] == []
    assert {row["subject"] for row in tower.ask("GET", "/v1/groups", token="shop")[1]} <= names


@pytest.mark.parametrize("what", ["groups", "subjects", "past"])
def test_sums_and_counts_say_nothing_of_what_is_others(tower: Tower, what: str) -> None:
    """Not by a name, a number or an order; and whoever asks for it by its name is told the same."""
    path = f"/v1/overview/{what}"
    by_name = f"{path}?subject=secret" if what != "subjects" else f"{path}?contains=secret"
    for who, own in {"nothing": (), "shop": (), "reader": ("order.a",), "victim": ("secret",)}.items():
        said = tower.ask("GET", path, token=who)[1]
        rows = said["groups" if "groups" in said else "subjects"]
        assert {row.get("subject", row.get("name")) for row in rows} <= set(own), who
        if what == "past":
            assert said["sums"] == [], who
            continue
        kept = {"messages": sum(row["messages"] for row in rows)} if what == "subjects" else {}
        assert (said["count"], said["found"]) == (len(rows), len(rows)), who
        assert said["sums"] == {**said["sums"], **kept}, who
        if not own:
            assert not any(said["sums"].values()), who
        if who != "victim":
            assert tower.ask("GET", by_name, token=who)[1]["found"] == 0, who
    seen = tower.ask("GET", "/v1/overview/subjects", token="victim")[1]
    assert [row["name"] for row in seen["subjects"]] == ["secret"]


def test_everybody_is_told_their_own_rights_and_nobody_elses(tower: Tower) -> None:
    assert tower.ask("GET", "/v1/access/own")[1] == {"who": "cluster", "everything": True, "permissions": []}
    nothing = tower.ask("GET", "/v1/access/own", token="nothing")[1]
    assert nothing == {"who": "token:nothing", "everything": False, "permissions": []}
    reader = {"who": "token:reader", "everything": False,
              "permissions": [{"operations": ["Browse"], "subjects": ["order.*"]}]}  # fmt: skip
    assert tower.ask("GET", "/v1/access/own", token="reader")[1] == reader
    assert tower.ask("GET", "/v1/access/own?who=victim", token="reader")[1] == reader


def test_a_message_is_not_shown_by_its_id_alone(tower: Tower, refused: Refused) -> None:
    found = tower.ask("GET", "/v1/subjects/secret/messages")[1]["messages"][0]["id"]
    for path in (f"/v1/messages/{found}", f"/v1/messages/{found}/why"):
        assert tower.ask("GET", path, token="victim")[0] == 200, path
        assert tower.ask("GET", path, token="reader")[0] == 403, path
    assert tower.ask("GET", "/v1/messages?key=x", token="reader")[0] == 403
    assert tower.ask("GET", "/v1/messages?key=x&subject=order.a&subject=secret", token="reader")[0] == 403
    refused("forbidden")


def test_a_heartbeat_makes_nothing_that_was_not_granted(tower: Tower) -> None:
    beat = {"client": "c-1", "produces": ["mine.not"], "known": 0,
            "consumes": [{"subject": "order.a", "group": "theirs", "consumer": "c-1"}]}  # fmt: skip
    status, answer = tower.ask("POST", "/v1/clients/heartbeat", beat, token="shop")
    assert (status, [row["code"] for row in answer["refused"]]) == (200, ["forbidden", "forbidden"])
    assert tower.ask("GET", "/v1/subjects/mine.not")[0] == 404


def test_what_is_declared_is_looked_at_one_by_one(tower: Tower, refused: Refused) -> None:
    def subject(name: str) -> dict[str, Any]:
        return {
            "apiVersion": "tidemill.dev/v1alpha1",
            "kind": "Subject",
            "metadata": {"name": name},
            "spec": {},
        }

    assert (
        tower.ask("POST", "/v1/declarations", [subject("secret"), subject("order.b")], token="victim")[0]
        == 403
    )
    assert tower.ask("GET", "/v1/subjects/order.b")[0] == 404
    refused("forbidden")


@pytest.mark.parametrize("lines", [200, 20])
def test_a_flood_of_heads_is_cut_off(tower: Tower, lines: int) -> None:
    flood = b"".join(
        b"X-%d: %s\r\n" % (number, b"y" * (9000 if lines == 20 else 60)) for number in range(lines)
    )
    with socket.create_connection((tower.host, tower.http_port), timeout=60) as peer:
        peer.sendall(b"GET /v1/subjects HTTP/1.1\r\nHost: x\r\n" + flood + b"\r\n")
        heard = peer.recv(65536)
    assert re.match(rb"HTTP/1\.[01] (400|401|431)", heard), heard[:100]


@pytest.mark.parametrize("size", [9_000, 1_000_000])
def test_an_address_without_end_is_cut_off(tower: Tower, size: int) -> None:
    with socket.create_connection((tower.host, tower.http_port), timeout=60) as peer:
        try:
            peer.sendall(b"GET /v1/" + b"x" * size + b" HTTP/1.1\r\nHost: x\r\n\r\n")
            heard = peer.recv(65536)
        except ConnectionError:
            return
    assert re.match(rb"HTTP/1\.[01] (400|401|414)", heard), heard[:100]


def test_no_secret_is_in_a_log_a_list_or_what_is_stored(tower: Tower) -> None:
    """Nor in what the process was started with."""
    secrets = [tower.token, *tower.tokens.values()]
    told = [
        str(tower.ask("GET", path)[1])
        for path in ("/v1/access/tokens", "/v1/access/grants", "/v1/brokers", "/v1/clients")
    ]
    told += [tower.get_text("/metrics"), tower.audit_file.read_text(), tower.said()]
    told.append(Path(f"/proc/{tower.pid}/cmdline").read_bytes().decode("latin-1"))
    told += [path.read_bytes().decode("latin-1") for path in tower.data.rglob("*") if path.is_file()]
    for secret in secrets:
        assert not any(secret in text for text in told)


def test_permits_cover_every_path_there_is(tower: Tower) -> None:
    """One that is in no table would be shut to all but who administers everything."""
    page = tower.ask("GET", "/openapi.json")[1]["paths"]
    described = {
        (method.upper(), path) for path, item in page.items() for method in item if method != "parameters"
    }
    elsewhere = {key for key in (*METAS, *BROKERS) if key[1].startswith((*OF_GROUPS, *ON_KUBERNETES))}
    assert described - {*METAS, *BROKERS} == set()
    pages = {key for key in METAS if key[1] == "/" or key[1].startswith("/console")}
    among_services = {("POST", "/v1/brokers/access"), ("POST", "/v1/brokers/access/watch")}
    assert {*METAS, *BROKERS} - elsewhere - pages - described - among_services == set()

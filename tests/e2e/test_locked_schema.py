"""schemathesis at locked ports: nobody, somebody who was granted nothing, and the cluster itself ask all that the pages
allow and forbid, and find no answer that a page does not describe, and no path that is open to who may not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from e2e.clusters import Cluster
from e2e.queues import wait_until
from e2e.schemas import check_page, complaints
from e2e.towers import Tower
from tidemill_broker.doors.permits import PERMITS as BROKERS
from tidemill_host.permits import COMMON, Need, Permits
from tidemill_meta.doors.permits import PERMITS as METAS

pytestmark = pytest.mark.e2e

ALL: Permits = {**METAS, **BROKERS}
FEW = 2
"""Examples of each kind a path: who is refused is refused before anything of a request is read."""
ENDLESS = ("--exclude-path", "/v1/watch")
"""A stream; of meta."""
NOT_JUDGED = ("positive_data_acceptance", "unsupported_method", "negative_data_rejection")
"""Of who is refused: no request is right, and that a path takes other methods is not told."""


def open_to(permits: Permits, *needs: Need) -> str:
    return json.dumps(
        sorted(f"{method} {path}" for (method, path), one in permits.items() if one.need in needs)
    )


def refused_everywhere(
    server: str, folder: Path, token: str, permits: Permits, *options: str, page: str = ""
) -> str:
    """What schemathesis said, who has that token or none."""
    needs = (Need.NOTHING, Need.A_NAME) if token else (Need.NOTHING,)
    more = ("--header", f"Authorization: Bearer {token}") if token else ()
    settings = {"RIGHTS": open_to(permits, *needs), "REFUSALS": json.dumps([403] if token else [401])}
    return check_page(
        server, folder, *more, *options, "--exclude-checks", ",".join(NOT_JUDGED), "--max-examples", str(FEW),
        hooks="e2e.schema_rights", settings=settings, page=page,
    )  # fmt: skip


@pytest.fixture(scope="module")
def locked_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A broker and a delay service with a slave each, and meta; of people one who was granted nothing."""
    folder = tmp_path_factory.mktemp("locked")
    file = folder / "cluster.token"
    file.write_text("c" * 43 + "\n")
    options = ("--delays", "1", "--cluster-token", str(file))
    made = Cluster(folder / "data", 1, 1, (), {"TIDEMILL_AUDIT_FILE": str(folder / "audit.log")}, options)
    made.token = file.read_text().strip()
    try:
        made.start()
        made.children()
        wait_until("all are in sync", lambda: all_in_sync(made), 120)
        yield made
    finally:
        made.close()


def all_in_sync(cluster: Cluster) -> bool:
    groups = [*cluster.get("/v1/brokers"), *cluster.get("/v1/delays")]
    brokers = [one for group in groups for one in group["brokers"]]
    return len(brokers) == 4 and all(one["alive"] and one["in_sync"] for one in brokers)


def saved_page(service: Tower | Cluster, path: Path) -> str:
    """Its page, for who may not read it there."""
    path.write_text(service.get_text("/openapi.json"))
    return str(path)


@pytest.mark.parametrize("who", ["", "nothing"], ids=["nobody", "who was granted nothing"])
def test_nothing_is_open_at_a_queue_to_who_was_granted_nothing(
    tower: Tower, tmp_path: Path, who: str
) -> None:
    """Broker, gateway, timers and meta behind one port."""
    before = standing(tower)
    page = saved_page(tower, tmp_path / "page.json")
    asked = (*ENDLESS, "--phases", "examples,fuzzing")
    said = refused_everywhere(tower.server, tmp_path, tower.tokens.get(who, ""), ALL, *asked, page=page)

    assert selected(said) >= 80
    assert standing(tower) == before
    assert complaints(tower) == []


def described(page: Path) -> list[str]:
    """The operations of a page."""
    items = json.loads(page.read_text())["paths"].values()
    return [one["operationId"] for item in items for one in item.values()]


def standing(tower: Tower) -> dict[str, object]:
    """What somebody could have changed."""
    return {
        path: tower.get(path) for path in ("/v1/subjects", "/v1/groups", "/v1/access/grants", "/v1/archives")
    }


def selected(said: str) -> int:
    found = re.search(r"(\d+) selected", said)
    assert found is not None, said
    return int(found[1])


@pytest.mark.parametrize("who", ["", "guest"], ids=["nobody", "who was granted nothing"])
@pytest.mark.parametrize("service", ["meta", "broker", "slave", "delay"])
def test_nothing_is_open_at_a_service_of_a_cluster(
    locked_cluster: Cluster, guest: str, tmp_path: Path, service: str, who: str
) -> None:
    place, permits = places(locked_cluster)[service]
    page = tmp_path / "page.json"
    page.write_text(text_at(locked_cluster, place, "/openapi.json"))
    asked = (*ENDLESS, "--phases", "fuzzing")
    said = refused_everywhere(place, tmp_path, guest if who else "", permits, *asked, page=str(page))

    assert selected(said) == len(described(page)) - (1 if service == "meta" else 0)
    assert complaints(locked_cluster) == []


@pytest.fixture(scope="module")
def guest(locked_cluster: Cluster) -> str:
    """The token of somebody who was granted nothing; each service has heard of it."""
    token = str(locked_cluster.post("/v1/access/tokens", {"who": "guest"})["secret"])
    locked_cluster.token, own = token, locked_cluster.token
    try:
        for place, _ in places(locked_cluster, own).values():
            wait_until(f"{place} knows it", lambda place=place: knows(locked_cluster, place), 60)
    finally:
        locked_cluster.token = own
    return token


def knows(cluster: Cluster, place: str) -> bool:
    try:
        return bool(json.loads(text_at(cluster, place, "/v1/access/own"))["who"] == "token:guest")
    except OSError:
        return False


def places(cluster: Cluster, token: str = "") -> Mapping[str, tuple[str, Permits]]:
    """The HTTP ports, and what their paths need."""
    former, cluster.token = cluster.token, token or cluster.token
    try:
        [brokers], [delays] = cluster.get("/v1/brokers"), cluster.get("/v1/delays")
    finally:
        cluster.token = former
    controls = {one["name"]: one["addresses"]["control"] for one in (*brokers["brokers"], *delays["brokers"])}
    [slave] = (one["name"] for one in brokers["brokers"] if one["name"] != brokers["master"])
    return {
        "meta": (cluster.server, METAS),
        "broker": (controls[brokers["master"]], BROKERS),
        "slave": (controls[slave], BROKERS),
        "delay": (controls[delays["master"]], COMMON),
    }


def text_at(cluster: Cluster, place: str, path: str) -> str:
    """What the service at that place answers to who has the cluster's token."""
    host, port, former = cluster.host, cluster.http_port, place.rpartition(":")
    cluster.host, cluster.http_port = former[0], int(former[2])
    try:
        return cluster.get_text(path)
    finally:
        cluster.host, cluster.http_port = host, port


def test_path_that_is_open_is_found(locked_cluster: Cluster, tmp_path: Path) -> None:
    """The check has teeth: to who may do all, everything is open."""
    place = places(locked_cluster)["delay"][0]
    page = tmp_path / "page.json"
    page.write_text(text_at(locked_cluster, place, "/openapi.json"))
    asked = ("--phases", "fuzzing")
    with pytest.raises(AssertionError, match="GET /v1/system answered 200"):
        refused_everywhere(place, tmp_path, locked_cluster.token, COMMON, *asked, page=str(page))


def test_delay_service_answers_as_its_page_says_to_who_may_do_all(
    locked_cluster: Cluster, tmp_path: Path
) -> None:
    place = places(locked_cluster)["delay"][0]
    said = check_page(place, tmp_path, "--header", f"Authorization: Bearer {locked_cluster.token}")

    assert "No issues found" in said
    assert selected(said) == 8
    assert complaints(locked_cluster) == []


def test_queue_answers_as_its_page_says_to_who_may_do_all(tower: Tower, tmp_path: Path) -> None:
    """Grants and tokens are made and taken back then, which an open queue refuses."""
    said = check_page(
        tower.server, tmp_path, "--header", f"Authorization: Bearer {tower.token}", "--include-path-regex",
        "^/v1/(access|archives|replays|overview|system|brokers/access)", "--exclude-checks",
        "positive_data_acceptance",
    )  # fmt: skip

    assert "No issues found" in said
    assert selected(said) >= 17
    assert complaints(tower) == []

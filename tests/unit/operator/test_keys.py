"""Secrets as the operator reads them: by name, seldom, and again when somebody does not believe what they say."""

from __future__ import annotations

import asyncio
import base64
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from samples.authorities import Authority
from tidemill_operator.desired.locks import OPEN, Locks, SecretKey
from tidemill_operator.doors.api import Refused
from tidemill_operator.doors.keys import DOUBT_S, KEPT_S, Keys
from tidemill_operator.refusals import Failure

LOCKS = Locks("prod-tls", False, SecretKey("prod-token", "token"))
TOKEN = "t" * 40


class Cabinet:
    """An API server that has Secrets, and a clock."""

    def __init__(self) -> None:
        self.secrets: dict[str, dict[str, str]] = {}
        self.refuses: int | None = None
        self.asked: Counter[str] = Counter()
        self.now_s = 0.0
        self.keys = Keys(self.get, lambda: self.now_s)

    async def get(self, path: str) -> Mapping[str, Any]:
        name = path.rpartition("/")[2]
        assert path == f"/api/v1/namespaces/shop/secrets/{name}"
        self.asked[name] += 1
        if self.refuses is not None or name not in self.secrets:
            raise Refused("GET", path, self.refuses or 404, "no", 0.0)
        data = {key: base64.b64encode(value.encode()).decode() for key, value in self.secrets[name].items()}
        return {"kind": "Secret", "data": data}


def run(work: Callable[[], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        async with asyncio.timeout(30):
            return await work()

    return asyncio.run(main())


@pytest.fixture
def cabinet(tmp_path: Path) -> Cabinet:
    found = Cabinet()
    authority = Authority(tmp_path).ca.read_text()
    found.secrets = {"prod-tls": {"ca.crt": authority}, "prod-token": {"token": f"{TOKEN}\nold\n"}}
    return found


def test_nothing_is_asked_for_an_open_cluster(cabinet: Cabinet) -> None:
    security = run(lambda: cabinet.keys.security("shop", OPEN))

    assert (security.speaks_tls, security.shows_token, cabinet.asked) == (False, False, Counter())


def test_the_first_line_is_shown_and_the_authority_is_believed(cabinet: Cabinet) -> None:
    security = run(lambda: cabinet.keys.security("shop", LOCKS))

    assert security.headers() == {"Authorization": f"Bearer {TOKEN}"}
    assert security.url("meta:7401") == "https://meta:7401"
    assert TOKEN not in repr(security)


def test_a_secret_is_read_again_after_a_while_and_soon_when_it_is_doubted(cabinet: Cabinet) -> None:
    async def work() -> list[int]:
        counts = []
        for seconds, doubted in (
            (0, False),
            (KEPT_S, False),
            (1, False),
            (DOUBT_S / 2, True),
            (DOUBT_S, False),
        ):
            cabinet.now_s += seconds
            if doubted:
                cabinet.keys.doubt_locks("shop", LOCKS)
            await cabinet.keys.security("shop", LOCKS)
            counts.append(cabinet.asked["prod-token"])
        return counts

    assert run(work) == [1, 1, 2, 2, 3]


def test_another_authority_makes_another_context(cabinet: Cabinet, tmp_path: Path) -> None:
    async def work() -> tuple[object, object, object]:
        first = (await cabinet.keys.security("shop", LOCKS)).context()
        same = (await cabinet.keys.security("shop", LOCKS)).context()
        cabinet.secrets["prod-tls"]["ca.crt"] = Authority(tmp_path, "other").ca.read_text()
        cabinet.keys.doubt_locks("shop", LOCKS)
        cabinet.now_s += 2 * DOUBT_S
        return first, same, (await cabinet.keys.security("shop", LOCKS)).context()

    first, same, other = run(work)
    assert first is same
    assert first is not other


@pytest.mark.parametrize(
    "spoil, reason, says",
    [
        (lambda one: one.secrets.pop("prod-token"), "ReferenceNotFound", "there is no Secret prod-token"),
        (lambda one: one.secrets["prod-token"].clear(), "ReferenceNotFound", "prod-token has no token"),
        (
            lambda one: one.secrets["prod-tls"].update({"ca.crt": "x"}),
            "ReferenceNotFound",
            "ca.crt of the Secret",
        ),
        (lambda one: one.secrets["prod-token"].update(token="\xe9"), "ReferenceNotFound", "has no token"),
        (lambda one: setattr(one, "refuses", 403), "NotPermitted", "may not read the Secret"),
        (lambda one: setattr(one, "refuses", 500), "ClusterUnavailable", "no"),
    ],
)
def test_what_is_missing_is_said(
    cabinet: Cabinet, spoil: Callable[[Cabinet], object], reason: str, says: str
) -> None:
    spoil(cabinet)

    with pytest.raises(Failure, match=says) as caught:
        run(lambda: cabinet.keys.security("shop", LOCKS))

    assert (caught.value.kind, caught.value.reason) == ("passing", reason)


def test_thousands_that_miss_a_secret_ask_for_it_once_and_again_later(cabinet: Cabinet) -> None:
    del cabinet.secrets["prod-token"]

    async def work() -> list[int]:
        counts = []
        for _ in range(2):
            many = (cabinet.keys.value("shop", "prod-token", "token") for _ in range(500))
            found = await asyncio.gather(*many, return_exceptions=True)
            assert all(isinstance(one, Failure) for one in found)
            counts.append(cabinet.asked["prod-token"])
            cabinet.now_s += 2 * DOUBT_S
        cabinet.secrets["prod-token"] = {"token": TOKEN}
        assert await cabinet.keys.value("shop", "prod-token", "token") == TOKEN
        return counts

    assert run(work) == [1, 2]

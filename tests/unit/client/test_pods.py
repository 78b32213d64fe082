"""A consumer's random name says in which pod it runs, when its client knows."""

from __future__ import annotations

import asyncio
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest

from tidemill.errors import Refused
from tidemill.identity import borrow_name
from tidemill.settings import POD_VARIABLE, ClientSettings
from tidemill.subscription import Subscription
from tidemill_wire.fields import CONSUMER
from tidemill_wire.kinds import Mode
from tidemill_wire.pods import mark_of

POD = "0e4f6c1a-5f0e-4a57-9d2c-8a3a4d1f2b6e"


NEXT = "99999999-5f0e-4a57-9d2c-8a3a4d1f2b6e"


def name_of(settings: ClientSettings, name: str | None = None, mode: Mode = Mode.AS_DECLARED) -> str:
    subscription = Subscription(("orders",), "billing", -1, name, mode)
    borrowed = asyncio.run(borrow_name(subscription, settings))
    borrowed.give_back()
    return borrowed.text


def test_a_random_name_has_the_pod_in_it_and_a_given_one_has_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(POD_VARIABLE, POD)
    settings = ClientSettings(random=random.Random(1))

    made = name_of(settings)
    assert re.fullmatch(f"python@{POD}-[0-9a-f]{{16}}", made)
    assert CONSUMER.fullmatch(made)
    assert name_of(settings, "mine") == "mine"


def test_without_a_pod_it_is_as_it_was_and_what_is_no_uid_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(POD_VARIABLE, raising=False)
    assert re.fullmatch("python-[0-9a-f]{16}", name_of(ClientSettings(random=random.Random(1))))

    with pytest.raises(Refused, match="a pod is 'my pod': write its uid"):
        name_of(ClientSettings(pod="my pod"))


def test_a_remembered_name_of_another_pod_is_replaced_and_that_of_this_pod_stays(tmp_path: Path) -> None:
    """Who says that the former pod is gone would end the leases of the one that lives, and never those of its own."""
    first = ClientSettings(pod=POD, state_dir=tmp_path)
    former = name_of(first)
    assert name_of(first) == former
    assert name_of(replace(first, name="called-otherwise")) == former

    second = replace(first, pod=NEXT)
    mine = name_of(second)
    assert mark_of(NEXT) in mine
    assert mark_of(POD) not in mine
    assert name_of(second) == mine
    assert "@" not in name_of(replace(first, pod=None)), "nor without a pod"


@pytest.mark.parametrize("length", range(len(f"python@{POD}"), len(f"python@{POD}-0123456789abcdef")))
def test_so_is_one_that_a_crash_tore(tmp_path: Path, length: int) -> None:
    (tmp_path / "billing.0.consumer").write_text(f"python@{POD}-0123456789abcdef"[:length])

    assert re.fullmatch(
        f"python@{NEXT}-[0-9a-f]{{16}}", name_of(ClientSettings(pod=NEXT, state_dir=tmp_path))
    )


@pytest.mark.parametrize("mode", [Mode.BROADCAST, Mode.EXCLUSIVE, Mode.KEYED])
def test_in_order_a_remembered_name_goes_from_pod_to_pod(tmp_path: Path, mode: Mode) -> None:
    """Nobody ends its leases for a pod, and a broadcast goes on where it was."""
    settings = ClientSettings(pod=POD, state_dir=tmp_path)

    assert name_of(settings, mode=mode) == name_of(replace(settings, pod=NEXT), mode=mode)


def test_a_remembered_name_that_only_looks_like_one_of_a_pod_stays(tmp_path: Path) -> None:
    settings = ClientSettings(name="shop@hostname-1", pod=None, state_dir=tmp_path)

    assert name_of(settings) == name_of(settings)

"""A consumer's random name says in which pod it runs, when its client knows."""

from __future__ import annotations

import asyncio
import random
import re

import pytest

from tidemill.errors import Refused
from tidemill.identity import borrow_name
from tidemill.settings import POD_VARIABLE, ClientSettings
from tidemill.subscription import Subscription
from tidemill_wire.fields import CONSUMER

POD = "0e4f6c1a-5f0e-4a57-9d2c-8a3a4d1f2b6e"


def name_of(settings: ClientSettings, name: str | None = None) -> str:
    subscription = Subscription(("orders",), "billing", -1, name)
    return asyncio.run(borrow_name(subscription, settings)).text


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

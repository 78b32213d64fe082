"""What an answer of Kubernetes says of a token, and whose it is by that."""

from __future__ import annotations

from typing import Any

import pytest

from tidemill_meta.doors.reviewing import Kubernetes, account_of, parse_tokens
from tidemill_meta.errors import Denied
from tidemill_wire.reviewing import ASKED_MAX
from tidemill_wire.settings import SettingsError

ACCOUNT = {"username": "system:serviceaccount:queues:shop", "groups": ["system:serviceaccounts"]}
GOOD = {"authenticated": True, "user": ACCOUNT, "audiences": ["tidemill"]}


@pytest.mark.parametrize(
    ("status", "who"),
    [
        (GOOD, "serviceaccount:queues/shop"),
        ({"error": "[invalid bearer token, service account token has expired]"}, ""),
        ({**GOOD, "authenticated": False}, ""),
        ({**GOOD, "authenticated": "true"}, ""),
        ({**GOOD, "audiences": ["https://kubernetes.default.svc"]}, ""),
        ({key: value for key, value in GOOD.items() if key != "audiences"}, ""),
        ({**GOOD, "user": {"username": "kubernetes-admin"}}, ""),
        ({**GOOD, "user": {"username": "system:serviceaccount:queues"}}, ""),
        ({**GOOD, "user": None}, ""),
        (None, None),
    ],
)
def test_only_a_service_account_for_that_audience_is_somebody(status: Any, who: str | None) -> None:
    assert account_of({"kind": "TokenReview", "status": status}, "tidemill") == who


def test_what_is_no_answer_says_nothing() -> None:
    assert account_of([], "tidemill") is account_of({}, "tidemill") is None


def test_without_kubernetes_nobody_can_be_asked_and_it_is_said_at_the_start() -> None:
    with pytest.raises(SettingsError, match="REVIEW_AUDIENCE needs Kubernetes"):
        Kubernetes("/nowhere", "tidemill", {"KUBERNETES_SERVICE_HOST": "10.0.0.1"})


@pytest.mark.parametrize("rows", [[""], [7], ["x" * 3_000], ["x"] * (ASKED_MAX + 1)])
def test_a_request_with_anything_else_than_tokens_is_refused(rows: list[object]) -> None:
    with pytest.raises(Denied, match="tokens is no list"):
        parse_tokens(rows)

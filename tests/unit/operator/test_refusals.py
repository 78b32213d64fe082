"""What answers mean, what may be done, and what may be set."""

from __future__ import annotations

import pytest

from tidemill_operator.conditions import is_known, next_status
from tidemill_operator.kinds import KINDS, OPTIONAL, OURS, STORAGE_CLASS, WATCHED
from tidemill_operator.rbac import CLUSTER, NAMESPACED
from tidemill_operator.refusals import Failure, conditions_of, is_news, is_said, of_api, of_meta
from tidemill_operator.settings import read_settings
from tidemill_operator.steps import Plan
from tidemill_wire.settings import SettingsError

STATUSES = (0, 400, 401, 403, 404, 405, 409, 410, 413, 415, 422, 429, 500, 502, 503, 504)


@pytest.mark.parametrize("status, kind", [
    (409, "changed"), (404, "gone"), (422, "standing"), (403, "standing"),
    (429, "passing"), (503, "passing"), (0, "passing"),
])  # fmt: skip
def test_the_api_servers_answers_mean_what_the_table_says(status: int, kind: str) -> None:
    assert of_api(status, "no").kind == kind


def test_retry_after_is_kept() -> None:
    assert of_api(429, "slowly", retry_after_ms=7000).after_ms == 7000


@pytest.mark.parametrize("status, code, goes, kind, reason", [
    (400, "placement", False, "standing", "BrokerRejected"),
    (409, "in_use", True, "passing", "DeletionBlocked"),
    (503, "not_known", True, "passing", "DeletionBlocked"),
    (404, "unknown_subject", True, "gone", "Deleting"),
    (503, "no_broker_group", False, "passing", "NotEnoughBrokers"),
    (503, "not_gone", False, "passing", "Progressing"),
    (409, "conflict", False, "changed", "Progressing"),
])  # fmt: skip
def test_metas_answers_mean_what_the_table_says(
    status: int, code: str, goes: bool, kind: str, reason: str
) -> None:
    failure = of_meta(status, code, "no", goes=goes)
    assert (failure.kind, failure.reason) == (kind, reason)


@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize("goes", [True, False])
def test_whatever_is_refused_is_said_in_the_vocabulary(status: int, goes: bool) -> None:
    for failure in (
        of_api(status, "no"),
        of_meta(status, "", "no", goes=goes),
        of_meta(status, "placement", "no"),
    ):
        for declared in (True, False):
            assert all(map(is_known, conditions_of(failure, declared=declared)))


def test_a_role_covers_what_is_watched_and_of_secrets_no_list() -> None:
    granted = {
        (rule["apiGroups"][0], one): set(rule["verbs"])
        for rule in (one.to_map() for one in (*NAMESPACED, *CLUSTER))
        for one in rule["resources"]
    }
    for kind in (*OURS, *WATCHED, *OPTIONAL, STORAGE_CLASS):
        assert {"get", "list", "watch"} <= granted[kind.group, kind.plural], kind
    assert granted["", "secrets"] == {"get"}
    assert not any("*" in verbs for verbs in granted.values())
    assert {group for group, _ in granted} <= {kind.group for kind in KINDS.values()}


def test_a_role_of_a_namespace_has_nothing_beyond_it() -> None:
    cluster = {one for rule in NAMESPACED for one in rule.to_map()["resources"]}
    assert "storageclasses" not in cluster


def test_settings_that_do_not_fit_together_are_refused_with_a_sentence() -> None:
    assert read_settings({"TIDEMILL_OPERATOR_RESYNC_MS": "5000"}).resync_ms == 5000
    with pytest.raises(SettingsError, match="RENEWAL_MS is 15000: write at least twice"):
        read_settings({"TIDEMILL_OPERATOR_RENEWAL_MS": "15000"})


@pytest.mark.parametrize("sentence", ["programs use it", "x" * 5_000])
def test_what_a_status_says_already_is_not_logged_by_every_pass(sentence: str) -> None:
    resource = {"metadata": {"generation": 1}}
    failure = Failure("passing", "DeletionBlocked", sentence)
    assert is_news(failure, resource)

    status = next_status(resource, Plan(conditions=conditions_of(failure, declared=True)), 0)

    assert is_said(failure, {**resource, "status": status})
    assert not is_news(failure, {**resource, "status": status})
    assert is_news(Failure("passing", "DeletionBlocked", "something else"), {**resource, "status": status})


def test_that_meta_is_silent_or_has_no_brokers_yet_is_not_logged_for_each_object() -> None:
    assert not is_news(of_meta(0, "", "meta does not answer"), {})
    assert not is_news(of_meta(503, "no_broker_group", "nobody takes it"), {})
    assert is_news(of_meta(422, "", "no such field"), {})

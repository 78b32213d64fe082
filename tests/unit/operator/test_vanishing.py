"""Pods of consumers that are gone are told to the meta of their cluster, and to no other."""

from __future__ import annotations

from typing import Any

import pytest

from tidemill_operator.kinds import DEPLOYMENT, POD
from tidemill_operator.store import Key
from tidemill_operator.vanishing import VANISHED, cluster_key, goodbye, vanished


def pod(labels: dict[str, str], phase: str = "Running") -> dict[str, Any]:
    metadata = {"name": "mailer-x", "namespace": "shop", "uid": "u-1", "labels": labels}
    return {"metadata": metadata, "status": {"phase": phase}}


CONSUMER = {"tidemill.dev/consumes": "prod"}


@pytest.mark.parametrize(
    "change, phase", [("DELETED", "Running"), ("MODIFIED", "Failed"), ("ADDED", "Succeeded")]
)
def test_a_consumers_pod_that_is_gone_is_told_to_its_cluster(change: str, phase: str) -> None:
    key = vanished(POD, change, pod(CONSUMER, phase))
    assert key == Key(VANISHED, "shop", "prod/u-1")
    assert cluster_key(key) == Key("QueueCluster", "shop", "prod")
    assert goodbye(key).body == {"pod": "u-1"}


@pytest.mark.parametrize("change, written", [
    ("MODIFIED", pod(CONSUMER)),
    ("DELETED", pod({})),
    (None, pod(CONSUMER, "Failed")),
])  # fmt: skip
def test_nothing_is_told_of_other_pods_and_of_those_that_were_gone_before(
    change: str, written: dict[str, Any]
) -> None:
    assert vanished(POD, change, written) is None
    assert vanished(DEPLOYMENT, "DELETED", written) is None

"""How long a group's leases run: what may be declared, and that it comes through the log and through meta's beats."""

from __future__ import annotations

from typing import Any

import pytest

from tidemill_wire.declarations import API_VERSION, ConsumerGroup, ManifestError, parse_manifest


def group(delivery: dict[str, Any]) -> ConsumerGroup:
    declared = parse_manifest(
        {
            "apiVersion": API_VERSION,
            "kind": "ConsumerGroup",
            "metadata": {"name": "billing"},
            "spec": {"subjectName": "orders", "delivery": delivery},
        }
    )
    assert isinstance(declared, ConsumerGroup)
    return declared


@pytest.mark.parametrize(
    "delivery, lease_ms, lease_ms_max",
    [
        ({}, 60_000, 3_600_000),
        ({"ackTimeoutSeconds": 30, "maxAckTimeoutSeconds": 900}, 30_000, 900_000),
        ({"ackTimeoutSeconds": 30, "maxAckTimeoutSeconds": 30}, 30_000, 30_000),
        ({"maxAckTimeoutSeconds": 0}, 60_000, 0),
        ({"ackTimeoutSeconds": 43_200}, 43_200_000, 3_600_000),
    ],
)
def test_what_is_declared_is_read_and_comes_back_from_its_map(
    delivery: dict[str, Any], lease_ms: int, lease_ms_max: int
) -> None:
    declared = group(delivery)
    assert (declared.lease_ms, declared.lease_ms_max) == (lease_ms, lease_ms_max)
    assert ConsumerGroup.from_map(declared.to_map()) == declared


@pytest.mark.parametrize(
    "delivery, said",
    [
        (
            {"maxAckTimeoutSeconds": 59},
            "maxAckTimeoutSeconds is 59, less than ackTimeoutSeconds: write at least 60, or 0 for any time",
        ),
        ({"maxAckTimeoutSeconds": -1}, "maxAckTimeoutSeconds is -1: write a whole number from 0 to 604800"),
    ],
)
def test_a_limit_that_cannot_be_is_refused_with_what_to_write(delivery: dict[str, Any], said: str) -> None:
    with pytest.raises(ManifestError, match=said):
        group(delivery)

"""Who declares is told what each object was to meta before."""

from __future__ import annotations

from typing import Any

from samples.metas import World
from tidemill_meta.subjects import declare
from tidemill_wire.declarations import parse_manifests


def manifest(kind: str, name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "tidemill.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def said(world: World, *documents: dict[str, Any]) -> list[str]:
    """What each became, of which the kind and the subject are as they were declared."""
    replica, declared = world.first, parse_manifests(documents)
    rows = replica.change(lambda draft, now_ms: declare(draft, replica.meta.senses, declared, now_ms))
    for row, one in zip(rows, documents, strict=True):
        assert (row["kind"], row["name"]) == (one["kind"], one["metadata"]["name"])
        assert row.get("subject") == one["spec"].get("subjectName")
    return [row["became"] for row in rows]


def test_what_is_new_what_differs_and_what_is_as_it_was() -> None:
    world = World()
    world.register("g1", "g1-0")
    world.beat("g1", "g1-0")
    world.client("p", produces=("used",))
    billing = manifest("ConsumerGroup", "g", subjectName="a")
    documents = [manifest("Subject", "a"), manifest("Subject", "used"), billing]

    assert said(world, *documents) == ["created", "changed", "created"]
    revision = world.first.meta.registry.revision
    assert said(world, *documents) == ["unchanged"] * 3
    assert world.first.meta.registry.revision == revision
    assert said(world, manifest("Subject", "a", message={"maxBytes": 2048})) == ["changed"]
    assert said(world, manifest("ConsumerGroup", "g", subjectName="b")) == ["created"]

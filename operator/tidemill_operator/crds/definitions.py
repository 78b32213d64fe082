"""The custom resource definitions, whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidemill_operator.crds.kinds import FACES, Face
from tidemill_operator.crds.openapi import RULES, block_schema
from tidemill_wire.resources import API_GROUP, KINDS, VERSION, Kind

CATEGORY = "tidemill"
WAITING_SINCE = "1970-01-01T00:00:00Z"
"""A default cannot know the time."""
NAME_CHARS_MAX = 253
OBJECT_NAME = ".metadata.name"


def definitions() -> dict[str, dict[str, Any]]:
    """Each definition, by the name of its file."""
    return {f"{face.plural}.yaml": definition(KINDS[name], face) for name, face in FACES.items()}


def definition(kind: Kind, face: Face) -> dict[str, Any]:
    version: dict[str, Any] = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "selectableFields": [{"jsonPath": path} for path in face.selectable],
        "additionalPrinterColumns": [column.to_map() for column in face.columns],
        "schema": {"openAPIV3Schema": schema(kind, face)},
    }
    if not face.selectable:
        del version["selectableFields"]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{face.plural}.{API_GROUP}",
            "labels": {"app.kubernetes.io/part-of": "tidemill"},
            "annotations": {"helm.sh/resource-policy": "keep"},
        },
        "spec": {
            "group": API_GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind.name,
                "listKind": f"{kind.name}List",
                "plural": face.plural,
                "singular": kind.name.lower(),
                "shortNames": [face.short],
                "categories": [CATEGORY],
            },
            "versions": [version],
        },
    }


def schema(kind: Kind, face: Face) -> dict[str, Any]:
    spec = {"description": "What is wanted.", **block_schema(kind.spec)}
    if face.obliged:
        spec["required"] = [*spec.get("required", ()), *face.obliged]
    whole: dict[str, Any] = {
        "type": "object",
        "description": kind.doc,
        "required": ["spec"] if spec.get("required") else [],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {
                "type": "object",
                "properties": {"name": {"type": "string", "maxLength": NAME_CHARS_MAX}},
            },
            "spec": spec if spec.get("required") else {**spec, "default": {}},
            "status": {
                "description": "What the operator reports.",
                **block_schema(face.status, reported=True),
                "default": _first_status(face),
            },
        },
    }
    if rules := _name_rules(kind):
        whole[RULES] = rules
    return {key: value for key, value in whole.items() if value}


def _first_status(face: Face) -> dict[str, Any]:
    """What is said before the operator has looked, so that `kubectl wait` finds something to wait for."""
    return {
        "conditions": [
            {
                "type": face.summary,
                "status": "Unknown",
                "reason": "Pending",
                "message": "the operator has not looked yet",
                "lastTransitionTime": WAITING_SINCE,
            }
        ]
    }


def _name_rules(kind: Kind) -> list[Mapping[str, Any]]:
    naming = kind.naming
    found: list[Mapping[str, Any]] = []
    if naming.label:
        found.append(
            {
                "rule": f"self.metadata.name.matches(r'^(?:{naming.object_pattern})$')",
                "message": f"write {naming.object_means}",
                "fieldPath": OBJECT_NAME,
            }
        )
    if naming.field:
        found.append(
            {
                "rule": f"has(self.spec.{naming.field}) || self.metadata.name.matches(r'^(?:{naming.pattern})$')",
                "message": f"write spec.{naming.field} as well, which is {naming.means}",
                "fieldPath": OBJECT_NAME,
            }
        )
    return found

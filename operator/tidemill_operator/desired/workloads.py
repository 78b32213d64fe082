"""Which template a workload gets: what people said decides, and never that another operator would write it otherwise.

| what was said | what the operator makes of it | then |
|---|---|---|
| something else than before | | the new template, and a rollout |
| the same | the same | the same template; an edit by hand is put right |
| the same | something else | the template that is there: a new operator rolls nothing by itself |

Of a Supervised cluster the template that is there stays until somebody asks for a restart, whatever was said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from tidemill_operator.desired.wanted import Storage
from tidemill_operator.marks import INPUT_HASH, RESTART_AT, TEMPLATE_HASH, annotation
from tidemill_operator.names import digest
from tidemill_operator.steps import Manifest


@dataclass(frozen=True, slots=True)
class Chosen:
    """A template, and what is noted of it on its workload."""

    template: Manifest
    annotations: Mapping[str, str]
    kept: bool = False
    """Whether it is of an operator before, which would be another one now."""

    def is_on(self, workload: Manifest | None) -> bool:
        """Whether the workload that was seen is made of it."""
        return workload is not None and all(
            annotation(workload, name) == said for name, said in self.annotations.items()
        )


def choose(
    made: Manifest, inputs: str, restart_at: str, workload: Manifest | None, *, supervised: bool
) -> Chosen:
    """See the table above. ``made``: what this operator makes of ``inputs``."""
    written = digest(made)
    notes = {INPUT_HASH: inputs, TEMPLATE_HASH: written, RESTART_AT: restart_at}
    if workload is None or annotation(workload, TEMPLATE_HASH) == written:
        return Chosen(made, notes)
    asked = annotation(workload, RESTART_AT) != restart_at
    if asked or (annotation(workload, INPUT_HASH) != inputs and not supervised):
        return Chosen(made, notes)
    there: Manifest = without_nulls(workload["spec"]["template"])
    return Chosen(there, {name: annotation(workload, name) for name in notes}, kept=True)


def without_nulls(value: Any) -> Any:
    """As it may be applied: the API server writes ``creationTimestamp: null`` where nobody asked."""
    if isinstance(value, Mapping):
        pairs = cast("Mapping[str, Any]", value).items()
        return {key: without_nulls(one) for key, one in pairs if one is not None}
    if isinstance(value, (list, tuple)):
        return [without_nulls(one) for one in cast("Sequence[Any]", value)]
    return value


def claim_template(storage: Storage, labels: Mapping[str, str]) -> dict[str, Any]:
    """The volume of a pod. The API server adds the rest; it cannot be changed, but for another StatefulSet."""
    spec: dict[str, Any] = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": storage.size}},
        "volumeMode": "Filesystem",
    }
    if storage.class_name is not None:
        spec["storageClassName"] = storage.class_name
    return {"metadata": {"name": "data", "labels": dict(labels)}, "spec": spec}

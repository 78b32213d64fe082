"""What manifests say that nobody obeys where they are read: fields for Kubernetes' operator, or for several brokers.

The same file is good for both, so nothing of it is a mistake; but whoever wrote it is told. A field that says what
happens anyway, as ``deletionPolicy: Retain``, is obeyed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tidemill_wire.declarations import Declaration, Manifests, Subject
from tidemill_wire.grant_specs import GrantSpec
from tidemill_wire.resources import Resource
from tidemill_wire.wording import listed

NAMED_MAX = 3
WHY = {
    "clusterRef": "without Kubernetes this queue is the cluster",
    "managementPolicy": "without Kubernetes nothing is changed but by who declares it",
    "deletionPolicy": "without Kubernetes what is declared no longer stays; see `tidemill subjects remove`",
    "autoscaling": "without Kubernetes nobody scales consumers",
    "placement": "this queue is one broker, which has all of every subject; see --brokers",
    "principals.secretRef": "without Kubernetes there are no Secrets; `tidemill tokens create` makes a token",
}
"""By field."""


def unheeded(found: Manifests, *, alone: bool = False) -> list[str]:
    """A sentence for each such field. ``alone``: of a queue of one broker."""
    named: dict[str, list[str]] = {}
    for declaration in found.declarations:
        for field in _of_declaration(declaration, alone):
            named.setdefault(field, []).append(f"{declaration.KIND} {declaration.name}")
    for grant in found.grants:
        for field in _of_grant(grant):
            named.setdefault(field, []).append(f"Grant {grant.metadata.name}")
    return [
        f"{field} of {_several(named[field])} is passed over: {WHY[field]}" for field in WHY if field in named
    ]


def _of_declaration(declaration: Declaration, alone: bool) -> Iterator[str]:
    spec = declaration.spec
    if spec.cluster_ref is not None:
        yield "clusterRef"
    if spec.deletion_policy != "Retain":
        yield "deletionPolicy"
    if isinstance(declaration, Subject):
        if declaration.spec.management_policy != "Full":
            yield "managementPolicy"
        if alone and declaration.spec.placement is not None:
            yield "placement"
    elif declaration.spec.autoscaling.mode != "Disabled":
        yield "autoscaling"


def _of_grant(grant: Resource) -> Iterator[str]:
    spec = grant.spec
    assert isinstance(spec, GrantSpec)
    yield "clusterRef"
    if any(one.secret_ref is not None for one in spec.principals):
        yield "principals.secretRef"


def _several(names: Iterable[str]) -> str:
    """The first, and how many more there are."""
    some = list(dict.fromkeys(names))
    more = len(some) - NAMED_MAX
    return listed([*some[:NAMED_MAX], *([f"{more} more"] if more > 0 else [])], "and")

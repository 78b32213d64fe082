"""What planners are given, and what they may ask for: the seam between what decides and what does.

A planner is a function ``(Seen, now_ms) → Plan``. It remembers nothing: everything a next pass needs is in Kubernetes
or at meta, so a crash after any step is harmless, and the same view gives the same plan. The runtime takes the steps
in order, one after the other, and stops at the first that fails; then it looks again.

At most one step of a plan is *disruptive* (takes something away that serves): a planner that is not sure waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Manifest: TypeAlias = Mapping[str, Any]
"""A Kubernetes object, as its API gives and takes it."""


@dataclass(frozen=True, slots=True)
class Reference:
    """Which object."""

    api_version: str
    kind: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Seen:
    """All that a decision may rest upon."""

    resource: Manifest
    """The object itself: one of ours."""
    cluster: Manifest | None = None
    """The QueueCluster that it names, or is; None: there is none."""
    objects: tuple[Manifest, ...] = ()
    """What it owns or rests upon, from the watches: workloads, pods, volumes' claims, storage classes, siblings."""
    meta: Mapping[str, Any] | None = None
    """What meta's HTTP port answered in this pass, by path; None: meta was not heard. Then nothing that meta could
    speak against is done.
    """
    brokers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    """What the HTTP ports of masters answered in this pass, by the broker's name and the path: JSON, or a page of
    metrics as text. Asked only of groups that go; who is not in it did not answer.
    """
    image: str = ""
    """What pods run where a spec names no image: the operator's own, with its tag."""
    namespace_goes: bool = False
    """Whether the namespace is being deleted."""
    lag: Mapping[str, Any] | None = None
    """Of a ConsumerGroup: what its brokers say of it, put together, up to a minute old; None: they were not heard."""
    served: frozenset[str] = frozenset()
    """Kinds of others that the API server has, as ``keda.sh/v1alpha1/ScaledObject``: what need not be there."""
    spark_image: str = ""
    """What Spark's pods run where a spec names no image, with its tag."""
    scaler: str = ""
    """Where an autoscaler asks how much waits: the address of the operator's own HTTP port; empty: nowhere."""

    secrets: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Of a Grant: digests of the tokens that its Secrets hold, by NAME/KEY; of one that is not there, none."""
    unheard: Condition | None = None
    """Why meta was not heard, where the operator could not even ask it; None: it could, or nobody knows why."""

    def of(self, kind: str) -> tuple[Manifest, ...]:
        return tuple(one for one in self.objects if one.get("kind") == kind)


@dataclass(frozen=True, slots=True)
class Apply:
    """Server-side apply of a manifest: what it does not say stays as it is. Skipped when nothing would change.

    An apply makes what is not there. Of something that must not be made (a pod, a volume's claim) the manifest says
    ``metadata.uid``: then it is refused when that very object is gone.
    """

    manifest: Manifest


@dataclass(frozen=True, slots=True)
class Create:
    """Make it, unless there is one of its name; that one stays as it is, whatever the manifest says."""

    manifest: Manifest


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete this very object (its uid is a precondition). ``orphan``: what it owns stays."""

    reference: Reference
    uid: str
    orphan: bool = False


@dataclass(frozen=True, slots=True)
class Ask:
    """One request to meta's HTTP port."""

    method: Literal["POST", "PUT", "DELETE"]
    path: str
    body: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Seek:
    """Move a consumer group to another place, on all brokers."""

    subject: str
    group: str
    to: Literal["earliest", "latest"] | int
    """A number is a time in ms."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Our finalizer on the resource, there or not."""

    held: bool


@dataclass(frozen=True, slots=True)
class Consumed:
    """An annotation of the resource that was a command, and has been obeyed: taken away."""

    annotation: str


Step: TypeAlias = Apply | Create | Delete | Ask | Seek | Hold | Consumed


@dataclass(frozen=True, slots=True)
class Condition:
    """One line of ``status.conditions``; ``conditions.py`` has the vocabulary, and says when it changed."""

    type: str
    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Event:
    """What a person who looks at the object should read."""

    reason: str
    message: str
    warning: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done now, in this order, and what is said of it when all of it is done.

    A step that fails ends the pass: what is said then is why (``refusals.py``), and not what stands here.
    """

    steps: tuple[Step, ...] = ()
    conditions: tuple[Condition, ...] = ()
    """Those that hold; others that stand there go. None at all: nothing is said, and the status stays as it is."""
    status: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The rest of the status, whole; nothing: it stays as it is. It is written when it differs from what is there."""
    events: tuple[Event, ...] = ()
    again_ms: int | None = None
    """Look again after so long, though nothing happens; 0: at once; None: at the next resync."""

"""The seam to whoever runs Spark on Kubernetes: what is run, and how it stands, whatever that operator calls it.

A backend turns a ``Job`` into manifests of its kinds, and its objects back into ``Run`` and ``Timer``. Planners know
these alone, so that another operator of Spark is one more backend (``desired/kubeflow.py`` is one) and no new planner.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, Protocol, TypeAlias

from tidemill_operator.desired.locks import OPEN, Locks
from tidemill_operator.desired.wanted import Image
from tidemill_operator.kinds import Kind
from tidemill_operator.steps import Manifest
from tidemill_wire.pipeline_specs import Spark

Component: TypeAlias = Literal["archive", "replay"]


class RunState(Enum):
    """How a run stands."""

    WAITING = "Waiting"
    """Its driver is not there yet."""
    RUNNING = "Running"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"
    """Spark's operator has lost sight of its driver."""

    @property
    def has_ended(self) -> bool:
        return self in {RunState.SUCCEEDED, RunState.FAILED}


@dataclass(frozen=True, slots=True)
class Job:
    """What Spark is to do, and with what."""

    component: Component
    name: str
    namespace: str
    labels: Mapping[str, str]
    owner: Mapping[str, Any]
    arguments: tuple[str, ...]
    """Of the program, which the image has by the component's name. No secrets: everybody who looks sees them."""
    image: Image
    spark: Spark
    secret: str = ""
    """The Secret whose keys are variables of all its pods; empty: none."""
    locks: Locks = OPEN
    """Of the cluster, to which all its pods belong."""


@dataclass(frozen=True, slots=True)
class Timing:
    """When a job is run, again and again, and what is kept of its runs."""

    schedule: str
    zone: str
    replaces: bool
    """Whether a run that is due ends one that is under way; else it is left out."""
    suspended: bool
    successful: int
    failed: int
    run_seconds: int
    """For how long a run is kept."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run that there is, or was."""

    name: str
    uid: str
    state: RunState
    said: str
    """What it said when it failed."""
    begun_ms: int
    """When its object was made."""
    ended_ms: int | None
    suspended: bool
    """Whether it is told to wait, which it may not do yet."""


@dataclass(frozen=True, slots=True)
class Timer:
    """What makes runs."""

    name: str
    uid: str
    made_ms: int
    looked_at: bool
    """Whether Spark's operator has said anything of it."""
    refusal: str
    """Why it will never make any; empty: it will."""
    next_ms: int | None
    last_ms: int | None
    last_run: str


class SparkBackend(Protocol):
    """An operator of Spark. All of it is pure."""

    @property
    def kinds(self) -> tuple[Kind, Kind]:
        """Of what runs once, and of what runs again and again."""
        ...

    def application(self, job: Job) -> Manifest:
        """What runs the job once."""
        ...

    def schedule(self, job: Job, timing: Timing) -> Manifest:
        """What runs it again and again; ``SpecError`` when it cannot."""
        ...

    def suspension(self, application: Manifest, *, suspended: bool) -> Manifest:
        """The part of it that has it wait, or go on; the one thing of it that is ever changed."""
        ...

    def run_of(self, application: Manifest) -> Run: ...

    def timer_of(self, schedule: Manifest) -> Timer: ...

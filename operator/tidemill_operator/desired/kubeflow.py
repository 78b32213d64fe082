"""kubeflow's spark-operator as a backend: SparkApplication and ScheduledSparkApplication.

Its manners, of 2.5, which its users and we have to live with:

- a change of a SparkApplication's spec, but for ``suspend``, runs all of it again. So one is made once, and never
  applied again; that of a schedule's template holds from the next run on;
- ``concurrencyPolicy`` has no default, and without one only the first run ever begins; ``timeZone`` has the one of the
  operator's own pod;
- another ``schedule`` does not change when the next run is due; and one that could not be read is never read again;
- it submits with rights to no network policy, and Spark makes one for executors since 4.2, without which nothing is
  submitted. So Spark is told to leave that out;
- what its webhook puts into pods is missing where the webhook is off. So all of it is in the pods' templates;
- how a run ended is the driver's exit code, and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidemill_operator import marks
from tidemill_operator.desired.crontab import plain_schedule
from tidemill_operator.desired.locks import of_client
from tidemill_operator.desired.pods import SCHEDULING, USER, spread
from tidemill_operator.desired.wanted import SpecError
from tidemill_operator.kinds import SPARK_APPLICATION, SPARK_SCHEDULE, Kind
from tidemill_operator.names import identity
from tidemill_operator.spark import Job, Run, RunState, SparkBackend, Timer, Timing
from tidemill_operator.steps import Manifest
from tidemill_wire.limits import MIB
from tidemill_wire.pipeline_specs import SparkDriver, SparkExecutor

SPARK_VERSION = "4.2.1"
"""Of the image, whose lock pins it; a test compares."""
JOBS = "local:///opt/tidemill/jobs"
PYTHON = "/opt/tidemill/bin/python"
LEFT_OUT = "org.apache.spark.deploy.k8s.features.NetworkPolicyFeatureStep"
DRIVER, EXECUTOR = "spark-kubernetes-driver", "spark-kubernetes-executor"
TMP_SIZE = "4Gi"
"""Of what a pod puts aside beside Spark's own folders, which Spark mounts."""
RETRIES, RETRY_SECONDS = 2, 60
SUBMISSIONS, SUBMISSION_SECONDS = 3, 30
"""Of a run of an Archive. A Replay's attempts are counted in its own status."""
NOBODYS = (
    "spark.master",
    "spark.submit.",
    "spark.app.name",
    "spark.kubernetes.namespace",
    "spark.kubernetes.authenticate.",
    "spark.kubernetes.container.image",
    "spark.kubernetes.driver.",
    "spark.kubernetes.executor.",
)
"""What a spec has fields for, or nobody may say: with it a pod could be of any image, account or template."""
STATES: Mapping[str, RunState] = {
    "": RunState.WAITING,
    "SUBMITTED": RunState.WAITING,
    "PENDING_SUBMISSION": RunState.WAITING,
    "SUBMISSION_FAILED": RunState.WAITING,
    "PENDING_RERUN": RunState.WAITING,
    "INVALIDATING": RunState.WAITING,
    "RESUMING": RunState.WAITING,
    "RUNNING": RunState.RUNNING,
    "SUCCEEDING": RunState.RUNNING,
    "FAILING": RunState.RUNNING,
    "SUSPENDING": RunState.SUSPENDED,
    "SUSPENDED": RunState.SUSPENDED,
    "COMPLETED": RunState.SUCCEEDED,
    "FAILED": RunState.FAILED,
    "UNKNOWN": RunState.UNKNOWN,
}


class Kubeflow:
    """See the module."""

    @property
    def kinds(self) -> tuple[Kind, Kind]:
        return SPARK_APPLICATION, SPARK_SCHEDULE

    def application(self, job: Job) -> Manifest:
        spec = {**_application(job), "restartPolicy": {"type": "Never"}}
        return {**SPARK_APPLICATION.header, "metadata": _metadata(job), "spec": spec}

    def schedule(self, job: Job, timing: Timing) -> Manifest:
        template = {
            **_application(job),
            "restartPolicy": {
                "type": "OnFailure",
                "onFailureRetries": RETRIES,
                "onFailureRetryInterval": RETRY_SECONDS,
                "onSubmissionFailureRetries": SUBMISSIONS,
                "onSubmissionFailureRetryInterval": SUBMISSION_SECONDS,
            },
            "timeToLiveSeconds": timing.run_seconds,
        }
        spec = {
            "schedule": plain_schedule(timing.schedule),
            "timeZone": timing.zone,
            "concurrencyPolicy": "Replace" if timing.replaces else "Forbid",
            "suspend": timing.suspended,
            "successfulRunHistoryLimit": timing.successful,
            "failedRunHistoryLimit": timing.failed,
            "template": template,
        }
        return {**SPARK_SCHEDULE.header, "metadata": _metadata(job), "spec": spec}

    def suspension(self, application: Manifest, *, suspended: bool) -> Manifest:
        return {**identity(application), "spec": {"suspend": suspended}}

    def run_of(self, application: Manifest) -> Run:
        status, metadata = marks.status(application), marks.metadata(application)
        state = marks.part(status, "applicationState")
        return Run(
            str(metadata["name"]),
            str(metadata.get("uid", "")),
            STATES.get(str(state.get("state", "")), RunState.UNKNOWN),
            str(state.get("errorMessage", "")),
            marks.moment(metadata.get("creationTimestamp")) or 0,
            marks.moment(status.get("terminationTime")),
            bool(marks.spec(application).get("suspend", False)),
        )

    def timer_of(self, schedule: Manifest) -> Timer:
        status, metadata = marks.status(schedule), marks.metadata(schedule)
        failed = status.get("scheduleState") == "FailedValidation"
        return Timer(
            str(metadata["name"]),
            str(metadata.get("uid", "")),
            marks.moment(metadata.get("creationTimestamp")) or 0,
            bool(status.get("scheduleState")),
            str(status.get("reason") or "its schedule cannot be read") if failed else "",
            marks.moment(status.get("nextRun")),
            marks.moment(status.get("lastRun")),
            str(status.get("lastRunName", "")),
        )


KUBEFLOW: SparkBackend = Kubeflow()
BACKENDS = (KUBEFLOW,)


def backend_of(served: frozenset[str]) -> SparkBackend | None:
    """The first whose kinds the API server has; None: nobody here runs Spark."""
    return next((one for one in BACKENDS if all(kind.full in served for kind in one.kinds)), None)


def _metadata(job: Job) -> dict[str, Any]:
    return {
        "name": job.name,
        "namespace": job.namespace,
        "labels": dict(job.labels),
        "ownerReferences": [dict(job.owner)],
    }


def _application(job: Job) -> dict[str, Any]:
    """The spec but for what becomes of it when it ends."""
    driver, executor = job.spark.driver, job.spark.executor
    found: dict[str, Any] = {
        "type": "Python",
        "pythonVersion": "3",
        "mode": "cluster",
        "sparkVersion": SPARK_VERSION,
        "image": job.image.reference,
        "imagePullPolicy": job.image.pull_policy,
        "mainApplicationFile": f"{JOBS}/{job.component}.py",
        "arguments": list(job.arguments),
        "sparkConf": _conf(job),
        "driver": {
            **_sizes(driver),
            "serviceAccount": job.spark.service_account_name,
            "labels": _pod_labels(job, "driver"),
            "template": _template(job, DRIVER, may_ask=True),
        },
        "executor": {
            "instances": executor.instances,
            **_sizes(executor),
            "labels": _pod_labels(job, "executor"),
            "template": _template(job, EXECUTOR, may_ask=False),
        },
    }
    if job.image.pull_secrets:
        found["imagePullSecrets"] = list(job.image.pull_secrets)
    return found


def _sizes(block: SparkDriver | SparkExecutor) -> dict[str, Any]:
    """Memory as a JVM has it, in whole MiB."""
    return {
        "cores": block.cores,
        "memory": f"{block.memory // MIB}m",
        "memoryOverhead": f"{max(block.memory_overhead // MIB, 1)}m",
    }


def _conf(job: Job) -> dict[str, str]:
    for one in job.spark.conf:
        if one.name.startswith(NOBODYS):
            raise SpecError(f"spec.spark.conf holds {one.name}, which is not for specs to say: drop it")
    return {
        "spark.pyspark.python": PYTHON,
        "spark.pyspark.driver.python": PYTHON,
        "spark.kubernetes.driver.pod.excludedFeatureSteps": LEFT_OUT,
        **{one.name: one.value for one in job.spark.conf},
    }


def _pod_labels(job: Job, role: str) -> dict[str, str]:
    """Those of no cluster: a pod of Spark is nobody's broker, and the operator does not watch it."""
    label = marks.ARCHIVE_LABEL if job.component == "archive" else marks.REPLAY_LABEL
    return {
        marks.PART_LABEL: marks.PRODUCT,
        marks.COMPONENT_LABEL: f"{job.component}-{role}",
        label: job.labels[label],
    }


def _template(job: Job, container: str, *, may_ask: bool) -> dict[str, Any]:
    """A pod that passes the restricted standard. Only a driver asks Kubernetes for anything."""
    files = of_client(job.locks)
    one: dict[str, Any] = {
        "name": container,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}, *files.mounts],  # noqa: S108  # the pod's own
    }
    one |= {"env": list(files.environment)} if files.environment else {}
    if job.secret:
        one["envFrom"] = [{"secretRef": {"name": job.secret}}]
    scheduling = job.spark.scheduling.to_map()
    apart = spread(job.spark.scheduling.spread, _pod_labels(job, "executor")) if not may_ask else []
    spec: dict[str, Any] = {
        "automountServiceAccountToken": may_ask,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [one],
        "volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": TMP_SIZE}}, *files.volumes],
    }
    spec |= {"topologySpreadConstraints": apart} if apart else {}
    spec |= {name: scheduling[name] for name in SCHEDULING if scheduling.get(name)}
    return {"spec": spec}

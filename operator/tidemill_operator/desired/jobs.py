"""What an Archive and a Replay ask for, as jobs: names, images, and the words of the programs' command lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from tidemill_operator.desired.locks import OPEN, Locks, parse_locks
from tidemill_operator.desired.wanted import Image, SpecError
from tidemill_operator.marks import ARCHIVE_LABEL, MANAGER, MANAGER_LABEL, REPLAY_LABEL, metadata, part
from tidemill_operator.names import HASH_CHARS, META_PORT, digest, labels_of, meta_host, owner_of
from tidemill_operator.spark import Component, Job, Timing
from tidemill_operator.steps import Manifest, Seen
from tidemill_wire.pipeline_specs import ArchiveSpec, ReplaySpec, Spark
from tidemill_wire.resources import parse_resource

NAME_CHARS_MAX = 30
"""Of an Archive and a Replay. What runs it has 43 at most: kubeflow's operator puts 20 more behind a schedule's name,
and all of it into a label.
"""


class Place(NamedTuple):
    """What a job depends on that its object does not say."""

    image: str
    """Where the spec names none."""
    locks: Locks


def place_of(seen: Seen) -> Place:
    """Only meta asks Kubernetes who somebody is."""
    locks = OPEN if seen.cluster is None else parse_locks(seen.cluster)
    return Place(seen.spark_image, replace(locks, audience=""))


def archive_spec(resource: Manifest) -> ArchiveSpec:
    """``ManifestError`` when this version of the operator cannot read it."""
    spec = parse_resource(_bare(resource)).spec
    assert isinstance(spec, ArchiveSpec)
    return spec


def replay_spec(resource: Manifest) -> ReplaySpec:
    spec = parse_resource(_bare(resource)).spec
    assert isinstance(spec, ReplaySpec)
    return spec


def _bare(resource: Manifest) -> dict[str, object]:
    """Without what others noted in its metadata, and what the operator says of it."""
    said = {"name": metadata(resource)["name"], "namespace": metadata(resource)["namespace"]}
    return {
        "apiVersion": resource["apiVersion"],
        "kind": resource["kind"],
        "metadata": said,
        "spec": resource["spec"],
    }


def timing(spec: ArchiveSpec) -> Timing:
    return Timing(
        spec.schedule,
        spec.time_zone,
        spec.concurrency_policy == "Replace",
        spec.state == "Suspended",
        spec.history.successful,
        spec.history.failed,
        spec.history.ttl_seconds,
    )


def archive_job(resource: Manifest, spec: ArchiveSpec, subjects: Sequence[str], place: Place) -> Job:
    """An Archive's; of ``subjects`` it has the names at meta."""
    name = metadata(resource)["name"]
    words = ["--server", server_of(resource), "--name", name]
    words += [word for subject in subjects for word in ("--subject", subject)]
    words += ["--to", spec.destination.uri, "--format", spec.destination.format]
    words += ["--compression", spec.destination.compression]
    if spec.source.read_from != "Slave":  # an image of an earlier version knows no other
        words += ["--read-from", spec.source.read_from]
    words += ["--safety-lag-seconds", str(spec.window.safety_lag_seconds)]
    words += ["--max-span-seconds", str(spec.window.max_span_seconds)]
    credentials = spec.destination.credentials
    return _job(
        "archive",
        # Spark's operators do not look again at when an object is due: another time is another object.
        f"ar-{name}-{digest([spec.schedule, spec.time_zone], HASH_CHARS)}",
        resource,
        words,
        spec.spark,
        place,
        "" if credentials is None else credentials.name,
    )


def replay_job(
    resource: Manifest, spec: ReplaySpec, archive: ArchiveSpec | None, attempt: int, place: Place
) -> Job:
    """An attempt at a Replay. All attempts are one run to the program, which goes on where the last one ended."""
    source, wanted = spec.source, spec.source.filter
    uri = source.uri if archive is None else archive.destination.uri
    assert uri is not None
    words = ["--server", server_of(resource), "--from-uri", uri, "--from", source.from_, "--to", source.to]
    words += [] if wanted.subject is None else ["--subject", wanted.subject]
    for option, values in (("--tag", wanted.tags), ("--id", wanted.message_ids), ("--key", wanted.keys)):
        words += [word for value in values for word in (option, value)]
    words += ["--target", spec.target.subject]
    words += [] if spec.target.consumer_group is None else ["--group", spec.target.consumer_group]
    words += ["--rate", str(spec.rate.messages_per_second), "--headers", spec.headers]
    words += ["--ordering", spec.ordering, *(["--dry-run"] if spec.mode == "DryRun" else [])]
    words += ["--run", run_name(resource)]
    credentials = None if archive is None else archive.destination.credentials
    return _job(
        "replay",
        f"{run_name(resource)}-{attempt}",
        resource,
        words,
        spec.spark,
        place,
        "" if credentials is None else credentials.name,
    )


def run_name(replay: Manifest) -> str:
    """Of a Replay, and of no other of its name, before or after: as meta knows it."""
    return f"rp-{metadata(replay)['name'][:NAME_CHARS_MAX]}-{digest(metadata(replay)['uid'], 6)}"


def server_of(resource: Manifest) -> str:
    """Where the programs find meta: a Service's name stays."""
    cluster = str(part(resource, "spec", "clusterRef")["name"])
    return f"{meta_host(cluster, metadata(resource)['namespace'])}:{META_PORT}"


def _job(
    component: Component,
    name: str,
    resource: Manifest,
    words: Sequence[str],
    spark: Spark,
    place: Place,
    secret: str,
) -> Job:
    return Job(
        component,
        name,
        metadata(resource)["namespace"],
        _labels(component, resource),
        owner_of(resource),
        tuple(words),
        _image(spark, place.image),
        spark,
        secret,
        place.locks,
    )


def _labels(component: Component, resource: Manifest) -> Mapping[str, str]:
    label = ARCHIVE_LABEL if component == "archive" else REPLAY_LABEL
    cluster = str(part(resource, "spec", "clusterRef")["name"])
    return labels_of(cluster, component) | {label: metadata(resource)["name"], MANAGER_LABEL: MANAGER}


def _image(spark: Spark, default: str) -> Image:
    repository, _, tag = default.rpartition(":")
    repository, tag = spark.image.repository or repository, spark.image.tag or tag
    if not repository or not tag:
        raise SpecError(
            "no image with Spark is named: write repository and tag in spec.spark.image, "
            "or the operator's setting spark_image"
        )
    return Image(f"{repository}:{tag}", spark.image.pull_policy, spark.image.pull_secrets)

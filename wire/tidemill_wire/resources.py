"""The kinds of manifests, and what is alike in all of them: the head of a document, its metadata, its names.

Subjects and consumer groups mean something to every tidemill (``declarations.py``). The other kinds are for Kubernetes;
elsewhere they are checked, named and passed over, so that one file is good for both.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tidemill_wire.cluster_specs import GROUP_MEANS, GROUP_PATTERN, BrokerGroupSpec, QueueClusterSpec
from tidemill_wire.grant_specs import GrantSpec
from tidemill_wire.group_specs import ConsumerGroupSpec
from tidemill_wire.pipeline_specs import ArchiveSpec, ReplaySpec
from tidemill_wire.schema import Block, ManifestError, mapping, parse_block
from tidemill_wire.specs import NAME_MEANS, NAME_PATTERN, Metadata, SubjectSpec
from tidemill_wire.wording import did_you_mean, listed, shown, shown_key

API_GROUP, VERSION = "tidemill.dev", "v1alpha1"
API_VERSION = f"{API_GROUP}/{VERSION}"

# As Kubernetes wants it (a DNS subdomain); subjects and groups may be called otherwise in their spec.
OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")

# What `kubectl get -o yaml` adds to metadata; of no meaning in a declaration.
SERVER_METADATA = frozenset(
    {"uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds",
     "managedFields", "ownerReferences", "finalizers", "selfLink"}
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Naming:
    """What ``metadata.name`` has to be, and the field of the spec that may hold another name, if any."""

    length_max: int = 253
    """Less where names of what is made from it are longer."""
    label: bool = False
    """Whether it becomes a part of host names: no dots, and a letter first."""
    field: str = ""
    pattern: str = ""
    means: str = ""

    @property
    def object_pattern(self) -> str:
        return f"[a-z]([-a-z0-9]{{0,{self.length_max - 2}}}[a-z0-9])?" if self.label else ""

    @property
    def object_means(self) -> str:
        return f"1 to {self.length_max} lower-case letters, digits and -, beginning with a letter"


@dataclass(frozen=True, slots=True)
class Kind:
    name: str
    doc: str
    spec: type[Block]
    naming: Naming
    here: str = ""
    """What a queue without Kubernetes has in its place."""


KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind(
            "QueueCluster",
            "Meta, and what holds for all broker groups.",
            QueueClusterSpec,
            Naming(40, label=True),
            "this queue is the cluster",
        ),
        Kind(
            "BrokerGroup",
            "A master and its slaves: of subjects, or of messages for later.",
            BrokerGroupSpec,
            Naming(40, label=True, field="groupName", pattern=GROUP_PATTERN, means=GROUP_MEANS),
            "--brokers, --slaves and --delays say how many there are",
        ),
        Kind(
            "Subject",
            "What programs send to and consume from.",
            SubjectSpec,
            Naming(field="subjectName", pattern=NAME_PATTERN, means=NAME_MEANS),
        ),
        Kind(
            "ConsumerGroup",
            "Who consumes a subject together, and how.",
            ConsumerGroupSpec,
            Naming(field="groupName", pattern=NAME_PATTERN, means=NAME_MEANS),
        ),
        Kind(
            "Archive",
            "Messages copied to files, again and again.",
            ArchiveSpec,
            Naming(30, label=True),
            "nothing is archived",
        ),
        Kind(
            "Replay",
            "Messages of an archive sent again, once.",
            ReplaySpec,
            Naming(30, label=True),
            "nothing is replayed",
        ),
        Kind(
            "Grant",
            "Who may do what with which subjects.",
            GrantSpec,
            Naming(),
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Resource:
    """One document, checked."""

    kind: Kind
    metadata: Metadata
    spec: Block


def parse_resource(document: object, kinds: Mapping[str, Kind] = KINDS) -> Resource:
    """The resource in a document, of one of the kinds; or ``ManifestError``."""
    given = mapping(document)
    if given is None:
        raise ManifestError(
            "", f"the document is {shown(document)}: write apiVersion, kind, metadata and spec"
        )
    kind = _parse_kind(given, kinds)
    for field in given:
        if field not in ("apiVersion", "kind", "metadata", "spec", "status"):
            hint = (
                did_you_mean(str(field), ("metadata", "spec"))
                or "what describes the object belongs below spec"
            )
            raise ManifestError(shown_key(field), f"is not a field of a {kind.name}: {hint}")
    metadata = _parse_metadata(given.get("metadata"), kind.naming)
    spec = parse_block(kind.spec, given.get("spec"), "spec")
    written = mapping(given.get("spec")) or {}
    if kind.naming.field and written.get(kind.naming.field) is None:
        _check_own_name(metadata.name, kind.naming)
    return Resource(kind, metadata, spec)


def _parse_kind(given: Mapping[object, object], kinds: Mapping[str, Kind]) -> Kind:
    version, name = given.get("apiVersion"), given.get("kind")
    if version != API_VERSION:
        said = "is missing" if version is None else f"is {shown(version)}"
        raise ManifestError("apiVersion", f"{said}: write {API_VERSION}")
    if isinstance(name, str) and name in kinds:
        return kinds[name]
    said = "is missing" if name is None else f"is {shown(name)}"
    if isinstance(name, str) and name in KINDS:
        raise ManifestError("kind", f"{said}, which is for Kubernetes alone: write {listed(kinds)}")
    hint = did_you_mean(name, kinds) if isinstance(name, str) else ""
    raise ManifestError("kind", f"{said}: {hint or f'write {listed(kinds)}'}")


def _parse_metadata(written: object, naming: Naming) -> Metadata:
    given = mapping(written)
    if given is not None:
        written = {field: value for field, value in given.items() if field not in SERVER_METADATA}
    metadata = parse_block(Metadata, written, "metadata")
    if naming.label and not re.fullmatch(naming.object_pattern, metadata.name):
        raise ManifestError("metadata.name", f"is {shown(metadata.name)}: write {naming.object_means}")
    if not OBJECT_NAME.fullmatch(metadata.name):
        other = f", and any other name into spec.{naming.field}" if naming.field else ""
        raise ManifestError(
            "metadata.name",
            f"is {shown(metadata.name)}: write lower-case letters, digits, - and . as Kubernetes wants it{other}",
        )
    return metadata


def _check_own_name(name: str, naming: Naming) -> None:
    if re.fullmatch(naming.pattern, name):
        return
    if naming.label:
        raise ManifestError(
            "metadata.name", f"is {shown(name)}: write spec.{naming.field} as well, which is {naming.means}"
        )
    raise ManifestError(
        "metadata.name",
        f"has {len(name)} characters, too many for a name: write a name of at most 100 into spec.{naming.field}",
    )

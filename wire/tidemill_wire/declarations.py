"""Subjects and consumer groups as people declare them: one model for laptop and Kubernetes.

What ``kubectl apply`` takes is taken here, but that ``clusterRef`` may be left out. What the fields are, is in
``specs.py``; how they are checked, in ``schema.py``.

``parse_manifest`` takes what a YAML or JSON parser gives; ``parse_manifests`` also proves that the declarations fit
together. A declaration goes into the action log as ``to_map()`` and comes back through ``from_map()``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, TypeAlias, cast

from tidemill_wire import limits
from tidemill_wire.schema import (
    Block,
    ManifestError,
    did_you_mean,
    listed,
    mapping,
    parse_block,
    parse_timestamp,
    shown,
    shown_key,
)
from tidemill_wire.specs import NAME_PATTERN, ConsumerGroupSpec, Metadata, SubjectSpec

__all__ = [
    "API_VERSION",
    "ConsumerGroup",
    "Declaration",
    "Durability",
    "ManifestError",
    "Subject",
    "parse_manifest",
    "parse_manifest_files",
    "parse_manifests",
]

API_VERSION = "tidemill.dev/v1alpha1"

# As Kubernetes wants it (a DNS subdomain); subjects and groups may be called otherwise in their spec.
OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")

# What `kubectl get -o yaml` adds to metadata; of no meaning in a declaration.
SERVER_METADATA = frozenset(
    {"uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds",
     "managedFields", "ownerReferences", "finalizers", "selfLink"}
)  # fmt: skip

Durability: TypeAlias = Literal["low", "normal", "high"]


@dataclass(frozen=True, slots=True)
class Subject:
    """What users send to and consume from."""

    KIND: ClassVar = "Subject"
    metadata: Metadata
    spec: SubjectSpec

    @property
    def name(self) -> str:
        return self.spec.subject_name or self.metadata.name

    @property
    def durability(self) -> Durability | None:
        """None: the broker's default, which depends on whether there is a slave."""
        value = next((entry.value for entry in self.spec.config if entry.name == "durability"), None)
        return cast("Durability | None", value)

    @property
    def retention_seconds(self) -> int:
        return self.spec.retention.message_seconds or limits.RETENTION_SECONDS_DEFAULT

    @property
    def retention_bytes(self) -> int | None:
        """None: any number."""
        return self.spec.retention.max_bytes

    @property
    def message_bytes_max(self) -> int:
        return self.spec.message.max_bytes or limits.MESSAGE_BYTES_DEFAULT

    @property
    def best_tried(self) -> bool:
        """In order as far as nothing fails; else a failure holds up what is behind it."""
        return self.spec.order_strategy == "BestTried"

    @property
    def deduplication_seconds(self) -> int:
        """For how long a dedup key is known; 0: sends with one are refused."""
        said = self.spec.deduplication_seconds
        return limits.DEDUPLICATION_SECONDS_DEFAULT if said is None else said

    @property
    def delay_allowed(self) -> bool:
        return self.spec.delay.mode == "Allowed"

    @property
    def dead_letters_kept(self) -> bool:
        return self.spec.dead_letter.mode == "Enabled"

    def to_map(self) -> dict[str, Any]:
        return _to_map(self.KIND, self.metadata, self.spec)

    @classmethod
    def from_map(cls, stored: Mapping[str, Any]) -> Subject:
        declaration = parse_manifest(stored)
        if not isinstance(declaration, cls):
            raise ManifestError("kind", f"is {shown(declaration.KIND)}: write {cls.KIND}")
        return declaration


@dataclass(frozen=True, slots=True)
class ConsumerGroup:
    """Who consumes a subject together, and how."""

    KIND: ClassVar = "ConsumerGroup"
    metadata: Metadata
    spec: ConsumerGroupSpec

    @property
    def name(self) -> str:
        return self.spec.group_name or self.metadata.name

    @property
    def subject(self) -> str:
        """The subject's name. Of a lone manifest with a subjectRef: the name of the Subject object."""
        if self.spec.subject_ref is not None:
            return self.spec.subject_ref.name
        assert self.spec.subject_name is not None
        return self.spec.subject_name

    @property
    def start(self) -> Literal["earliest", "latest"] | int:
        """Where a new group begins; a number is a time in ms."""
        match self.spec.start_from.position:
            case "Earliest":
                return "earliest"
            case "Latest":
                return "latest"
            case _:
                start_ms = parse_timestamp(self.spec.start_from.timestamp or "")
                assert start_ms is not None
                return start_ms

    @property
    def consumption(self) -> Literal["shared", "broadcast", "ordered"]:
        return cast('Literal["shared", "broadcast", "ordered"]', self.spec.consumption.lower())

    @property
    def suspended(self) -> bool:
        return self.spec.state == "Suspended"

    @property
    def lease_ms(self) -> int:
        return self.spec.delivery.ack_timeout_seconds * 1000

    @property
    def lease_ms_max(self) -> int:
        """The lease at most, however often it is renewed; 0: any time."""
        seconds = self.spec.delivery.max_ack_timeout_seconds
        return limits.LEASE_RENEWED_MS_DEFAULT if seconds is None else seconds * 1000

    @property
    def attempts_max(self) -> int:
        return self.spec.delivery.max_attempts

    @property
    def retry_ms_min(self) -> int:
        """Attempts go on for at least so long, even beyond ``attempts_max``."""
        return self.spec.delivery.min_retry_seconds * 1000

    @property
    def backoff_ms(self) -> tuple[int, ...]:
        """Pauses before the attempts that follow a failure; the last one repeats."""
        return tuple(seconds * 1000 for seconds in self.spec.delivery.retry_backoff_seconds)

    @property
    def dead_letters_kept(self) -> bool:
        return self.spec.dead_letter.mode == "Enabled"

    @property
    def dead_letter_retention_seconds(self) -> int:
        return self.spec.dead_letter.retention_seconds

    @property
    def max_in_flight(self) -> int:
        return self.spec.limits.max_in_flight

    @property
    def max_consumers(self) -> int:
        return self.spec.limits.max_consumers

    @property
    def tags(self) -> tuple[str, ...]:
        return self.spec.filter.tags

    @property
    def tag_match(self) -> Literal["none", "any", "all"]:
        return cast('Literal["none", "any", "all"]', self.spec.filter.match.lower())

    def to_map(self) -> dict[str, Any]:
        return _to_map(self.KIND, self.metadata, self.spec)

    @classmethod
    def from_map(cls, stored: Mapping[str, Any]) -> ConsumerGroup:
        declaration = parse_manifest(stored)
        if not isinstance(declaration, cls):
            raise ManifestError("kind", f"is {shown(declaration.KIND)}: write {cls.KIND}")
        return declaration


Declaration: TypeAlias = Subject | ConsumerGroup

_NAME_FIELDS = {"Subject": "subjectName", "ConsumerGroup": "groupName"}


def parse_manifest(document: object, file: str = "", number: int = 0) -> Declaration:
    """The declaration in one document, or ``ManifestError``, which names the file and the document if given."""
    try:
        return _parse(document)
    except ManifestError as error:
        raise error.located(file, number) from None


def parse_manifests(documents: Iterable[object], file: str = "") -> tuple[Declaration, ...]:
    """The declarations of one file; see ``parse_manifest_files``."""
    return parse_manifest_files({file: documents})


def parse_manifest_files(files: Mapping[str, Iterable[object]]) -> tuple[Declaration, ...]:
    """The declarations of several files that belong together, in their order.

    Empty documents are skipped and a ``List`` is what is in it. Each object, subject and group is declared once, and a
    subjectRef is replaced by the name of the subject that it refers to.
    """
    placed = [
        (parse_manifest(document, file, number), file, number)
        for file, documents in files.items()
        for number, document in _numbered(documents)
    ]
    subjects: dict[tuple[str | None, str], str] = {}
    seen: dict[tuple[object, ...], str] = {}
    for declaration, file, number in placed:
        _declare_once(seen, ("object", declaration.KIND, *_key(declaration)), "metadata.name", file, number)
        if isinstance(declaration, Subject):
            subjects[_key(declaration)] = declaration.name
            _declare_once(seen, ("subject", declaration.name), "spec.subjectName", file, number)
    linked: list[Declaration] = []
    for declaration, file, number in placed:
        if isinstance(declaration, Subject):
            linked.append(declaration)
            continue
        try:
            group = _resolved(declaration, subjects)
        except ManifestError as error:
            raise error.located(file, number) from None
        _declare_once(seen, ("group", group.subject, group.name), "spec.groupName", file, number)
        linked.append(group)
    return tuple(linked)


def _to_map(kind: str, metadata: Metadata, spec: Block) -> dict[str, Any]:
    """A plain map which is also a manifest; the defaults of today are written out."""
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata.to_map(), "spec": spec.to_map()}


def _parse(document: object) -> Declaration:
    given = mapping(document)
    if given is None:
        raise ManifestError(
            "", f"the document is {shown(document)}: write apiVersion, kind, metadata and spec"
        )
    version, kind = given.get("apiVersion"), given.get("kind")
    if version != API_VERSION:
        said = "is missing" if version is None else f"is {shown(version)}"
        raise ManifestError("apiVersion", f"{said}: write {API_VERSION}")
    if not isinstance(kind, str) or kind not in _NAME_FIELDS:
        said = "is missing" if kind is None else f"is {shown(kind)}"
        hint = did_you_mean(kind, _NAME_FIELDS) if isinstance(kind, str) else ""
        raise ManifestError("kind", f"{said}: {hint or f'write {listed(_NAME_FIELDS)}'}")
    for field in given:
        if field not in ("apiVersion", "kind", "metadata", "spec", "status"):
            hint = (
                did_you_mean(str(field), ("metadata", "spec"))
                or "what describes the object belongs below spec"
            )
            raise ManifestError(shown_key(field), f"is not a field of a {kind}: {hint}")
    metadata = _parse_metadata(given.get("metadata"), _NAME_FIELDS[kind])
    spec = given.get("spec")
    declaration: Declaration
    if kind == Subject.KIND:
        declaration = Subject(metadata, parse_block(SubjectSpec, spec, "spec"))
    else:
        declaration = ConsumerGroup(metadata, parse_block(ConsumerGroupSpec, spec, "spec"))
    if not re.fullmatch(NAME_PATTERN, declaration.name):
        raise ManifestError(
            "metadata.name",
            f"has {len(declaration.name)} characters, too many for a name: write a name of at most "
            f"{limits.SUBJECT_NAME_MAX} into spec.{_NAME_FIELDS[kind]}",
        )
    return declaration


def _parse_metadata(written: object, name_field: str) -> Metadata:
    given = mapping(written)
    if given is not None:
        written = {field: value for field, value in given.items() if field not in SERVER_METADATA}
    metadata = parse_block(Metadata, written, "metadata")
    if not OBJECT_NAME.fullmatch(metadata.name):
        raise ManifestError(
            "metadata.name",
            f"is {shown(metadata.name)}: write lower-case letters, digits, - and . as Kubernetes wants it, "
            f"and any other name into spec.{name_field}",
        )
    return metadata


def _numbered(documents: Iterable[object]) -> Iterator[tuple[int, object]]:
    for number, document in enumerate(documents, 1):
        given = mapping(document) or {}
        if given.get("apiVersion") == "v1" and given.get("kind") == "List":
            items = given.get("items")
            listed_items = cast("list[object]", items) if isinstance(items, list) else [items]
            yield from ((number, item) for item in listed_items)
        elif document is not None:
            yield number, document


def _key(declaration: Declaration) -> tuple[str | None, str]:
    return declaration.metadata.namespace, declaration.metadata.name


def _declare_once(
    seen: dict[tuple[object, ...], str], what: tuple[object, ...], path: str, file: str, number: int
) -> None:
    place = f"{file}, document {number}" if file else f"document {number}"
    if what in seen:
        raise ManifestError(
            path, f"is {shown(what[-1])}, declared already in {seen[what]}: keep one of the two", file, number
        )
    seen[what] = place


def _resolved(group: ConsumerGroup, subjects: Mapping[tuple[str | None, str], str]) -> ConsumerGroup:
    """The group with its subject's name in place of the reference to the Subject object."""
    if group.spec.subject_ref is None:
        return group
    referred = group.spec.subject_ref.name
    name = subjects.get((group.metadata.namespace, referred))
    if name is None:
        hint = did_you_mean(referred, [known for _, known in subjects])
        raise ManifestError(
            "spec.subjectRef.name",
            f"is {shown(referred)}, which no Subject here is called: "
            f"{hint or 'add that Subject, or write spec.subjectName instead'}",
        )
    return replace(group, spec=replace(group.spec, subject_ref=None, subject_name=name))

"""Subjects and consumer groups as people declare them: one model for laptop and Kubernetes.

What ``kubectl apply`` takes is taken here, but that ``clusterRef`` may be left out. What the fields are, is in
``specs.py`` and ``group_specs.py``; how they are checked, in ``schema.py``; what is alike in all kinds, and the kinds
that only Kubernetes makes, in ``resources.py``.

``parse_manifest`` takes what a YAML or JSON parser gives; ``parse_manifests`` also proves that the declarations fit
together. A declaration goes into the action log as ``to_map()`` and comes back through ``from_map()``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, TypeAlias, cast

from tidemill_wire import limits
from tidemill_wire.group_specs import ConsumerGroupSpec
from tidemill_wire.quotas import Rates
from tidemill_wire.resources import API_VERSION, KINDS, Kind, Resource, parse_resource
from tidemill_wire.schema import Block, ManifestError, mapping, parse_timestamp
from tidemill_wire.specs import Metadata, SubjectSpec
from tidemill_wire.wording import did_you_mean, shown

__all__ = [
    "API_VERSION",
    "ConsumerGroup",
    "Declaration",
    "Durability",
    "ManifestError",
    "Manifests",
    "PassedOver",
    "Subject",
    "parse_manifest",
    "parse_manifest_files",
    "parse_manifests",
]

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
    def durability_stays(self) -> bool:
        """It is named without a value: whatever it is now."""
        return any(entry.name == "durability" and entry.value is None for entry in self.spec.config)

    @property
    def retention_seconds(self) -> int:
        return self.spec.retention.message_seconds or limits.RETENTION_SECONDS_DEFAULT

    @property
    def retention_bytes(self) -> int | None:
        """None: any number."""
        return self.spec.retention.max_bytes

    @property
    def archive_required(self) -> bool:
        """What no archive has yet is kept, however old and much it is."""
        return self.spec.retention.archive == "Required"

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
    def rates(self) -> Rates:
        """What may be sent to it, on all brokers together."""
        quota = self.spec.quota
        return Rates(quota.messages_per_second or 0, quota.bytes_per_second or 0)

    @property
    def in_flight_max(self) -> int:
        """How many of its messages consumers may hold, on all brokers together; 0: any number."""
        return self.spec.quota.in_flight or 0

    @property
    def later_seconds(self) -> int | None:
        """How far ahead its messages may be sent, 0: not at all; None: as far as a delay service keeps any."""
        delay = self.spec.delay
        return delay.max_delay_seconds if delay.mode == "Allowed" else 0

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

GRANT = "Grant"
_DECLARED: Mapping[str, Kind] = {name: KINDS[name] for name in ("Subject", "ConsumerGroup")}


@dataclass(frozen=True, slots=True)
class PassedOver:
    """What a file has for Kubernetes alone. It is well-formed."""

    kind: Kind
    name: str
    file: str
    document: int

    def __str__(self) -> str:
        return (
            f"{self.file}, document {self.document}: the {self.kind.name} {self.name} is passed over: "
            f"without Kubernetes {self.kind.here}"
        )


@dataclass(frozen=True, slots=True)
class Manifests:
    """What files hold, in their order."""

    declarations: tuple[Declaration, ...]
    passed_over: tuple[PassedOver, ...]
    grants: tuple[Resource, ...] = ()
    """For a queue that asks who somebody is; see ``granted.py``."""


def parse_manifest(document: object, file: str = "", number: int = 0) -> Declaration:
    """The declaration in one document, or ``ManifestError``, which names the file and the document if given."""
    declaration = _declaration(_parse(document, file, number, _DECLARED))
    assert declaration is not None
    return declaration


def parse_manifests(documents: Iterable[object], file: str = "") -> tuple[Declaration, ...]:
    """The declarations of one file, which holds nothing else; see ``parse_manifest_files``."""
    return _parse_files({file: documents}, _DECLARED).declarations


def parse_manifest_files(files: Mapping[str, Iterable[object]]) -> Manifests:
    """What several files that belong together hold.

    Empty documents are skipped and a ``List`` is what is in it. Each object, subject and group is declared once, and a
    subjectRef is replaced by the name of the subject that it refers to.
    """
    return _parse_files(files, KINDS)


def _parse_files(files: Mapping[str, Iterable[object]], kinds: Mapping[str, Kind]) -> Manifests:
    resources = [
        (_parse(document, file, number, kinds), file, number)
        for file, documents in files.items()
        for number, document in _numbered(documents)
    ]
    seen: dict[tuple[object, ...], str] = {}
    for resource, file, number in resources:
        key = resource.metadata.namespace, resource.metadata.name
        _declare_once(seen, ("object", resource.kind.name, *key), "metadata.name", file, number)
    placed = [
        (declaration, file, number)
        for resource, file, number in resources
        if (declaration := _declaration(resource)) is not None
    ]
    passed_over = tuple(
        PassedOver(resource.kind, resource.metadata.name, file, number)
        for resource, file, number in resources
        if resource.kind.name not in _DECLARED and resource.kind.name != GRANT
    )
    grants = tuple(resource for resource, _, _ in resources if resource.kind.name == GRANT)
    return Manifests(_linked(placed, seen), passed_over, grants)


def _parse(document: object, file: str, number: int, kinds: Mapping[str, Kind]) -> Resource:
    try:
        return parse_resource(document, kinds)
    except ManifestError as error:
        raise error.located(file, number) from None


def _linked(
    placed: Iterable[tuple[Declaration, str, int]], seen: dict[tuple[object, ...], str]
) -> tuple[Declaration, ...]:
    """Groups with the names of their subjects; each subject and group is there once."""
    placed = list(placed)
    subjects: dict[tuple[str | None, str], str] = {}
    for declaration, file, number in placed:
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


def _declaration(resource: Resource) -> Declaration | None:
    match resource.spec:
        case SubjectSpec() as spec:
            return Subject(resource.metadata, spec)
        case ConsumerGroupSpec() as spec:
            return ConsumerGroup(resource.metadata, spec)
        case _:
            return None


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

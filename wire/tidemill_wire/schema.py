"""A manifest's fields as data: type, bounds, default and a line of documentation, once.

A block of a manifest is a frozen dataclass derived from ``Block``, each of whose attributes is annotated with a
``Field``: that is the table. The parser is driven by it, and so are the schemas of the Kubernetes resources and the
tables in the documentation, so none of them can say anything else. What fields say together is in ``RULES`` for the
API server and in ``conflict`` for the parser, one below the other.

``parse_block`` is the only way in: a block that exists is within its bounds, and whatever is not becomes a sentence.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any, ClassVar, TypeVar, cast, get_type_hints

from tidemill_wire.errors import TidemillError
from tidemill_wire.quantities import SIZE_MAX, bytes_of, written_size
from tidemill_wire.wording import did_you_mean, listed, shown, shown_key

AMOUNT_PATTERN = r"[0-9]{1,12}(\.[0-9]{1,3})?(m|[kMGTPE]|[KMGTPE]i)?"
TIMESTAMP = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(?:([Zz])|([+-])(\d\d):(\d\d))", re.ASCII
)
NUMBER_MAX = (1 << 63) - 1

_BlockType = TypeVar("_BlockType", bound="Block")


class ManifestError(TidemillError):
    """A manifest that cannot be used. Its text is one sentence: where, what is wrong, what to write instead."""

    def __init__(self, path: str, detail: str, file: str = "", document: int = 0) -> None:
        self.path = path
        self.detail = detail
        self.file = file
        self.document = document
        """The number of the document in its file, from 1; 0 when unknown."""
        place = ", ".join(part for part in (file, f"document {document}" if document else "") if part)
        super().__init__(f"{place}{': ' if place else ''}{path}{' ' if path else ''}{detail}")

    def located(self, file: str, document: int) -> ManifestError:
        return ManifestError(self.path, self.detail, file, document)


@dataclass(frozen=True, slots=True)
class Rule:
    """What the fields of a block say together, for the API server: CEL, and the sentence for when it is false.

    ``Block.conflict`` says the same to the parser, but for a rule about ``oldSelf``: the parser sees one manifest.
    """

    check: str
    says: str
    field: str = ""
    """Whose fault it is; empty: the block's."""


class Block:
    """The fields of one mapping in a manifest; see the module."""

    __slots__ = ()
    RULES: ClassVar[tuple[Rule, ...]] = ()

    def conflict(self) -> tuple[str, str] | None:
        """A rule over several fields that is broken: the field (or nothing) and the sentence's end."""
        return None

    def to_map(self) -> dict[str, Any]:
        """As it would stand in a manifest, defaults written out. Older versions may not know what says nothing."""
        return {
            described.name: emitted
            for attribute, described in table(type(self)).items()
            if (value := getattr(self, attribute)) not in (None, ())
            and ((emitted := described.emit(value)) != {} or value != described.default)
        }


@dataclass(frozen=True, slots=True)
class Field(ABC):
    """A row of the table. ``table()`` fills in what the attribute says: the name in a manifest, the default."""

    doc: str
    name: str = field(default="", kw_only=True)
    default: Any = field(default=None, kw_only=True)
    """What absence means. Of an absent part that is not None, the defaults of its fields count."""
    required: bool = field(default=False, kw_only=True)
    instead: str = field(default="", kw_only=True)
    """Of what cannot be changed once the object is there: what to do instead."""

    @abstractmethod
    def parse(self, value: object, path: str) -> Any:
        """The value that is meant, or ``ManifestError``."""

    def emit(self, value: Any) -> Any:
        return value

    @property
    @abstractmethod
    def kind(self) -> str:
        """The type and its bounds in words, for errors and documentation."""


@dataclass(frozen=True, slots=True)
class Number(Field):
    minimum: int = 0
    maximum: int = NUMBER_MAX

    @property
    def kind(self) -> str:
        return f"a whole number from {self.minimum} to {self.maximum}"

    def parse(self, value: object, path: str) -> int:
        if type(value) is not int:
            size = bytes_of(value) if isinstance(value, str) else None
            hint = "" if size is None else f", for example {size} without quotes and unit"
            raise ManifestError(path, f"is {shown(value)}: write {self.kind}{hint}")
        if not self.minimum <= value <= self.maximum:
            raise ManifestError(path, f"is {value}: write {self.kind}")
        return value


@dataclass(frozen=True, slots=True)
class Size(Field):
    """Bytes, as a number or as a Kubernetes quantity; parsed to a number."""

    minimum: int = 1
    maximum: int = SIZE_MAX

    @property
    def kind(self) -> str:
        least = f", {written_size(self.minimum)} at least" if self.minimum > 1 else ""
        return f"a size in bytes such as 50Gi, 200M or 1048576{least}"

    def parse(self, value: object, path: str) -> int:
        size = value if type(value) is int else None
        if isinstance(value, str):
            size = bytes_of(value)
        if size is None or not self.minimum <= size <= self.maximum:
            raise ManifestError(path, f"is {shown(value)}: write {self.kind}{self._bound(size)}")
        return size

    def _bound(self, size: int | None) -> str:
        if size is None or (size < self.minimum and self.minimum > 1):
            return ""
        return ", not 0" if size < self.minimum else f", {written_size(self.maximum)} at most"


@dataclass(frozen=True, slots=True)
class Amount(Field):
    """How much processor or memory, kept as the text that Kubernetes takes."""

    @property
    def kind(self) -> str:
        return "an amount such as 500m, 2 or 1Gi"

    def parse(self, value: object, path: str) -> str:
        written = str(value) if type(value) is int else value
        if not isinstance(written, str) or not re.fullmatch(AMOUNT_PATTERN, written):
            raise ManifestError(path, f"is {shown(value)}: write {self.kind}")
        return written


@dataclass(frozen=True, slots=True)
class Flag(Field):
    @property
    def kind(self) -> str:
        return "true or false"

    def parse(self, value: object, path: str) -> bool:
        if not isinstance(value, bool):
            raise ManifestError(path, f"is {shown(value)}: write {self.kind}")
        return value


@dataclass(frozen=True, slots=True)
class Text(Field):
    pattern: str = ""
    length_max: int = 1024
    means: str = ""
    """The pattern in words."""

    @property
    def kind(self) -> str:
        return self.means or f"a text of 1 to {self.length_max} characters"

    def parse(self, value: object, path: str) -> str:
        if not isinstance(value, str):
            quotes = ", in quotes" if type(value) in (int, float, bool) else ""
            raise ManifestError(path, f"is {shown(value)}: write {self.kind}{quotes}")
        if not 1 <= len(value) <= self.length_max or (self.pattern and not re.fullmatch(self.pattern, value)):
            count = f" ({len(value)} characters)" if len(value) > self.length_max else ""
            raise ManifestError(path, f"is {shown(value)}{count}: write {self.kind}")
        return value


@dataclass(frozen=True, slots=True)
class Choice(Field):
    values: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        return listed(self.values)

    def parse(self, value: object, path: str) -> str:
        if isinstance(value, str) and value in self.values:
            return value
        nearest = did_you_mean(value, self.values) if isinstance(value, str) else ""
        raise ManifestError(path, f"is {shown(value)}: {nearest or f'write {self.kind}'}")


@dataclass(frozen=True, slots=True)
class Time(Field):
    """A moment, kept as the text it was written as."""

    @property
    def kind(self) -> str:
        return "a time such as 2026-09-01T00:00:00Z"

    def parse(self, value: object, path: str) -> str:
        isoformat = getattr(value, "isoformat", None)  # YAML reads an unquoted time as a datetime
        written = isoformat() if callable(isoformat) else value
        at_ms = parse_timestamp(written) if isinstance(written, str) else None
        # As Kubernetes has it: a T between day and hour, capitals.
        if not isinstance(written, str) or at_ms is None or at_ms < 0 or set(written) & set(" tz"):
            raise ManifestError(path, f"is {shown(written)}: write {self.kind}")
        return written


@dataclass(frozen=True, slots=True)
class Part(Field):
    """A mapping with fields of its own."""

    block: type[Block] = Block

    @property
    def kind(self) -> str:
        return f"a mapping of {', '.join(row.name for row in table(self.block).values())}"

    def parse(self, value: object, path: str) -> Block:
        return parse_block(self.block, value, path)

    def emit(self, value: Block) -> dict[str, Any]:
        return value.to_map()


@dataclass(frozen=True, slots=True)
class Items(Field):
    """A list. ``key`` names the field by which items are told apart; without one they are the same when equal."""

    item: Field = field(default_factory=lambda: Text("An item."))
    count_min: int = 0
    count_max: int = 64
    unique: bool = True
    key: str = ""

    @property
    def kind(self) -> str:
        return f"a list of {self.count_min} to {self.count_max} items, each {self.item.kind}"

    def parse(self, value: object, path: str) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise ManifestError(path, f"is {shown(value)}: write {self.kind}")
        written = cast("list[object]", value)
        if not self.count_min <= len(written) <= self.count_max:
            raise ManifestError(path, f"has {len(written)} items: write {self.count_min} to {self.count_max}")
        parsed = tuple(self.item.parse(each, f"{path}[{index}]") for index, each in enumerate(written))
        seen: set[Any] = set()
        for each in parsed if self.unique else ():
            identity = getattr(each, self.key) if self.key else each
            if identity in seen:
                raise ManifestError(path, f"holds {shown(identity)} twice: write it once")
            seen.add(identity)
        return parsed

    def emit(self, value: Iterable[Any]) -> list[Any]:
        return [self.item.emit(each) for each in value]


@dataclass(frozen=True, slots=True)
class Labels(Field):
    """A mapping of texts to texts; parsed to sorted pairs, so that it is a value."""

    count_max: int = 256
    length_max: int = 262_144
    pattern: str = ""
    """Of keys and texts."""
    means: str = ""

    @property
    def kind(self) -> str:
        means = f", each {self.means}" if self.means else ""
        return f"a mapping of texts to texts, {self.count_max} at most{means}"

    def parse(self, value: object, path: str) -> tuple[tuple[str, str], ...]:
        written = mapping(value)
        if written is None or len(written) > self.count_max:
            raise ManifestError(path, f"is {shown(value)}: write {self.kind}")
        pairs: list[tuple[str, str]] = []
        for key, label in written.items():
            if label is None:
                continue  # as everywhere: not written
            if not isinstance(key, str) or not isinstance(label, str) or len(label) > self.length_max:
                raise ManifestError(f"{path}.{shown_key(key)}", f"is {shown(label)}: write a text, in quotes")
            wrong = [one for one in (key, label) if self.pattern and not re.fullmatch(self.pattern, one)]
            if wrong:
                raise ManifestError(f"{path}.{shown_key(key)}", f"has {shown(wrong[0])}: write {self.means}")
            pairs.append((key, label))
        return tuple(sorted(pairs))

    def emit(self, value: Iterable[tuple[str, str]]) -> dict[str, str]:
        return dict(value)


_TABLES: dict[type[Block], dict[str, Field]] = {}


def table(block: type[Block]) -> dict[str, Field]:
    """The rows of a block by attribute: ``message_seconds`` is ``messageSeconds`` in a manifest."""
    rows = _TABLES.get(block)
    if rows is None:
        rows = _TABLES[block] = {}
        hints = get_type_hints(block, include_extras=True)
        for each in fields(block):  # type: ignore[arg-type]  # every Block but the base is a dataclass
            described = next(data for data in hints[each.name].__metadata__ if isinstance(data, Field))
            head, *rest = each.name.split("_")
            made = None if each.default_factory is MISSING else each.default_factory()
            default = made if each.default is MISSING else each.default
            required = each.default is MISSING and each.default_factory is MISSING
            name = head + "".join(map(str.capitalize, rest))
            rows[each.name] = replace(described, name=name, default=default, required=required)
    return rows


def described_fields(block: type[Block], path: str = "") -> Iterable[tuple[str, Field]]:
    """Every field below a block with its path, blocks before what is in them."""
    for described in table(block).values():
        yield (here := f"{path}{described.name}"), described
        inner = described.item if isinstance(described, Items) else described
        if isinstance(inner, Part):
            yield from described_fields(inner.block, f"{here}{'[]' if inner is not described else ''}.")


def parse_block(block: type[_BlockType], value: object, path: str) -> _BlockType:
    """The block that a mapping describes, or ``ManifestError``. Nothing written is a block of defaults."""
    given = mapping({} if value is None else value)
    if given is None:
        raise ManifestError(path, f"is {shown(value)}: write {Part('', block).kind}")
    rows = table(block)
    known = [described.name for described in rows.values()]
    for key in given:
        if key not in known:
            hint = did_you_mean(str(key), known) or f"known here are {listed(known, 'and')}"
            raise ManifestError(f"{path}.{shown_key(key)}", f"is not a known field: {hint}")
    arguments: dict[str, Any] = {}
    for attribute, described in rows.items():
        written, here = given.get(described.name), f"{path}.{described.name}"
        if written is not None:
            arguments[attribute] = described.parse(written, here)
        elif described.required:
            raise ManifestError(here, f"is missing: write {described.kind}")
    parsed = block(**arguments)
    if broken := parsed.conflict():
        raise ManifestError(f"{path}.{broken[0]}" if broken[0] else path, broken[1])
    return parsed


def parse_timestamp(written: str) -> int | None:
    """Milliseconds since 1970 of an RFC 3339 timestamp, or None when it is none."""
    matched = TIMESTAMP.fullmatch(written)
    if matched is None:
        return None
    year, month, day, hour, minute, second = map(int, matched.group(1, 2, 3, 4, 5, 6))
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    lengths = (31, 29 if leap else 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
    if not (
        1 <= month <= 12
        and year
        and 1 <= day <= lengths[month - 1]
        and hour < 24
        and minute < 60
        and second < 60
    ):
        return None
    east_hours, east_minutes = int(matched[10] or 0), int(matched[11] or 0)
    if east_hours > 23 or east_minutes > 59:
        return None
    before = year - 1
    days = (
        before * 365 + before // 4 - before // 100 + before // 400 + sum(lengths[: month - 1]) + day - 719_163
    )
    east = (east_hours * 60 + east_minutes) * (-1 if matched[9] == "-" else 1)
    minutes = (days * 24 + hour) * 60 + minute - east
    return (minutes * 60 + second) * 1000 + int((matched[7] or "").ljust(3, "0")[:3])


def mapping(value: object) -> Mapping[object, object] | None:
    return cast("Mapping[object, object]", value) if isinstance(value, Mapping) else None

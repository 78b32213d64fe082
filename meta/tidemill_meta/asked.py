"""The border of JSON: what came in a request becomes proven values here, or is refused with a sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from tidemill_meta.errors import Denied
from tidemill_wire.errors import Refused
from tidemill_wire.fields import CONSUMER, NAME, parse_group, parse_subject
from tidemill_wire.routes import STATES, State

LABELS_MAX = 16
LABEL_CHARS_MAX = 63
NAMES_MAX = 1_000
ADDRESS_CHARS_MAX = 260
WHOLE_MAX = 1 << 53
"""What JSON's readers in other languages hold exactly."""


class Asked:
    """A JSON object from outside; every getter either proves a field or refuses the request."""

    def __init__(self, body: object, known: frozenset[str] | None = None) -> None:
        if not isinstance(body, dict):
            raise wrong("the body is no JSON object")
        self._map = cast("Mapping[str, Any]", body)
        for field in self._map if known is not None else ():
            if known is not None and field not in known:
                raise wrong(f"there is no field {str(field)[:60]!r} here: {', '.join(sorted(known))} are")

    @property
    def fields(self) -> tuple[str, ...]:
        """Those that are there."""
        return tuple(map(str, self._map))

    def has(self, field: str) -> bool:
        return self._map.get(field) is not None

    def whole(self, field: str, absent: int | None = None, high: int = WHOLE_MAX) -> int:
        value = self._map.get(field, absent)
        if type(value) is not int or not 0 <= value <= high:
            raise wrong(f"{field} is {_shown(value)}: write a whole number from 0 to {high}")
        return value

    def number(self, field: str, absent: float) -> float:
        value = self._map.get(field, absent)
        if type(value) not in {int, float} or not 0 <= value < 1e12:
            raise wrong(f"{field} is {_shown(value)}: write a number that is not below 0")
        return float(value)

    def text(self, field: str, absent: str | None = None, limit: int = ADDRESS_CHARS_MAX) -> str:
        value = self._map.get(field, absent)
        if type(value) is not str or len(value) > limit or not value.isprintable():
            raise wrong(f"{field} is {_shown(value)}: write a text of at most {limit} printable characters")
        return value

    def name(self, field: str, absent: str | None = None) -> str:
        return parse_name(self._map.get(field, absent), field)

    def names(self, field: str) -> tuple[str, ...]:
        """A list of names, each once."""
        return tuple(dict.fromkeys(parse_name(one, field) for one in self.items(field)))

    def subject(self, field: str) -> str:
        return parse_subject(self.text(field))

    def subjects(self, field: str) -> tuple[str, ...]:
        named = self.items(field)
        if not all(type(one) is str for one in named):
            raise wrong(f"{field} has what is no text: write a list of subjects' names")
        return tuple(dict.fromkeys(parse_subject(one) for one in named))

    def group(self, field: str) -> str:
        return parse_group(self.text(field))

    def consumer(self, field: str, absent: str | None = None) -> str:
        value = self._map.get(field, absent)
        if type(value) is not str or not CONSUMER.fullmatch(value):
            raise Refused("invalid_consumer", f"{field} is {_shown(value)}")
        return value

    def one_of(self, field: str, known: Sequence[str], absent: str | None = None) -> str:
        """One of some words."""
        value = self._map.get(field, absent)
        if value not in known:
            raise wrong(f"{field} is {_shown(value)}: write {', '.join(known)}")
        return str(value)

    def state(self, field: str, absent: State | None = None) -> State:
        return cast("State", self.one_of(field, STATES, absent))

    def address(self, field: str) -> str:
        """HOST:PORT."""
        written = self.text(field)
        host, _, port = written.rpartition(":")
        if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 1 << 16:
            raise wrong(f"{field} is {_shown(written)}: write HOST:PORT")
        return written

    def items(self, field: str, limit: int = NAMES_MAX) -> list[Any]:
        value: list[Any] = self._map.get(field, [])
        if type(value) is not list or len(value) > limit:
            raise wrong(f"{field} is {_shown(value)}: write a list of at most {limit}")
        return value

    def part(self, field: str, known: frozenset[str] | None = None) -> Asked:
        try:
            return Asked(self._map.get(field, {}), known)
        except Denied as error:
            raise wrong(f"{field}: {error.detail}") from None

    def labels(self, field: str) -> tuple[tuple[str, str], ...]:
        given: object = self._map.get(field, {})
        if not isinstance(given, dict):
            raise wrong(f"{field} is no object: write one of at most {LABELS_MAX} texts")
        pairs = list(cast("dict[object, object]", given).items())
        if len(pairs) > LABELS_MAX:
            raise wrong(f"{field} has {len(pairs)} texts: write at most {LABELS_MAX}")
        return tuple(sorted((_label(key, field), _label(value, field)) for key, value in pairs))


def _label(value: object, field: str) -> str:
    if type(value) is not str or len(value) > LABEL_CHARS_MAX or not value.isprintable():
        raise wrong(f"{field} has {_shown(value)}: write texts of at most {LABEL_CHARS_MAX} characters")
    return value


def wrong(detail: str) -> Denied:
    """A request that is not what it has to be."""
    return Denied("malformed", detail)


def parse_name(value: object, field: str) -> str:
    """A name as subjects have it, of a broker, a broker group or a client."""
    if type(value) is not str or not NAME.fullmatch(value):
        raise wrong(f"{field} is {_shown(value)}: write 1 to 100 characters of A-Z a-z 0-9 . _ -")
    return value


def _shown(value: object) -> str:
    return "missing" if value is None else repr(value)[:60]

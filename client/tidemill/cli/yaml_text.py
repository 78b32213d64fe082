"""Plain values as YAML, for people and for whatever reads that. Written here: the client brings no YAML of its own.

Mappings and sequences are blocks; a text is plain where no reader could take it for anything else, and else in double
quotes, in which JSON's escapes mean the same.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*(?: [A-Za-z0-9_./-]+)*")
WORDS = frozenset(("y", "n", "yes", "no", "true", "false", "on", "off", "null"))
"""That mean something else to some reader."""
UNPRINTED = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")
KEY_CHARS = 128
"""A longer one is written in quotes all the same; YAML 1.1 reads keys of up to 1,024 characters on a line."""


def yaml_of(value: object) -> str:
    """A document, with its last line's end."""
    return "".join(f"{line}\n" for line in _lines(value))


def _lines(value: object) -> Iterator[str]:
    match value:
        case Mapping() if value:
            for name, item in cast("Mapping[object, object]", value).items():
                yield from _entry(f"{_text(str(name))}:", item)
        case list() | tuple() if value:
            for item in cast("Sequence[object]", value):
                first, *rest = _lines(item)
                yield f"- {first}"
                yield from (f"  {line}" for line in rest)
        case _:
            yield _scalar(value)


def _entry(head: str, item: object) -> Iterator[str]:
    match item:
        case Mapping() | list() | tuple() if item:
            yield head
            yield from (f"  {line}" for line in _lines(cast("object", item)))
        case _:
            yield f"{head} {_scalar(item)}"


def _scalar(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return _float(value)
        case Mapping():
            return "{}"
        case list() | tuple():
            return "[]"
        case _:
            return _text(str(value))


def _float(value: float) -> str:
    if not math.isfinite(value):
        return ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
    written = repr(value)
    mantissa, e, exponent = written.partition("e")
    if not e:
        return written
    # Readers of YAML 1.1 want a point and a sign, or take it for a text.
    return (
        f"{mantissa}{'' if '.' in mantissa else '.0'}e{exponent if exponent[0] in '+-' else '+' + exponent}"
    )


def _text(value: str) -> str:
    if len(value) <= KEY_CHARS and PLAIN.fullmatch(value) and value.lower() not in WORDS:
        return value
    return UNPRINTED.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(value, ensure_ascii=False))

"""The schema of a block: OpenAPI for what a field says alone, CEL for what needs a sentence or another field.

What the API server says of a bound or of a choice holds what to write instead; of a pattern it does not, so patterns
are rules of CEL, with the words that the parser has, too. Everything has a bound, for the costs of rules are estimated
by the longest text and list that a schema allows.
"""

from __future__ import annotations

from typing import Any

from tidemill_wire.quantities import SIZE_PATTERN, written_size
from tidemill_wire.schema import (
    AMOUNT_PATTERN,
    NUMBER_MAX,
    Amount,
    Block,
    Choice,
    Field,
    Flag,
    Items,
    Labels,
    Number,
    Part,
    Rule,
    Size,
    Text,
    Time,
    table,
)

INT32_MAX = (1 << 31) - 1
AMOUNT_MAX = 10**12 - 1
"""As many digits as an amount in a text may have."""
TIME_PATTERN = (
    "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})"
)
TIME_CHARS_MAX = 40
RULES = "x-kubernetes-validations"
INT_OR_STRING: dict[str, Any] = {
    "x-kubernetes-int-or-string": True,
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "maxLength": 24,  # of the text; without it, rules are taken to read megabytes
}
RESERVED = {"namespace", "package", "in", "as", "for", "if", "import", "let", "loop", "return", "var", "void"}
"""Names that CEL keeps for itself."""


def block_schema(block: type[Block], *, reported: bool = False) -> dict[str, Any]:
    """The schema of a mapping. What the operator itself reports is not refused for a bound: only its shape is said."""
    rows = table(block)
    schema: dict[str, Any] = {"type": "object"}
    if required := [described.name for described in rows.values() if described.required]:
        schema["required"] = required
    schema["properties"] = {
        described.name: field_schema(described, reported=reported) for described in rows.values()
    }
    unchanged = [_unchanged(described) for described in rows.values() if described.instead]
    if rules := [*block.RULES, *unchanged]:
        schema[RULES] = [_rule(rule) for rule in rules]
    return schema


def field_schema(described: Field, *, reported: bool = False) -> dict[str, Any]:
    schema = {"description": described.doc, **_kind_schema(described, reported=reported)}
    if (default := default_of(described)) is not None and not reported:
        schema["default"] = default
    return schema


def default_of(described: Field) -> Any:
    """As it stands in a manifest; None when there is none. Of a part it is whole: the API server asks the rules of a
    part about its default before it looks at those of its fields.
    """
    value = described.default
    return None if value is None or value == () else _written(described, value)


def _written(described: Field, value: Any) -> Any:
    match described:
        case Size():
            return written_size(value)
        case Part():
            rows = ((row, getattr(value, attribute)) for attribute, row in table(described.block).items())
            return {row.name: _written(row, own) for row, own in rows if own is not None and own != ()}
        case _:
            return described.emit(value)


def _kind_schema(described: Field, *, reported: bool) -> dict[str, Any]:
    match described:
        case Number():
            return _number(described, reported=reported)
        case Size():
            least, most = described.minimum, described.maximum
            check = (
                f"type(self) == int ? (self >= {least} && self <= {most}) : (self.matches('^{SIZE_PATTERN}$')"
                f" && quantity(self).compareTo(quantity('{written_size(least)}')) >= 0"
                f" && quantity(self).compareTo(quantity('{written_size(most)}')) <= 0)"
            )
            return {**INT_OR_STRING, RULES: [_rule(Rule(check, f"write {described.kind}"))]}
        case Amount():
            check = f"type(self) == int ? (self >= 0 && self <= {AMOUNT_MAX}) : self.matches({_raw(AMOUNT_PATTERN)})"
            return {**INT_OR_STRING, RULES: [_rule(Rule(check, f"write {described.kind}"))]}
        case Text():
            return _text(described, reported=reported)
        case Time():
            return _time(described, reported=reported)
        case Choice():
            return {"type": "string", "enum": list(described.values)}
        case Flag():
            return {"type": "boolean"}
        case Labels():
            return _labels(described)
        case Part():
            return block_schema(described.block, reported=reported)
        case Items():
            return _items(described, reported=reported)
        case _:
            raise TypeError(f"{type(described).__name__} has no schema: give it one here")


def _number(described: Number, *, reported: bool) -> dict[str, Any]:
    if reported:
        return {"type": "integer", "format": "int64"}
    small = described.maximum <= INT32_MAX
    bound = {"maximum": described.maximum} if described.maximum < NUMBER_MAX else {}
    return {
        "type": "integer", "format": "int32" if small else "int64", "minimum": described.minimum, **bound
    }  # fmt: skip


def _text(described: Text, *, reported: bool) -> dict[str, Any]:
    if reported:
        return {"type": "string", "maxLength": described.length_max}
    schema: dict[str, Any] = {"type": "string", "minLength": 1, "maxLength": described.length_max}
    if described.pattern:
        check = f"self.matches({_raw(described.pattern)})"
        schema[RULES] = [_rule(Rule(check, f"write {described.kind}"))]
    return schema


def _time(described: Time, *, reported: bool) -> dict[str, Any]:
    if reported:
        return {"type": "string", "format": "date-time"}
    check = f"self.matches({_raw(TIME_PATTERN)}) && timestamp(self) >= timestamp('1970-01-01T00:00:00Z')"
    rule = _rule(Rule(check, f"write {described.kind}"))
    return {"type": "string", "maxLength": TIME_CHARS_MAX, RULES: [rule]}


def _labels(described: Labels) -> dict[str, Any]:
    value: dict[str, Any] = {"type": "string", "maxLength": described.length_max}
    schema: dict[str, Any] = {
        "type": "object",
        "maxProperties": described.count_max,
        "additionalProperties": value,
    }
    if described.pattern:
        pattern = _raw(described.pattern)
        check = f"self.all(key, key.matches({pattern}) && self[key].matches({pattern}))"
        schema[RULES] = [_rule(Rule(check, f"of keys and values write {described.means}"))]
    return schema


def _items(described: Items, *, reported: bool) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "array"}
    if described.count_min and not reported:
        schema["minItems"] = described.count_min
    schema["maxItems"] = described.count_max
    if described.key:
        assert isinstance(described.item, Part)
        schema["x-kubernetes-list-type"] = "map"
        schema["x-kubernetes-list-map-keys"] = [table(described.item.block)[described.key].name]
    elif described.unique and not isinstance(described.item, Part):
        schema["x-kubernetes-list-type"] = "set"
    else:
        schema["x-kubernetes-list-type"] = "atomic"
    schema["items"] = _kind_schema(described.item, reported=reported)
    return schema


def _unchanged(described: Field) -> Rule:
    name = _cel_name(described.name)
    same = f"self.{name} == oldSelf.{name}"
    if not described.required and default_of(described) is None:
        same = f"has(self.{name}) == has(oldSelf.{name}) && (!has(self.{name}) || {same})"
    return Rule(same, f"stays as it was made: {described.instead}", described.name)


def _rule(rule: Rule) -> dict[str, Any]:
    place = {"fieldPath": f".{rule.field}"} if rule.field else {}
    return {"rule": rule.check, "message": rule.says, **place}


def _cel_name(name: str) -> str:
    return f"__{name}__" if name in RESERVED else name


def _raw(pattern: str) -> str:
    """A pattern for the whole text, as CEL writes it."""
    assert "'" not in pattern
    return f"r'^(?:{pattern})$'"

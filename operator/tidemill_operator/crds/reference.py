"""The page that documents the fields of each kind, made of the same declarations."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, cast

from tidemill_operator.crds.kinds import FACES, Face
from tidemill_operator.crds.openapi import default_of
from tidemill_wire.resources import KINDS, Kind
from tidemill_wire.schema import Block, Field, Part, described_fields, table

HEAD = """\
# Fields of the kinds

Made by `make crds` of the declarations in `wire/`: change those.
What the kinds are for is in [kubernetes](kubernetes.md#the-kinds).
A field without a default may be left out unless it is *required*; what cannot be changed says so.
"""


def reference() -> str:
    return HEAD + "".join(_section(KINDS[name], face) for name, face in FACES.items())


def _section(kind: Kind, face: Face) -> str:
    lines = [
        f"\n## {kind.name}\n",
        f"`kubectl get {face.short}`, or `{face.plural}`.\n",
        "| field of `spec` | default | is | means |",
        "|---|---|---|---|",
        *_rows(kind.spec, face),
        "",
        "| field of `status` | means |",
        "|---|---|",
        *(f"| `{path}` | {_cell(field.doc)} |" for path, field in described_fields(face.status)),
    ]
    return "\n".join(lines) + "\n"


def _rows(spec: type[Block], face: Face) -> Iterator[str]:
    for path, field in described_fields(spec):
        part = isinstance(field, Part)
        default = _default(field, obliged=path in face.obliged)
        kind = "" if part else field.kind
        unchanged = " Cannot be changed." if field.instead else ""
        yield f"| `{path}` | {default} | {_cell(kind)} | {_cell(field.doc + unchanged)} |"


def _default(field: Field, *, obliged: bool) -> str:
    if field.required or obliged:
        return "*required*"
    default = default_of(field)
    if isinstance(field, Part) and isinstance(default, dict):
        default = _beyond_its_fields(field, cast("dict[str, Any]", default))
    if default is None or default == {}:
        return ""
    return f"`{default if isinstance(default, str) else json.dumps(default)}`"


def _beyond_its_fields(part: Part, default: dict[str, Any]) -> dict[str, Any]:
    """What the defaults of the part's own fields do not say."""
    own = {row.name: default_of(row) for row in table(part.block).values()}
    return {name: value for name, value in default.items() if value != own[name]}


def _cell(text: str) -> str:
    return text.replace("|", "\\|")

"""Writes what the charts have from elsewhere: ``make charts``. With ``--check`` it says what is not as it would be.

- of the operator's chart: copies of the CRDs, and the rules of its roles;
- of the queue's chart: the schema of the specs in its values, out of the CRDs;
- of the queue's chart: dashboards, out of ``charts/dashboards.yaml``;
- of each chart: the table of its values in README.md, out of the comments in values.yaml;
- the page of all metrics, ``docs/metrics.md``, out of their table.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tidemill_operator import rbac
from tidemill_wire.metrics.grafana import dashboard
from tidemill_wire.metrics.reference import reference

ROOT = Path(__file__).parents[1]
CHARTS = ROOT / "charts"
OPERATOR = CHARTS / "tidemill-operator"
QUEUE_SCHEMA = CHARTS / "tidemill" / "values.schema.json"
DEFINITIONS = ROOT / "crds"
DASHBOARDS = CHARTS / "tidemill" / "files" / "dashboards"
METRICS = ROOT / "docs" / "metrics.md"

BEGIN, END = "<!-- values: made by `make charts` -->", "<!-- end of values -->"
KEY = re.compile(r"^( *)([A-Za-z0-9]+):")
SAID = re.compile(r"^ *# -- (.*)$")
RULES_HEADING = "# Made by `make charts` of operator/tidemill_operator/rbac.py.\n"

OBJECT = {"type": "string", "minLength": 1, "maxLength": 253, "pattern": "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"}
GROUP = {"type": "string", "minLength": 1, "maxLength": 30, "pattern": "^[a-z0-9]+$"}
SHORT = {"type": "string", "minLength": 1, "maxLength": 30, "pattern": "^[a-z]([-a-z0-9]*[a-z0-9])?$"}
LISTED = {"BrokerGroup": GROUP, "Subject": OBJECT, "ConsumerGroup": OBJECT, "Archive": SHORT}
"""Kinds of which values have lists, and what the name of one is like. A broker group's is not its object's."""
OF_THE_CHART = {
    "QueueCluster": ("brokerGroups", "canary"),
    "BrokerGroup": ("clusterRef", "groupName"),
    "Subject": ("clusterRef",),
    "ConsumerGroup": ("clusterRef",),
    "Archive": ("clusterRef",),
}
"""Fields that it writes itself."""
OF_THEIR_OWN = {("QueueCluster", "canary"): "Canary"}
"""Blocks of specs that are values of their own, and what the schema calls them."""
KEPT = {
    *("enum", "format", "pattern", "uniqueItems"),
    *("maxItems", "maxLength", "maximum", "minItems", "minLength", "minimum"),
}
"""What a schema of values says of a field; the rest of a CRD's is for the API server."""


class Unsaid(Exception):
    """A value without a comment."""


def made() -> dict[Path, str]:
    """Every file that is made of others, and what it should hold."""
    sources = sorted(DEFINITIONS.glob("*.yaml"))
    files = {OPERATOR / "files" / "crds" / path.name: path.read_text() for path in sources}
    files[OPERATOR / "files" / "rules.yaml"] = rules()
    files[QUEUE_SCHEMA] = schema(
        QUEUE_SCHEMA.read_text(), [yaml.safe_load(path.read_text()) for path in sources]
    )
    for path in sorted(CHARTS.glob("*/values.yaml")):
        page = path.with_name("README.md")
        files[page] = with_table(page.read_text(), table(path.read_text()))
    for one in yaml.safe_load((CHARTS / "dashboards.yaml").read_text()):
        shown = json.dumps(dashboard(one), indent=1, ensure_ascii=False) + "\n"
        files[DASHBOARDS / f"{one['name']}.json"] = shown
    files[METRICS] = reference()
    return files


def stray(wanted: Sequence[Path]) -> list[Path]:
    """Copies of what is no more."""
    made = [*(OPERATOR / "files" / "crds").glob("*"), *DASHBOARDS.glob("*")]
    return sorted(set(made) - set(wanted))


def rules() -> str:
    lines = [RULES_HEADING]
    for name, rows_ in (("namespaced", rbac.NAMESPACED), ("cluster", rbac.CLUSTER)):
        lines.append(f"{name}:\n")
        lines += [f"  # {row.why}\n  - {json.dumps(row.to_map())}\n" for row in rows_]
    return "".join(lines)


def schema(text: str, definitions: Sequence[Mapping[str, Any]]) -> str:
    """The schema of values with each kind's spec as its CRD has it. What must be said there, the API server asks for:
    values are put together before.
    """
    found = json.loads(text)
    for definition in definitions:
        kind = definition["spec"]["names"]["kind"]
        if kind not in found["definitions"]:
            continue
        (version,) = definition["spec"]["versions"]
        spec = plain(version["schema"]["openAPIV3Schema"]["properties"]["spec"])
        for (of, name), called in OF_THEIR_OWN.items():
            found["definitions"] |= {called: spec["properties"][name]} if of == kind else {}
        for name in OF_THE_CHART.get(kind, ()):
            spec["properties"].pop(name, None)
        if kind in LISTED:
            spec["properties"] = {"name": LISTED[kind], **spec["properties"]}
        found["definitions"][kind] = spec
    return json.dumps(found, indent=2, ensure_ascii=False) + "\n"


def plain(field: Mapping[str, Any]) -> dict[str, Any]:
    """A field of a CRD as JSON Schema has it. A field that is not there is refused, not dropped."""
    said = {key: value for key, value in field.items() if key in KEPT}
    if field.get("x-kubernetes-int-or-string"):
        said["type"] = ["integer", "string"]
    elif "type" in field:
        said["type"] = field["type"]
    if "items" in field:
        said["items"] = plain(field["items"])
    if "properties" in field:
        said["properties"] = {name: plain(below) for name, below in field["properties"].items()}
        said["additionalProperties"] = False
    elif isinstance(field.get("additionalProperties"), Mapping):
        said["additionalProperties"] = plain(field["additionalProperties"])
    return said


def with_table(page: str, rows_: str) -> str:
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{rows_}\n{END}{after}"


def table(values: str) -> str:
    head = "| value | default | means |\n|---|---|---|\n"
    return head + "".join(f"| `{name}` | `{default}` | {means} |\n" for name, default, means in rows(values))


def rows(text: str) -> Iterator[tuple[str, str, str]]:
    """Path, default and meaning of each value. What has a meaning is a row, whatever lies below it."""
    defaults = yaml.safe_load(text)
    above: list[tuple[int, str]] = []
    means: list[str] = []
    told_at: int | None = None
    for line in text.splitlines():
        if match := SAID.match(line):
            means = [match[1]]
        elif match := KEY.match(line):
            depth = len(match[1])
            above = [*(one for one in above if one[0] < depth), (depth, match[2])]
            if told_at is not None and depth > told_at:
                continue
            path = [name for _, name in above]
            value = at(defaults, path)
            if means:
                shown = json.dumps(value, ensure_ascii=False).replace("|", "\\|")
                yield ".".join(path), shown, " ".join(means).replace("|", "\\|")
            elif not isinstance(value, dict) or not value:
                raise Unsaid(
                    f"{'.'.join(path)} has no comment that says what it is for: write `# -- ...` above it"
                )
            told_at = depth if means else None
            means = []


def at(values: Any, path: Sequence[str]) -> Any:
    for name in path:
        values = values[name]
    return values


def main(arguments: Sequence[str]) -> int:
    try:
        files = made()
    except Unsaid as error:
        sys.stderr.write(f"charts/generate.py: {error}\n")
        return 1
    changed = [path for path, text in files.items() if not path.exists() or path.read_text() != text]
    gone = stray(list(files))
    if "--check" in arguments:
        for path in sorted([*changed, *gone]):
            sys.stdout.write(f"{path.relative_to(ROOT)} is not what `make charts` would write\n")
        return 1 if changed or gone else 0
    for path in changed:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files[path])
    for path in gone:
        path.unlink()
    sys.stdout.write(f"{len(changed) + len(gone)} of {len(files)} files written\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

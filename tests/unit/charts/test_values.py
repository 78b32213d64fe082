"""Every value of a chart is said once, documented, and known to a schema that takes no others."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from samples.scripts import ROOT, script

generate = script("charts/generate.py")
CHARTS = sorted(path.parent for path in (ROOT / "charts").glob("*/Chart.yaml"))

VALUES = """\
# A heading.
image:
  # -- Where it is
  name: a|b
# -- More of it
labels: {}
# -- A list
groups:
  - name: one
    size: 2
"""


def schema_of(chart: Path) -> dict[str, Any]:
    return json.loads((chart / "values.schema.json").read_text())  # type: ignore[no-any-return]


def values_of(chart: Path) -> dict[str, Any]:
    return yaml.safe_load((chart / "values.yaml").read_text())  # type: ignore[no-any-return]


def resolved(schema: Mapping[str, Any], part: Mapping[str, Any]) -> Mapping[str, Any]:
    return schema["definitions"][part["$ref"].rpartition("/")[2]] if "$ref" in part else part  # type: ignore[no-any-return]


def loose(part: Any, path: str = "") -> Iterator[str]:
    """Places of a schema where any name would do."""
    if isinstance(part, Mapping):
        if "properties" in part and part.get("additionalProperties") is not False:
            yield path
        for name, below in part.items():
            yield from loose(below, f"{path}/{name}")
    elif isinstance(part, list):
        for number, below in enumerate(part):
            yield from loose(below, f"{path}/{number}")


def differing(schema: Mapping[str, Any], part: Mapping[str, Any], values: Any, path: str) -> Iterator[str]:
    """Values that the schema lacks, and the other way round. Free maps, and specs of resources, end the path."""
    part = resolved(schema, part)
    if not isinstance(values, Mapping) or "properties" not in part or path.count(".") > 1:
        return
    known = set(part["properties"]) - {"global"}
    for name in known ^ set(values) if not path or set(values) else set[str]():
        yield f"{path}.{name}"
    for name in known & set(values):
        yield from differing(schema, part["properties"][name], values[name], f"{path}.{name}")


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: chart.name)
def test_schema_takes_no_value_that_is_not_there(chart: Path) -> None:
    assert list(loose(schema_of(chart))) == []


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: chart.name)
def test_schema_and_values_have_the_same_names(chart: Path) -> None:
    schema = schema_of(chart)
    specs = {
        ".cluster",
        ".canary",
        ".brokerDefaults",
        ".resources",
        ".livenessProbe",
        ".readinessProbe",
        ".startupProbe",
    }

    found = {
        path
        for path in differing(schema, schema, values_of(chart), "")
        if f".{path.split('.')[1]}" not in specs
    }

    assert found == set()


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: chart.name)
def test_every_value_is_in_the_table_of_the_page(chart: Path) -> None:
    page = (chart / "README.md").read_text()

    named = [name for name, _, _ in generate.rows((chart / "values.yaml").read_text())]

    assert {name.partition(".")[0] for name in named} == set(values_of(chart))
    assert [name for name in named if f"| `{name}` |" not in page] == [], "make charts"


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: chart.name)
def test_chart_is_of_the_version_of_the_project(chart: Path) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    described = yaml.safe_load((chart / "Chart.yaml").read_text())

    assert (str(described["version"]), str(described["appVersion"])) == (version, version)
    assert values_of(chart).get("tests", {}).get("image", f":{version}").endswith(f":{version}")


def test_a_row_is_path_default_and_meaning() -> None:
    assert list(generate.rows(VALUES)) == [
        ("image.name", '"a\\|b"', "Where it is"),
        ("labels", "{}", "More of it"),
        ("groups", '[{"name": "one", "size": 2}]', "A list"),
    ]


def test_a_value_without_a_meaning_is_refused() -> None:
    with pytest.raises(generate.Unsaid, match=r"labels\.team has no comment that says what it is for"):
        list(generate.rows("labels:\n  team: shop\n"))


def test_a_spec_is_as_strict_in_values_as_in_kubernetes() -> None:
    field = {
        "type": "object",
        "description": "Where it lies.",
        "required": ["size"],
        "default": {},
        "properties": {
            "size": {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]},
            "labels": {"type": "object", "additionalProperties": {"type": "string", "maxLength": 63}},
            "names": {
                "type": "array",
                "items": {"type": "string"},
                "x-kubernetes-list-type": "set",
                "maxItems": 4,
            },
        },
    }

    assert generate.plain(field) == {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "size": {"type": ["integer", "string"]},
            "labels": {"type": "object", "additionalProperties": {"type": "string", "maxLength": 63}},
            "names": {"type": "array", "items": {"type": "string"}, "maxItems": 4},
        },
    }


def test_files_made_of_others_are_as_they_would_be_made(capsys: pytest.CaptureFixture[str]) -> None:
    assert generate.main(["--check"]) == 0, f"{capsys.readouterr().out}make charts"

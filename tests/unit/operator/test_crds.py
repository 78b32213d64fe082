"""The definitions in ``crds/`` are those of the declarations, and mean what the parser means."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from samples.manifests import good_manifests, least
from samples.stored import as_stored, not_kept, schema_of
from tidemill_operator.crds.__main__ import as_text, main
from tidemill_operator.crds.definitions import definitions
from tidemill_operator.crds.kinds import FACES
from tidemill_operator.crds.openapi import RULES, block_schema
from tidemill_operator.crds.reference import reference
from tidemill_wire.resources import KINDS, parse_resource
from tidemill_wire.schema import Items, Part, described_fields

ROOT = Path(__file__).parents[3]
GOOD = good_manifests()
KIND_NAMES = list(KINDS)


def below(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema in a schema, with its path."""
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from below(inner, f"{path}.{name}")
    for name in ("items", "additionalProperties"):
        if name in schema:
            yield from below(schema[name], f"{path}[]")


@pytest.mark.parametrize("name", definitions())
def test_files_are_what_the_declarations_say(name: str) -> None:
    """`make crds` writes them."""
    assert (ROOT / "crds" / name).read_text() == as_text(definitions()[name])


def test_no_definition_is_left_over_from_a_former_kind() -> None:
    assert {path.name for path in (ROOT / "crds").glob("*.yaml")} == set(definitions())


def test_the_page_of_fields_is_what_the_declarations_say() -> None:
    assert (ROOT / "docs/kinds.md").read_text() == reference()


def test_the_command_writes_all_files_and_the_page(tmp_path: Path) -> None:
    assert main([str(tmp_path / "crds"), str(tmp_path / "page.md")]) == 0
    written = {path.name: yaml.safe_load(path.read_text()) for path in (tmp_path / "crds").iterdir()}
    assert written == definitions()
    assert (tmp_path / "page.md").read_text() == reference()


def test_the_command_without_names_says_what_to_write(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "FOLDER PAGE: name where" in capsys.readouterr().err


def test_every_kind_has_a_face_with_its_own_names() -> None:
    assert set(FACES) == set(KINDS)
    assert len({face.short for face in FACES.values()}) == len(FACES)
    shorts = {name: face.short for name, face in FACES.items()}
    assert shorts == {
        "QueueCluster": "tmc", "BrokerGroup": "tmbg", "Subject": "subj", "ConsumerGroup": "cgrp",
        "Archive": "tmar", "Replay": "tmrp", "Grant": "tmgr",
    }  # fmt: skip


@pytest.mark.parametrize("kind", KIND_NAMES)
def test_everything_in_a_schema_is_bounded(kind: str) -> None:
    """Else the API server refuses the definition for what its rules may cost."""
    for path, inner in below(schema_of(kind)):
        if path.startswith(".status") or path in {".apiVersion", ".kind"}:
            continue
        if inner.get("type") == "string":
            assert "maxLength" in inner or "enum" in inner, path
        if inner.get("type") == "array":
            assert "maxItems" in inner, path
        if "additionalProperties" in inner:
            assert "maxProperties" in inner, path


@pytest.mark.parametrize("kind", KIND_NAMES)
def test_every_rule_says_what_to_do(kind: str) -> None:
    for path, inner in below(schema_of(kind)):
        for rule in inner.get(RULES, ()):
            assert re.search(r"\b(write|drop|make|stays)\b", rule["message"]), (path, rule)
            assert "\n" not in rule["rule"], path


@pytest.mark.parametrize("kind", KIND_NAMES)
def test_every_field_is_described(kind: str) -> None:
    for path, inner in below(schema_of(kind)):
        if inner.get("properties") is not None and not path.endswith("[]"):
            for name, field in inner["properties"].items():
                if (path, name) not in {
                    ("", "apiVersion"),
                    ("", "kind"),
                    ("", "metadata"),
                    (".metadata", "name"),
                }:
                    assert field["description"].endswith("."), f"{path}.{name}"


@pytest.mark.parametrize("kind", KIND_NAMES)
def test_every_condition_is_there_from_the_first_moment(kind: str) -> None:
    (condition,) = schema_of(kind)["properties"]["status"]["default"]["conditions"]
    assert condition["status"] == "Unknown"
    assert set(condition) == {"type", "status", "reason", "message", "lastTransitionTime"}


@pytest.mark.parametrize("kind", KIND_NAMES)
def test_columns_show_fields_that_are_there(kind: str) -> None:
    paths = {re.sub(r"\[\]", "", path) for path, _ in below(schema_of(kind))}
    for column in FACES[kind].columns:
        path = column.path.partition("[?")[0]
        assert path in paths or path.startswith(".metadata."), column


@pytest.mark.parametrize("kind", KIND_NAMES)
def test_defaults_are_those_of_the_parser(kind: str) -> None:
    """What the API server stores of the least manifest is what the parser takes it for, written out or not."""
    written = least(kind)
    stored = as_stored(written)
    there, here = parse_resource(stored).spec, parse_resource(written).spec
    assert there == here
    assert there.to_map().keys() == {name for name, value in stored["spec"].items() if value != {}}


@pytest.mark.parametrize("kind", KIND_NAMES)
def test_every_default_is_written_in_the_schema(kind: str) -> None:
    found = {path[1:]: inner for path, inner in below(block_schema(KINDS[kind].spec))}
    for path, described in described_fields(KINDS[kind].spec):
        inner = found[path]
        if described.default is None or described.default == ():
            assert "default" not in inner, path
        elif not isinstance(described, Part | Items):
            assert described.parse(inner["default"], path) == described.default, path
        else:
            assert "default" in inner, path


@pytest.mark.parametrize("manifest", GOOD, ids=lambda one: f"{one['kind']}-{one['metadata']['name']}")
def test_samples_mean_the_same_when_they_were_stored(manifest: dict[str, Any]) -> None:
    assert parse_resource(as_stored(manifest)) == parse_resource(manifest)
    assert not_kept(manifest["kind"], "spec", manifest.get("spec", {})) == []


def test_what_a_status_may_not_hold_is_found() -> None:
    """For the tests of whoever writes one: what the API server drops would be written again in each pass."""
    brokers = [{"pod": "g0-0", "ready": True}, {"pod": "g0-1", "mood": "good"}]
    status = {"brokers": brokers, "master": {"pod": "g0-0", "age": 3}}
    assert not_kept("BrokerGroup", "status", status) == ["status.brokers[].mood", "status.master.age"]


def test_samples_show_every_kind_and_most_of_its_fields() -> None:
    """A field that no sample has was never seen by a real API server."""
    for name, kind in KINDS.items():
        written = [one.get("spec", {}) for one in GOOD if one["kind"] == name]
        assert written, name
        shown = {path for spec in written for path in paths_of(spec)}
        fields = {path.replace("[]", "") for path, _ in described_fields(kind.spec)}
        alike = re.compile(r"(^|\.)(image|scheduling|brokerGroups)\.")  # shown where they stand alone
        missing = {path for path in fields - shown if not alike.search(path)}
        assert len(missing) <= 6, (name, sorted(missing))


def paths_of(value: Any, path: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            here = f"{path}.{key}" if path else key
            yield here
            yield from paths_of(inner, here)
    elif isinstance(value, list):
        for inner in value:
            yield from paths_of(inner, path)

"""Reads manifest files for ``tidemill up -f``. A door: it opens files."""

from __future__ import annotations

from collections.abc import Sequence

import yaml

from tidemill_wire.declarations import Declaration, parse_manifest_files
from tidemill_wire.granted import Granted, declared_grant
from tidemill_wire.schema import ManifestError


def read_manifests(paths: Sequence[str]) -> tuple[Declaration, ...]:
    """All declarations of the files, in their order. What is for Kubernetes alone, `tidemill up` has named."""
    return parse_manifest_files(_documents(paths)).declarations


def read_grants(paths: Sequence[str], *, locked: bool) -> dict[str, Granted]:
    """The grants of the files, by name. Where nobody is asked who they are, one of them is a mistake."""
    found = parse_manifest_files(_documents(paths)).grants
    if found and not locked:
        raise ManifestError(
            "kind", "is Grant, and this queue asks nobody who they are: start it with --cluster-token FILE"
        )
    return {one.metadata.name: declared_grant(one) for one in found}


def _documents(paths: Sequence[str]) -> dict[str, list[object]]:
    files: dict[str, list[object]] = {}
    for path in paths:
        try:
            with open(path, encoding="utf-8") as file:
                loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
                files[path] = [document for document in yaml.load_all(file, loader) if document is not None]
        except yaml.YAMLError as error:
            raise ManifestError("", f"is not YAML ({_place(error)}): correct it there", path) from error
        except UnicodeDecodeError as error:
            raise ManifestError("", f"is not UTF-8 text ({error.reason}): save it as UTF-8", path) from error
    return files


def _place(error: yaml.YAMLError) -> str:
    """What is wrong and where, in one line; the parser's own text has four."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem}"
    return " ".join(str(error).split())

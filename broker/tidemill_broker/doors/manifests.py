"""Reads manifest files for ``tidemill up -f``. A door: it opens files."""

from __future__ import annotations

from collections.abc import Sequence

import yaml

from tidemill_wire.declarations import Declaration, parse_manifest_files
from tidemill_wire.schema import ManifestError


def read_manifests(paths: Sequence[str]) -> tuple[Declaration, ...]:
    """All declarations of the files, in their order."""
    files: dict[str, list[object]] = {}
    for path in paths:
        try:
            with open(path, encoding="utf-8") as file:
                loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
                files[path] = [document for document in yaml.load_all(file, loader) if document is not None]
        except yaml.YAMLError as error:
            raise ManifestError("", f"is not YAML ({error}): correct it", path) from error
        except UnicodeDecodeError as error:
            raise ManifestError("", f"is not UTF-8 text ({error.reason}): save it as UTF-8", path) from error
    return parse_manifest_files(files)

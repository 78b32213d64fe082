"""The bill of materials of the image (CycloneDX 1.6, JSON) on standard output, from what is really installed.

Run by the image's own Python while it is built. Python's packages say what they are in their metadata, Debian's in
dpkg's list. Nothing in it depends on when or where it was made, but ``SOURCE_DATE_EPOCH``.
"""

from __future__ import annotations

import json
import os
import platform
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from importlib.metadata import Distribution, PackageMetadata, distributions
from typing import Any
from urllib.parse import quote

DEBIAN = "/var/lib/dpkg/status"
PRODUCT = "tidemill"
LONGEST_LICENSE = 80
"""Some packages have the whole text where its name belongs."""


def bill(installed: Iterable[Distribution], debian: str, epoch_s: int) -> dict[str, Any]:
    found = {normal(one.metadata["Name"]): one for one in installed}
    components = [python(), *(component(one) for _, one in sorted(found.items())), *packages(debian)]
    product = next((one for one in components if one["name"] == PRODUCT), None)
    about: dict[str, Any] = {
        "timestamp": datetime.fromtimestamp(epoch_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "component": {"type": "container", "name": PRODUCT, "bom-ref": "image"},
    }
    if product is not None:
        about["component"]["version"] = product["version"]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": about,
        "components": components,
        "dependencies": [
            {"ref": reference(one), "dependsOn": [reference(found[name]) for name in needed(one, found)]}
            for _, one in sorted(found.items())
        ],
    }


def python() -> dict[str, Any]:
    version = platform.python_version()
    address = f"pkg:generic/python@{version}"
    return {
        "type": "platform",
        "name": "python",
        "version": version,
        "purl": address,
        "bom-ref": address,
        "licenses": [{"license": {"id": "PSF-2.0"}}],
    }


def component(one: Distribution) -> dict[str, Any]:
    address = reference(one)
    stated = {
        "type": "library",
        "name": normal(one.metadata["Name"]),
        "version": one.version,
        "purl": address,
        "bom-ref": address,
    }
    license_ = license_of(one.metadata)
    return {**stated, "licenses": [license_]} if license_ else stated


def license_of(metadata: PackageMetadata) -> dict[str, Any] | None:
    if expression := metadata.get("License-Expression"):
        return {"expression": expression}
    named = [
        line.rpartition(" :: ")[2]
        for line in metadata.get_all("Classifier") or ()
        if line[:10] == "License ::"
    ]
    said = named[0] if named else metadata.get("License", "")
    short = " ".join(said.splitlines()[0].split()) if said else ""
    return {"license": {"name": short[:LONGEST_LICENSE]}} if short else None


def reference(one: Distribution) -> str:
    return f"pkg:pypi/{normal(one.metadata['Name'])}@{quote(one.version)}"


def needed(one: Distribution, found: Mapping[str, Distribution]) -> list[str]:
    """Names of what it asks for and what is there; extras that were not asked for are not."""
    asked = {normal(match[0]) for line in one.requires or () if (match := re.match(r"[\w.-]+", line))}
    return sorted(asked & found.keys() - {normal(one.metadata["Name"])})


def packages(debian: str) -> Iterator[dict[str, Any]]:
    """Of dpkg's list, what is installed."""
    for paragraph in debian.split("\n\n"):
        stated = dict(re.findall(r"^([A-Za-z-]+): (.*)$", paragraph, re.MULTILINE))
        if "installed" not in stated.get("Status", "").split():
            continue
        name, version = stated["Package"], stated["Version"]
        address = f"pkg:deb/debian/{quote(name)}@{quote(version)}?arch={stated['Architecture']}"
        yield {"type": "library", "name": name, "version": version, "purl": address, "bom-ref": address}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def main() -> int:
    debian = ""
    if os.path.exists(DEBIAN):
        with open(DEBIAN, encoding="utf-8") as file:
            debian = file.read()
    epoch_s = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
    json.dump(bill(distributions(), debian, epoch_s), sys.stdout, indent=1)
    sys.stdout.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

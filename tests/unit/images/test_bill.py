"""The bill of materials says what is installed, and the same each time."""

from __future__ import annotations

import json
from email.message import Message
from importlib.metadata import distributions
from typing import Any

import pytest

from samples.scripts import script

bill = script("images/bill.py")

DPKG = """\
Package: libc6
Status: install ok installed
Architecture: amd64
Version: 2.36-9+deb12u10
Description: GNU C Library
 Contains the standard libraries.

Package: gone
Status: deinstall ok config-files
Architecture: amd64
Version: 1
"""


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    return bill.bill(distributions(), DPKG, 1_800_000_000)  # type: ignore[no-any-return]


def test_it_names_python_packages_and_those_of_debian_once(made: dict[str, Any]) -> None:
    addresses = [one["purl"] for one in made["components"]]

    assert len(addresses) == len(set(addresses))
    assert "pkg:deb/debian/libc6@2.36-9%2Bdeb12u10?arch=amd64" in addresses
    assert any(address.startswith("pkg:pypi/tidemill@") for address in addresses)
    assert not any("gone" in address for address in addresses)


def test_what_something_rests_upon_is_in_it_too(made: dict[str, Any]) -> None:
    known = {one["bom-ref"] for one in made["components"]}
    rests = {one["ref"].split("@")[0]: one["dependsOn"] for one in made["dependencies"]}

    assert {ref for refs in rests.values() for ref in refs} <= known
    assert any(ref.startswith("pkg:pypi/aiohttp@") for ref in rests["pkg:pypi/tidemill"])


def test_it_is_the_same_each_time_and_has_the_time_it_was_given(made: dict[str, Any]) -> None:
    again = bill.bill(distributions(), DPKG, 1_800_000_000)

    assert json.dumps(again) == json.dumps(made)
    assert made["metadata"]["timestamp"] == "2027-01-15T08:00:00Z"
    assert (made["bomFormat"], made["specVersion"]) == ("CycloneDX", "1.6")


@pytest.mark.parametrize(
    "fields, license_",
    [
        ({"License-Expression": "MIT AND BSD-3-Clause"}, {"expression": "MIT AND BSD-3-Clause"}),
        ({"Classifier": "License :: OSI Approved :: MIT License"}, {"license": {"name": "MIT License"}}),
        ({"License": "Apache 2.0\nand all of its text"}, {"license": {"name": "Apache 2.0"}}),
        ({}, None),
    ],
)
def test_a_license_is_found_where_a_package_says_it(fields: dict[str, str], license_: object) -> None:
    metadata = Message()
    for name, value in fields.items():
        metadata[name] = value

    assert bill.license_of(metadata) == license_

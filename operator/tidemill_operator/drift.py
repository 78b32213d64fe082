"""Whether an apply would change anything: what is there is compared with what would be sent.

The API server writes a manifest down in its own way: defaults are filled in, quantities are put into their shortest
form. So a manifest is *contained* when everything it says stands there, lists by their keys as server-side apply merges
them. That a manifest says less than the one before cannot be seen so; therefore what is applied carries the sum of its
manifest (``marks.APPLIED``), and another sum is an apply.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from tidemill_operator import marks
from tidemill_operator.steps import Manifest

LIST_KEYS = ("name", "type", "containerPort", "port", "mountPath", "uid", "ip", "topologyKey")
"""What names the items of lists that server-side apply merges; the first that all items have counts."""


def stamped(manifest: Manifest) -> dict[str, Any]:
    """The manifest with its own sum."""
    text = json.dumps(manifest, sort_keys=True)
    metadata, known = marks.metadata(manifest), marks.part(manifest, "metadata", "annotations")
    annotations = {**known, marks.APPLIED: hashlib.sha256(text.encode()).hexdigest()[:16]}
    return {**manifest, "metadata": {**metadata, "annotations": annotations}}


def is_applied(manifest: Manifest, standing: Manifest | None) -> bool:
    """Whether a stamped manifest is what stands there: then nothing is sent."""
    return standing is not None and contains(standing, manifest)


def contains(there: Any, said: Any) -> bool:
    """Whether all that is said stands there."""
    if isinstance(said, Mapping):
        wanted = cast("Mapping[str, Any]", said)
        return isinstance(there, Mapping) and all(
            contains(cast("Mapping[str, Any]", there).get(name), value) for name, value in wanted.items()
        )
    if isinstance(said, list | tuple):
        items = cast("Sequence[Any]", said)
        return isinstance(there, list) and _contains_items(cast("Sequence[Any]", there), items)
    return bool(there == said) or _is_quantity(there, said)


def _contains_items(there: Sequence[Any], said: Sequence[Any]) -> bool:
    key = next((key for key in LIST_KEYS if said and all(_named(one, key) is not None for one in said)), None)
    if key is None or len({_named(one, key) for one in said}) != len(said):
        return len(there) == len(said) and all(map(contains, there, said))
    known = {_named(one, key): one for one in there}
    return all(contains(known.get(_named(one, key)), one) for one in said)


def _named(item: object, key: str) -> str | None:
    """What names an item of a list."""
    if not isinstance(item, Mapping):
        return None
    block = cast("Mapping[str, Any]", item)
    return json.dumps(block[key]) if key in block else None


UNITS = {"m": 0.001, "": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18,
         "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}  # fmt: skip


def _is_quantity(there: object, said: object) -> bool:
    """Whether both are one amount, as ``1000m`` and ``1``."""
    if not isinstance(there, str | int) or not isinstance(said, str | int):
        return False
    one, other = _amount(str(there)), _amount(str(said))
    return one is not None and one == other


def _amount(written: str) -> float | None:
    digits = written.rstrip("mkMGTPEi")
    unit = written[len(digits) :]
    try:
        return float(digits) * UNITS[unit]
    except (ValueError, KeyError):
        return None

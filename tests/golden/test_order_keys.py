"""Where an order key's messages go never changes: ``ordering/order_keys.json`` was written once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tidemill_wire.ordering import logical_partition

KEYS: dict[str, int] = json.loads((Path(__file__).parent / "ordering" / "order_keys.json").read_text())


@pytest.mark.parametrize("order_key", KEYS)
def test_order_key_goes_where_it_always_went(order_key: str) -> None:
    assert logical_partition(order_key) == KEYS[order_key]

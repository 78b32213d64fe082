"""Addresses as text: what is written is read again, whatever kind of host it is."""

from __future__ import annotations

import pytest

from tidemill_wire.addresses import address_of, split_address


@pytest.mark.parametrize(
    "host, address",
    [
        ("127.0.0.1", "127.0.0.1:7400"),
        ("queue.svc", "queue.svc:7400"),
        ("::1", "[::1]:7400"),
        ("fe80::1%eth0", "[fe80::1%eth0]:7400"),
        ("", ":7400"),
    ],
)
def test_address_is_written_and_read(host: str, address: str) -> None:
    assert address_of(host, 7400) == address
    assert split_address(address) == (host, "7400")

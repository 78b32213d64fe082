"""Hosts and ports as text: ``127.0.0.1:7400``, ``[::1]:7400``. Of IPv6 the colons are bracketed, or nobody can tell."""

from __future__ import annotations


def address_of(host: str, port: int | str) -> str:
    """``HOST:PORT``."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split_address(address: str) -> tuple[str, str]:
    """The host, as sockets take it, and what stands for the port; both may be empty."""
    host, _, port = address.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), port

"""KEDA's external scaler by TLS: real connections, with certificates that are rotated and clients that show none."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import grpc
import grpc.aio
import pytest

from samples.authorities import Authority
from tidemill_operator.doors.advising import Advisor
from tidemill_operator.doors.scaler import SERVICE, Scaler, serve
from tidemill_operator.doors.scaler_tls import ScalerFiles
from tidemill_operator.settings import read_settings
from tidemill_wire.settings import SettingsError


def put(folder: Path, authority: Authority, name: str = "scaler") -> None:
    """As the kubelet does: each file at once."""
    folder.mkdir(exist_ok=True)
    cert, key = authority.issue(name, "127.0.0.1")
    for found, place in ((key, "tls.key"), (cert, "tls.crt"), (authority.ca, "ca.crt")):
        new = folder / f"{place}.new"
        new.write_bytes(found.read_bytes())
        os.replace(new, folder / place)


async def status_of(port: int, authority: Authority, client: Authority | None = None) -> grpc.StatusCode:
    """What a call comes to that names no group: INVALID_ARGUMENT when it is heard."""
    pair: tuple[bytes | None, bytes | None] = (None, None)
    if client is not None:
        cert, key = client.issue("keda", "keda")
        pair = key.read_bytes(), cert.read_bytes()
    credentials = grpc.ssl_channel_credentials(authority.ca.read_bytes(), *pair)
    async with grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials) as channel:
        way = channel.unary_unary(f"/{SERVICE}/IsActive")
        try:
            await way(b"", timeout=20)
        except grpc.aio.AioRpcError as error:
            return error.code()
    raise AssertionError("a call that names no group was answered")


async def served(folder: Path, *, clients: bool) -> tuple[grpc.aio.Server, int]:
    async def find(*_: str) -> None:
        return None

    credentials = ScalerFiles(str(folder), clients=clients).credentials()
    return await serve(0, Scaler(Advisor(find)), "127.0.0.1", credentials)


def test_certificates_are_rotated_without_a_restart_and_half_a_change_is_passed_over(tmp_path: Path) -> None:
    old, new = Authority(tmp_path / "old"), Authority(tmp_path / "new")
    folder = tmp_path / "scaler"
    put(folder, old)

    async def main() -> list[grpc.StatusCode]:
        server, port = await served(folder, clients=False)
        try:
            found = [await status_of(port, old)]
            (folder / "tls.key").write_text("half of a change")
            found.append(await status_of(port, old))
            put(folder, new)
            found += [await status_of(port, new), await status_of(port, old)]
        finally:
            await server.stop(None)
        return found

    heard, lost = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNAVAILABLE
    assert asyncio.run(main()) == [heard, heard, heard, lost]


def test_who_has_to_show_a_certificate_and_shows_none_or_anothers_is_not_heard(tmp_path: Path) -> None:
    own, other = Authority(tmp_path / "own"), Authority(tmp_path / "other")
    folder = tmp_path / "scaler"
    put(folder, own)

    async def main() -> list[grpc.StatusCode]:
        server, port = await served(folder, clients=True)
        try:
            return [await status_of(port, own, client) for client in (own, None, other)]
        finally:
            await server.stop(None)

    heard, lost = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNAVAILABLE
    assert asyncio.run(main()) == [heard, lost, lost]


def test_files_that_cannot_be_used_are_said_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="a file cannot be read"):
        ScalerFiles(str(tmp_path), clients=False)
    put(tmp_path / "scaler", Authority(tmp_path))
    (tmp_path / "scaler" / "tls.crt").write_text("nothing")
    with pytest.raises(SettingsError, match="cannot be used"):
        ScalerFiles(str(tmp_path / "scaler"), clients=False)
    with pytest.raises(SettingsError, match="SCALER_TLS is missing"):
        read_settings({"TIDEMILL_OPERATOR_SCALER_CLIENTS": "true"})

"""Certificates that change while a service runs, through handshakes in memory."""

from __future__ import annotations

import ssl
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from samples.authorities import Authority
from tidemill_host.certificates import (
    HANDSHAKE_FAILED,
    LOOK_SECONDS,
    CertificateProblem,
    KeyFiles,
    ServerCertificates,
    Watched,
    client_context,
    names_of,
)
from tidemill_host.settings import LockSettings
from tidemill_wire.settings import SettingsError


class Shop:
    """A service's certificates, a clock, and clients that shake hands."""

    def __init__(self, folder: Path, *, client_ca: bool = False, required: bool = False) -> None:
        self.authority = Authority(folder)
        self.now = 0.0
        cert, key = self.authority.issue("server", "localhost")
        trusted = str(self.authority.ca) if client_ca else ""
        self.refused: Counter[str] = Counter()
        files = KeyFiles(str(cert), str(key), trusted, required)
        self.served = ServerCertificates(files, self.refused, lambda: self.now)

    def shown(self, cert: Path | None = None, key: Path | None = None) -> tuple[bytes, tuple[str, ...]]:
        """The certificate that a client is shown, and the names that the service reads in the client's."""
        files = KeyFiles(str(cert or ""), str(key or ""), str(self.authority.ca))
        client, server = shake(client_context(files), self.served.context)
        found = client.getpeercert(binary_form=True)
        assert found is not None
        return found, names_of(server.getpeercert())


def shake(client: ssl.SSLContext, server: ssl.SSLContext) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Both ends after their handshake, and after a byte each way, which is when a refusal is heard."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = client.wrap_bio(back, there, server_hostname="localhost"), server.wrap_bio(there, back, True)
    for _ in range(4):
        for end in ends:
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()
    for say, hear in (ends, ends[::-1]):
        say.write(b"x")
        assert hear.read(1) == b"x"
    return ends


def test_a_new_certificate_is_shown_within_a_second(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    first, _ = shop.shown()
    shop.authority.issue("server", "localhost")
    assert shop.shown()[0] == first
    shop.now += LOOK_SECONDS
    second, _ = shop.shown()
    assert second != first
    assert (shop.served.reloads, shop.served.failures) == (1, 0)


def test_what_cannot_be_used_changes_nothing_and_is_counted_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shop = Shop(tmp_path)
    first, _ = shop.shown()
    Path(shop.served.files.cert).write_text("not a certificate")
    for _ in range(3):
        shop.now += LOOK_SECONDS
        assert shop.shown()[0] == first
    assert (shop.served.reloads, shop.served.failures) == (0, 1)
    assert capsys.readouterr().err.count("what was there before is used on") == 1
    shop.authority.issue("server", "localhost")
    shop.now += LOOK_SECONDS
    assert shop.shown()[0] != first


def test_half_of_a_change_is_not_used(tmp_path: Path) -> None:
    """A key that does not fit its certificate yet: the former pair serves on, and then the new one."""
    shop = Shop(tmp_path)
    first, _ = shop.shown()
    cert, key = shop.authority.issue("other", "localhost")
    Path(shop.served.files.key).write_bytes(key.read_bytes())
    shop.now += LOOK_SECONDS
    assert shop.shown()[0] == first
    Path(shop.served.files.cert).write_bytes(cert.read_bytes())
    shop.now += LOOK_SECONDS
    assert shop.shown()[0] != first


def test_files_that_vanish_leave_what_was_read(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    first, _ = shop.shown()
    Path(shop.served.files.key).unlink()
    shop.now += LOOK_SECONDS
    assert shop.shown()[0] == first
    assert shop.served.failures == 1


def test_a_client_is_named_by_its_certificate(tmp_path: Path) -> None:
    shop = Shop(tmp_path, client_ca=True)
    assert shop.shown()[1] == ()
    cert, key = shop.authority.issue("client", "shop.internal", common_name="shop")
    assert shop.shown(cert, key)[1] == ("shop",)


def test_a_client_of_another_authority_is_refused_and_counted(tmp_path: Path) -> None:
    shop = Shop(tmp_path, client_ca=True)
    cert, key = Authority(tmp_path / "elsewhere").issue("client", common_name="shop")
    with pytest.raises(ssl.SSLError):
        shop.shown(cert, key)
    assert shop.refused == {HANDSHAKE_FAILED: 1}


def test_a_client_without_a_certificate_is_refused_where_one_is_required(tmp_path: Path) -> None:
    shop = Shop(tmp_path, client_ca=True, required=True)
    with pytest.raises(ssl.SSLError):
        shop.shown()
    assert shop.refused == {HANDSHAKE_FAILED: 1}


def test_a_new_authority_of_clients_holds_at_once(tmp_path: Path) -> None:
    shop = Shop(tmp_path, client_ca=True, required=True)
    other = Authority(tmp_path / "elsewhere")
    cert, key = other.issue("client", common_name="till")
    shop.authority.ca.write_bytes(shop.authority.ca.read_bytes() + other.ca.read_bytes())
    shop.now += LOOK_SECONDS
    assert shop.shown(cert, key)[1] == ("till",)


def test_one_who_calls_looks_again_too(tmp_path: Path) -> None:
    shop, now = Shop(tmp_path), 0.0
    trust = Watched(KeyFiles(authorities=str(shop.authority.ca)), client_context, lambda: now)
    shake(trust.current(), shop.served.context)
    shop.authority.ca.write_bytes(Authority(tmp_path / "elsewhere").ca.read_bytes())
    now += LOOK_SECONDS
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(trust.current(), shop.served.context)


def test_files_that_cannot_be_used_at_the_start_end_it(tmp_path: Path) -> None:
    cert, key = Authority(tmp_path).issue("server")
    for files in (KeyFiles(str(cert), str(cert)), KeyFiles(str(tmp_path / "none"), str(key))):
        with pytest.raises(CertificateProblem, match="cannot be used"):
            ServerCertificates(files)


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ({"tls_cert": "a"}, "TIDEMILL_TLS_KEY is missing"),
        ({"tls_key": "a"}, "TIDEMILL_TLS_CERT is missing"),
        ({"tls_client_ca": "a"}, "TIDEMILL_TLS_CERT is missing"),
        ({"tls_client_required": True}, "TIDEMILL_TLS_CLIENT_CA is missing"),
    ],
)
def test_settings_that_do_not_fit_are_refused(given: dict[str, str], missing: str) -> None:
    with pytest.raises(SettingsError, match=missing):
        LockSettings(**given)  # type: ignore[arg-type]

"""When certificates begin and end, by their bytes."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samples.authorities import Authority
from tidemill_host.certificates import LOOK_SECONDS, CertificateProblem, KeyFiles, Watched, client_context
from tidemill_host.validity import validity_in, validity_of

FAR = (datetime(1951, 3, 1, tzinfo=UTC), datetime(2107, 4, 5, 6, 7, 8, tzinfo=UTC))
"""Years that need four digits, and those that two say."""
NEAR = (datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), datetime(2049, 12, 31, 23, 59, 59, tzinfo=UTC))


@pytest.mark.parametrize("life", [NEAR, FAR])
def test_begin_and_end_are_read(tmp_path: Path, life: tuple[datetime, datetime]) -> None:
    cert, _ = Authority(tmp_path).issue("one", life=life)
    found = validity_of(str(cert))
    assert tuple(found) == tuple(int(one.timestamp()) for one in life)
    assert found.life_s == int((life[1] - life[0]).total_seconds())


def test_of_a_chain_the_one_that_ends_first_counts(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    files = [authority.issue(name, life=(NEAR[0], end))[0] for name, end in (("a", FAR[1]), ("b", NEAR[1]))]
    chain = tmp_path / "chain.pem"
    chain.write_text("".join(file.read_text() for file in files))
    assert validity_of(str(chain)).ends_s == int(NEAR[1].timestamp())


def test_a_file_without_a_certificate_is_refused(tmp_path: Path) -> None:
    _, key = Authority(tmp_path).issue("one")
    with pytest.raises(ValueError, match="no certificate"):
        validity_of(str(key))


@given(st.binary(max_size=200))
def test_other_bytes_raise_what_they_may(data: bytes) -> None:
    with pytest.raises(ValueError):
        validity_in(data)


def test_what_is_in_use_is_said_and_not_what_cannot_be_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    authority, now = Authority(tmp_path), [0.0]
    cert, key = authority.issue("one", life=NEAR)
    watched = Watched(KeyFiles(str(cert), str(key), str(authority.ca)), client_context, lambda: now[0])
    first = watched.validity()
    cert.write_text("nothing")
    now[0] += LOOK_SECONDS
    assert watched.validity() == first
    assert "used on" in capsys.readouterr().err
    authority.issue("one", life=FAR)
    now[0] += LOOK_SECONDS
    found = watched.validity()
    assert found is not None
    assert found.ends_s == int(FAR[1].timestamp())


def test_nothing_is_said_of_a_side_that_shows_nothing(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    assert Watched(KeyFiles(authorities=str(authority.ca)), client_context).validity() is None
    with pytest.raises(CertificateProblem):
        Watched(KeyFiles(str(authority.ca), str(authority.ca)), client_context)

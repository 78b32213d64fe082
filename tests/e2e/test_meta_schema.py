"""schemathesis reads meta's page and finds no request that is answered otherwise than it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.metas import Meta
from e2e.schemas import check_page, complaints

pytestmark = pytest.mark.e2e


def test_schemathesis_finds_nothing(tmp_path: Path) -> None:
    """Right and wrong requests to every path but the stream, which has no end."""
    meta = Meta(tmp_path / "meta").start()
    try:
        check_page(
            meta.server,
            tmp_path,
            "--exclude-path",
            "/v1/watch",
            "--exclude-checks",
            "positive_data_acceptance",
        )

        assert complaints(meta) == []
        assert meta.running
    finally:
        meta.close()

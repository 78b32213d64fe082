"""What people did is noted, and what goes wrong with that is an event of the one log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tidemill_host.audit import Audit
from tidemill_host.log import LOG
from tidemill_host.secret import LOOK_SECONDS, ClusterSecret
from tidemill_host.settings import LockSettings
from tidemill_wire.log_lines import Form


@pytest.fixture(autouse=True)
def for_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LOG, "form", Form.JSON)


def test_what_cannot_be_noted_in_its_file_is_a_line_of_the_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    audit = Audit(LockSettings(audit_file=str(tmp_path / "gone" / "audit")), "broker", lambda: 0)
    audit.note("token:ops", "POST /v1/grants", "done")
    event = json.loads(capsys.readouterr().err)
    assert (event["event"], event["level"]) == ("audit_unwritten", "warning")
    assert "POST /v1/grants" in event["text"]


def test_a_secret_that_cannot_be_used_is_a_line_of_the_log_and_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 0.0
    place = tmp_path / "secret"
    place.write_text("t" * 43)
    secret = ClusterSecret(str(place), lambda: now)
    before = set(secret.digests())
    place.write_text("short")
    now = LOOK_SECONDS
    assert set(secret.digests()) == before
    assert json.loads(capsys.readouterr().err)["event"] == "secret_unusable"

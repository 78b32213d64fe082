"""A real Prometheus for tests: the program of Debian's package, unpacked only, on a port that it found free.

Where there is no apt, a ``prometheus`` and a ``promtool`` on the path will do; without either the test fails.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

from e2e.queues import wait_until
from samples.debian import is_debian, unpacked

PACKAGE = "prometheus"
LISTENING = re.compile(r"msg=\"?Listening on\"? address=127\.0\.0\.1:(\d+)")
SCRAPE = "1s"
START_SECONDS = 60.0


def program(name: str) -> str:
    """``prometheus`` or ``promtool``."""
    if is_debian():
        return str(unpacked(PACKAGE, alone=True) / "usr/bin" / name)
    found = shutil.which(name)
    assert found is not None, f"neither apt-get nor {name} is here: install Prometheus"
    return found


def promtool(*words: str) -> subprocess.CompletedProcess[str]:
    """What it says."""
    return subprocess.run(
        [program("promtool"), *words], capture_output=True, text=True, timeout=120, check=False
    )


class Prometheus:
    """One that runs."""

    def __init__(self, port: int) -> None:
        self._port = port

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Rows of an instant query."""
        found: list[dict[str, Any]] = self._get("query", query=expression)["result"]
        return found

    def is_ready(self) -> bool:
        """It has read what it had; before, it answers nothing."""
        with suppress(OSError):
            self._get("targets", state="active")
            return True
        return False

    def firing(self) -> list[Mapping[str, str]]:
        """Labels of alerts that fire."""
        return [one["labels"] for one in self._get("alerts")["alerts"] if one["state"] == "firing"]

    def healthy(self) -> dict[str, str]:
        """Targets, and how their last scrape went."""
        rows = self._get("targets", state="active")["activeTargets"]
        return {row["labels"]["instance"]: row["lastError"] or row["health"] for row in rows}

    def problems(self) -> list[str]:
        """What rules could not be evaluated."""
        groups = self._get("rules")["groups"]
        return [rule["lastError"] for group in groups for rule in group["rules"] if rule.get("lastError")]

    def _get(self, path: str, **asked: str) -> Any:
        address = f"http://127.0.0.1:{self._port}/api/v1/{path}?{urllib.parse.urlencode(asked)}"
        with urllib.request.urlopen(address, timeout=30) as answer:
            return json.loads(answer.read())["data"]


@contextmanager
def watching(
    folder: Path,
    targets: Sequence[str],
    rules: Sequence[Mapping[str, Any]] = (),
    by_tls: Mapping[str, Path] | None = None,
) -> Iterator[Prometheus]:
    """A Prometheus that scrapes these, and those that speak TLS with the file of their authority, and evaluates these
    rules, once a second.
    """
    folder.mkdir()
    group = {"name": "tidemill", "interval": SCRAPE, "rules": list(rules)}
    (folder / "rules.yaml").write_text(yaml.safe_dump({"groups": [group]}))
    scraped: list[dict[str, Any]] = [{"job_name": "tidemill", "static_configs": [{"targets": list(targets)}]}]
    for target, ca in (by_tls or {}).items():
        secured = {"scheme": "https", "tls_config": {"ca_file": str(ca)}}
        scraped.append({"job_name": target, "static_configs": [{"targets": [target]}], **secured})
    configuration = {
        "global": {"scrape_interval": SCRAPE, "scrape_timeout": SCRAPE, "evaluation_interval": SCRAPE},
        "rule_files": ["rules.yaml"],
        "scrape_configs": scraped,
    }
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(configuration))
    said = folder / "said"
    command = [
        program("prometheus"), f"--config.file={folder}/prometheus.yaml", f"--storage.tsdb.path={folder}/data",
        "--web.listen-address=127.0.0.1:0", "--log.level=info",
    ]  # fmt: skip
    with said.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, cwd=folder)
    try:
        found = Prometheus(wait_port(process, said))
        wait_until("Prometheus answers", found.is_ready, START_SECONDS)
        yield found
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def wait_port(process: subprocess.Popen[bytes], said: Path) -> int:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        if (found := LISTENING.search(said.read_text())) is not None:
            return int(found[1])
        assert process.poll() is None, said.read_text()[-1000:]
        time.sleep(0.05)
    raise AssertionError(f"Prometheus does not listen: {said.read_text()[-1000:]}")

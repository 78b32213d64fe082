"""Real canaries: `tidemill canary` as a process, and its page."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, Self
from urllib.error import HTTPError

from e2e.queues import COMMAND, METRIC
from e2e.services import RealService

READY = re.compile(rb"ready http://(127\.0\.0\.1:\d+)\n")


class CanaryProcess(RealService):
    """One that looks at a queue; ``address`` is its page."""

    def __init__(
        self, folder: Path, server: str, *options: str, settings: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(folder / "canary", settings)
        self.address = ""
        self._command = [*COMMAND, "canary", "-s", server, "--metrics-port", "0", *options]

    def start(self) -> Self:
        self.address = self.wait_ready(self.spawn(self._command), READY)[1].decode()
        return self

    def page(self) -> dict[str, Any]:
        """All it says."""
        found: dict[str, Any] = json.loads(self._get("/v1/canary"))
        return found

    def group(self, name: str) -> dict[str, Any]:
        """What it says of a broker group; nothing before it knows of it."""
        return next((one for one in self.page()["groups"] if one["group"] == name), {})

    def seen(self, name: str, kind: str = "now") -> int:
        """How many probes came."""
        return int(self.group(name).get("probes", {kind: {"seen": 0}})[kind]["seen"])

    def metrics(self) -> dict[str, float]:
        """Its numbers."""
        return {name: float(value) for name, value in METRIC.findall(self._get("/metrics"))}

    def hindered(self) -> str:
        """Why it is not ready; nothing when it is."""
        try:
            self._get("/readyz")
        except HTTPError as refused:
            if refused.code != HTTPStatus.SERVICE_UNAVAILABLE:
                raise
            return str(refused.read().decode())
        return ""

    def _get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://{self.address}{path}", timeout=30) as answer:
            return str(answer.read().decode())

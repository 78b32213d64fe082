"""What axe-core, which is also what Lighthouse judges accessibility by, finds wrong with a page as it is shown."""

from __future__ import annotations

from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

RULES = {
    "runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
    "resultTypes": ["violations", "passes"],
}
PASSES_MIN = 15
"""A page of which fewer rules say anything was not there yet."""


def found_wrong(page: Page) -> list[str]:
    """Each with the rule, and what it is about."""
    said: dict[str, Any] = Axe().run(page, options=RULES).response
    assert len(said["passes"]) >= PASSES_MIN, [one["id"] for one in said["passes"]]
    return [
        f"{rule['id']} ({rule['help']}): {node['html'][:160]}"
        for rule in said["violations"]
        for node in rule["nodes"]
    ]

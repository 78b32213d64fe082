"""`tidemill doctor`: what is wrong with a cluster, or a queue by itself, and what to do.

All is read once, and once more some seconds later: what grows between is known then. Then each check judges what was
read, on paper. Exit codes: 0 nothing is wrong, 1 something is, or nobody answered; warnings count with --strict.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

import typer

from tidemill.cli import archive_checks, canary_checks, server_checks, traffic_checks
from tidemill.cli.archive_checks import archives_of
from tidemill.cli.canary_checks import CanaryOption, ask_canary
from tidemill.cli.failures import FAILURE
from tidemill.cli.findings import NAMED_MAX, Case, Check, Finding, Severity
from tidemill.cli.reading import errors_of, read_picture
from tidemill.cli.session import SERVER_DEFAULT, Output, OutputOption, ServerOption, perform
from tidemill.cli.tables import print_value
from tidemill_wire.counted import counted

CHECKS: tuple[Check, ...] = (
    *server_checks.CHECKS, *traffic_checks.CHECKS, *archive_checks.CHECKS, *canary_checks.CHECKS
)  # fmt: skip
OVER_SECONDS = 3.0


def doctor(
    over: Annotated[
        float,
        typer.Option("--over", min=0, max=3600, metavar="SECONDS", help="Look twice, so far apart; 0: once."),
    ] = OVER_SECONDS,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings are a failure, too.")] = False,
    canary: CanaryOption = "",
    server: ServerOption = SERVER_DEFAULT,
    output: OutputOption = Output.TABLE,
) -> int:
    """Find what is wrong, and say what to do. Ask meta, or a queue by itself."""
    found: list[tuple[str, Finding]] = []

    async def run() -> None:
        now, before = await read_picture(server), None
        if over:
            before = now
            await asyncio.sleep(over)
            now = await read_picture(server)
        now = replace(
            now,
            canary=await ask_canary(canary, server),
            archives=await archives_of(server),
            errors=await errors_of(now),
        )
        found.extend(examined(Case(now, before)))
        told = [_row(check, finding) for check, finding in found]
        if output is not Output.TABLE:
            print_value({"findings": told, "checks": len(CHECKS), "processes": len(now.nodes)}, output)
            return
        print("\n".join(sentences(found)))
        looked = f"{len(CHECKS)} checks of {counted(len(now.nodes), 'process', 'processes')}"
        print(f"{looked}: {_summary([finding for _, finding in found])}.")

    perform(run(), server)
    bad = [finding for _, finding in found if strict or finding.severity is Severity.ERROR]
    return FAILURE if bad else 0


def examined(case: Case) -> list[tuple[str, Finding]]:
    """What all checks find, errors first."""
    found = [(check.__name__, finding) for check in CHECKS for finding in check(case)]
    return sorted(found, key=lambda one: one[1].severity is not Severity.ERROR)


def sentences(found: Sequence[tuple[str, Finding]]) -> list[str]:
    """For a person: where one check finds much, its first ones."""
    lines: list[str] = []
    said: dict[tuple[str, Severity], int] = {}
    for check, one in found:
        number = said[check, one.severity] = said.get((check, one.severity), 0) + 1
        if number <= NAMED_MAX:
            lines += [f"{one.severity.upper():<7}  {one.about}: {one.what}", f"         → {one.advice}"]
    for (_, severity), number in said.items():
        if number > NAMED_MAX:
            lines.append(
                f"{severity.upper():<7}  … and {number - NAMED_MAX:,} more like the last: --output json has all"
            )
    return [*lines, ""] if lines else []


def _summary(found: Sequence[Finding]) -> str:
    errors = sum(one.severity is Severity.ERROR for one in found)
    warnings = len(found) - errors
    if not found:
        return "all is well"
    return f"{counted(errors, 'error')}, {counted(warnings, 'warning')}"


def _row(check: str, one: Finding) -> dict[str, Any]:
    return {
        "check": check, "severity": one.severity.value, "about": one.about, "what": one.what, "advice": one.advice,
    }  # fmt: skip

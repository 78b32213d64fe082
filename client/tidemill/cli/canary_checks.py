"""What a canary says is wrong, for `tidemill doctor` and `tidemill status`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Annotated

import typer

from tidemill.cli.asking import PortRefused, Unanswered, ask
from tidemill.cli.failures import CommandFailed
from tidemill.cli.findings import Case, Check, Finding, error, warning
from tidemill.cli.picture import Row
from tidemill.cli.session import parse_server
from tidemill_wire.counted import counted

NOT_FOUND = 404
SILENT_MS = 60_000
RTO_MS = 10_000
PAGE = "/v1/canary"


def parse_canary(written: str) -> str:
    """Its address, or nothing."""
    return parse_server(written) if written else ""


CanaryOption = Annotated[
    str,
    typer.Option(
        "--canary", metavar="HOST:PORT", envvar="TIDEMILL_CANARY", callback=parse_canary,
        help="Where `tidemill canary` serves its page, when the queue does not know its canary.",
    ),
]  # fmt: skip


async def ask_canary(address: str, server: str) -> Row | None:
    """Its page; without an address, what the queue passes on of its own canary, or nothing where it has none."""
    return await (_ask_page(address) if address else _ask_queue(server))


async def _ask_page(address: str) -> Row:
    """It has no TLS and asks for no token, so it is shown none."""
    from tidemill.errors import TidemillError
    from tidemill.routes import Web, parse_server

    try:
        found: Row = await Web(*parse_server(address)).get(PAGE)
    except TidemillError as error:
        cause = error.__cause__.errno if isinstance(error.__cause__, OSError) else None
        said = os.strerror(cause) if cause and cause > 0 else "no answer of one"
        raise Unanswered(
            f"no canary answers at {address} ({said}): run `tidemill canary`, or name another address"
        ) from None
    if "groups" not in found:
        raise CommandFailed(
            f"{address} is not the page of a canary: name the address that `tidemill canary` prints"
        )
    return found


async def _ask_queue(server: str) -> Row | None:
    try:
        told = await ask(server, "GET", PAGE)
    except PortRefused as refused:
        if refused.status != NOT_FOUND:
            raise
        return None  # a broker of a group, or a meta of before
    if told["problem"]:
        return {"name": "", "problem": told["problem"], "groups": []}
    page: Row | None = told["page"]
    return page


def canary(case: Case) -> Iterator[Finding]:
    """What a canary sees."""
    if case.now.canary is not None:
        yield from findings(case.now.canary)


def findings(page: Row) -> Iterator[Finding]:
    """By its page."""
    if page["problem"]:
        yield warning("canary", page["problem"], "look whether it reaches meta, and may: docs/canary.md")
    for group in page["groups"]:
        yield from _of_group(group)


def _of_group(group: Row) -> Iterator[Finding]:
    name = group["group"]
    lost = sum(kind["lost"] - kind["found"] for kind in group["probes"].values())
    if lost > 0:
        ids = ", ".join(group["lost_of_late"][-3:])
        advice = "ask `tidemill why ID`; docs/runbooks/TidemillCanaryLoses.md"
        yield error(
            name, f"{counted(lost, 'probe')} of its canary were stored and never came ({ids})", advice
        )
    stored, acked = group["doubled"]["stored"], group["doubled"]["acknowledged"]
    if stored or acked:
        what = f"of its canary's probes {stored} were stored twice, {acked} came after their ack"
        yield error(name, what, "docs/runbooks/TidemillCanaryDoubles.md")
    if group["problem"]:
        yield warning(name, f"of its canary {group['problem']}", "docs/canary.md says what it needs")
    if group["silent_ms"] > SILENT_MS:
        what = f"no probe of its canary has come for {group['silent_ms'] / 1000:.0f} s"
        yield error(name, what, "docs/runbooks/TidemillCanarySilent.md")
    for failover in group["failovers"][-1:]:
        if failover["rto_ms"] > RTO_MS:
            what = f"its last change of the master took {failover['rto_ms'] / 1000:.1f} s"
            yield warning(name, what, "docs/runbooks/TidemillFailoverSlow.md")
    if group["crowded"]:
        yield warning(
            name, "two canaries of one name are at work there", "end one, or give it another --name"
        )


CHECKS: tuple[Check, ...] = (canary,)

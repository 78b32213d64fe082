"""`tidemill apply`: declare what manifests say at a queue that runs."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from tidemill.cli.asking import PortRefused, Unanswered, ask
from tidemill.cli.failures import CommandFailed
from tidemill.cli.session import SERVER_DEFAULT, Output, OutputOption, ServerOption, perform
from tidemill.cli.tables import print_rows
from tidemill.cli.up import read_manifests

if TYPE_CHECKING:
    from tidemill_wire.declarations import Manifests

DECLARATIONS, GRANTS = "/v1/declarations", "/v1/access/grants"
NOT_FOUND = 404


def apply(
    manifests: Annotated[
        list[Path],
        typer.Option(
            "--file",
            "-f",
            metavar="MANIFESTS",
            help="Subjects, consumer groups and grants, as YAML; repeat it.",
        ),
    ],
    server: ServerOption = SERVER_DEFAULT,
    output: OutputOption = Output.TABLE,
) -> None:
    """Declare subjects, consumer groups and grants at a queue that runs.

    All subjects and groups are kept, or none; what is declared no longer stays. What each was to the queue is said:
    created, changed or unchanged.
    """
    if find_spec("yaml") is None:
        raise CommandFailed(
            "`tidemill apply` reads YAML, and what does that is not found: pip install PyYAML"
        )
    found = read_manifests(manifests)
    if not found.declarations and not found.grants:
        raise CommandFailed("the manifests declare nothing: write a Subject, a ConsumerGroup or a Grant")

    async def run() -> None:
        _print(await _declared(server, found), output)
        for row in await _granted(server, found):
            _print([row], output)

    perform(run(), server)


async def _declared(server: str, found: Manifests) -> list[dict[str, Any]]:
    if not found.declarations:
        return []
    answer = await _ask_any(server, "POST", DECLARATIONS, [one.to_map() for one in found.declarations])
    rows: list[dict[str, Any]] = answer.get(
        "objects"
    ) or [  # a meta of a version before says how many, and no more
        {"kind": type(one).__name__, "name": one.name, "became": "declared"} for one in found.declarations
    ]
    return rows


async def _granted(server: str, found: Manifests) -> list[dict[str, Any]]:
    if not found.grants:
        return []
    from tidemill_wire.granted import declared_grant

    known = {row["grant"]: row for row in await _ask_any(server, "GET", GRANTS, None)}
    rows: list[dict[str, Any]] = []
    for one in found.grants:
        name, said = one.metadata.name, declared_grant(one).to_map()
        await _ask_any(server, "PUT", f"{GRANTS}/{quote(name, safe='')}", said)
        became = "created" if name not in known else "unchanged" if _same(known[name], said) else "changed"
        rows.append({"kind": "Grant", "name": name, "became": became})
    return rows


def _same(known: Mapping[str, Any], said: Mapping[str, Any]) -> bool:
    return {name: value for name, value in known.items() if name != "grant"} == said


async def _ask_any(server: str, method: str, path: str, body: object) -> Any:
    """Of several replicas of meta the first that answers."""
    *others, last = server.split(",")
    for one in others:
        try:
            return await ask(one.strip(), method, path, body)
        except Unanswered:
            continue
    try:
        return await ask(last.strip(), method, path, body)
    except PortRefused as refused:
        if refused.status == NOT_FOUND and refused.code == "not_found":
            raise CommandFailed(
                f"{last.strip()} keeps no declarations: name meta's HTTP port, or that of `tidemill up`, with --server"
            ) from None
        raise


def _print(rows: list[dict[str, Any]], output: Output) -> None:
    if output is not Output.TABLE:
        print_rows(rows, (), output, "")
        return
    for row in rows:
        of = f" of {row['subject']}" if row.get("subject") else ""
        print(f"{row['kind']} {row['name']}{of} {row['became']}")
    sys.stdout.flush()

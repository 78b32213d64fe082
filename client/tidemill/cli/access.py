"""`tidemill grants` and `tidemill tokens`: who may do what, and by what somebody is known."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from tidemill.cli.asking import PortRefused, ask
from tidemill.cli.failures import CommandFailed, wrong_usage
from tidemill.cli.session import SERVER_DEFAULT, Output, OutputOption, ServerOption, listing, perform
from tidemill.cli.tables import print_fields, print_rows
from tidemill.cli.up import read_manifests
from tidemill.cli.when import parse_duration

GRANTS, TOKENS = "/v1/access/grants", "/v1/access/tokens"
TOKEN_COLUMNS = ("token", "who", "created", "expires")
GRANT_COLUMNS = ("grant", "principals", "operations", "subjects", "groups", "quota")

GrantArgument = Annotated[str, typer.Argument(metavar="GRANT", help="The grant's name.")]
TokenArgument = Annotated[str, typer.Argument(metavar="TOKEN", help="As `tidemill tokens list` calls it.")]


def build_grants() -> typer.Typer:
    about = "grants, a line for each of their permissions"
    grants = listing("List who may do what with which subjects, show, set or remove a grant.", about, _grants)
    grants.command("show")(show_grant)
    grants.command("set")(set_grant)
    grants.command("remove")(remove_grant)
    return grants


def build_tokens() -> typer.Typer:
    about = "tokens by what they are called: nobody can see the tokens themselves"
    tokens = listing("List by what somebody is known, make a token or let one hold no more.", about, _tokens)
    tokens.command("show")(show_token)
    tokens.command("create")(create_token)
    tokens.command("revoke")(revoke_token)
    return tokens


async def _grants(server: str, output: Output) -> None:
    rows = await ask(server, "GET", GRANTS)
    if output is Output.TABLE:
        rows = [_shown(row, one) for row in rows for one in row["permissions"]]
    print_rows(rows, GRANT_COLUMNS, output, "There are no grants yet: `tidemill grants set` makes one.")


def show_grant(
    name: GrantArgument, server: ServerOption = SERVER_DEFAULT, output: OutputOption = Output.TABLE
) -> None:
    """Show one grant with all its permissions and its quota."""

    async def run() -> None:
        rows = await ask(server, "GET", GRANTS)
        print_fields(_only([row for row in rows if row["grant"] == name], "grant", name), output)

    perform(run(), server)


def _only(rows: list[dict[str, Any]], what: str, name: str) -> dict[str, Any]:
    if not rows:
        raise CommandFailed(f"there is no {what} {name!r}: `tidemill {what}s list` has all")
    return rows[0]


async def _removed(server: str, path: str, what: str, name: str) -> None:
    try:
        await ask(server, "DELETE", f"{path}/{quote(name, safe='')}")
    except PortRefused as refused:
        if refused.code == "not_found":
            _only([], what, name)
        raise


def set_grant(
    name: Annotated[str | None, typer.Argument(metavar="[GRANT]", help="The grant's name.")] = None,
    to: Annotated[
        list[str] | None,
        typer.Option("--to", metavar="WHO", help="token:NAME or certificate:NAME; repeat it."),
    ] = None,
    on: Annotated[
        list[str] | None,
        typer.Option(
            "--on", metavar="SUBJECT", help="A subject, or the beginning of some, as order.*; repeat it."
        ),
    ] = None,
    allow: Annotated[
        str,
        typer.Option(metavar="OPERATIONS", help="send, consume, browse, admin, with commas between them."),
    ] = "",
    group: Annotated[
        list[str] | None,
        typer.Option(
            "--group", metavar="GROUP", help="Consume as this group, or the beginning of some; repeat it."
        ),
    ] = None,
    messages: Annotated[
        int | None,
        typer.Option(
            "--messages-per-second", metavar="NUMBER", help="Each may send so many, to each service."
        ),
    ] = None,
    size: Annotated[
        int | None,
        typer.Option("--bytes-per-second", metavar="BYTES", help="Each may send so much, to each service."),
    ] = None,
    connections: Annotated[
        int | None, typer.Option(metavar="NUMBER", help="Each may have so many, to each service.")
    ] = None,
    in_flight: Annotated[
        int | None,
        typer.Option("--in-flight", metavar="NUMBER", help="Each may hold so many messages, of each broker."),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", metavar="MANIFESTS", help="Grants to set, as YAML.")
    ] = None,
    server: ServerOption = SERVER_DEFAULT,
) -> None:
    """Grant something to somebody. A grant of that name is replaced."""
    if (file is None) == (name is None):
        raise wrong_usage("write a name with --to, --on and --allow, or --file, and one of them alone")
    if file is None and not (to and on and allow):
        raise wrong_usage("write --to WHO, --on SUBJECT and --allow OPERATIONS")
    bounds = {"messages": messages, "bytes": size, "connections": connections, "in_flight": in_flight}
    quota = {what: number for what, number in bounds.items() if number is not None}
    said = {**_body(to or [], on or [], allow, group or []), **({"quota": quota} if quota else {})}
    bodies = _read(file) if file is not None else {str(name): said}

    async def run() -> None:
        for one, body in bodies.items():
            await ask(server, "PUT", f"{GRANTS}/{quote(one, safe='')}", body)
            print(f"grant {one} is set")

    perform(run(), server)


def remove_grant(name: GrantArgument, server: ServerOption = SERVER_DEFAULT) -> None:
    """Take a grant back. It holds no more within two seconds, for who is connected, too."""

    async def run() -> None:
        await _removed(server, GRANTS, "grant", name)
        print(f"grant {name} is removed")

    perform(run(), server)


def create_token(
    who: Annotated[str, typer.Argument(metavar="NAME", help="What whoever has the token is called.")],
    expires: Annotated[
        str,
        typer.Option(
            metavar="DURATION", help="For how long it holds, as in 12h or 90d; for ever without it."
        ),
    ] = "",
    server: ServerOption = SERVER_DEFAULT,
    output: OutputOption = Output.TABLE,
) -> None:
    """Make a token and print it. It is shown this once; several may hold at a time, so that they can be rotated."""
    seconds = int(parse_duration(expires, "--expires").total_seconds()) if expires else 0

    async def run() -> None:
        row = await ask(
            server, "POST", TOKENS, {"who": who, **({"expires_seconds": seconds} if seconds else {})}
        )
        if output is not Output.TABLE:
            print_rows([row], (), output, "")
        else:
            print(row["secret"])

    perform(run(), server)


async def _tokens(server: str, output: Output) -> None:
    rows = await ask(server, "GET", TOKENS)
    if output is Output.TABLE:
        rows = [_timed(row) for row in rows]
    print_rows(rows, TOKEN_COLUMNS, output, "There are no tokens yet: `tidemill tokens create` makes one.")


def show_token(
    token: TokenArgument, server: ServerOption = SERVER_DEFAULT, output: OutputOption = Output.TABLE
) -> None:
    """Show whose a token is, and for how long it holds."""

    async def run() -> None:
        row = _only(
            [row for row in await ask(server, "GET", TOKENS) if row["token"] == token], "token", token
        )
        print_fields(_timed(row) if output is Output.TABLE else row, output)

    perform(run(), server)


def _timed(row: dict[str, Any]) -> dict[str, Any]:
    """As a person reads it."""
    times = {name: _time(row[f"{name}_ms"]) for name in ("created", "expires")}
    return {"token": row["token"], "who": row["who"], **times}


def revoke_token(
    token: TokenArgument,
    server: ServerOption = SERVER_DEFAULT,
) -> None:
    """Let a token hold no more, within two seconds."""

    async def run() -> None:
        await _removed(server, TOKENS, "token", token)
        print(f"token {token} is revoked")

    perform(run(), server)


def _body(to: list[str], on: list[str], allow: str, groups: list[str]) -> dict[str, Any]:
    operations = [word.strip().capitalize() for word in allow.split(",") if word.strip()]
    permission: dict[str, Any] = {"operations": operations, "subjects": on}
    return {"principals": to, "permissions": [{**permission, **({"groups": groups} if groups else {})}]}


def _read(file: Path) -> dict[str, Any]:
    """The grants of a file that Kubernetes takes, too."""
    from tidemill_wire.granted import declared_grant

    found = read_manifests([file]).grants
    if not found:
        raise CommandFailed(f"{file} holds no Grant: write one, or name another file")
    return {one.metadata.name: declared_grant(one).to_map() for one in found}


def _shown(row: dict[str, Any], permission: dict[str, Any]) -> dict[str, Any]:
    said = {name: ", ".join(permission.get(name, ["any"])) for name in ("operations", "subjects", "groups")}
    quota = ", ".join(f"{number} {what.replace('_', ' ')}" for what, number in row.get("quota", {}).items())
    return {
        "grant": row["grant"],
        "principals": ", ".join(row["principals"]),
        **said,
        "quota": quota or "none",
    }


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if ms else "never"

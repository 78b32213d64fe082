"""`tidemill subjects remove` and `tidemill groups remove`: for ever, so they look first, and ask."""

from __future__ import annotations

import sys
from typing import Annotated, NamedTuple

import typer

from tidemill.cli.asking import PortRefused, ask
from tidemill.cli.completing import complete_group
from tidemill.cli.consume import parse_group_option
from tidemill.cli.draining import UNDONE, left_on
from tidemill.cli.failures import CommandFailed, wrong_usage
from tidemill.cli.session import (
    SERVER_DEFAULT,
    ServerOption,
    SubjectArgument,
    YesOption,
    interactive,
    perform,
)

GroupArgument = Annotated[
    str,
    typer.Argument(
        metavar="GROUP",
        callback=parse_group_option,
        help="The consumer group.",
        autocompletion=complete_group,
    ),
]
ForceOption = Annotated[
    bool, typer.Option("--force", help="Also what programs use, and what is not consumed.")
]
IfEmptyOption = Annotated[
    bool, typer.Option("--if-empty", help="Only when nothing is left, which its brokers are asked for.")
]


def agreed(otherwise: str = "") -> bool:
    """A person says yes."""
    if not interactive(sys.stdin):
        raise wrong_usage(f"nobody is there to be asked: add --yes{otherwise}")
    return typer.confirm("Go on?")


def remove_subject(
    subject: SubjectArgument,
    yes: YesOption = False,
    force: ForceOption = False,
    if_empty: IfEmptyOption = False,
    server: ServerOption = SERVER_DEFAULT,
) -> None:
    """Remove a subject for ever: its messages, its groups and their dead letters."""
    if if_empty and force:
        raise wrong_usage("--if-empty and --force exclude each other: give one of them")
    perform(_remove((subject, ""), Consent(yes, force, if_empty), server), server)


def remove_group(
    subject: SubjectArgument,
    group: GroupArgument,
    yes: YesOption = False,
    force: ForceOption = False,
    server: ServerOption = SERVER_DEFAULT,
) -> None:
    """Remove a consumer group for ever: its place and its dead letters."""
    perform(_remove((subject, group), Consent(yes, force), server), server)


class Consent(NamedTuple):
    """What a person agrees to."""

    yes: bool
    force: bool
    if_empty: bool = False

    @property
    def query(self) -> str:
        return "?force=1" if self.force else "?if_empty=1" if self.if_empty else ""


async def _remove(names: tuple[str, str], consent: Consent, server: str) -> None:
    subject, group = names
    what = f"group {group} of {subject}" if group else f"subject {subject}"
    if not (consent.force or consent.if_empty):
        await _refuse_left(what, names, server)
    if not consent.yes:
        more = (
            "its place and its dead letters" if group else "its messages, its groups and their dead letters"
        )
        print(f"{what} goes for ever, with {more}.")
        if not agreed():
            print("Nothing was done.")
            return
    path = f"/v1/subjects/{subject}" + (f"/groups/{group}" if group else "")
    try:
        await ask(server, "DELETE", path + consent.query)
    except PortRefused as error:
        if error.code == "in_use":
            otherwise = "" if consent.if_empty else ", or add --force"
            raise CommandFailed(f"{error.more['error']['detail']}: stop them{otherwise}") from None
        raise
    print(f"{what} is removed: its brokers hear of it within two seconds")


async def _refuse_left(what: str, names: tuple[str, str], server: str) -> None:
    """What is not consumed is not removed by mistake."""
    subject, group = names
    route = await ask(server, "GET", f"/v1/subjects/{subject}/route")
    sets = [route, *route["former"]]
    holding = {partition["group"] for one in sets for partition in one["partitions"]}
    left = [
        sentence
        for one in await ask(server, "GET", "/v1/brokers")
        if one["group"] in holding
        for sentence in await left_on(server, one, (*UNDONE, "dead"), subject, group)
    ]
    if left:
        raise CommandFailed(
            f"{what} is not done with ({'; '.join(left)}): consume it, or give it up with --force"
        )

"""Commands about whole groups: asked of each broker over a connection of their own, for they are rare."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from tidemill.asking import ask
from tidemill.errors import BrokerUnreachable, Refused, TidemillError
from tidemill.link import Answer
from tidemill.looking import absent
from tidemill.router import Router
from tidemill.settings import ClientSettings
from tidemill.subscription import milliseconds
from tidemill_wire.fields import parse_group, parse_subject
from tidemill_wire.kinds import Place
from tidemill_wire.steering import Seek, Sought, Suspend

To: TypeAlias = Literal["earliest", "latest"] | str | datetime | int


@dataclass(frozen=True, slots=True)
class Moved:
    """What a seek did, or would do. Of several brokers it is the sum."""

    sequence: int
    """What the group is given next."""
    again: int
    """Messages that it had been given before and is given again."""
    skipped: int
    """Messages that it had not been given and is not given any more."""
    in_flight: int
    """Messages that consumers held; what they say of them from now on counts for nothing."""
    failed: int
    """Messages that waited for another attempt, and do so no more."""


def parse_seek(subject: str, group: str, to: To, rehearsal: bool) -> Seek:
    """The arguments of ``seek``, proven."""
    names = parse_group(group), parse_subject(subject)
    match to:
        case "earliest":
            return Seek(*names, Place.EARLIEST, 0, rehearsal)
        case "latest":
            return Seek(*names, Place.LATEST, 0, rehearsal)
        case datetime():
            return Seek(*names, Place.TIME, milliseconds(to, "to"), rehearsal)
        case int() if to >= 0 and not isinstance(to, bool):
            return Seek(*names, Place.SEQUENCE, to, rehearsal)
        case _:
            raise ValueError(f"to {to!r} is none of earliest, latest, a datetime and a sequence")


async def seek(router: Router, settings: ClientSettings, command: Seek) -> Moved:
    """Move a group, on every broker."""
    answers = [answer for answer in await _ask_all(router, settings, command) if isinstance(answer, Sought)]
    if not answers:
        raise BrokerUnreachable("the broker answered what was not asked")
    return Moved(
        max(answer.sequence for answer in answers),
        sum(answer.again for answer in answers),
        sum(answer.skipped for answer in answers),
        sum(answer.in_flight for answer in answers),
        sum(answer.failed for answer in answers),
    )


async def suspend(router: Router, settings: ClientSettings, command: Suspend) -> None:
    """Let a group stand still or go on, on every broker."""
    await _ask_all(router, settings, command)


async def _ask_all(router: Router, settings: ClientSettings, command: Seek | Suspend) -> list[Answer]:
    """The answers; a broker that does not know the group is passed over unless none does. Broker groups that nobody
    serves now are said when the others have done it: what was half done can be done again.
    """
    answers: list[Answer] = []
    unknown: TidemillError | None = None
    brokers = await router.holding(command.subject)
    away = absent(router, command.subject, brokers)
    for address in brokers:
        answer = await ask(address, settings, command)
        match answer:
            case Refused() if answer.kind.name == "not_found":
                unknown = answer
            case TidemillError():
                raise answer
            case _:
                answers.append(answer)
    if unknown is not None and not answers and not away:
        raise unknown
    if away:
        raise BrokerUnreachable(
            f"group {command.group} was reached on {len(answers)} of {len(brokers) + len(away)} broker groups, "
            f"nobody serves {', '.join(away)} now: do it again when `tidemill status` says that it is led"
        )
    return answers

"""Transactions that nobody has decided, at all brokers; and a person's word on one of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tidemill.asking import ask
from tidemill.atlas import listed, mapped
from tidemill.errors import BrokerUnreachable, Refused, TidemillError
from tidemill.looking import Holder, Looker, gathered
from tidemill.settings import ClientSettings
from tidemill.transactions import VERDICTS, Outcome
from tidemill_wire.commands import Done
from tidemill_wire.transacting import Decide, parse_transaction_id

PATH = "/v1/transactions"


@dataclass(frozen=True, slots=True)
class Undecided:
    """What brokers say: ``rows`` as they say them, each with its ``broker``, and who could not be asked."""

    rows: list[dict[str, Any]]
    pending: int
    """How many there are; a broker shows 1,000 of its own."""
    away: list[str]


async def list_undecided(looker: Looker) -> Undecided:
    """All that are pending, the oldest of each broker group first."""
    holders = await looker.everybody()
    answers = await gathered(map(_asked, holders.there))
    found = Undecided([], 0, list(holders.away))
    pending = 0
    for holder, answer in zip(holders.there, answers, strict=True):
        if isinstance(answer, BrokerUnreachable):
            found.away.append(holder.address.group)
            continue
        said = mapped(answer)
        pending += int(said.get("pending", 0))
        found.rows.extend(
            {**mapped(row), "broker": holder.address.group} for row in listed(said, "transactions")
        )
    return Undecided(found.rows, pending, found.away)


async def _asked(holder: Holder) -> object:
    try:
        return await holder.look(PATH, {})
    except BrokerUnreachable as error:
        return error


async def decide(looker: Looker, settings: ClientSettings, identity: str, outcome: Outcome) -> int:
    """End a transaction, wherever it is; how many messages were committed."""
    command = Decide(parse_transaction_id(identity), VERDICTS[outcome])
    holders = await looker.everybody()
    away: Sequence[str] = holders.away
    unknown: TidemillError | None = None
    for holder in holders.there:
        try:
            answer = await ask(holder.address, settings, command)
        except BrokerUnreachable:
            away = [*away, holder.address.group]
            continue
        match answer:
            case Done(count=count):
                return count
            case Refused() if answer.kind.name == "unknown_transaction":
                unknown = answer
            case TidemillError():
                raise answer
            case _:
                raise BrokerUnreachable("the broker answered what was not asked")
    if away or unknown is None:
        where = ", ".join(away) or "any broker"
        raise BrokerUnreachable(
            f"transaction {identity} is on no broker that answers, and {where} cannot be reached now: "
            "look with `tidemill status`, and try again"
        )
    raise unknown

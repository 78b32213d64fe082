"""What a request names, seen by what its asker was granted: several subjects may stand in one body."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from tidemill_host.doorman import asker
from tidemill_meta.beats import ClientBeat
from tidemill_meta.doors.watch import Interest
from tidemill_meta.machine import Meta
from tidemill_wire.access import EVERYTHING, Identity, Operation, Right
from tidemill_wire.declarations import Declaration, Subject
from tidemill_wire.errors import KIND_BY_NAME, Refused


def permitted(beat: ClientBeat) -> tuple[ClientBeat, list[dict[str, Any]]]:
    """A client's heartbeat with what it may use, and rows of what is denied to it, which is made by no such use."""
    who = asker()
    beat = replace(beat, who=who.who)
    if who.all:
        return beat, []
    produces = tuple(one for one in beat.produces if who.may(Operation.SEND, one))
    consumes = tuple(one for one in beat.consumes if who.may(Operation.CONSUME, one.subject, one.group))
    denied = [_denied(who, Right(Operation.SEND, one)) for one in beat.produces if one not in produces]
    denied += [
        {**_denied(who, Right(Operation.CONSUME, one.subject, one.group)), "group": one.group}
        for one in beat.consumes
        if one not in consumes
    ]
    return replace(beat, produces=produces, consumes=consumes), denied


def check_own(meta: Meta, client: str, now_ms: int) -> None:
    """``Refused`` when a client is there that somebody else has begun; the cluster's own may speak for any."""
    who = asker()
    owner = "" if who.all else meta.owner_of(client, now_ms)
    if owner and owner != who.who:
        raise Refused("forbidden", f"the client {client[:100]!r} is another's than {who.who}'s")


def _denied(who: Identity, right: Right) -> dict[str, Any]:
    advice = KIND_BY_NAME["forbidden"].advice
    detail = f"{who.who} was not granted {right}"
    return {"subject": right.subject, "code": "forbidden", "detail": detail, "advice": advice}


def seen(interest: Interest) -> Interest:
    """What of an interest somebody may know of. A pattern stands for all its subjects, so all of them are asked for."""
    who = asker()
    if who.all:
        return interest
    return replace(
        interest,
        subjects=frozenset(one for one in interest.subjects if who.may_any(one)),
        prefixes=tuple(one for one in interest.prefixes if who.may_any(f"{one}*")),
        groups=frozenset(one for one in interest.groups if who.may_any(one.partition("/")[0])),
    )


def check_declared(declared: Iterable[Declaration]) -> None:
    """``Refused`` when one of them may not be declared by whoever asks."""
    who = asker()
    for one in declared:
        if isinstance(one, Subject):
            subject = one.name
        else:
            subject = one.subject
        who.check(Right(Operation.ADMIN, subject or EVERYTHING))

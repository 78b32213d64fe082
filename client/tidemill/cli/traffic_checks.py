"""What may be wrong with subjects, consumer groups and their messages. Each check is a function of one ``Case``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tidemill.cli.findings import Case, Check, Finding, error, warning
from tidemill.cli.picture import Row, pace_of
from tidemill_wire.counted import counted
from tidemill_wire.fields import living_subject

LAG_SMALL = 100
"""Fewer come and go between two looks."""
LEASES_PERCENT = 1.0
OUT_FEW = 1_000
REFUSED_BY_DESIGN = frozenset(("not_found", "http_error"))
"""What people who look around cause."""


def paused(case: Case) -> Iterator[Finding]:
    for row, _ in case.groups():
        if row["paused"]:
            what = f"it is paused, its deliveries fail alike: {_reason(case, row, row['paused']) or row['paused']}"
            advice = "mend its handlers, or what they need: it is probed, and goes on by itself"
            yield error(_name(row), what, advice)


def failing(case: Case) -> Iterator[Finding]:
    """Messages that failed some seconds ago, and wait: what passes is tried again within seconds and gone by then."""
    for row, before in case.groups():
        failed = min(row["failed"], row["failed"] if before is None else before["failed"])
        if failed and not row["paused"]:
            reason = _reason(case, row)
            of = f": {reason}" if reason else ""
            what = f"{counted(failed, 'failed message')} to be tried again{of}"
            look = f"`tidemill groups show {row['subject']} {row['group']}`"
            advice = f"mend what it fails of; look with {look}, and with `tidemill why ID` at one; docs/failures.md"
            yield warning(_name(row), what, advice)


def _reason(case: Case, row: Row, fingerprint: str = "") -> str:
    """Of what it fails, the latest; or what that fingerprint stands for."""
    known = case.now.errors.get((str(row["subject"]), str(row["group"])), ())
    found = [one for one in known if fingerprint in ("", one["fingerprint"])]
    return str(max(found, key=lambda one: one["last_ms"])["reason"]) if found else ""


def growing(case: Case) -> Iterator[Finding]:
    """More arrives than is handled."""
    for row, before in case.groups():
        if before is None or row["suspended"] or row["paused"] or not row["consumers"]:
            continue
        pace = pace_of(before, row, case.seconds)
        if pace is None or pace.undone < LAG_SMALL or pace.arrives <= pace.handled:
            continue
        what = (
            f"{pace.undone:,} messages are not handled, and {pace.arrives:,.0f} a second arrive while "
            f"{pace.handled:,.0f} are"
        )
        yield warning(_name(row), what, "run more consumers; docs/oncall/drain-a-backlog.md")


def unattended(case: Case) -> Iterator[Finding]:
    """Nobody consumes what waits."""
    for row, _ in case.groups():
        waiting = row["lag"] + row["failed"]
        if waiting and not row["consumers"] and not row["suspended"]:
            advice = (
                f"start its consumers, or remove it: `tidemill groups remove {row['subject']} {row['group']}`"
            )
            yield warning(
                _name(row), f"{counted(waiting, 'message')} to consume, and no consumer is there", advice
            )


def suspended(case: Case) -> Iterator[Finding]:
    for row, _ in case.groups():
        if row["suspended"] and row["lag"]:
            advice = f"`tidemill groups resume {row['subject']} {row['group']}` lets it go on"
            yield warning(
                _name(row), f"it is suspended, with {counted(row['lag'], 'message')} to consume", advice
            )


def kept_back(case: Case) -> Iterator[Finding]:
    for row, _ in case.groups():
        if row["over_quota"]:
            what = f"the quota of {row['over_quota']} of messages in flight is used up, and keeps messages back from it"
            advice = "look which consumers hold them and hang, or give it a larger quota; docs/quotas.md"
            yield warning(_name(row), what, advice)


def buried(case: Case) -> Iterator[Finding]:
    for row, before in case.groups():
        if row["dead"]:
            more = row["dead"] - before["dead"] if before is not None else 0
            grew = f", {more:,} more than {case.seconds:.0f} s ago" if more > 0 else ""
            advice = f"look with `tidemill dead list {row['subject']} -g {row['group']}`, mend, redrive"
            yield warning(_name(row), f"it has {counted(row['dead'], 'dead letter')}{grew}", advice)


def leases(case: Case) -> Iterator[Finding]:
    """Handlers that take longer than their lease have their messages handled twice."""
    for node in case.now.masters:
        ended, out = node.number("tidemill_leases_ended_total"), node.number("tidemill_messages_out_total")
        lately = case.grew(node.name, "tidemill_leases_ended_total")
        often = ended and out and out >= OUT_FEW and 100 * ended / out > LEASES_PERCENT
        if lately or often:
            said = f"{lately:,.0f} of late" if lately else f"{ended:,.0f} of {out:,.0f} deliveries"
            advice = (
                "look which handlers hang; give the group a longer lease (spec.delivery.ackTimeoutSeconds)"
            )
            yield warning(node.name, f"leases end before an ack comes: {said}", advice)


def expired(case: Case) -> Iterator[Finding]:
    for node in case.now.masters:
        lost = node.number("tidemill_expired_messages_total")
        if lost:
            advice = "keep messages for longer, or consume faster: these were never given to a group"
            yield error(
                node.name,
                f"retention dropped {counted(int(lost), 'message')} that a group had not pulled",
                advice,
            )


def refused(case: Case) -> Iterator[Finding]:
    for node in case.now.masters:
        for reason in sorted(set(node.by_reason("tidemill_refused_total")) - REFUSED_BY_DESIGN):
            more = case.grew(node.name, f'tidemill_refused_total{{reason="{reason}"}}')
            if more:
                advice = "docs/protocol.md says what each reason means; look which program is told so"
                yield warning(node.name, f"it refused {more:,.0f} requests just now: {reason}", advice)


def silent(case: Case) -> Iterator[Finding]:
    for node in case.now.masters:
        count = node.number("tidemill_transactions_silent_total")
        if count:
            what = f"{counted(int(count), 'transaction')} were rolled back because nobody of their producers answered"
            yield warning(node.name, what, "run producers with a check-back; docs/transactions.md")


def unconsumed(case: Case) -> Iterator[Finding]:
    """Subjects with messages that nobody consumes: a name that was mistyped, or a group that was forgotten."""
    wanted = {living_subject(str(row["subject"])) for row, _ in case.groups()}
    kept: dict[str, int] = {}
    for node in case.now.masters:
        for row in node.subjects:
            subject = living_subject(str(row["name"]))
            kept[subject] = kept.get(subject, 0) + row["messages"]
    for subject, count in sorted(kept.items()):
        if count and subject not in wanted:
            advice = f"consume it, or remove it: `tidemill subjects remove {subject}`"
            yield warning(
                subject, f"no group consumes it, of which {counted(count, 'message')} lie there", advice
            )


def _name(row: Row | dict[str, Any]) -> str:
    return f"{row['group']} of {row['subject']}"


CHECKS: tuple[Check, ...] = (
    paused, failing, growing, unattended, suspended, kept_back, buried, leases, expired, refused, silent, unconsumed,
)  # fmt: skip

"""What meta is told of a lone broker: where it is, which subjects it has, and what is declared of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tidemill_meta.archives import archived_in
from tidemill_meta.brokers import Registration
from tidemill_meta.machine import Meta
from tidemill_meta.registry import Draft, Registry
from tidemill_meta.senses import Senses
from tidemill_meta.subjects import use_subject
from tidemill_meta.values import Broker, Removal, SubjectRecord
from tidemill_wire.declarations import Declaration, Subject


def placed_anywhere(declaration: Declaration) -> Declaration:
    """Without the placement that the declaration has for a cluster: here is one broker group."""
    if isinstance(declaration, Subject):
        return replace(declaration, spec=replace(declaration.spec, placement=None))
    return declaration


def register(draft: Draft, meta: Meta, asked: Registration, now_ms: int) -> None:
    """The broker of this folder, wherever it listens. The folder has one owner at a time, so whoever registered in it
    before was this one; at another port it would be taken for a namesake, who has to wait.
    """
    known = draft.get(Broker, asked.broker.key)
    if known is not None and (known.data, known.control) != (asked.broker.data, asked.broker.control):
        draft.put(replace(known, data=asked.broker.data, control=asked.broker.control))
    meta.register(draft, asked, now_ms)


def adopt(draft: Draft, senses: Senses, subjects: Iterable[str], now_ms: int) -> None:
    """Subjects that are there, whatever the policy says of new ones; not what was removed since somebody looked."""
    for subject in subjects:
        if draft.get(SubjectRecord, subject) is None and draft.get(Removal, subject) is not None:
            continue
        if draft.get(SubjectRecord, subject) is None:
            draft.put(SubjectRecord(subject, None))
        use_subject(draft, senses, subject, now_ms)


def kept_for_archives(
    registry: Registry, group: str, records: Sequence[SubjectRecord]
) -> tuple[tuple[tuple[str, int], ...], frozenset[str]]:
    """Of subjects that are kept until they are archived: what archives have, and those that none is of any more."""
    said = archived_in(registry, group, records)
    return tuple((name, number) for name, number in said["archived"]), frozenset(said["released"])

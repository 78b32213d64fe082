"""Failures of another broker's messages, which cannot be told there: taken with the whole messages.

A message that is adopted is a dead letter that is redriven from the beginning: it is copied into the dead letters of
its group, with the reason, its attempts and the id of the original, and due again when a NACK here would have made it
due. So it is given to this group alone, and dies here if it goes on failing. One that was rejected is not redriven.

    copy and action   it is due again
    copy alone        a power cut took the action: it waits among the dead letters, for a person
    action alone      a power cut took the copy: the failure of a message that does not exist is voided
"""

from __future__ import annotations

from dataclasses import replace

from tidemill_broker.actions import FailureDetail, Reason, Redriven
from tidemill_broker.dead_letters import DeadLetters, adopted_copy
from tidemill_broker.desk import Desk
from tidemill_broker.failures import Failure, due_after, fingerprint_of
from tidemill_broker.groups import Group
from tidemill_broker.intake import Intake
from tidemill_broker.lanes import base_of
from tidemill_broker.partitions import Partition
from tidemill_broker.serving import Serving
from tidemill_wire.adopting import Adopt
from tidemill_wire.batch import NOT_TAKEN, Origin
from tidemill_wire.columns import Batch, build_batch
from tidemill_wire.errors import CorruptBatch, Refused
from tidemill_wire.limits import DOOMED_MS


class Adoption:
    """See the module."""

    def __init__(self, desk: Desk, intake: Intake, dead_letters: DeadLetters, serving: Serving) -> None:
        self._desk = desk
        self._state = desk.state
        self._intake = intake
        self._dead_letters = dead_letters
        self._serving = serving

    def adopt(self, command: Adopt, now_ms: int) -> tuple[Partition, int]:
        """Where they lie now, and how many they are."""
        group = self._group_of(command)
        try:
            batch = Batch(bytearray(command.batch))
            batch.check()
        except CorruptBatch as error:
            raise Refused("corrupt_batch", str(error)) from error
        header = batch.header
        if header.flags & NOT_TAKEN:
            raise Refused("unsupported_flag", "messages are adopted as a producer's batch has them")
        if self._intake.refusal is not None:
            raise self._intake.refusal
        grave = self._dead_letters.grave(group, now_ms)
        if grave.repeated(header.producer_id, header.producer_sequence) is not None:
            return grave, header.messages
        mark = fingerprint_of(command.reason, command.error, command.place)
        detail = FailureDetail(command.reason, command.error, command.place, mark)
        failure = Failure(header.first_sequence, header.messages, command.attempts + 1, now_ms, now_ms, mark)
        copy = adopted_copy(batch, failure, (base_of(self._partition(group)).name, group.name), detail)
        origin = Origin(
            grave.raw_name, header.producer_id, header.producer_sequence, header.batch_id, copy.created_at_ms,
            copy.codec, copy.flags, copy.priority,
        )  # fmt: skip
        first = grave.next_sequence
        self._intake.place(build_batch(origin, copy.content), grave, now_ms)
        self._desk.stored(grave)
        group.errors.note(detail, header.messages, now_ms)
        if not command.reject:
            self._give_again(group, grave, due_of(group, command, now_ms), (first, header.messages), now_ms)
        return grave, header.messages

    def _give_again(
        self, group: Group, grave: Partition, due: tuple[int, int], span: tuple[int, int], now_ms: int
    ) -> None:
        due_ms, attempts = due
        twin = self._state.groups[grave.groups[group.name]]
        first, count = span
        self._desk.act(Redriven(twin.identity, due_ms, [first, first + count - 1], attempts), now_ms)
        self._serving.adopt(twin, now_ms)
        self._desk.wake(due_ms)

    def _partition(self, group: Group) -> Partition:
        return self._state.partitions[group.partition]

    def _group_of(self, command: Adopt) -> Group:
        for partition in self._intake.further.whole(command.subject):
            group = self._state.group_of(partition.name, command.group)
            if group is not None and not group.ordered:
                return group
        raise Refused(
            "not_found", f"group {command.group!r} shares no messages of subject {command.subject!r} here"
        )


def due_of(group: Group, command: Adopt, now_ms: int) -> tuple[int, int]:
    """When it is due, and after how many attempts. This broker does not know when it failed first, so what would be
    given up is tried once more here.
    """
    settings = replace(group.settings, attempts_max=DOOMED_MS)
    due_ms = due_after(settings, (command.attempts, 0), Reason.NACK, command.delay_ms, now_ms)
    return due_ms, command.attempts + 1

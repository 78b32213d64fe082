"""What is of no group that consumes, as it changes the state: fences, what people remove; and what a start writes of
what it found, as epochs, burials that are undone, a clock that was set back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemill_broker.actions import EpochBegun, Exhumed, FencePut, Removed, Started, Synced
from tidemill_broker.failures import Failure
from tidemill_broker.tombs import remove
from tidemill_broker.transaction_actions import TransactionAction
from tidemill_wire.limits import DOOMED_MS, EPOCHS_MAX
from tidemill_wire.replication import EpochStart

if TYPE_CHECKING:
    from tidemill_broker.state import State

BOOT_SHIFT = 40


def go_on(
    state: State, action: Started | EpochBegun | Exhumed | Synced | FencePut | Removed | TransactionAction
) -> None:
    """Change the state. SYNCED changes nothing: it is for whoever reads the log."""
    match action:
        case Started(boot, back_ms):
            state.boot = boot
            state.next_pull = max(state.next_pull, boot << BOOT_SHIFT)
            if back_ms:
                go_back(state, back_ms)
        case EpochBegun(epoch, message_position, action_position):
            if not state.epochs:
                state.boots_alone = state.boot
            state.epochs.append(EpochStart(epoch, message_position, action_position))
            del state.epochs[:-EPOCHS_MAX]
        case Exhumed(identity, first, messages, attempts, since_ms, fingerprint, detail):
            group = state.groups[identity]
            group.buried -= messages
            group.fail(Failure(first, messages, attempts, DOOMED_MS, since_ms, fingerprint), detail)
            state.doomed.add(identity)
        case FencePut():
            state.fences.put(action)
        case Removed():
            remove(state, action)
        case Synced():
            pass
        case _:
            state.transactions.apply(action)


def go_back(state: State, back_ms: int) -> None:
    """What lies ahead lies as far ahead as before, on a clock that was set back."""
    for group in state.groups.values():
        group.go_back(back_ms)
        if group.silent_ms:
            state.rest(group, max(1, group.silent_ms - back_ms))
    state.leases.go_back(back_ms)
    state.transactions.go_back(back_ms)

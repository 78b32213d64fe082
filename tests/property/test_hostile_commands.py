"""For all commands that the wire lets through: a broker answers them, or refuses them with a name, and serves on.

Whatever a machine raises besides ends its process, and what it has written down by then ends those that come after it.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from samples.brokers import Rig, batch_of
from samples.graves import hasty_rig
from samples.hostile import Hostile
from tidemill_wire.commands import Ack, Failed, Pull, Pulled, SendBatches, Sent

STEPS = 100


def live(rig: Rig, hostile: Hostile) -> None:
    """What a broker lives through besides what it is told."""
    match hostile.random.randrange(20):
        case 0:
            rig.restart()
        case 1:
            rig.power_cut()
        case 2 | 3:
            rig.wait(hostile.random.choice((1, 150, 1_100, 11_000)))
        case 4:
            rig.disconnect(rig.peers[-1])
            rig.connect()
        case _:
            pass


@given(seed=st.integers(0, 2**32 - 1))
def test_only_what_has_a_name_comes_of_any_command_and_the_broker_serves_on(seed: int) -> None:
    hostile, rig = Hostile(seed), hasty_rig()
    for _ in range(STEPS):
        live(rig, hostile)
        command = hostile.command()
        if command is None:
            continue
        answer = rig.ask(command, rig.peers[-1]) or rig.answers.get(rig.correlation)
        assert answer is None or isinstance(answer, Failed) or answer.kind.name
        if isinstance(answer, Pulled):
            hostile.held += answer.grants

    for _ in range(2):
        rig.restart()
        rig.wait(60_000)
        assert_serves(rig)


def assert_serves(rig: Rig) -> None:
    """A subject that nobody has heard of is sent to, consumed, and done with."""
    subject = f"quiet.{rig.now_ms}"
    assert isinstance(rig.ask(SendBatches(batch_of(b"well", subject=subject))), Sent)
    pulled = rig.ask(Pull("quiet", "q", [subject], 10, 1 << 20, 0, -1))
    assert isinstance(pulled, Pulled)
    [grant] = pulled.grants
    done = rig.ask(Ack("quiet", "q", subject, [grant.pull_sequence, grant.pull_sequence]))
    assert done is not None
    assert not isinstance(done, Failed)

"""Messages for later of two subjects, one of which no broker takes: it is read-only until all of the other one came.

What is due for it waits at the delay service, more than its wheel may hold; and the other subject's messages go past,
whatever is killed and cut off meanwhile. Then it is taken again, and all of it comes, once.
"""

from __future__ import annotations

from sim.later import SUBJECTS, Later
from sim.world import Env
from tidemill_broker.gate import Told
from tidemill_broker.machine import Broker
from tidemill_delay.machine import Delay

STUCK = SUBJECTS[1]
LOOK_S = 0.1


class Aside(Later):
    """The scenario."""

    fails = 0.0
    probes = ("stood_aside", "beyond_the_wheel")

    def _began(self, broker: Broker, env: Env) -> None:
        def look() -> None:
            others = {body for body in self._answered if self._subjects[body] != STUCK}
            if not (
                env.quiet.is_set() and self._finished >= set(self._producers) and others <= set(self._given)
            ):
                env.loop.call_later(LOOK_S, look)
                return
            broker.intake.gate.obey(Told())

        broker.intake.gate.obey(Told(read_only=frozenset((STUCK,))))
        look()

    def _look(self, delay: Delay) -> None:
        super()._look(delay)
        probes, stuck = self._world.probes, delay.courier.stuck
        probes["stood_aside"] = max(probes["stood_aside"], stuck)
        probes["beyond_the_wheel"] |= stuck > self._settings.wheel_messages


def make(seed: str) -> Aside:
    return Aside(seed)

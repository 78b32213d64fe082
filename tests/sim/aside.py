"""Messages for later of two subjects, one of which no broker takes: it is read-only until all of the other one came.

What is due for it waits at the delay group, more than its wheel may hold, and keeps its hours; the other subject's
messages go past, and their hours are closed, whatever is killed and cut off meanwhile, and whoever is master. Then it
is taken again, and all of it comes, once.
"""

from __future__ import annotations

from dataclasses import replace

from sim.calendars import Calendars
from sim.later import SUBJECTS
from sim.world import Env
from tidemill_broker.gate import Told
from tidemill_broker.machine import Broker
from tidemill_delay.machine import Delay

STUCK = SUBJECTS[1]
LOOK_S = 0.1
LEAST = 20
"""Messages in a wheel: sixteen times as many may stand aside, which is more than come here."""


class Aside(Calendars):
    """The scenario."""

    fails = 0.0
    probes = ("stood_aside", "beyond_the_wheel", "kept", "kept_led")

    def __init__(self, seed: str) -> None:
        super().__init__(seed)
        least = max(LEAST, self._settings.wheel_messages)
        self._settings = replace(self._settings, wheel_messages=least)

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
        probes["kept"] = max(probes["kept"], len(delay.state.kept))
        probes["kept_led"] |= delay.logs.epoch > 1 and len(delay.state.kept) > 0 and stuck > 0
        probes["beyond_the_wheel"] |= stuck > self._settings.wheel_messages


def make(seed: str) -> Aside:
    return Aside(seed)

"""The families of seeds: each is a module here whose ``make`` turns a seed into a scenario."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Family:
    """Of how many seeds it gets one: those that cost most get fewer."""

    name: str
    sentence: str
    """What it proves."""
    sweeps: int = 1
    """When all families are swept, in ``make sim`` and ``make soak``."""
    tests: int = 1
    """In the tests, which are to end in minutes."""

    @property
    def scenario(self) -> str:
        return f"sim.{self.name}:make"


FAMILIES = (
    Family("cluster", "lone brokers and their clients keep their promises"),
    Family("steered", "groups that are moved, locked and broadcast keep their promises"),
    Family("replicated", "broker groups keep their promises through failovers"),
    Family("watched", "a canary beside failovers says nothing false", tests=4),
    Family("halves", "transactions are there once or not at all through failovers"),
    Family("deduped", "messages with dedup keys are stored once within their window", tests=2),
    Family("granted", "what is told to wait or refused is told so and nothing else is lost"),
    Family("held", "nobody holds more than may be and everybody is given everything", tests=2),
    Family("archived", "what is kept until it is archived is there until then", tests=4),
    Family(
        "accounted",
        "actions of broker groups are archived once through failovers",
        sweeps=2,
        tests=4,
    ),
    Family("later", "messages for later come once and not before their time", tests=2),
    Family("aside", "messages for later go past those of a subject that nobody takes", sweeps=2, tests=4),
    Family("calendars", "messages for later come once from a group that changes its master", tests=2),
    Family(
        "crontabs", "messages that recur come once from a group that changes its master", sweeps=2, tests=4
    ),
    Family("couriers", "messages for later come once over two broker groups that come and go", tests=2),
    Family("hoarded", "messages for later that lay in a spool come once and not before their time", tests=2),
    Family("traded", "transactions over whole clusters are there once or not at all", sweeps=2, tests=4),
    Family("routed", "clients over two broker groups keep their promises", tests=2),
    Family("shelved", "what is spooled without a route is stored once", tests=2),
    Family("spooled", "what is acked into a spool never comes again", tests=2),
    Family("adopted", "what fails while its broker is away comes from the other one", tests=2),
    Family("repeated", "what is said twice is done once", tests=2),
    Family("whole", "whole clusters keep their promises under the real meta", tests=2),
    Family("restored", "a meta whose store goes back appoints nobody twice and loses nothing", tests=4),
    Family("rejoined", "a meta whose store goes back gives nothing to two at once", sweeps=2, tests=4),
    Family("rolled", "brokers that are told to stop leave nothing undone", tests=2),
    Family("vanished", "pods that are said to be gone lose nothing", tests=2),
    Family(
        "revoked", "of a guest whose token is revoked nothing is taken two seconds later", sweeps=4, tests=8
    ),
    Family("cleared", "subjects that are removed if they are empty lose nothing", tests=2),
    Family("shut", "what people closed is closed for the next master too", sweeps=2, tests=4),
    Family(
        "forgotten",
        "nothing goes with a broker group that is drained retired and forgotten",
        sweeps=2,
        tests=4,
    ),
    Family("worked", "workers and clients over HTTP keep their promises", tests=2),
    Family("inherited", "groups that are steered keep their promises through failovers", sweeps=2, tests=2),
    Family(
        "together",
        "order keys, exclusive groups and broadcast keep their promises through failovers",
        sweeps=4,
        tests=4,
    ),
)

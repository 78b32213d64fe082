"""What a client knows of who serves what. Pure: it is told answers, and says where to go.

Two kinds of servers answer ``GET /v1/routes``. A broker's own port lists brokers, and nothing else: every subject lies
at the first of them that takes messages, and is pulled from all. Meta adds the routes of the subjects that were named
(``routed``), and from then on only those count.

An answer may come from a replica of meta that lags behind: what says an older epoch of a broker group, or an older
version of a route, than is known, changes nothing. A watch stream is believed: it begins with all there is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

from tidemill.errors import BrokerUnreachable, WireError
from tidemill.routes import Address, Routes, parse_routes
from tidemill_wire.filters import is_pattern
from tidemill_wire.routes import STATES, Partition, PartitionSet, State, both, readable, writable

CACHE_VERSION = 1


@dataclass(frozen=True, slots=True)
class SubjectRoute:
    """On which broker groups a subject lies."""

    subject: str
    version: int
    state: State
    groups: tuple[str, ...]
    """Of its newest version, each once; ``current`` has the partitions."""
    former: tuple[str, ...]
    """Partitions of versions before, where something may still lie: a broker group, and a name that is another one
    than the subject's behind a slash.
    """
    current: PartitionSet = PartitionSet(0, ())
    """Which order keys lie where."""
    best_tried: bool = False
    """What fails with an order key may go to another partition."""


class Atlas:
    """See the module."""

    def __init__(self) -> None:
        self.routed = False
        """Meta has answered: subjects have routes of their own."""
        self.brokers: dict[str, Address] = {}
        """Of each broker group its master, in the order they were listed."""
        self.routes: dict[str, SubjectRoute] = {}
        self.delays: Routes = ()
        """Who takes messages for later."""
        self._remembered: set[str] = set()
        """Subjects whose routes are those of the process before."""
        self._was_told = False

    def remember(self, kept: Atlas) -> None:
        """What a process before knew, as nobody answers. Whatever is answered later is newer: at the same address there
        may be another cluster by now, whose epochs and versions begin anew.
        """
        self.routed, self.brokers, self.routes = kept.routed, dict(kept.brokers), dict(kept.routes)
        self.delays = kept.delays
        self._remembered, self._was_told = set(kept.routes), False

    # -- telling -----------------------------------------------------------------------------------------------

    def list_brokers(self, listed: Routes) -> bool:
        """These are all there are: whether that changes anything."""
        found: dict[str, Address] = {}
        before = self.brokers if self._was_told else {}
        self._was_told = True
        for one in listed:
            known = before.get(one.group)
            found.setdefault(one.group, known if known is not None and known.epoch > one.epoch else one)
        changed = list(found.items()) != list(self.brokers.items())
        self.brokers = found
        return changed

    def tell(self, answer: Any, host: str, *, believed: bool = False, whole: bool = True) -> bool:
        """An answer or a line of meta, or the list of a broker: whether that changes anything.

        ``whole``: its brokers are all there are. ``believed``: it is newer than what is known, whatever it says.
        """
        said = mapped(answer)
        changed = False
        if "routes" in said and not self.routed:
            self.routed = changed = True
        if whole:
            changed |= self.list_brokers(parse_routes(said, host))
        else:
            changed |= self._tell_some([mapped(row) for row in listed(said, "brokers")], host)
        if "delays" in said:
            changed |= self._list_delays(parse_routes({"brokers": said["delays"]}, host))
        for row in listed(said, "routes"):
            changed |= self._tell_route(parse_route(row), believed=believed)
        for subject in listed(said, "gone"):
            changed |= self.routes.pop(str(subject), None) is not None
        return changed

    @property
    def open_delays(self) -> Routes:
        """Who takes messages for later now: of each delay group its master."""
        return tuple(one for one in self.delays if writable(cast("State", one.state)))

    def _list_delays(self, listed: Routes) -> bool:
        """These are all: whether that changes anything. One of an older epoch than is known tells nothing."""
        known = {one.group: one for one in self.delays}
        found = tuple(
            before if (before := known.get(one.group)) is not None and before.epoch > one.epoch else one
            for one in listed
        )
        changed, self.delays = found != self.delays, found
        return changed

    def _tell_some(self, rows: Sequence[Mapping[str, Any]], host: str) -> bool:
        changed = False
        for row in rows:
            if "port" not in row:  # nobody leads it any more, and nothing of it is known
                changed |= self.brokers.pop(str(row.get("group")), None) is not None
                continue
            for one in parse_routes({"brokers": [row]}, host):
                known = self.brokers.get(one.group)
                if one != known and (known is None or known.epoch <= one.epoch or not self._was_told):
                    self.brokers[one.group] = one
                    changed = True
        return changed

    def _tell_route(self, route: SubjectRoute, *, believed: bool) -> bool:
        known = self.routes.get(route.subject)
        believed = believed or route.subject in self._remembered
        self._remembered.discard(route.subject)
        if route == known or (known is not None and known.version > route.version and not believed):
            return False
        self.routes[route.subject] = route
        return True

    # -- asking ------------------------------------------------------------------------------------------------

    def takers(self, subject: str) -> tuple[Partition, ...] | None:
        """The partitions to send a subject's messages to. None now: an empty one; ``None``: nobody knows yet."""
        route = self.routes.get(subject)
        if route is None:
            return None
        open_now = {group for group in route.groups if writable(self._state(route, group))}
        return tuple(one for one in route.current.partitions if one.group in open_now)

    def sources(self, subscribed: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """The broker groups to pull from, and what from each. A pattern is pulled from all of them.

        A group that nobody leads just now is one of them, for it will be led again.
        """
        if not self.routed:
            groups = (group for group, one in self.brokers.items() if one.state in {"RW", "R"})
            return dict.fromkeys(groups, tuple(subscribed))
        found: dict[str, list[str]] = {}
        for name in subscribed:
            for group, stored_as in self._holders(name):
                found.setdefault(group, []).append(stored_as)
        return {group: tuple(names) for group, names in found.items()}

    def _holders(self, name: str) -> Iterable[tuple[str, str]]:
        """Broker groups and partitions. A pattern is one name for all that match it, partitions, too."""
        if is_pattern(name):
            return [(group, name) for group, one in self.brokers.items() if one.state != "W"]
        route = self.routes.get(name)
        if route is None or not readable(route.state):
            return ()
        former = (key.partition("/") for key in route.former)
        current = [(one.group, one.name) for one in route.current.partitions]
        places = dict.fromkeys((*current, *((group, own or name) for group, _, own in former)))
        return [
            (group, own)
            for group, own in places
            if group not in self.brokers or self.brokers[group].state != "W"
        ]

    def _state(self, route: SubjectRoute, group: str) -> State:
        broker = self.brokers.get(group)
        return both(route.state, cast("State", broker.state)) if broker is not None else "NRW"

    # -- on the disk -------------------------------------------------------------------------------------------

    def to_map(self) -> dict[str, Any]:
        """As it is kept for the next process."""
        return {
            "version": CACHE_VERSION,
            "routed": self.routed,
            "brokers": [asdict(one) for one in self.brokers.values()],
            "routes": [asdict(one) for one in self.routes.values()],
            "delays": [asdict(one) for one in self.delays],
        }

    @classmethod
    def from_map(cls, kept: Any) -> Atlas:
        """What ``to_map`` made; ``ValueError`` when it is something else."""
        atlas = cls()
        match kept:
            case {
                "version": int(version),
                "routed": bool(routed),
                "brokers": [*brokers],
                "routes": [*routes],
            } if version == CACHE_VERSION:
                atlas.routed = routed
                atlas.list_brokers(_known_brokers({"brokers": brokers}))
                atlas.delays = _known_brokers({"brokers": mapped(kept).get("delays", [])})
                for row in routes:
                    route = _kept_route(row)
                    atlas.routes[route.subject] = route
                return atlas
            case _:
                raise ValueError("it holds no routes of this version")


def mapped(answer: Any) -> Mapping[str, Any]:
    """An answer that should be a map; what is none says nothing."""
    return cast("Mapping[str, Any]", answer if isinstance(answer, dict) else {})


def listed(answer: Mapping[str, Any], name: str) -> list[Any]:
    """A list in an answer; what is none is empty."""
    found: object = answer.get(name)
    return cast("list[object]", found) if isinstance(found, list) else []


def whole(answer: Mapping[str, Any], name: str, absent: int) -> int:
    """A number in an answer."""
    found: object = answer.get(name)
    return found if isinstance(found, int) else absent


def _known_brokers(answer: Any) -> Routes:
    try:
        return parse_routes(answer, "")
    except BrokerUnreachable as error:
        raise ValueError(str(error)) from None


def _kept_route(row: object) -> SubjectRoute:
    match row:
        case {"subject": str(subject), "version": int(version), "state": str(state)} if state in STATES:
            said = mapped(row)
            groups, former = listed(said, "groups"), listed(said, "former")
            try:
                current = PartitionSet.from_map(mapped(mapped(row).get("current")))
            except WireError as error:
                raise ValueError(str(error)) from None
            return SubjectRoute(
                subject, version, state, tuple(map(str, groups)), tuple(map(str, former)), current,
                best_tried=said.get("best_tried") is True,
            )  # fmt: skip
        case _:
            raise ValueError(f"{str(row)[:60]!r} is no route")


def parse_route(row: Any) -> SubjectRoute:
    """A subject's route as meta says it."""
    match row:
        case {
            "subject": str(subject), "version": int(version), "state": str(state), "partitions": [*_],
            "former": [*former],
        } if state in STATES:  # fmt: skip
            try:
                current = PartitionSet.from_map(cast("Mapping[str, Any]", row))
                before = [
                    PartitionSet.from_map(cast("Mapping[str, Any]", one))
                    for one in former
                    if isinstance(one, dict)
                ]
            except WireError as error:
                raise BrokerUnreachable(f"the answer to GET /v1/routes holds no route: {error}") from None
            now = {one.key for one in current.partitions}
            left = dict.fromkeys(one for sets in before for one in sets.partitions if one.key not in now)
            return SubjectRoute(
                subject, version, state, tuple(dict.fromkeys(one.group for one in current.partitions)),
                tuple(dict.fromkeys(_left(one, subject) for one in left)), current,
                best_tried=mapped(row).get("order_strategy") == "BestTried",
            )  # fmt: skip
        case _:
            raise BrokerUnreachable(
                f"the answer to GET /v1/routes holds a route that is none: {str(row)[:200]}"
            )


def _left(partition: Partition, subject: str) -> str:
    """A former partition, as routes that are kept on the disk have always named it."""
    return partition.group if partition.name == subject else partition.key

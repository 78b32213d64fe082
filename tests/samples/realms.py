"""Meta as a client sees it, in memory: who serves what, and a stream of what changes.

It answers as ``tidemill_meta`` does, as far as the client asks. It does not model replicas that lag, and its
allocations are what ``allotted`` says.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tidemill.errors import BrokerUnreachable, Refused


@dataclass
class Realm:
    """One meta. ``away``: nobody answers. ``creates``: subjects are made when they are named first."""

    creates: tuple[str, ...] = ()
    """On which broker groups; none: they are not made."""
    away: bool = False
    flat: bool = False
    """It is a broker that lists itself, and nothing else as yet."""
    watched: bool = True
    """Whether there are watch streams."""
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    delays: dict[str, dict[str, Any]] = field(default_factory=dict)
    routes: dict[str, dict[str, Any]] = field(default_factory=dict)
    revision: int = 1
    asked: list[str] = field(default_factory=list)
    beats: list[dict[str, Any]] = field(default_factory=list)
    hindrance: str = ""
    beat_ms: int = 50
    allotted: dict[str, tuple[int, list[str]]] = field(default_factory=dict)
    """Of subjects that are consumed in order: a version, and the partitions of whoever asks."""
    authorised_ms: int = 60_000
    _changes: list[asyncio.Event] = field(default_factory=list)

    # -- what people and brokers do ----------------------------------------------------------------------------

    def serve(
        self, group: str, port: int, state: str = "RW", epoch: int = 1, host: str = "127.0.0.1"
    ) -> None:
        """A broker leads a group."""
        self.rows[group] = {
            "group": group, "name": f"{group}-0", "host": host, "port": port, "state": state, "epoch": epoch,
            "control": f"{host}:1",
        }  # fmt: skip
        self.changed()

    def serve_later(
        self, group: str, port: int, state: str = "RW", epoch: int = 1, host: str = "127.0.0.1"
    ) -> None:
        """A delay service leads a delay group."""
        self.delays[group] = {
            "group": group, "name": f"{group}-0", "host": host, "port": port, "state": state, "epoch": epoch,
        }  # fmt: skip
        self.changed()

    def route(
        self,
        subject: str,
        *groups: str,
        state: str = "RW",
        former: Sequence[Sequence[str]] = (),
        strategy: str = "Strict",
    ) -> None:
        """A subject lies on broker groups; ``g1/a#1`` is a further partition of ``a``, on ``g1``."""
        self.routes[subject] = {**row_of(subject, [*former, groups], state), "order_strategy": strategy}
        self.changed()

    def changed(self) -> None:
        """Tell the streams."""
        self.revision += 1
        for event in self._changes:
            event.set()

    # -- what clients ask --------------------------------------------------------------------------------------

    def open_port(self, host: str, port: int) -> Realm:
        """For ``ClientSettings.open_port``."""
        del host, port
        return self

    async def get(self, path: str, timeout_s: float = 5.0) -> Any:
        del timeout_s
        self._ask(path)
        named = parse_qs(urlsplit(path).query).get("subject", [])
        for subject in named:
            if subject not in self.routes:
                raise Refused("unknown_subject", f"there is no subject {subject!r}")
        if self.flat:
            return self._brokers()
        return {**self._brokers(), "routes": [self.routes[subject] for subject in named]}

    async def post(self, path: str, body: Any, timeout_s: float = 5.0) -> Any:
        del timeout_s
        self._ask(path)
        if path == "/v1/clients/leave":
            return {"left": body["client"]}
        assert path == "/v1/clients/heartbeat"
        self.beats.append(body)
        named = [*body["produces"], *(one["subject"] for one in body["consumes"])]
        refused: list[dict[str, str]] = []
        for subject in named:
            if subject in self.routes:
                continue
            if self.creates and not self.hindrance:
                self.route(subject, *self.creates)
            else:
                code = self.hindrance or "unknown_subject"
                refused.append({"subject": subject, "code": code, "detail": "no"})
        return {
            "revision": self.revision, "beat_ms": self.beat_ms, "refused": refused,
            "consumes": [self._allotment_of(one) for one in body["consumes"] if one["subject"] in self.allotted],
            "routes": [self.routes[subject] for subject in named if subject in self.routes],
        }  # fmt: skip

    async def lines(self, path: str, body: Any, silence_s: float) -> AsyncGenerator[Any]:
        del silence_s
        self._ask(path)
        if not self.watched:
            raise BrokerUnreachable("no streams here")
        event = asyncio.Event()
        self._changes.append(event)
        prefixes = tuple(pattern[:-1] for pattern in body["patterns"])
        known: set[str] = set()
        try:
            while not self.away:
                event.clear()
                found = {
                    name: row
                    for name, row in self.routes.items()
                    if name in body["subjects"] or (prefixes and name.startswith(prefixes))
                }
                gone = sorted(known - found.keys())
                known = set(found)
                keys = [(f"{one['subject']}/{one['group']}", one["subject"]) for one in body["groups"]]
                shared = [
                    {"key": key, "version": self.allotted[name][0]}
                    for key, name in keys
                    if name in self.allotted
                ]
                yield {
                    **self._brokers(), "routes": list(found.values()), "gone": gone, "allocations": shared,
                }  # fmt: skip
                await event.wait()
            raise BrokerUnreachable("meta is away")
        finally:
            self._changes.remove(event)

    def _allotment_of(self, consumes: dict[str, Any]) -> dict[str, Any]:
        version, partitions = self.allotted[consumes["subject"]]
        said = {name: consumes[name] for name in ("subject", "group", "consumer")}
        return {**said, "allocation": version, "partitions": partitions, "authorised_ms": self.authorised_ms}

    def _brokers(self) -> dict[str, Any]:
        delays = {"delays": list(self.delays.values())} if self.delays else {}
        return {"revision": self.revision, "brokers": list(self.rows.values()), **delays}

    def _ask(self, path: str) -> None:
        self.asked.append(path)
        if self.away:
            raise BrokerUnreachable("meta is away")


def row_of(subject: str, versions: Sequence[Sequence[str]], state: str = "RW") -> dict[str, Any]:
    """A route as meta says it, of the broker groups of each of its versions."""
    sets = [
        {
            "version": number,
            "partitions": [
                {
                    "group": group.partition("/")[0],
                    "name": group.partition("/")[2] or subject,
                    "ranges": [[at * 1024 // len(groups), (at + 1) * 1024 // len(groups)]],
                }
                for at, group in enumerate(groups)
            ],
        }
        for number, groups in enumerate(versions, 1)
    ]
    return {"subject": subject, "state": state, **sets[-1], "former": sets[:-1]}

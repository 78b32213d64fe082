"""Puts the faults of a plan into a world, and takes them out again.

The state of a node under overlapping faults is always derived from the set of active ones, so that the end of one does
not end another. ``fired`` counts a fault when it really struck: killing the dead is no fault.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from sim.disk import CAPACITY
from sim.faults import Fault, Kind

if TYPE_CHECKING:
    from sim.world import Node, World

FAILING_OPERATION = {Kind.SYNC_ERROR: "sync", Kind.WRITE_ERROR: "append", Kind.READ_ERROR: "read"}


class Injector:
    """One run's faults."""

    def __init__(self, world: World) -> None:
        self.fired: Counter[str] = Counter()
        self._world = world
        self._active: dict[int, Fault] = {}

    def begin(self, number: int, fault: Fault) -> None:
        """Inject one fault of the plan."""
        node = self._world.nodes[fault.node]
        fires = True
        match fault.kind:
            case Kind.POWER_CUT:
                fires = self._world.power_cut(fault.node, fault.lasts_s)
            case Kind.KILL | Kind.CLIENT_KILL:
                fires = self._world.kill(fault.node, fault.lasts_s)
            case Kind.POWER_CUT_ALL:
                servers = [name for name, other in self._world.nodes.items() if not other.is_client]
                fires = sum(self._world.power_cut(name, fault.lasts_s) for name in servers) > 0
            case Kind.POWER_CUT_AT_OPERATION | Kind.KILL_AT_OPERATION:
                self._arm_crash(node, fault)
                return
            case Kind.SYNC_ERROR | Kind.WRITE_ERROR | Kind.READ_ERROR:
                node.disk.fail_at[FAILING_OPERATION[fault.kind]] = node.disk.operations + int(fault.value)
                return
            case Kind.RESET:
                fires = sum(self._world.network.reset_between(*pair) for pair in self._pairs(fault)) > 0
            case Kind.RESET_AT_SEGMENT:
                host = self._world.network.hosts[fault.node]
                host.reset_at_segment = host.segments + int(fault.value)
                return
            case Kind.CLOG:
                for source, target in self._pairs(fault):
                    self._world.network.clog(source, target, self._world.now_s + fault.lasts_s)
            case Kind.BIT_ROT:
                fires = node.disk.rot()
            case Kind.BAD_PLACE:
                fires = node.disk.go_bad(int(fault.value))
            case Kind.PARTITION:
                self._world.network.block(self._pairs(fault))
                self._lasting(number, fault)
            case Kind.PAUSE | Kind.SLOW_CPU | Kind.SLOW_DISK | Kind.DISK_FULL | Kind.CLOCK_STEP:
                fires = node.life is not None and node.life.alive
                self._lasting(number, fault)
        if fires:
            self.fired[fault.kind.name] += 1

    def end(self, number: int) -> None:
        """The fault is over, by its own time or by the heal."""
        fault = self._active.pop(number, None)
        if fault is None:
            return
        if fault.kind is Kind.PARTITION:
            self._world.network.unblock(self._pairs(fault))
        self.derive(self._world.nodes[fault.node])

    def heal(self) -> None:
        """Every fault is over, and none waits for its moment any more."""
        for number in list(self._active):
            self.end(number)
        self._world.network.unclog()
        for node in self._world.nodes.values():
            node.disk.crash_at = -1
            node.disk.mend_rot()
            node.disk.fail_at.clear()
            self._world.network.hosts[node.name].reset_at_segment = -1

    def _lasting(self, number: int, fault: Fault) -> None:
        self._active[number] = fault
        self.derive(self._world.nodes[fault.node], began=fault.kind)
        self._world.loop.at(self._world.now_s + fault.lasts_s, self.end, number)

    def derive(self, node: Node, began: Kind | None = None) -> None:
        """The node's state from the faults that are active on it now."""
        mine = [fault for fault in self._active.values() if fault.node == node.name]

        def values(kind: Kind) -> list[float]:
            return [fault.value for fault in mine if fault.kind is kind]

        node.disk.slowness = max(values(Kind.SLOW_DISK), default=1.0)
        room = min(values(Kind.DISK_FULL), default=None)
        if room is None:
            node.disk.capacity = CAPACITY
        elif began is Kind.DISK_FULL:
            node.disk.capacity = node.disk.used() + int(room)
        node.wall_offset_ms = sum(values(Kind.CLOCK_STEP))
        if node.life is not None and node.life.alive:
            node.life.slowness = max(values(Kind.SLOW_CPU), default=1.0)
            if began is Kind.PAUSE:
                self._world.loop.pause(node.life)
            elif not values(Kind.PAUSE):
                self._world.loop.resume(node.life)

    def _arm_crash(self, node: Node, fault: Fault) -> None:
        def strike() -> None:
            stop = self._world.power_cut if fault.kind is Kind.POWER_CUT_AT_OPERATION else self._world.kill
            if stop(node.name, fault.lasts_s):
                self.fired[fault.kind.name] += 1

        node.disk.on_crash = strike
        node.disk.crash_at = node.disk.operations + int(fault.value)

    def _pairs(self, fault: Fault) -> list[tuple[str, str]]:
        others = (
            [name for name in self._world.nodes if name != fault.node]
            if fault.other == "*"
            else [fault.other]
        )
        pairs = [(fault.node, other) for other in others if other]
        return pairs if fault.one_way else pairs + [(target, source) for source, target in pairs]

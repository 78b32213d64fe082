"""What brokers ask for: to be registered, appointed, found in sync, relieved. Each function decides on a draft."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from tidemill_meta.asked import Asked, parse_name
from tidemill_meta.beats import BrokerBeat, broker_life
from tidemill_meta.errors import Denied
from tidemill_meta.promotion import Member, is_sound, led_after_loss, problem_of, promoted
from tidemill_meta.registry import Draft, View
from tidemill_meta.senses import Senses
from tidemill_meta.storing import KNOWN_MAX
from tidemill_meta.values import SERVICES, Broker, BrokerGroup, Lives, Route, Service, broker_key
from tidemill_wire.routes import State

REGISTER_FIELDS = frozenset(
    {"group", "name", "addresses", "labels", "boot", "folder", "epoch", "service", "known"}
)
IN_SYNC_FIELDS = frozenset({"master", "epoch", "version", "in_sync"})
HANDOVER_FIELDS = frozenset({"to", "epoch", "version"})
REPLICAS_MAX = 8
NOT_SAID = -1
"""The position of a broker that registered and sent no heartbeat yet."""


@dataclass(frozen=True, slots=True)
class Registration:
    """A broker that begins to live. ``epoch`` is the last one that it knows, 0 for an empty data folder."""

    broker: Broker
    epoch: int
    service: Service = "broker"
    known: int = 0
    """The latest revision of meta that it was answered."""


def parse_registration(body: object) -> Registration:
    """From a request."""
    asked = Asked(body, REGISTER_FIELDS)
    addresses = asked.part("addresses", frozenset({"data", "control"}))
    broker = Broker(
        asked.name("group"),
        asked.name("name"),
        addresses.address("data"),
        addresses.address("control"),
        asked.labels("labels"),
        asked.whole("boot"),
        asked.text("folder", ""),
    )
    service = cast("Service", asked.one_of("service", SERVICES, "broker"))
    return Registration(broker, asked.whole("epoch", 0), service, asked.whole("known", 0, KNOWN_MAX))


def register(draft: Draft, senses: Senses, asked: Registration, now_ms: int) -> BrokerGroup:
    """Note a broker, and its group when it is new; the group as it is then."""
    broker = asked.broker
    there = draft.get(BrokerGroup, broker.group)
    if there is not None and there.service != asked.service:
        detail = f"{broker.group} is a {there.service} group, and {broker.name} a {asked.service}"
        raise Denied("in_use", f"{detail}: give it a name with another group before the dash")
    known = draft.get(Broker, broker.key)
    lost = known is not None and _is_another_folder(known, broker)
    if known is not None:
        _refuse_earlier(known, broker)
        _refuse_namesake(known, broker, senses, now_ms, lost=lost)
    if known is None or replace(known, version=0) != broker:
        draft.put(broker)
    group = draft.get(BrokerGroup, broker.group)
    life = broker.name, broker.boot
    if group is None:
        # Who knows an epoch comes from a cluster that this store has lost: its master's heartbeats will tell more. So
        # may others who are there, where the store may be an older copy.
        new = BrokerGroup(broker.group, 0, "", (life,), (), service=asked.service, unsure=True)
        stored = draft.stored
        if not asked.epoch and (senses.has_listened(now_ms) or not (stored.gaps or stored.began)):
            new = replace(new, epoch=1, master=broker.name, in_sync=(life,), unsure=False)
        return draft.put(new)
    replicas = _with(group.replicas, life)
    in_sync = tuple(one for one in group.in_sync if one[0] != broker.name) if lost else group.in_sync
    if len(replicas) > REPLICAS_MAX:
        raise Denied("in_use", f"the broker group {group.name} has {REPLICAS_MAX} brokers already")
    if (replicas, in_sync) == (group.replicas, group.in_sync):
        return group
    return draft.put(replace(group, replicas=replicas, in_sync=in_sync))


def _is_another_folder(known: Broker, broker: Broker) -> bool:
    """Whether what the broker had of that name is not there. Who does not name a folder is told by its boots."""
    if known.folder and broker.folder:
        return broker.folder != known.folder
    return broker.boot < known.boot


def _refuse_earlier(known: Broker, broker: Broker) -> None:
    """What an earlier life of a folder asked comes late, when a store was slow or a replica of meta stood still."""
    if broker.folder and broker.folder == known.folder and broker.boot < known.boot:
        raise Denied("replaced", f"a later life of the broker {known.key} has registered")


def _refuse_namesake(known: Broker, broker: Broker, senses: Senses, now_ms: int, *, lost: bool) -> None:
    """Two processes with one name: the later life of a data folder goes on, any other has to wait or go."""
    same_place = (known.data, known.control) == (broker.data, broker.control)
    if broker.boot > known.boot and not lost:
        return
    if broker.boot == known.boot and not lost and same_place:
        return
    former = broker_life(known.group, known.name, known.boot)
    # Another replica may have heard it a moment ago: who has just learned that it is there knows nothing of it.
    sure = senses.fresh(now_ms) and senses.known_to_all(known, now_ms)
    if not sure or not senses.brokers.gone(former, senses.settings.liveness_ms, now_ms):
        detail = f"a broker {known.key} at {known.data} with another data folder was there a moment ago"
        raise Denied("name_taken", detail)


def _with(lives: Lives, life: tuple[str, int]) -> Lives:
    if life[0] not in dict(lives):
        return (*lives, life)
    return tuple(life if name == life[0] else (name, boot) for name, boot in lives)


def check_life(view: View, beat: BrokerBeat) -> BrokerGroup:
    """The group of a broker that sent a heartbeat, if it is the one that registered."""
    broker = view.get(Broker, broker_key(beat.group, beat.name))
    group = view.get(BrokerGroup, beat.group)
    if broker is None or group is None or broker.boot < beat.boot:
        raise Denied("not_registered", f"the broker {beat.group}/{beat.name} is not registered in this life")
    if broker.boot > beat.boot:
        raise Denied("replaced", f"a later life of the broker {beat.group}/{beat.name} has registered")
    return group


def change_in_sync(draft: Draft, senses: Senses, name: str, asked: Asked, now_ms: int) -> BrokerGroup:
    """What a master asks for: slaves that caught up join, as far as meta knows that they live; others leave."""
    group = find_group(draft, name)
    master, epoch = asked.name("master"), asked.whole("epoch")
    wanted = asked.names("in_sync")
    _compare(group, asked)
    if master != group.master or epoch != group.epoch or not group.seated:
        raise conflict(group, f"{master} is not the master of {name} in epoch {epoch}")
    if master not in wanted:
        raise conflict(group, f"the master {master} cannot take itself out of the set")
    members = senses.members(group, now_ms)
    for one in wanted:
        if one not in members:
            raise Denied("not_in_sync", f"{one} is no replica of {name}")
    found = dict(group.in_sync)
    # One that meta does not hear holds up nobody else: not who is to join, and not who is to leave.
    in_sync = tuple(
        (one, found.get(one, members[one].boot)) for one in wanted if one in found or _can_join(members[one])
    )
    # Also when nothing changes: a master waits for whom it has ever asked, until a later version says who is in.
    return draft.put(replace(group, in_sync=in_sync))


def _can_join(slave: Member) -> bool:
    return slave.alive and slave.reported and not slave.behind


def hand_over(draft: Draft, senses: Senses, name: str, asked: Asked, now_ms: int) -> BrokerGroup:
    """A planned change of the master, to a replica in sync. A master that asks says its epoch, and has stopped before
    it asks; when a person asks, it is as safe as a failover, and as long.
    """
    group = find_group(draft, name)
    to = asked.name("to")
    if asked.has("epoch") and asked.whole("epoch") != group.epoch:
        raise conflict(group, f"{name} is in epoch {group.epoch}")
    if asked.has("version"):
        _compare(group, asked)
    if to == group.master and group.seated:
        return group
    members = senses.members(group, now_ms)
    if group.unsure:
        raise Denied("not_in_sync", problem_of(group, members))
    if to not in dict(group.in_sync) or not members[to].alive or not members[to].reported:
        raise Denied("not_in_sync", f"{to} is not an in-sync replica of {name} that lives")
    if not is_sound(group, members[to]):
        raise Denied("not_in_sync", f"{to} was started again, or not heard since {group.master} was")
    if members[to].fenced:
        raise conflict(
            group, f"a former life of {to} may still hold a lease: wait {senses.settings.lease_ms} ms"
        )
    return draft.put(promoted(group, to, members))


def elect(draft: Draft, senses: Senses, name: str, asked: Asked, now_ms: int) -> BrokerGroup:
    """A person makes a replica master that may lack messages, because nobody better will come back."""
    group = find_group(draft, name)
    to = asked.name("to")
    members = senses.members(group, now_ms)
    problem = problem_of(group, members)
    if not problem:
        raise conflict(group, f"{name} has a master, {group.master}: hand over to {to} instead")
    if to not in members or not members[to].alive:
        raise Denied("not_in_sync", f"{to} is no replica of {name} that lives")
    if group.unsure or max(member.epoch for member in members.values()) > group.epoch:
        return draft.put(led_after_loss(group, members[to], members))
    return draft.put(replace(group, epoch=group.epoch + 1, master=to, in_sync=((to, members[to].boot),)))


def set_group_state(draft: Draft, name: str, asked: Asked) -> BrokerGroup:
    """What a broker group takes, and whether it takes new routes."""
    group = find_group(draft, name)
    state: State = asked.state("state") if asked.has("state") else group.state
    draining = group.draining if not asked.has("draining") else bool(asked.whole("draining", high=1))
    changed = replace(group, state=state, draining=draining, retired=group.retired and draining)
    return group if changed == group else draft.put(changed)


def remove_broker(
    draft: Draft, senses: Senses, group_name: str, name: str, now_ms: int, *, force: bool = False
) -> None:
    """Forget a broker that will not come back; the last one takes its group along. ``force``: also the only one that
    is in sync, while others of the group are there: what is committed may lie on its disk alone.
    """
    group = find_group(draft, group_name)
    parse_name(name, "broker")
    lives = dict(group.replicas)
    if name not in lives:
        raise Denied("unknown_group", f"there is no broker {group_name}/{name}")
    if not senses.brokers.gone(
        broker_life(group_name, name, lives[name]), senses.settings.liveness_ms, now_ms
    ):
        raise Denied("in_use", f"the broker {group_name}/{name} is alive: stop it first")
    replicas = tuple(one for one in group.replicas if one[0] != name)
    in_sync = tuple(one for one in group.in_sync if one[0] != name)
    if not replicas and any(
        partition.group == group_name for route in draft.all(Route) for partition in route.current.partitions
    ):
        raise Denied(
            "in_use", f"subjects lie on the broker group {group_name}, and {name} is its last broker"
        )
    if replicas and group.unsure and not force:
        raise Denied(
            "in_use", f"{problem_of(group, senses.members(group, now_ms))}; or give {name} up with force=1"
        )
    if replicas and not in_sync and group.in_sync and not (force or group.retired):
        detail = f"{group_name}/{name} alone is in sync, and may alone have what is committed"
        raise Denied("in_use", f"{detail}: start it again, with its disk, or give that up with force=1")
    draft.drop(Broker, broker_key(group_name, name))
    if replicas:
        draft.put(replace(group, replicas=replicas, in_sync=in_sync))
    else:
        draft.drop(BrokerGroup, group_name)


def find_group(view: View, name: str) -> BrokerGroup:
    group = view.get(BrokerGroup, name)
    if group is None:
        raise Denied("unknown_group", f"there is no broker group {name[:100]!r}")
    return group


def _compare(group: BrokerGroup, asked: Asked) -> None:
    if asked.whole("version") != group.version:
        raise conflict(group, f"{group.name} is at version {group.version}")


def conflict(group: BrokerGroup, detail: str) -> Denied:
    return Denied("conflict", detail, {"appointment": appointment_map(group, 0)})


def appointment_map(group: BrokerGroup, lease_ms: int) -> Mapping[str, Any]:
    """What a broker is answered."""
    said = group.appointment()
    return {
        "group": said.group, "epoch": said.epoch, "master": said.master, "replicas": list(said.replicas),
        "in_sync": list(said.in_sync), "version": said.version, "lease_ms": lease_ms,
    }  # fmt: skip

"""Which processes a cluster on one machine has, and what each is told. Values only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidemill_wire.addresses import address_of

META = "meta"
META_FOLDER = "meta-0"
"""Not `meta`, which is the folder of a queue in one process: one is not to be taken for the other."""
EVERYWHERE = ("0.0.0.0", "::", "")
GROUPS_MAX, SLAVES_MAX = 32, 4
DELAYS_MAX = 8
DELAY = "delay"


class PlanError(Exception):
    """A cluster that cannot be; one sentence."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a person asked for."""

    data: str
    host: str
    http_port: int
    brokers: int
    slaves: int
    delays: int = 1
    manifests: Sequence[str] = ()
    canary: str = ""
    """Where the page of its canary is; empty: it has none."""
    advertised: str = ""
    """By which name clients and others reach this machine; brokers know it from their environment."""


@dataclass(frozen=True, slots=True)
class Child:
    """A process: the package that it runs, what it is given, and what is said of it in its environment."""

    name: str
    package: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    descriptors: tuple[int, ...] = ()
    """Open files that it is given."""


def meta_of(wanted: Wanted, port: int) -> Child:
    """Meta: the one port that is known outside."""
    arguments = ("--data", f"{wanted.data}/{META_FOLDER}", "--host", wanted.host, "--port", str(port))
    told = {"TIDEMILL_META_CANARY": wanted.canary} if wanted.canary else {}
    return Child(META, "tidemill_meta", arguments, told)


def names_of(wanted: Wanted) -> list[str]:
    """The brokers: all that may begin as masters first."""
    return [f"g{group}-{one}" for one in range(wanted.slaves + 1) for group in range(wanted.brokers)]


def delays_of(wanted: Wanted) -> list[str]:
    """The delay services: all that may begin as masters first. Each group has as many slaves as a broker group."""
    return [delay_name(group, one) for one in range(wanted.slaves + 1) for group in range(wanted.delays)]


def delay_name(group: int, one: int) -> str:
    """The first group has the name that the service beside a lone broker has."""
    return f"{DELAY}{group or ''}-{one}"


def delay_of(wanted: Wanted, name: str, ports: tuple[int, int], meta_port: int) -> Child:
    """A delay service, at these ports; 0: any free one."""
    host = "127.0.0.1" if wanted.host in EVERYWHERE else wanted.host
    arguments = (
        "--data", f"{wanted.data}/{name}", "--host", wanted.host, "--port", str(ports[0]),
        "--http-port", str(ports[1]),
    )  # fmt: skip
    told = {
        "TIDEMILL_DELAY_NAME": name,
        "TIDEMILL_DELAY_REPLICATED": "true",
        "TIDEMILL_DELAY_META": address_of(host, meta_port),
        "TIDEMILL_DELAY_SAY_GOODBYE": "false",  # as with brokers
    }
    told |= {"TIDEMILL_DELAY_ADVERTISE": wanted.advertised} if wanted.advertised else {}
    return Child(name, "tidemill_delay", arguments, told)


def broker_of(wanted: Wanted, name: str, ports: tuple[int, int], meta_port: int) -> Child:
    """A broker, at these ports; 0: any free one."""
    host = "127.0.0.1" if wanted.host in EVERYWHERE else wanted.host
    files = [part for path in wanted.manifests for part in ("-f", path)]
    arguments = (
        "up", "--data", f"{wanted.data}/{name}", "--host", wanted.host, "--port", str(ports[0]),
        "--http-port", str(ports[1]), *files,
    )  # fmt: skip
    told = {
        "TIDEMILL_NAME": name,
        "TIDEMILL_REPLICATED": "true",
        "TIDEMILL_META": address_of(host, meta_port),
        "TIDEMILL_SAY_GOODBYE": "false",  # they end together: nobody stays who could take over
    }
    return Child(name, "tidemill_broker", arguments, told)


def check(wanted: Wanted, folders: Sequence[str], advertised: str) -> None:
    """Refuse what cannot be. ``folders`` are those in the data folder."""
    if not 1 <= wanted.brokers <= GROUPS_MAX or not 0 <= wanted.slaves <= SLAVES_MAX:
        raise PlanError(f"write --brokers 1 to {GROUPS_MAX}, and --slaves 0 to {SLAVES_MAX} of each")
    if not 0 <= wanted.delays <= DELAYS_MAX:
        raise PlanError(f"write --delays 0 to {DELAYS_MAX}")
    if "message" in folders:
        raise PlanError(
            f"{wanted.data} holds a queue of one process: give the cluster another folder with --data"
        )
    if wanted.host in EVERYWHERE and not advertised:
        raise PlanError(
            "with --host 0.0.0.0 say in TIDEMILL_ADVERTISE by which name clients reach this machine"
        )


def is_cluster(folders: Sequence[str]) -> bool:
    """Whether a data folder is that of a cluster."""
    return META_FOLDER in folders

"""What an operator may set. Read once in ``__main__``, printed at start, passed down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidemill_wire.addresses import split_address
from tidemill_wire.settings import SettingsError, read_fields

PREFIX = "TIDEMILL_META_"
WHOLE_MAX = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class MetaSettings:
    """One replica of meta. Replicas on one database want the same values but for the name."""

    name: str = ""
    """The replica's name among the others on its database; a random one when empty."""

    liveness_ms: int = 5_000
    """A broker that sent no heartbeat for so long is dead."""

    behind_ms: int = 5_000
    """A slave that lacks for so long what its master has is taken out of the in-sync set."""

    lease_ms: int = 5_000
    """How long the only replica in sync may go on without hearing from meta."""

    authorisation_ms: int = 10_000
    """How long a consumer in order may go on without hearing from meta."""

    broker_beat_ms: int = 1_000
    """How often a broker is told to send a heartbeat."""

    client_beat_ms: int = 10_000
    """How often a client is told to, when it consumes nothing in order."""

    ordered_beat_ms: int = 2_000
    """How often a client is told to, when it does."""

    exchange_ms: int = 250
    """How often the replica looks at the database for what others did, tells whom it heard, and judges."""

    route_groups: int = 2
    """On how many broker groups a subject lies that declares nothing else."""

    create_subjects: bool = True
    """Whether a subject that nobody declared is made when a client first names it."""

    create_groups: bool = True
    """Whether a consumer group that nobody declared is made when a client first names it."""

    removed_days: int = 30
    """For how long meta remembers that a subject or a consumer group was removed, and no use makes it again."""

    connections_max: int = 10_000
    """HTTP connections at a time; a client has two, one of them for its watch stream."""

    review_audience: str = ""
    """For whom the tokens of Kubernetes' ServiceAccounts have to be made that are believed; empty: none are."""

    review_folder: str = "/var/run/secrets/kubernetes.io/serviceaccount"
    """Where `token` and `ca.crt` are by which Kubernetes is asked whose such a token is."""

    review_ms: int = 60_000
    """For how long its answer is believed; a token that was taken back holds so long at most."""

    canary: str = ""
    """Where the page of the queue's canary is, as HOST:PORT, which is passed on; empty: there is none."""

    console_hosts: str = ""
    """Names by which browsers may know the port, with commas between them, besides addresses and local names."""


def read_settings(environment: Mapping[str, str]) -> MetaSettings:
    """The settings that the environment names, as in TIDEMILL_META_LIVENESS_MS; the defaults for the rest."""
    settings = MetaSettings(**read_fields(MetaSettings, PREFIX, WHOLE_MAX, environment))
    if settings.authorisation_ms < 2 * settings.ordered_beat_ms + 2_000:
        raise SettingsError(
            f"{PREFIX}AUTHORISATION_MS is {settings.authorisation_ms}: write at least two seconds more than twice "
            f"{PREFIX}ORDERED_BEAT_MS, which is {settings.ordered_beat_ms}"
        )
    host, port = split_address(settings.canary)
    if settings.canary and not (host and port.isdigit()):
        raise SettingsError(
            f"{PREFIX}CANARY is {settings.canary[:100]!r}: write HOST:PORT of a canary's page"
        )
    if settings.liveness_ms < 3 * settings.broker_beat_ms:
        raise SettingsError(
            f"{PREFIX}LIVENESS_MS is {settings.liveness_ms}: write at least three times {PREFIX}BROKER_BEAT_MS, "
            f"which is {settings.broker_beat_ms}"
        )
    if settings.lease_ms > settings.liveness_ms:
        raise SettingsError(
            f"{PREFIX}LEASE_MS is {settings.lease_ms}: write at most {PREFIX}LIVENESS_MS, "
            f"which is {settings.liveness_ms}"
        )
    return settings

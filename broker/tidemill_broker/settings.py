"""What an operator may set. Read once in ``__main__``, printed at start, passed down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidemill_broker.load import FULL_BYTES
from tidemill_wire import limits
from tidemill_wire.settings import SettingsError, read_fields

PREFIX = "TIDEMILL_"
WHOLE_MAX = (1 << 63) - 1
LABELS_MAX, LABEL_CHARS_MAX = 16, 63
DURABILITIES = ("low", "normal", "high")


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """One broker."""

    name: str = "g0-0"
    """The broker's name in answers, logs and metrics."""

    replicated: bool = False
    """Whether this broker is one of a group, and waits for what meta appoints it to be."""

    meta: str = ""
    """Of a replicated broker: where meta's replicas listen, as `host:port,host:port`; empty: somebody else appoints."""

    advertise: str = ""
    """The host by which the other brokers of the group and meta reach this one; empty: the one it listens on."""

    labels: str = ""
    """Of a replicated broker: what a subject's placement may ask for, as `zone=a,disk=ssd`."""

    say_goodbye: bool = True
    """Of a replicated broker under meta: whether it hands over and tells meta before it stops."""

    load_bytes: int = FULL_BYTES
    """Of a replicated broker: stored bytes a second with which it counts as fully loaded when meta places subjects."""

    durability: str = "high"
    """Class of subjects that declare none: high (fsync before the answer), normal, or low."""

    create_subjects: bool = True
    """Whether a subject that nobody declared is made by the first send or pull."""

    retention_seconds: int = limits.RETENTION_SECONDS_DEFAULT
    """How long messages of subjects that declare nothing are kept."""

    retention_interval_ms: int = limits.RETENTION_INTERVAL_MS
    """How often it is looked for segments that retention drops."""

    segment_bytes: int = limits.MESSAGE_SEGMENT_BYTES
    """Size of a message log segment; retention removes whole segments."""

    segment_batches: int = limits.MESSAGE_SEGMENT_BATCHES
    """Batches in a message log segment; bounds the memory of the open one."""

    action_segment_bytes: int = limits.ACTION_SEGMENT_BYTES
    """Size of an action log segment."""

    checkpoint_events: int = limits.CHECKPOINT_EVENTS
    """A checkpoint is made after so many events, at least `checkpoint_pause_ms` after the last one."""

    checkpoint_interval_ms: int = limits.CHECKPOINT_INTERVAL_MS
    """A checkpoint is made after this time when there was any event."""

    checkpoint_pause_ms: int = limits.CHECKPOINT_PAUSE_MS
    """The least time between two checkpoints."""

    sync_interval_ms: int = limits.SYNC_INTERVAL_MS
    """What nobody waits for is on the disk this much later at the latest."""

    low_sync_interval_ms: int = limits.LOW_SYNC_INTERVAL_MS
    """The same while all of it is of subjects of the class `low`."""

    lease_ms: int = limits.LEASE_MS_DEFAULT
    """Lease of groups that declare none."""

    consumer_gone_ms: int = limits.CONSUMER_GONE_MS
    """A consumer without a connection for this long loses its deliveries."""

    broadcast_silence_ms: int = limits.BROADCAST_SILENCE_MS
    """The group of a broadcast consumer that stays away for this long is forgotten."""

    transaction_check_after_ms: int = limits.CHECK_AFTER_MS
    """A transaction that nobody decides: so long after its last half message its producer group is asked."""

    transaction_check_interval_ms: int = limits.CHECK_INTERVAL_MS
    """And so long after each time it was asked, again."""

    transaction_checks_max: int = limits.CHECKS_MAX
    """After so many times, and as long again, it is rolled back."""

    free_space_min_percent: int = limits.FREE_SPACE_MIN_PERCENT
    """Less free disk than this refuses sends; reads go on."""

    subjects_max: int = limits.SUBJECTS_MAX
    """Subjects on one broker."""

    console_hosts: str = ""
    """Names by which browsers may know the HTTP port, with commas between them, besides addresses and local names."""

    stay_awake: bool = True
    """Whether to wait awake, for a fraction of a millisecond, for requests that come that fast."""


def read_settings(environment: Mapping[str, str]) -> BrokerSettings:
    """The settings that the environment names, as in TIDEMILL_SEGMENT_BYTES; the defaults for the rest."""
    settings = BrokerSettings(**read_fields(BrokerSettings, PREFIX, WHOLE_MAX, environment))
    parse_labels(settings.labels)
    if settings.durability not in DURABILITIES:
        raise SettingsError(f"{PREFIX}DURABILITY is {settings.durability[:60]!r}: write low, normal or high")
    return settings


def parse_labels(text: str) -> tuple[tuple[str, str], ...]:
    """``zone=a,disk=ssd``."""
    found: dict[str, str] = {}
    for pair in filter(None, text.split(",")):
        name, equals, value = (part.strip() for part in pair.partition("="))
        holds = name and equals and value and pair.isprintable() and name not in found
        if not holds or max(len(name), len(value)) > LABEL_CHARS_MAX or len(found) >= LABELS_MAX:
            raise SettingsError(
                f"{PREFIX}LABELS has {pair[:60]!r}: write at most {LABELS_MAX} different labels with their values,"
                f" of at most {LABEL_CHARS_MAX} characters each, as in zone=a,disk=ssd"
            )
        found[name] = value
    return tuple(sorted(found.items()))

"""Errors that cross the wire: one table for server and client.

TidemillError
  WireError            an error with a number of the table below
    Refused            the request is wrong: sending it again will not help
    Unavailable        the server cannot now: sending it again later may help
  ProtocolError        the bytes broke the protocol
    LocalProtocolError    this side did
    RemoteProtocolError   the other side did; ``reason`` is counted
  CorruptBatch         bytes that claim to be a batch and are not
"""

from __future__ import annotations

from dataclasses import dataclass


class TidemillError(Exception):
    """Anything tidemill raises on purpose."""


@dataclass(frozen=True, slots=True)
class ErrorKind:
    """A row of the table: what a client may do and what a person should do."""

    number: int
    name: str
    retryable: bool
    advice: str


ERROR_KINDS = (
    ErrorKind(1, "internal", True, "try again; if it stays, look into the broker's log"),
    ErrorKind(2, "unsupported_version", False, "use a client and a broker whose protocol versions overlap"),
    ErrorKind(3, "not_tidemill", False, "use a tidemill client, and the data port rather than the HTTP port"),
    ErrorKind(4, "malformed_frame", False, "use a client of the same version as the broker"),
    ErrorKind(5, "frame_too_large", False, "send smaller batches"),
    ErrorKind(6, "too_slow", True, "look at the network between the client and the broker"),
    ErrorKind(7, "too_many_requests", True, "wait for answers before sending more requests"),
    ErrorKind(8, "too_many_connections", True, "use one client per process, or add brokers"),
    ErrorKind(9, "malformed_command", False, "use a client of the same version as the broker"),
    ErrorKind(10, "corrupt_batch", True, "send it again; if it stays, look at the network and the memory"),
    ErrorKind(11, "batch_too_large", False, "send fewer or smaller messages in one batch"),
    ErrorKind(
        12, "message_too_large", False, "send a smaller body, or raise message.maxBytes of the subject"
    ),
    ErrorKind(13, "invalid_subject", False, "use 1 to 100 characters of A-Z a-z 0-9 . _ -"),
    ErrorKind(14, "invalid_group", False, "use 1 to 100 characters of A-Z a-z 0-9 . _ -"),
    ErrorKind(15, "invalid_consumer", False, "use 1 to 200 printable characters for the consumer's name"),
    ErrorKind(16, "unknown_subject", False, "declare the subject, or allow that it is created on first use"),
    ErrorKind(17, "too_many_subjects", False, "remove subjects that nobody uses, or add broker groups"),
    ErrorKind(18, "disk_full", True, "free disk space or shorten retention; reads go on"),
    ErrorKind(19, "shutting_down", True, "reconnect; the broker is about to stop"),
    ErrorKind(20, "limit_exceeded", False, "stay below the limit named in the message"),
    ErrorKind(
        21, "lease_lost", False, "the message is given out again; finish sooner or ask for a longer lease"
    ),
    ErrorKind(22, "too_many_in_flight", True, "ack what was pulled before pulling more"),
    ErrorKind(23, "read_failed", True, "run `tidemill inspect log` on the broker's data folder"),
    ErrorKind(24, "not_found", False, "look the name up with `tidemill subjects` or `tidemill groups`"),
    ErrorKind(25, "consumer_replaced", False, "give each consumer of a group a name of its own"),
    ErrorKind(26, "too_many_groups", False, "use fewer group names, or add brokers"),
    ErrorKind(27, "too_many_consumers", True, "stop a consumer of the group, or raise limits.maxConsumers"),
    ErrorKind(
        28, "wrong_consumption", False, "consume in the way the group was made for, or use another group"
    ),
    ErrorKind(
        29,
        "filter_conflict",
        False,
        "use the filter the group has, stop its other consumers, or use another group",
    ),
    ErrorKind(
        30, "invalid_priority", False, "use a whole number from 0, which is the default, to 7, the highest"
    ),
    ErrorKind(31, "not_master", True, "ask for the routes again, and go to the master"),
    ErrorKind(
        32,
        "read_only",
        True,
        "send to another broker group, or wait until a person lets it take messages again",
    ),
    ErrorKind(33, "not_told", True, "wait a moment: the master asks meta what people let it take"),
    ErrorKind(
        60, "allocation_outdated", True, "ask meta which partitions are yours now, and pull those only"
    ),
    ErrorKind(
        61, "unsupported_flag", False, "send it without the flag, or to a broker of a version that has it"
    ),
    ErrorKind(62, "removed", False, "declare it again, which begins with nothing, or use another name"),
    ErrorKind(
        64,
        "route_outdated",
        True,
        "ask meta for the route, and send it to the partition that has its order key now",
    ),
    ErrorKind(
        65,
        "no_dedup_window",
        False,
        "declare deduplicationSeconds of the subject, or send without a dedup key",
    ),
    ErrorKind(
        66,
        "too_many_dedup_keys",
        True,
        "shorten deduplicationSeconds of subjects with many dedup keys, or add broker groups",
    ),
    ErrorKind(
        67,
        "delay_not_allowed",
        False,
        "send it without a time or for a nearer one, or change spec.delay of the subject",
    ),
    ErrorKind(
        70,
        "unknown_transaction",
        False,
        "look into its subjects whether it was committed; whoever is asked about one should answer within minutes",
    ),
    ErrorKind(
        71,
        "transaction_decided",
        False,
        "what was decided stays; undo it in the program, or send a message that does",
    ),
    ErrorKind(
        72,
        "too_many_transactions",
        True,
        "end them sooner, or look with `tidemill transactions list` who leaves them",
    ),
    ErrorKind(
        80,
        "unauthenticated",
        False,
        "show a token, with TIDEMILL_TOKEN_FILE or as Bearer; `tidemill tokens create` makes one",
    ),
    ErrorKind(
        81,
        "forbidden",
        False,
        "ask whoever administers the queue for a grant; `tidemill grants list` shows them",
    ),
    ErrorKind(82, "grants_unknown", True, "wait a moment: the service asks meta who may do what"),
    ErrorKind(
        83,
        "over_quota",
        True,
        "wait for as long as it says; send less, or ask whoever administers the queue for a larger quota",
    ),
)

KIND_BY_NAME = {kind.name: kind for kind in ERROR_KINDS}
KIND_BY_NUMBER = {kind.number: kind for kind in ERROR_KINDS}

assert len(KIND_BY_NAME) == len(KIND_BY_NUMBER) == len(ERROR_KINDS)


class WireError(TidemillError):
    """An error with a row in the table. Its text is one sentence and what to do."""

    def __init__(self, name: str, detail: str, wait_ms: int = 0) -> None:
        self.kind = KIND_BY_NAME[name]
        self.detail = detail
        self.wait_ms = wait_ms
        """Before that it is not to be tried again; 0: nobody knows."""
        super().__init__(
            name, detail
        )  # the arguments, so that it can be pickled: handlers may run in processes

    def __str__(self) -> str:
        return f"{self.detail}: {self.kind.advice} ({self.kind.name})"


class Refused(WireError):
    """The request is wrong: sending it again will not help."""


class Unavailable(WireError):
    """The server cannot now: sending it again later may help."""


def wire_error(number: int, detail: str, wait_ms: int = 0) -> WireError:
    """The exception for an error frame. A number of a newer server is an internal error."""
    kind = KIND_BY_NUMBER.get(number, KIND_BY_NUMBER[1])
    return (Unavailable if kind.retryable else Refused)(kind.name, detail, wait_ms)


class ProtocolError(TidemillError):
    """The bytes broke the protocol; the connection cannot go on."""

    def __init__(self, reason: str, detail: str) -> None:
        if type(self) is ProtocolError:
            raise TypeError("raise LocalProtocolError or RemoteProtocolError")
        assert reason in KIND_BY_NAME, reason
        self.reason = reason
        self.detail = detail
        super().__init__(reason, detail)

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}"


class LocalProtocolError(ProtocolError):
    """This side broke the protocol: a bug of the caller."""


class RemoteProtocolError(ProtocolError):
    """The other side broke the protocol. ``reason`` names a row of the table and is counted."""


class CorruptBatch(TidemillError):
    """Bytes that claim to be a batch and are not one."""

"""The numbers of a broker as Prometheus text. Labels are bounded: reasons are the rows of the error table.

Those of a broker in a group are the ledger's, ``group_metrics.py``.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidemill_broker.archiving import lag_of
from tidemill_broker.doors.service import Service
from tidemill_ledger.group_metrics import group_lines
from tidemill_wire.transacting import HALF_PARTITION


def render_metrics(service: Service) -> bytes:
    """The metrics page."""
    lines: list[str] = []
    for name, kind, text, value in _numbers(service):
        lines += [
            f"# HELP tidemill_{name} {text}",
            f"# TYPE tidemill_{name} {kind}",
            f"tidemill_{name} {value}",
        ]
    lines.append("# HELP tidemill_refused_total Requests and connections refused, by reason")
    lines.append("# TYPE tidemill_refused_total counter")
    refused = service.broker.counters.refused + service.server.statistics.refused
    lines += [
        f'tidemill_refused_total{{reason="{reason}"}} {count}' for reason, count in sorted(refused.items())
    ]
    lines += group_lines(service.machine, "broker", "tidemill")
    return ("\n".join(lines) + "\n").encode()


def _numbers(service: Service) -> Iterator[tuple[str, str, str, int]]:
    counters, seen, state = service.broker.counters, service.server.statistics, service.broker.state
    keeping = service.broker.keeping
    heads = [group for group in state.groups.values() if group is state.family(group)[-1]]
    lanes = sum(map(len, state.lanes.values()))
    subjects = len(state.by_name) - (HALF_PARTITION.encode() in state.by_name)
    yield "messages_in_total", "counter", "Messages stored", counters.messages_in
    yield "messages_duplicate_total", "counter", "Messages whose dedup key was known", counters.duplicates
    yield "dedup_keys", "gauge", "Dedup keys that are known", state.deduplication.count
    yield "messages_out_total", "counter", "Messages given to consumers", counters.messages_out
    yield "messages_acked_total", "counter", "Messages acknowledged", counters.messages_acked
    nacked = "Messages that a consumer said it failed to handle"
    yield "messages_nacked_total", "counter", nacked, counters.messages_nacked
    yield "messages_buried_total", "counter", "Messages that became dead letters", counters.messages_buried
    dropped = "Messages given up, and no dead letter kept of them"
    yield "messages_dropped_total", "counter", dropped, counters.dead_dropped
    paused = sum(group.paused is not None for group in heads)
    yield "groups_paused", "gauge", "Groups whose deliveries all fail alike", paused
    yield "pauses_total", "counter", "How often a group was paused", counters.groups_paused
    yield "leases_ended_total", "counter", "Deliveries whose lease ended", counters.leases_ended
    yield (
        "voided_messages_total",
        "counter",
        "Failed messages that a power cut had taken",
        counters.messages_voided,
    )
    skipped = "Messages that groups passed over because their filters do not want them"
    yield "skipped_messages_total", "counter", skipped, counters.messages_skipped
    unread = "Batches that filters passed over by their headers' tag word, unread"
    yield "skipped_batches_total", "counter", unread, counters.batches_skipped
    yield (
        "sifted_batches_total",
        "counter",
        "Batches whose tags were read for a filter",
        counters.batches_sifted,
    )
    yield "sifted_bytes_total", "counter", "Bytes read for filters", counters.bytes_sifted
    back = "Messages whose delivery had not reached its consumer, given out again when it reconnected"
    yield "taken_back_messages_total", "counter", back, counters.messages_taken_back
    refused = "Reads of stored bytes that the disk refused: messages there become dead letters"
    yield "unread_total", "counter", refused, counters.unread
    lags = list(lag_of(state))
    unarchived = "Messages that are kept until an archive has them"
    yield "archive_lag_messages", "gauge", unarchived, sum(count for count, _ in lags)
    now_ms = service.now_ms
    oldest_ms = max(0, now_ms - min((since_ms for _, since_ms in lags), default=now_ms))
    waits = "How long the oldest of these has been here, about"
    yield "archive_lag_seconds", "gauge", waits, oldest_ms // 1000
    yield "batches_total", "counter", "Batches received", counters.batches
    yield "bytes_received_total", "counter", "Bytes from clients", seen.bytes_received
    yield "bytes_sent_total", "counter", "Bytes to clients", seen.bytes_sent
    yield "cold_reads_total", "counter", "Answers that had to wait for the disk", seen.cold_reads
    yield "connections", "gauge", "Open connections", len(service.server.connections)
    yield "connections_total", "counter", "Connections accepted", seen.connections_opened
    yield "subjects", "gauge", "Subjects", subjects - lanes
    yield "groups", "gauge", "Consumer groups", len(heads)
    yield "lanes", "gauge", "Priority lanes of subjects, besides the subjects themselves", lanes
    yield from _of_transactions(service)
    expired = "Messages dropped by retention before a group pulled them"
    yield "expired_messages_total", "counter", expired, keeping.expired_messages
    yield "disk_free_bytes", "gauge", "Free bytes of the data disk", service.free_bytes
    yield "disk_total_bytes", "gauge", "Size of the data disk", service.total_bytes


def _of_transactions(service: Service) -> Iterator[tuple[str, str, str, int]]:
    counters, state = service.broker.counters, service.broker.state
    pending = "Transactions that nobody has decided"
    yield "transactions_pending", "gauge", pending, len(state.transactions.pending)
    yield "half_messages_total", "counter", "Messages kept for transactions", counters.halves_kept
    yield (
        "transactions_committed_total",
        "counter",
        "Transactions committed",
        counters.transactions_committed,
    )
    gone = "Transactions rolled back, for whatever reason"
    yield "transactions_rolled_back_total", "counter", gone, counters.transactions_rolled_back
    silent = "Transactions rolled back because nobody of their producer groups answered"
    yield "transactions_silent_total", "counter", silent, counters.transactions_silent
    checked = "Times that a producer group was asked about a transaction"
    yield "transactions_checked_total", "counter", checked, counters.transactions_checked

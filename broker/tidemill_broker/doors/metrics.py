"""The numbers of a broker as Prometheus text. Labels are bounded: reasons are the rows of the error table."""

from __future__ import annotations

from collections.abc import Iterator

from tidemill_broker.doors.service import Service


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
    return ("\n".join(lines) + "\n").encode()


def _numbers(service: Service) -> Iterator[tuple[str, str, str, int]]:
    counters, seen, state = service.broker.counters, service.server.statistics, service.broker.state
    keeping = service.broker.keeping
    yield "messages_in_total", "counter", "Messages stored", counters.messages_in
    yield "messages_out_total", "counter", "Messages given to consumers", counters.messages_out
    yield "messages_acked_total", "counter", "Messages acknowledged", counters.messages_acked
    yield "messages_nacked_total", "counter", "Messages that consumers failed", counters.messages_nacked
    yield "leases_ended_total", "counter", "Deliveries whose lease ended", counters.leases_ended
    yield (
        "voided_messages_total",
        "counter",
        "Failed messages that a power cut had taken",
        counters.messages_voided,
    )
    yield "dead_letters_total", "counter", "Messages that became dead letters", counters.messages_buried
    dropped = "Messages that failed for good in a group that keeps no dead letters"
    yield "dead_dropped_total", "counter", dropped, counters.dead_dropped
    yield "groups_paused_total", "counter", "Pauses of groups that failed alike", counters.groups_paused
    yield "batches_total", "counter", "Batches received", counters.batches
    yield "bytes_received_total", "counter", "Bytes from clients", seen.bytes_received
    yield "bytes_sent_total", "counter", "Bytes to clients", seen.bytes_sent
    yield "cold_reads_total", "counter", "Answers that had to wait for the disk", seen.cold_reads
    yield "connections", "gauge", "Open connections", len(service.server.connections)
    yield "connections_total", "counter", "Connections accepted", seen.connections_opened
    yield "subjects", "gauge", "Subjects", len(state.partitions)
    yield "groups", "gauge", "Consumer groups", len(state.groups)
    expired = "Messages dropped by retention before a group pulled them"
    yield "expired_messages_total", "counter", expired, keeping.expired_messages
    yield "disk_free_bytes", "gauge", "Free bytes of the data disk", service.free_bytes
    yield "disk_total_bytes", "gauge", "Size of the data disk", service.total_bytes

"""What every service that keeps logs says: of its disk, its port, its loop; and of its part in a group."""

from __future__ import annotations

from collections.abc import Iterator

from tidemill_wire.metrics.words import LOG, ROLE, SLAVE, Metric, counter, gauge, histogram

SECONDS = "seconds"
BYTES = "bytes"
SINCE_1970 = "seconds since 1970"


def of_hosts(service: str) -> Iterator[Metric]:
    """Names without what they begin with."""
    yield histogram(
        "append_seconds",
        SECONDS,
        "How long it took to give the page cache what was decided at once, once a turn",
    )
    yield histogram("fsync_seconds", SECONDS, "How long a sync to the disk took")
    yield histogram(
        "loop_stall_seconds", SECONDS,
        "How late the event loop was to look at a clock, ten times a second: nobody was answered meanwhile",
    )  # fmt: skip
    yield gauge("backlog_bytes", BYTES, "What waits for the write lane, or is in it")
    yield gauge("answers_waiting", "answers", "Answers that wait until the disk has what they are about")
    yield gauge("connections_held", "connections", "Connections not read from, until the disk has caught up")
    yield gauge("log_bytes", BYTES, "What is kept of a log", LOG)
    yield gauge("log_segments", "segments", "Segments that are kept of a log", LOG)
    yield counter(
        "log_appended_bytes_total", BYTES, "Up to where a log is written, since its first byte", LOG
    )
    yield gauge(
        "recovery_seconds", SECONDS, "How long this process, or part in the group, read logs to begin"
    )
    yield gauge(
        "recovery_actions", "actions", "Actions of the log that were read to begin, behind the checkpoint"
    )
    yield gauge("recovery_batches", "batches", "Batches that were read to begin, behind the checkpoint")
    yield gauge("recovery_cut_bytes", BYTES, "Torn bytes at the ends of logs that were cut to begin")
    yield from CERTIFICATES
    yield from (_of_replicas(metric, service) for metric in _REPLICAS)


CERTIFICATES = (
    gauge(
        "certificate_ends_seconds", SINCE_1970,
        "When the certificate in use ends, or what is in the chain with it; not there without TLS",
    ),
    gauge("certificate_life_seconds", SECONDS, "For how long that one holds in all"),
)  # fmt: skip


def _of_replicas(metric: Metric, service: str) -> Metric:
    means = metric.means.replace("SERVICE", service)
    return Metric(f"replication_{metric.name}", metric.kind, metric.unit, means, metric.labels)


_REPLICAS = (
    gauge("role", "0 or 1", "What this SERVICE is in its group", ROLE),
    gauge("epoch", "epoch", "Epoch that it was appointed for"),
    gauge("replicas", "replicas", "Replicas of the group"),
    gauge("in_sync", "replicas", "Replicas in sync"),
    gauge(
        "uncommitted_bytes", BYTES,
        "Bytes at the end of a log that are not committed, as far as it knows", LOG,
    ),
    gauge(
        "slave_lag_bytes", BYTES,
        "Bytes that a slave has not said it has; all of the log when it has said nothing yet", SLAVE, LOG,
    ),
    gauge(
        "slave_pace_bytes", "bytes a second",
        "Bytes a second that a slave is sent while it copies; 0 as long as nothing holds it back", SLAVE,
    ),
    gauge("slaves_unfed", "slaves", "Slaves that are not sent what comes next, for the disk refuses it"),
    gauge("slaves_connected", "slaves", "Slaves that fetch from this master"),
    counter("fetched_bytes_total", BYTES, "Bytes of a log that came from the master", LOG),
    counter("refused_chunks_total", "pieces", "Pieces of a log that did not fit, and were fetched again"),
)  # fmt: skip

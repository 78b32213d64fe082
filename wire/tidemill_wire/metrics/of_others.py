"""What delay services, meta and the operator say."""

from __future__ import annotations

from tidemill_wire.metrics.of_hosts import BYTES, CERTIFICATES, SECONDS, SINCE_1970, of_hosts
from tidemill_wire.metrics.words import (
    BROKER_GROUP,
    REASON,
    Label,
    counter,
    gauge,
    histogram,
    named,
    table_of,
)

DELAYING = (
    gauge("waiting", "messages", "Messages that are neither delivered nor cancelled"),
    gauge("due", "messages", "Messages that are due and not delivered"),
    gauge("wheel", "messages", "Messages in memory ahead of their time"),
    gauge("hours", "hours", "Hours of the calendar with messages"),
    gauge("lateness_seconds", SECONDS, "How late the last delivery was answered"),
    histogram("error_seconds", SECONDS, "How long after its time a message was stored in its subject"),
    counter("scheduled_total", "messages", "Messages that were taken for later"),
    counter("delivered_total", "messages", "Messages that brokers have, in this life"),
    counter("cancelled_total", "messages", "Messages that nobody shall get"),
    counter("discarded_total", "messages", "Messages whose subject was gone for too long, by reason", REASON),
    counter("refused_total", "messages", "Messages that brokers did not take, yet, by reason", REASON),
    counter("unread_total", "reads", "Reads that the disk refused"),
    gauge("free_bytes", BYTES, "Free space on the disk"),
    gauge("total_bytes", BYTES, "Size of the disk"),
)
DELAYS = table_of(named("tidemill_delay", [*DELAYING, *of_hosts("delay service")]))

META = table_of(
    named(
        "tidemill_meta",
        [
            gauge("revision", "commits", "Commits to the store so far, by all replicas"),
            gauge("subjects", "subjects", "Subjects there are"),
            gauge("groups", "groups", "Consumer groups there are"),
            gauge("broker_groups", "broker groups", "Broker groups there are"),
            gauge("broker_groups_without_master", "broker groups", "Broker groups that nobody leads now"),
            gauge("brokers", "brokers", "Brokers that are registered"),
            gauge("brokers_alive", "brokers", "Brokers that are not dead"),
            gauge("clients", "clients", "Clients heard of late, by any replica"),
            gauge("fresh", "0 or 1", "1 while this replica knows what the others do"),
            gauge("watchers", "streams", "Watch streams"),
            counter("watch_lines_total", "lines", "Lines written to watch streams"),
            counter("requests_total", "requests", "Requests that were read"),
            counter("commits_total", "commits", "Commits of this replica"),
            counter("store_failures_total", "times", "Times the database did not answer"),
            gauge("group_epoch", "epoch", "Epoch: one more with each failover and hand-over", BROKER_GROUP),
            gauge("group_replicas", "replicas", "Replicas of a broker group", BROKER_GROUP),
            gauge("group_in_sync", "replicas", "Replicas of a broker group that are in sync", BROKER_GROUP),
            gauge("group_led", "0 or 1", "1 while a broker group has a master that lives", BROKER_GROUP),
            histogram(
                "takeover_seconds", SECONDS,
                "From the appointment of a master, by failover or hand-over, to its first heartbeat as one",
            ),
            *CERTIFICATES,
        ],
    )
)  # fmt: skip

KIND = Label("kind", "a kind of resource", "the kinds that the operator makes or looks after")
RESULT = Label("result", "what became of a pass", "a closed list in `runtime.py`")
WHY = Label("reason", "why a pass is repeated", "a closed list in `runtime.py`")
OUTCOME = Label("outcome", "what the API server said", "a closed list in `apply.py`")
VERB = Label("verb", "HTTP method", "5")
CODE = Label("code", "HTTP status, or `error`", "as HTTP has them")
OPERATION = Label("operation", "what meta was asked", "paths of meta's API")
RESOURCE = Label("resource", "a kind that is watched", "as `kind`")

OPERATOR = table_of(
    named(
        "tidemill_operator",
        [
            counter("reconcile_total", "passes", "Passes over objects", KIND, RESULT),
            histogram("reconcile_seconds", SECONDS, "How long a pass took", KIND),
            gauge("queue_depth", "objects", "Objects that wait for a pass"),
            gauge("queue_oldest_seconds", SECONDS, "For how long the one that waits longest does"),
            counter("requeues_total", "passes", "Passes that are repeated, by why", WHY),
            counter("apply_total", "applies", "Server-side applies, by what became of them", KIND, OUTCOME),
            counter("drift_reverted_total", "changes", "Changes past an object that were changed back", KIND),
            counter("kube_requests_total", "requests", "Requests to the API server", VERB, CODE),
            counter("meta_requests_total", "requests", "Requests to meta", OPERATION, CODE),
            gauge("watch_last_event_seconds", SINCE_1970, "When a watch last said something", RESOURCE),
            gauge("objects", "objects", "Objects that are looked after", KIND),
            gauge("leader", "0 or 1", "1: this replica holds the lease"),
        ],
    )
)  # fmt: skip

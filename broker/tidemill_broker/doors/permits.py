"""What each path of a broker needs."""

from __future__ import annotations

from tidemill_host.permits import (
    ADMIN,
    ADMIN_ALL,
    BROWSE,
    BROWSE_ALL,
    CLUSTER,
    COMMON,
    CONSUME,
    KNOWN,
    SEND,
    Need,
    Permit,
    Permits,
    answer_with,
    rows_with,
)
from tidemill_wire.access import Operation

_SUBJECT = "/v1/subjects/{subject}"
_GROUP = f"{_SUBJECT}/groups/{{group}}"

PERMITS: Permits = {
    **COMMON,
    ("GET", "/v1/routes"): KNOWN,
    ("GET", "/v1/subjects"): rows_with("name"),
    ("GET", "/v1/groups"): rows_with("subject"),
    # Of what may be browsed, whatever that is: also the sums.
    **{("GET", f"/v1/overview/{what}"): KNOWN for what in ("groups", "subjects", "past")},
    ("POST", f"{_SUBJECT}/messages"): SEND,
    ("GET", f"{_SUBJECT}/messages"): BROWSE,
    ("GET", "/v1/messages"): Permit(Need.A_RIGHT, Operation.BROWSE, "?subject"),
    ("GET", "/v1/messages/{id}"): answer_with("subject"),
    ("GET", "/v1/messages/{id}/why"): answer_with("subject"),
    **{("POST", f"{_GROUP}/{what}"): CONSUME for what in ("receive", "ack", "nack", "extend", "release")},
    **{("POST", f"{_GROUP}/{what}"): ADMIN for what in ("seek", "suspend", "resume")},
    **{("POST", f"{_GROUP}/dead/{what}"): ADMIN for what in ("redrive", "purge")},
    ("GET", f"{_GROUP}/dead"): BROWSE,
    ("GET", "/v1/transactions"): ADMIN_ALL,
    **{("POST", f"/v1/transactions/{{transaction}}/{what}"): ADMIN_ALL for what in ("commit", "rollback")},
    ("GET", f"{_SUBJECT}/timers"): BROWSE,
    **{("POST", f"{_SUBJECT}/timers/{what}"): SEND for what in ("cancel", "reschedule")},
    # By an id nobody knows the subject before a delay group was asked.
    ("GET", "/v1/timers/{id}"): answer_with("subject"),
    **{("POST", f"/v1/timers/{{id}}/{what}"): KNOWN for what in ("cancel", "reschedule")},
    ("GET", "/v1/ranges"): BROWSE_ALL,
    **{
        ("GET", f"/v1/ranges/{{partition}}{what}"): Permit(Need.A_RIGHT, Operation.BROWSE, "{partition}")
        for what in ("", "/batches")
    },
    ("POST", "/v1/ranges/batches"): BROWSE_ALL,
    ("GET", "/v1/actions"): BROWSE_ALL,
    ("GET", "/v1/actions/records"): BROWSE_ALL,
    ("GET", "/v1/segments"): BROWSE_ALL,
    ("GET", "/v1/segments/{log}/{base}"): BROWSE_ALL,
    ("GET", "/v1/replication"): BROWSE_ALL,
    ("POST", "/v1/replication/wish"): CLUSTER,
    ("POST", "/v1/replication/appointment"): CLUSTER,
    ("POST", "/v1/replication/handover"): ADMIN_ALL,
}

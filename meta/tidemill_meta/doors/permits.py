"""What each path of meta needs."""

from __future__ import annotations

from tidemill_host.permits import (
    ADMIN,
    ADMIN_ALL,
    BROWSE,
    BROWSE_ALL,
    CLUSTER,
    CLUSTER_AUDITED,
    COMMON,
    KNOWN,
    Permits,
    rows_with,
)

_BROKERS = "/v1/brokers"
_GROUP = "/v1/groups/{group}"
_SUBJECT = "/v1/subjects/{subject}"

PERMITS: Permits = {
    **COMMON,
    ("POST", _BROKERS): CLUSTER_AUDITED,
    **{
        ("POST", f"{_BROKERS}/{what}"): CLUSTER
        for what in ("heartbeat", "declared", "fenced", "emptying", "access", "access/watch", "reviews")
    },
    ("POST", f"{_BROKERS}/leave"): CLUSTER_AUDITED,
    ("GET", _BROKERS): KNOWN,
    ("GET", "/v1/delays"): KNOWN,
    ("GET", "/v1/canary"): KNOWN,
    ("GET", "/v1/routes"): KNOWN,
    ("POST", f"{_GROUP}/in-sync"): CLUSTER,
    **{("POST", f"{_GROUP}/{what}"): ADMIN_ALL for what in ("handover", "elect", "state", "drain", "retire")},
    ("DELETE", f"{_GROUP}/brokers/{{broker}}"): ADMIN_ALL,
    # What a client names there is judged name by name.
    ("POST", "/v1/clients/heartbeat"): KNOWN,
    ("POST", "/v1/clients/leave"): KNOWN,
    ("POST", "/v1/clients/vanished"): ADMIN_ALL,
    ("GET", "/v1/clients"): BROWSE_ALL,
    ("POST", "/v1/watch"): KNOWN,
    # And what somebody declares, object by object.
    ("POST", "/v1/declarations"): KNOWN,
    ("POST", f"{_SUBJECT}/expand"): ADMIN,
    ("POST", f"{_SUBJECT}/state"): ADMIN,
    ("DELETE", f"{_SUBJECT}/move"): ADMIN,
    ("GET", "/v1/subjects"): rows_with("name"),
    ("GET", _SUBJECT): BROWSE,
    ("DELETE", _SUBJECT): ADMIN,
    ("GET", f"{_SUBJECT}/route"): KNOWN,
    ("GET", "/v1/groups"): rows_with("subject"),
    ("DELETE", f"{_SUBJECT}/groups/{{group}}"): ADMIN,
    ("GET", f"{_SUBJECT}/groups/{{group}}/allocation"): BROWSE,
    **{
        (method, path): BROWSE_ALL if method == "GET" else ADMIN_ALL
        for path in ("/v1/archives/{archive}", "/v1/replays/{replay}")
        for method in ("GET", "PUT", "DELETE")
    },
    ("GET", "/v1/archives"): BROWSE_ALL,
    ("GET", "/v1/replays"): BROWSE_ALL,
    ("PUT", "/v1/archives/{archive}/runs/{run}"): ADMIN_ALL,
    ("PUT", "/v1/archives/{archive}/runs/{run}/beat"): ADMIN_ALL,
    ("PUT", "/v1/replays/{replay}/beat"): ADMIN_ALL,
    ("GET", "/v1/access/grants"): ADMIN_ALL,
    ("PUT", "/v1/access/grants/{grant}"): ADMIN_ALL,
    ("DELETE", "/v1/access/grants/{grant}"): ADMIN_ALL,
    ("GET", "/v1/access/tokens"): ADMIN_ALL,
    ("POST", "/v1/access/tokens"): ADMIN_ALL,
    ("PUT", "/v1/access/tokens/{token}"): ADMIN_ALL,
    ("DELETE", "/v1/access/tokens/{token}"): ADMIN_ALL,
}

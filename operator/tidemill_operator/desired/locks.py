"""What a QueueCluster says of its locks, and what of it is in pods: two Secrets as files, and where they are.

Files and no variables: what is rotated in a Secret comes to them by itself, and services look at them once a second. So
a rotation needs no new pod, and nothing of what is secret is in a template.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from tidemill_operator.marks import part
from tidemill_operator.steps import Manifest

CERT, KEY, AUTHORITY = "tls.crt", "tls.key", "ca.crt"
"""As cert-manager calls them, and Kubernetes' own kind of Secret for certificates."""
TLS_FOLDER, TOKEN_FOLDER = "/etc/tidemill/tls", "/etc/tidemill/token"  # a place
TOKEN_FILE = "token"  # noqa: S105  # a file's name
API_FOLDER = "/var/run/secrets/tidemill.dev/api"
ACCOUNT_FOLDER = "/var/run/secrets/tidemill.dev/queue"
ACCOUNT_TOKEN_SECONDS = API_TOKEN_SECONDS = 3600
ROOT_AUTHORITY = "kube-root-ca.crt"
"""The ConfigMap that Kubernetes has in every namespace, with the authority of its API server."""
READABLE = 0o440
"""To the pod's own user and group."""


class SecretKey(NamedTuple):
    """A Secret of the object's own namespace, and the key in it."""

    secret: str
    key: str

    def __str__(self) -> str:
        return f"{self.secret}/{self.key}"


@dataclass(frozen=True, slots=True)
class Locks:
    """Of a cluster; without arguments: it is open."""

    tls: str = ""
    """The Secret with certificates; empty: ports speak in clear."""
    certificates: bool = False
    """Whether those of clients say who they are."""
    token: SecretKey | None = None
    audience: str = ""
    """For which ServiceAccounts' tokens are made; empty: nobody asks Kubernetes about tokens."""

    @property
    def inputs(self) -> Any:
        """What new pods depend on; nothing of an open cluster, whose pods are as they were before there were locks."""
        return asdict(self) if self != OPEN else None


OPEN = Locks()


class Files(NamedTuple):
    """What a pod has of it."""

    environment: tuple[Manifest, ...]
    volumes: tuple[Manifest, ...]
    mounts: tuple[Manifest, ...]


def parse_locks(cluster: Manifest) -> Locks:
    """Of a QueueCluster, whose schema the API server has proved."""
    said = part(cluster, "spec", "security")
    tls, token, accounts = (part(said, name) for name in ("tls", "token", "serviceAccounts"))
    return Locks(
        str(part(tls, "secretRef").get("name", "")),
        tls.get("clientCertificates") == "Accepted",
        SecretKey(str(token["name"]), str(token["key"])) if token else None,
        str(accounts.get("audience", "")),
    )


def of_service(locks: Locks) -> Files:
    """For meta, a broker or a delay service."""
    told: dict[str, str] = {}
    if locks.tls:
        told |= {"TLS_CERT": f"{TLS_FOLDER}/{CERT}", "TLS_KEY": f"{TLS_FOLDER}/{KEY}"}
        told |= {"TLS_CA": f"{TLS_FOLDER}/{AUTHORITY}"}
        told |= {"TLS_CLIENT_CA": f"{TLS_FOLDER}/{AUTHORITY}"} if locks.certificates else {}
    if locks.token is not None:
        told["CLUSTER_TOKEN_FILE"] = f"{TOKEN_FOLDER}/{TOKEN_FILE}"
    return _files(locks, told)


def of_client(locks: Locks) -> Files:
    """For a program of the cluster's own, which is whoever has the cluster's token."""
    told: dict[str, str] = {}
    if locks.tls:
        told["CA"] = f"{TLS_FOLDER}/{AUTHORITY}"
    if locks.token is not None:
        told["TOKEN_FILE"] = f"{TOKEN_FOLDER}/{TOKEN_FILE}"
    files = _files(locks, told)
    # Who calls needs no key.
    only = {"items": [{"key": AUTHORITY, "path": AUTHORITY}]}
    volumes = tuple(
        {**one, "secret": {**one["secret"], **only}} if one["name"] == "tls" else one for one in files.volumes
    )
    return files._replace(volumes=volumes)


def as_account(locks: Locks) -> Files:
    """For a program that shows the token of its pod's own account."""
    source = {"path": TOKEN_FILE, "audience": locks.audience, "expirationSeconds": ACCOUNT_TOKEN_SECONDS}
    projected = {"sources": [{"serviceAccountToken": source}], "defaultMode": READABLE}
    return Files(
        _variables("TIDEMILL_", {"TOKEN_FILE": f"{ACCOUNT_FOLDER}/{TOKEN_FILE}"}),
        ({"name": "account", "projected": projected},),
        (_mount("account", ACCOUNT_FOLDER),),
    )


def to_review(locks: Locks) -> Files:
    """For meta, what it needs to ask Kubernetes about ServiceAccounts' tokens."""
    if not locks.audience:
        return Files((), (), ())
    sources: list[dict[str, Any]] = [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": API_TOKEN_SECONDS}},
        {"configMap": {"name": ROOT_AUTHORITY, "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
    ]
    told = {"REVIEW_AUDIENCE": locks.audience, "REVIEW_FOLDER": API_FOLDER}
    return Files(
        _variables("TIDEMILL_META_", told),
        ({"name": "api", "projected": {"sources": sources, "defaultMode": READABLE}},),
        (_mount("api", API_FOLDER),),
    )


def _files(locks: Locks, told: Mapping[str, str]) -> Files:
    volumes: list[Manifest] = []
    if locks.tls:
        volumes.append({"name": "tls", "secret": {"secretName": locks.tls, "defaultMode": READABLE}})
    if locks.token is not None:
        items = [{"key": locks.token.key, "path": TOKEN_FILE}]
        secret = {"secretName": locks.token.secret, "defaultMode": READABLE, "items": items}
        volumes.append({"name": "cluster-token", "secret": secret})
    places = {"tls": TLS_FOLDER, "cluster-token": TOKEN_FOLDER}
    mounts = tuple(_mount(one["name"], places[one["name"]]) for one in volumes)
    return Files(_variables("TIDEMILL_", told), tuple(volumes), mounts)


def _variables(prefix: str, told: Mapping[str, str]) -> tuple[Manifest, ...]:
    return tuple({"name": f"{prefix}{name}", "value": value} for name, value in told.items())


def _mount(name: str, place: str) -> dict[str, Any]:
    return {"name": name, "mountPath": place, "readOnly": True}

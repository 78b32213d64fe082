"""What may be set. Read once in ``__main__``, printed at start, passed down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidemill_wire.settings import SettingsError, read_fields

PREFIX = "TIDEMILL_OPERATOR_"
WHOLE_MAX = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    """One replica of the operator. Replicas of one installation want the same values but for the name."""

    name: str = ""
    """The replica's name in the lease; the host's, which is the pod's, and some letters when empty."""

    lease_name: str = "tidemill-operator"
    """The Lease that the replicas of one installation share."""

    lease_namespace: str = ""
    """Where it is; the pod's own namespace, or `default`, when empty."""

    lease_ms: int = 12_000
    """A replica that has not renewed the lease for so long is succeeded by another one."""

    renewal_ms: int = 8_000
    """A replica that could not renew for so long ends; less than the lease, so that never two work."""

    retry_ms: int = 2_000
    """How often the lease is renewed, and looked at by those who wait for it."""

    resync_ms: int = 90_000
    """How often everything is looked at again though nothing happened, give or take a third."""

    workers: int = 256
    """How many objects are looked at at a time; most of that time is waiting for others."""

    writes: int = 16
    """How many requests to the API server are under way at a time."""

    declarations: int = 200
    """How many declarations are told to meta in one request, at most."""

    fresh_ms: int = 1_000
    """How old a listing of meta may be that a decision rests upon."""

    lag_ms: int = 60_000
    """How often brokers are asked for the lag of consumer groups; 1 with tests."""

    grace_ms: int = 30_000
    """How long meta may be silent before the objects say so."""

    stuck_ms: int = 300_000
    """A change that nobody has looked at for so long, or a sentinel that did not come back, fails the health probe."""

    image: str = ""
    """What pods of brokers and meta run where a spec names no image, with its tag."""

    spark_image: str = ""
    """What the pods of archives and replays run where a spec names no image, with its tag: the image with Spark."""

    address: str = ""
    """Where an autoscaler reaches this operator's HTTP port, as `http://tidemill-operator.NAMESPACE.svc:8080`; empty: \
no ScaledObject is made."""

    metas_file: str = ""
    """For an operator outside of Kubernetes: a file with lines `NAMESPACE/NAME HOST:PORT`, which say where the metas \
of QueueClusters are reached; empty, and for all others: at the Services that the operator made for them."""

    scaler_tls: str = ""
    """A folder with `tls.crt` and `tls.key`, by which KEDA's external scaler speaks TLS; empty: it speaks in clear."""

    scaler_clients: bool = False
    """Whether whoever asks the external scaler has to show a certificate of `ca.crt` in that folder."""


def read_settings(environment: Mapping[str, str]) -> OperatorSettings:
    """The settings that the environment names, as in TIDEMILL_OPERATOR_RESYNC_MS; the defaults for the rest."""
    settings = OperatorSettings(**read_fields(OperatorSettings, PREFIX, WHOLE_MAX, environment))
    if not settings.retry_ms * 2 <= settings.renewal_ms < settings.lease_ms:
        raise SettingsError(
            f"{PREFIX}RENEWAL_MS is {settings.renewal_ms}: write at least twice {PREFIX}RETRY_MS, which is "
            f"{settings.retry_ms}, and less than {PREFIX}LEASE_MS, which is {settings.lease_ms}"
        )
    if settings.scaler_clients and not settings.scaler_tls:
        raise SettingsError(f"{PREFIX}SCALER_TLS is missing: without TLS nobody shows a certificate")
    return settings

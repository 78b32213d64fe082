"""kopf as an informer: it lists, watches, comes back after breaks, and tells us; it decides nothing and writes nothing.

Only event handlers are registered, so kopf keeps no finalizers and no annotations on anything, and a handler that only
notes what it is told cannot fail and need not be repeated.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import kopf

from tidemill_operator.doors.api import log_in
from tidemill_operator.kinds import QUEUE_CLUSTER, Kind

Heard = Callable[[Kind, "str | None", Mapping[str, Any]], None]

DOMAIN = QUEUE_CLUSTER.group


def registry(kinds: Iterable[Kind], heard: Heard, ends: Callable[[], None]) -> kopf.OperatorRegistry:
    """One handler for each kind; ``ends`` is told when kopf has stopped watching, and is about to wait for all that
    runs in this process, for five seconds.
    """
    made = kopf.OperatorRegistry()
    kopf.on.login(registry=made)(_log_in)

    async def stop(**_: Any) -> None:
        ends()

    kopf.on.cleanup(registry=made)(stop)
    for kind in kinds:
        kopf.on.event(
            group=kind.group, version=kind.version, plural=kind.plural, id=kind.plural, registry=made
        )(_listener(kind, heard))
    return made


def _listener(kind: Kind, heard: Heard) -> Any:
    async def listen(event: Mapping[str, Any], **_: Any) -> None:
        heard(kind, event["type"], event["object"])

    return listen


async def _log_in(**_: Any) -> kopf.ConnectionInfo:
    return log_in()


def settings() -> kopf.OperatorSettings:
    """What kopf lets one choose, where its defaults are not ours."""
    chosen = kopf.OperatorSettings()
    chosen.peering.standalone = True  # who works is said by the lease
    chosen.posting.enabled = False  # events are ours, and said once
    chosen.scanning.disabled = True  # looking for new kinds takes rights over the whole cluster
    chosen.networking.connect_timeout = 10
    chosen.networking.request_timeout = 60  # 300 s by default: too long to notice that nobody answers
    chosen.networking.error_backoffs = (1, 1, 2, 3, 5, 8)
    chosen.watching.server_timeout = 270
    chosen.watching.client_timeout = 300
    chosen.queueing.worker_limit = None
    chosen.queueing.exit_timeout = 1
    chosen.execution.max_workers = 2
    chosen.process.ultimate_exiting_timeout = 30
    # Never used: no handler of ours needs them. If one ever does, they are not those of another operator.
    chosen.persistence.finalizer = f"kopf.{DOMAIN}/finalizer"
    chosen.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=f"kopf.{DOMAIN}")
    chosen.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix=f"kopf.{DOMAIN}")
    return chosen


def quiet() -> None:
    """Of kopf only warnings: it logs each call of a handler; what counts is said by the passes."""
    for name in (
        "kopf.objects",
        "kopf.activities",
        "kopf._core",
        "kopf._cogs",
        "aiohttp.access",
    ):
        logging.getLogger(name).setLevel(logging.WARNING)

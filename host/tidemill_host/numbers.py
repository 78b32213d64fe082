"""What a service that runs on a disk and behind a port says of both on its metrics page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidemill_wire.metrics.page import Page

if TYPE_CHECKING:
    from tidemill_host.certificates import Watched
    from tidemill_host.hosted import Hosted


def put_host(page: Page, service: Hosted[Any]) -> None:
    """The numbers of ``of_hosts`` that the host knows."""
    turn, server = service.turn, service.server
    page.put_powers("append_seconds", turn.appends)
    page.put_powers("fsync_seconds", turn.syncs)
    page.put_powers("loop_stall_seconds", service.stalls.late)
    page.put("backlog_bytes", turn.backlog_bytes)
    page.put("answers_waiting", turn.answers_waiting)
    page.put("connections_held", len(server.held))
    put_certificate(page, server.certificates)


def put_certificate(page: Page, certificates: Watched | None) -> None:
    """Of a process that shows one; there is no number of one that speaks in clear."""
    page.begin("certificate_ends_seconds")
    page.begin("certificate_life_seconds")
    validity = None if certificates is None else certificates.validity()
    if validity is not None:
        page.put("certificate_ends_seconds", validity.ends_s)
        page.put("certificate_life_seconds", validity.life_s)

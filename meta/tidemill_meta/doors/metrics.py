"""The numbers of a replica as Prometheus text. What can be said is ``tidemill_wire.metrics``."""

from __future__ import annotations

from collections.abc import Iterator

from tidemill_host.certificates import Watched
from tidemill_host.numbers import put_certificate
from tidemill_meta.doors.api import Api
from tidemill_meta.doors.replica import Replica
from tidemill_meta.doors.takeovers import Takeovers
from tidemill_meta.doors.watch import Watch
from tidemill_meta.values import BrokerGroup
from tidemill_wire.limits import METRIC_GROUPS_MAX
from tidemill_wire.metrics.of_others import META
from tidemill_wire.metrics.page import Page


def render_metrics(
    replica: Replica, watch: Watch, api: Api, takeovers: Takeovers, certificates: Watched | None = None
) -> bytes:
    """The metrics page. Beside a broker it is that one which says of the process's certificate."""
    page = Page(META, "tidemill_meta_")
    page.put_all(_numbers(replica, watch, api))
    _put_groups(page, replica)
    page.put_powers("takeover_seconds", takeovers.seconds)
    put_certificate(page, certificates)
    return page.to_bytes()


def _numbers(replica: Replica, watch: Watch, api: Api) -> Iterator[tuple[str, float]]:
    now_ms = replica.clock.now_ms()
    yield from replica.meta.statistics(now_ms).items()
    yield "fresh", replica.meta.senses.fresh(now_ms)
    yield "watchers", len(watch)
    yield "watch_lines_total", watch.lines
    yield "requests_total", api.requests
    yield "commits_total", replica.commits
    yield "store_failures_total", replica.failures


def _put_groups(page: Page, replica: Replica) -> None:
    """Broker groups are few; of more than can be named, the first by name are."""
    meta, now_ms = replica.meta, replica.clock.now_ms()
    groups = sorted(meta.registry.all(BrokerGroup), key=lambda group: group.name)[:METRIC_GROUPS_MAX]
    for group in groups:
        master = meta.senses.members(group, now_ms).get(group.master)
        led = group.seated and master is not None and master.alive
        page.put("group_epoch", group.epoch, group.name)
        page.put("group_replicas", len(group.replicas), group.name)
        page.put("group_in_sync", len(group.in_sync), group.name)
        page.put("group_led", led, group.name)

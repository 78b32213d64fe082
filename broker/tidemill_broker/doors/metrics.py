"""The numbers of a broker as Prometheus text. What can be said, and of how many labels, is ``tidemill_wire.metrics``.

A page is made in pieces, so that nobody waits for it but who asked. Those who ask while one is made are given the next
one, all the same: it was begun after they asked, and ten that ask at once cost what two do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from tidemill_broker.archiving import lag_of
from tidemill_broker.census import oldest_kept_ms
from tidemill_broker.doors.service import Service
from tidemill_broker.doors.survey import Headcount
from tidemill_broker.statistics import LEVEL_MAX
from tidemill_host.clock import Clock
from tidemill_host.numbers import put_host
from tidemill_ledger.group_metrics import put_group, put_logs
from tidemill_wire.metrics.of_brokers import BROKERS
from tidemill_wire.metrics.page import Page
from tidemill_wire.metrics.words import OTHER
from tidemill_wire.transacting import HALF_PARTITION


class MetricsPage:
    """See the module. ``more`` is what others in the process say, on the same page."""

    def __init__(self, service: Service, clock: Clock, more: Callable[[], bytes] = bytes) -> None:
        self._service = service
        self._clock = clock
        self._more = more
        self._headcount = Headcount(service.broker.state, clock)
        self._turn = asyncio.Lock()
        self._made = b""
        self._begun = 0
        """How many pages were begun, ever."""

    async def render(self) -> bytes:
        """The page."""
        begun = self._begun
        async with self._turn:
            if self._begun == begun or not self._made:
                self._begun += 1
                self._made = b""  # so that nobody is given an old one when this one fails
                self._made = await self._make()
            return self._made

    async def _make(self) -> bytes:
        service = self._service
        page = Page(BROKERS, "tidemill_")
        page.put_all(_flows(service))
        page.put_all(_ports(service))
        page.put_all(_stock(service, self._clock.now_ms()))
        page.put_all(_transactions(service))
        _put_labelled(page, service)
        put_host(page, service)
        put_logs(page, service.broker.logs, service.begun)
        put_group(page, service.machine)
        page.put("survey_seconds", self._headcount.seconds)
        await self._headcount.put(page)
        return page.to_bytes() + self._more()


def _flows(service: Service) -> Iterator[tuple[str, float]]:
    counters = service.broker.counters
    yield "messages_in_total", counters.messages_in
    yield "messages_duplicate_total", counters.duplicates
    yield "dedup_keys", service.broker.state.deduplication.count
    yield "messages_out_total", counters.messages_out
    yield "bytes_out_total", counters.bytes_out
    yield "messages_acked_total", counters.messages_acked
    yield "messages_nacked_total", counters.messages_nacked
    yield "messages_buried_total", counters.messages_buried
    yield "messages_dropped_total", counters.dead_dropped
    yield "leases_ended_total", counters.leases_ended
    yield "voided_messages_total", counters.messages_voided
    yield "skipped_messages_total", counters.messages_skipped
    yield "skipped_batches_total", counters.batches_skipped
    yield "sifted_batches_total", counters.batches_sifted
    yield "sifted_bytes_total", counters.bytes_sifted
    yield "taken_back_messages_total", counters.messages_taken_back
    yield "unread_total", counters.unread
    yield "batches_total", counters.batches
    yield "expired_messages_total", service.broker.keeping.expired_messages


def _ports(service: Service) -> Iterator[tuple[str, float]]:
    seen = service.server.statistics
    yield "bytes_received_total", seen.bytes_received
    yield "bytes_sent_total", seen.bytes_sent
    yield "frames_received_total", seen.frames_received
    yield "cold_reads_total", seen.cold_reads
    yield "connections", len(service.server.connections)
    yield "connections_total", seen.connections_opened
    yield "pulls_waiting", service.broker.serving.pulls.count


def _stock(service: Service, now_ms: int) -> Iterator[tuple[str, float]]:
    state = service.broker.state
    heads = [group for group in state.groups.values() if group is state.family(group)[-1]]
    lanes = sum(map(len, state.lanes.values()))
    yield "subjects", len(state.by_name) - (HALF_PARTITION.encode() in state.by_name) - lanes
    yield "groups", len(heads)
    yield "lanes", lanes
    yield "groups_paused", sum(group.paused is not None for group in heads)
    yield "pauses_total", service.broker.counters.groups_paused
    yield "disk_free_bytes", service.free_bytes
    yield "disk_total_bytes", service.total_bytes
    yield "disk_refuses", service.broker.intake.refusal is not None
    oldest_ms = oldest_kept_ms(state)
    yield "oldest_message_seconds", 0 if oldest_ms is None else max(0, now_ms - oldest_ms) / 1000
    lags = list(lag_of(state))
    yield "archive_lag_messages", sum(count for count, _ in lags)
    waits_ms = now_ms - min((since_ms for _, since_ms in lags), default=now_ms)
    yield "archive_lag_seconds", max(0, waits_ms) / 1000


def _transactions(service: Service) -> Iterator[tuple[str, float]]:
    counters = service.broker.counters
    yield "transactions_pending", len(service.broker.state.transactions.pending)
    yield "half_messages_total", counters.halves_kept
    yield "transactions_committed_total", counters.transactions_committed
    yield "transactions_rolled_back_total", counters.transactions_rolled_back
    yield "transactions_silent_total", counters.transactions_silent
    yield "transactions_checked_total", counters.transactions_checked


def _put_labelled(page: Page, service: Service) -> None:
    counters = service.broker.counters
    page.begin("refused_total")
    for reason, count in sorted((counters.refused + service.server.statistics.refused).items()):
        page.put("refused_total", count, reason)
    for level in range(2, LEVEL_MAX + 1):
        page.put("retries_total", counters.retries[level], str(level))
    page.begin("dead_letters_total")
    for (fingerprint, error), messages in counters.mistakes.rows():
        page.put("dead_letters_total", messages, fingerprint, error)
    page.begin("over_quota_total")
    for whose, batches in service.broker.intake.quotas.told_to_wait.rows(OTHER):
        page.put("over_quota_total", batches, whose)
    page.put_powers("batch_messages", counters.batch_messages)

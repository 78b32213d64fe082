"""The numbers of a canary, as Prometheus reads them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from tidemill.canary.judge import Judge
from tidemill_wire.limits import METRIC_GROUPS_MAX
from tidemill_wire.metrics.of_canaries import CANARY
from tidemill_wire.metrics.page import Page


@dataclass(frozen=True, slots=True)
class CanaryStatistics:
    """The judges of all broker groups, as of a time; ``troubled`` are those that cannot work."""

    judges: Mapping[str, Judge]
    troubled: frozenset[str]
    now_ms: int

    def prometheus(self) -> str:
        """The text that Prometheus reads."""
        page = Page(CANARY, "tidemill_canary_")
        for group, judge in sorted(self.judges.items())[:METRIC_GROUPS_MAX]:
            self._put(page, group, judge)
        return page.to_bytes().decode()

    def _put(self, page: Page, group: str, judge: Judge) -> None:
        for kind, stream in (("now", judge.now), ("later", judge.later)):
            for name, count in asdict(stream.tally).items():
                page.put(f"{name}_total", count, group, kind)
            page.put("expected", stream.expected, group, kind)
        for doubled, count in judge.doubled.items():
            page.put("doubled_total", count, group, doubled.value)
        page.put("out_of_order_total", judge.stored_out_of_order, group, "stored")
        page.put("out_of_order_total", judge.delivered_out_of_order, group, "delivered")
        page.put("early_total", judge.early, group)
        page.put_powers("answer_seconds", judge.answering, group)
        page.put_powers("end_to_end_seconds", judge.end_to_end, group)
        page.put_powers("delay_error_seconds", judge.delay_error, group)
        page.put("silent_seconds", judge.silent_ms(self.now_ms) / 1000, group)
        page.put("interrupted_seconds", judge.interrupted_ms(self.now_ms) / 1000, group)
        page.put("epoch", judge.failovers.epoch, group)
        page.put("failovers_total", judge.failovers.count, group)
        last = judge.failovers.recent[-1] if judge.failovers.recent else None
        page.put("rto_seconds", 0 if last is None else last.rto_ms / 1000, group)
        page.put("rpo_messages", 0 if last is None else last.rpo, group)
        page.put("trouble", int(group in self.troubled), group)

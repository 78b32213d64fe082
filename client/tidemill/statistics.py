"""What a client has done, in numbers. Counting is done by the batch and by the delivery, never by the message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from tidemill.budget import Tally
from tidemill_wire.metrics.of_clients import CLIENT
from tidemill_wire.metrics.page import Page

if TYPE_CHECKING:
    from tidemill.chain import Chain
    from tidemill.client import Client
    from tidemill.consumer import Consumer
    from tidemill.inbox import Inbox
    from tidemill.producer import Producer
    from tidemill.puller import Puller


@dataclass(frozen=True, slots=True)
class ClientStatistics:
    """Since the client began; what it holds, now. ``prometheus()`` is the text for a metrics page."""

    messages_sent: int = 0
    """Stored, or kept for later, as the answers say."""
    batches_sent: int = 0
    bytes_sent: int = 0
    """Of batches, as they went over the wire."""
    messages_failed: int = 0
    """Their ``send`` raised."""
    messages_unordered: int = 0
    """As ``Client.unordered``."""
    bytes_held: int = 0
    """Of messages that are not answered yet; ``memory_bytes_max`` is the most."""
    consumers: int = 0
    """That are open."""
    messages_received: int = 0
    """Given to this client's consumers."""
    messages_waiting: int = 0
    """Of these, not begun."""
    messages_lost: int = 0
    """Settled after the lease had ended: they come again."""
    messages_corrupt: int = 0
    """That could not be read."""
    messages_filtered: int = 0
    """Acknowledged unseen, because a filter said no."""
    messages_mismatched: int = 0
    """Acknowledged unseen, for only the hashes of tags were right."""
    messages_adopted: int = 0
    """They failed while their broker was away, and another one gives them out again."""
    acks_waiting: int = 0
    """In the spool of what was settled, and not told yet."""

    def prometheus(self) -> str:
        """The text that Prometheus reads."""
        page = Page(CLIENT, "tidemill_client_")
        for one in fields(self):
            name = one.name if f"tidemill_client_{one.name}" in CLIENT else f"{one.name}_total"
            page.put(name, getattr(self, one.name))
        return page.to_bytes().decode()


class OpenConsumers(dict["Consumer", None]):
    """Those of a client, and what those that have ended had counted."""

    def __init__(self) -> None:
        super().__init__()
        self.ended: dict[str, int] = {}

    def leave(self, consumer: Consumer) -> None:
        """It is closed; its counts stay."""
        if consumer in self:
            del self[consumer]
            self.ended = added(self.ended, consumer.statistics)

    def counts(self) -> Mapping[str, int]:
        """Of all that ever were."""
        total = self.ended
        for consumer in self:
            total = added(total, consumer.statistics)
        return total


def counted_of(pullers: Sequence[Puller], inbox: Inbox | None, chain: Chain) -> dict[str, int]:
    """Of a consumer, by name."""
    return {
        **({} if inbox is None else {"received": inbox.received, "waiting": inbox.lying}),
        "lost": sum(puller.settler.lost for puller in pullers),
        "corrupt": sum(puller.corrupt for puller in pullers),
        "filtered": chain.filtered,
        "mismatched": chain.mismatched,
        "adopted": sum(elsewhere.moved for one in pullers if (elsewhere := one.settler.elsewhere)),
    }


def added(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    """Counts by name."""
    return {name: one.get(name, 0) + other.get(name, 0) for name in one.keys() | other.keys()}


def statistics_of(client: Client, producer: Producer | None, consumers: OpenConsumers) -> ClientStatistics:
    """The numbers of a client."""
    tally = Tally() if producer is None else producer.budget.tally
    counts = consumers.counts()
    return ClientStatistics(
        messages_sent=tally.messages,
        batches_sent=tally.batches,
        bytes_sent=tally.bytes,
        messages_failed=tally.failed,
        messages_unordered=client.unordered,
        bytes_held=0 if producer is None else producer.budget.held,
        consumers=len(consumers),
        acks_waiting=client.spooled_acks.get("waiting", 0),
        **{f"messages_{name}": count for name, count in counts.items()},
    )

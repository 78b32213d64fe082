"""What programs say: clients and workers."""

from __future__ import annotations

from tidemill_wire.metrics.of_hosts import BYTES, SECONDS
from tidemill_wire.metrics.words import Label, counter, gauge, named, table_of

MESSAGES = "messages"
HANDLER = Label("handler", "a handler's function", "handlers of the worker")
ITS_GROUP = Label("group", "the handler's consumer group", "one a handler")
BY_HANDLER = (HANDLER, ITS_GROUP)

CLIENT = table_of(
    named(
        "tidemill_client",
        [
            counter("messages_sent_total", MESSAGES, "Messages stored, or kept for later, as the answers say"),
            counter("batches_sent_total", "batches", "Batches that these were in"),
            counter("bytes_sent_total", BYTES, "Bytes of these batches"),
            counter("messages_failed_total", MESSAGES, "Messages whose send raised"),
            counter(
                "messages_unordered_total", MESSAGES,
                "Messages with an order key that went to another partition than their own",
            ),
            gauge("bytes_held", BYTES, "Bytes of messages that are not answered yet"),
            gauge("consumers", "consumers", "Consumers that are open"),
            counter("messages_received_total", MESSAGES, "Messages given to consumers of this client"),
            gauge("messages_waiting", MESSAGES, "Messages that are here and were not begun"),
            counter("messages_lost_total", MESSAGES, "Messages settled after their lease had ended: they come again"),
            counter("messages_corrupt_total", MESSAGES, "Messages that could not be read"),
            counter("messages_filtered_total", MESSAGES, "Messages acknowledged unseen, because a filter said no"),
            counter(
                "messages_mismatched_total", MESSAGES,
                "Messages acknowledged unseen, for only the hashes of tags were right",
            ),
            counter(
                "messages_adopted_total", MESSAGES,
                "Messages that failed while their broker was away, and that another one gives out again",
            ),
            gauge("acks_waiting", MESSAGES, "Messages whose fate lies in the spool and was not told yet"),
        ],
    )
)  # fmt: skip

WORKER = table_of(
    named(
        "tidemill_worker",
        [
            counter("handled_total", MESSAGES, "Messages whose handler returned", *BY_HANDLER),
            counter("failed_total", MESSAGES, "Messages whose handler raised or took too long", *BY_HANDLER),
            counter("retried_total", MESSAGES, "Messages whose handler asked for another attempt", *BY_HANDLER),
            counter("rejected_total", MESSAGES, "Messages whose handler said that no attempt will help", *BY_HANDLER),
            counter("timed_out_total", MESSAGES, "Messages whose handler did not return in time", *BY_HANDLER),
            counter("filtered_total", MESSAGES, "Messages acknowledged because a filter said no", *BY_HANDLER),
            counter("skipped_total", MESSAGES, "Messages acknowledged because there was nothing to do", *BY_HANDLER),
            counter("released_total", MESSAGES, "Messages given back in the middle of their handling", *BY_HANDLER),
            counter("lost_total", MESSAGES, "Messages settled after their lease had ended", *BY_HANDLER),
            counter(
                "spooled_total", MESSAGES,
                "Messages settled into the spool, because no broker could be reached", *BY_HANDLER,
            ),
            counter("seconds_total", SECONDS, "Time within handlers", *BY_HANDLER),
            gauge("in_progress", "slots", "Slots that are taken now", *BY_HANDLER),
            gauge("stuck", "threads", "Threads whose handler is over its time", *BY_HANDLER),
        ],
    ),
    named(
        "tidemill_spool_acks",
        [
            gauge("waiting", MESSAGES, "Messages whose fate lies in the spool and was not told yet"),
            counter("spooled_total", MESSAGES, "Messages whose fate was written to the spool"),
            counter("told_total", MESSAGES, "Of the spool: those that the broker has taken"),
            counter("too_late_total", MESSAGES, "Of the spool: those whose lease had ended; they come again"),
            counter("dropped_total", MESSAGES, "Of the spool: those that no broker took in a day"),
            counter("unkept_total", MESSAGES, "Messages whose fate could not be written to the spool"),
        ],
    ),
)  # fmt: skip

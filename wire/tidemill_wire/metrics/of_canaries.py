"""What a canary says: how a broker group does, as one sees it who sends and consumes."""

from __future__ import annotations

from dataclasses import replace

from tidemill_wire.metrics.of_hosts import SECONDS
from tidemill_wire.metrics.words import BROKER_GROUP, Label, counter, gauge, histogram, named, table_of

PROBES = "probes"
OF = replace(BROKER_GROUP, means="the broker group that probes are sent to")
KIND = Label("kind", "`now`, or `later` for probes that the delay service keeps", "2")
HOW = Label(
    "kind",
    "`stored` in two places, given out again though `acknowledged`, or `redelivered` before that, as it may be",
    "3",
)
WHERE = Label("kind", "`stored` or `delivered` in another order than they were sent", "2")

CANARY = table_of(
    named(
        "tidemill_canary",
        [
            counter("sent_total", PROBES, "Probes sent", OF, KIND),
            counter("answered_total", PROBES, "Probes stored, or kept for later, as the answers say", OF, KIND),
            counter("failed_total", PROBES, "Probes whose send raised", OF, KIND),
            counter("held_back_total", PROBES, "Probes not sent, for too many did not come", OF, KIND),
            counter("seen_total", PROBES, "Probes that came, each counted once", OF, KIND),
            gauge("expected", PROBES, "Probes that were answered and did not come yet", OF, KIND),
            counter("lost_total", PROBES, "Probes that were answered and never came", OF, KIND),
            counter("found_total", PROBES, "Probes that were counted as lost, and came after all", OF, KIND),
            counter(
                "unjudged_total", PROBES,
                "Probes of which nothing can be said: another canary was at work, or retention took them",
                OF, KIND,
            ),
            counter("doubled_total", PROBES, "Probes that came once more", OF, HOW),
            counter("out_of_order_total", PROBES, "Probes that one which was sent later went before", OF, WHERE),
            counter("early_total", PROBES, "Probes for later that came before their time", OF),
            histogram("answer_seconds", SECONDS, "From a send to its answer", OF),
            histogram("end_to_end_seconds", SECONDS, "From a send to the handler", OF),
            histogram("delay_error_seconds", SECONDS, "How long after its time a probe for later came", OF),
            gauge("silent_seconds", SECONDS, "For how long no probe came", OF),
            gauge("interrupted_seconds", SECONDS, "For how long sends are not answered; 0 while they are", OF),
            gauge("epoch", "epoch", "The mastership that the newest probe was stored in", OF),
            counter("failovers_total", "times", "Changes of the master, as probes show them", OF),
            gauge(
                "rto_seconds", SECONDS,
                "Of the last change of the master: from the first send without an answer to the first one with it", OF,
            ),
            gauge(
                "rpo_messages", PROBES, "Of the last change of the master: probes answered before that never came", OF,
            ),
            gauge("trouble", "0 or 1", "1 while something cannot be sent or consumed, as the page says", OF),
        ],
    )
)  # fmt: skip

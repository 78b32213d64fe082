"""What a broker says."""

from __future__ import annotations

from tidemill_wire.metrics.of_hosts import BYTES, SECONDS, of_hosts
from tidemill_wire.metrics.words import (
    ERROR,
    FINGERPRINT,
    GROUP,
    LEVEL,
    OF_GROUP,
    QUOTA,
    REASON,
    SUBJECT,
    counter,
    gauge,
    histogram,
    named,
    table_of,
)

MESSAGES = "messages"

FLOWS = (
    counter("messages_in_total", MESSAGES, "Messages stored"),
    counter("messages_duplicate_total", MESSAGES, "Messages whose dedup key was known"),
    gauge("dedup_keys", "keys", "Dedup keys that are known"),
    counter("messages_out_total", MESSAGES, "Messages given to consumers"),
    counter("bytes_out_total", BYTES, "Bytes of batches given to consumers"),
    counter("messages_acked_total", MESSAGES, "Messages acknowledged"),
    counter("messages_nacked_total", MESSAGES, "Messages that a consumer said it failed to handle"),
    counter("messages_buried_total", MESSAGES, "Messages that became dead letters"),
    counter("messages_dropped_total", MESSAGES, "Messages given up, and no dead letter kept of them"),
    counter(
        "retries_total", MESSAGES, "Failed messages that wait for another attempt, by which one that is", LEVEL
    ),
    counter(
        "dead_letters_total", MESSAGES,
        "Messages that became dead letters in this life, by what they failed of last", FINGERPRINT, ERROR,
    ),
    counter("leases_ended_total", "deliveries", "Deliveries whose lease ended"),
    counter("voided_messages_total", MESSAGES, "Failed messages that a power cut had taken"),
    counter(
        "skipped_messages_total", MESSAGES,
        "Messages that groups passed over because their filters do not want them",
    ),
    counter("skipped_batches_total", "batches", "Batches that filters passed over by their headers' tag word, unread"),
    counter("sifted_batches_total", "batches", "Batches whose tags were read for a filter"),
    counter("sifted_bytes_total", BYTES, "Bytes read for filters"),
    counter(
        "taken_back_messages_total", MESSAGES,
        "Messages whose delivery had not reached its consumer, given out again when it reconnected",
    ),
    counter("unread_total", "reads", "Reads of stored bytes that the disk refused: messages there become dead letters"),
    counter("batches_total", "batches", "Batches received"),
    histogram("batch_messages", MESSAGES, "Messages of a batch: the mean of each frame, as often as it has batches"),
    counter("expired_messages_total", MESSAGES, "Messages dropped by retention before a group pulled them"),
)  # fmt: skip

PORTS = (
    counter(
        "refused_total", "requests and connections", "Requests and connections refused, by reason", REASON
    ),
    counter(
        "over_quota_total", "batches", "Batches and pulls told to wait, by whose quota was used up", QUOTA
    ),
    counter("bytes_received_total", BYTES, "Bytes from clients"),
    counter("bytes_sent_total", BYTES, "Bytes to clients"),
    counter("frames_received_total", "frames", "Frames from clients"),
    counter("cold_reads_total", "answers", "Answers that had to wait for the disk"),
    gauge("connections", "connections", "Open connections"),
    counter("connections_total", "connections", "Connections accepted"),
    gauge("pulls_waiting", "pulls", "Pulls that wait for messages"),
)

STOCK = (
    gauge("subjects", "subjects", "Subjects"),
    gauge("groups", "groups", "Consumer groups"),
    gauge("lanes", "lanes", "Priority lanes of subjects, besides the subjects themselves"),
    gauge("groups_paused", "groups", "Groups whose deliveries all fail alike"),
    counter("pauses_total", "pauses", "How often a group was paused"),
    gauge("disk_free_bytes", BYTES, "Free bytes of the data disk"),
    gauge("disk_total_bytes", BYTES, "Size of the data disk"),
    gauge("disk_refuses", "0 or 1", "1 while sends are refused, for too little of the disk is free"),
    gauge("oldest_message_seconds", SECONDS, "For how long the messages of the oldest segment are stored, about"),
    gauge("archive_lag_messages", MESSAGES, "Messages that are kept until an archive has them"),
    gauge("archive_lag_seconds", SECONDS, "How long the oldest of these has been here, about"),
    gauge("transactions_pending", "transactions", "Transactions that nobody has decided"),
    counter("half_messages_total", MESSAGES, "Messages kept for transactions"),
    counter("transactions_committed_total", "transactions", "Transactions committed"),
    counter("transactions_rolled_back_total", "transactions", "Transactions rolled back, for whatever reason"),
    counter(
        "transactions_silent_total", "transactions",
        "Transactions rolled back because nobody of their producer groups answered",
    ),
    counter("transactions_checked_total", "questions", "Times that a producer group was asked about a transaction"),
    gauge("survey_seconds", SECONDS, "How long the last look at all subjects and groups took, pauses and all"),
)  # fmt: skip

SUBJECTS = (
    counter("subject_messages_total", MESSAGES, "Messages stored in a subject, since it is there", SUBJECT),
    counter("subject_bytes_total", BYTES, "Bytes of batches stored in a subject, in this life", SUBJECT),
    gauge("subject_kept_messages", MESSAGES, "Messages that are kept of a subject", SUBJECT),
)

GROUPS = (
    gauge("group_lag_messages", MESSAGES, "Messages that are with nobody and did not fail", OF_GROUP, GROUP),
    gauge(
        "group_lag_seconds", SECONDS,
        "For how long the first message that was not given out yet is stored; of `other` the longest", OF_GROUP, GROUP,
    ),
    gauge(
        "group_oldest_unacked_seconds", SECONDS,
        "For how long the oldest message is stored that is not done with, given out or not; of `other` the longest",
        OF_GROUP, GROUP,
    ),
    gauge("group_in_flight", MESSAGES, "Messages that consumers hold", OF_GROUP, GROUP),
    gauge("group_failed", MESSAGES, "Messages that failed and wait for another attempt", OF_GROUP, GROUP),
    gauge("group_dead_letters", MESSAGES, "Dead letters that wait to be redriven or purged", OF_GROUP, GROUP),
    gauge("group_consumers", "consumers", "Consumers that are connected", OF_GROUP, GROUP),
    gauge("group_paused", "0 or 1", "1 while the group is paused; of `other` how many are", OF_GROUP, GROUP),
    gauge("group_suspended", "0 or 1", "1 while people let it stand still; of `other` how many", OF_GROUP, GROUP),
    gauge(
        "group_over_quota", "0 or 1", "1 while a quota of messages in flight keeps some back; of `other` how many",
        OF_GROUP, GROUP,
    ),
    counter("group_acked_total", MESSAGES, "Messages acknowledged, ever", OF_GROUP, GROUP),
    counter("group_buried_total", MESSAGES, "Messages that became dead letters, ever", OF_GROUP, GROUP),
)  # fmt: skip

BROKERS = table_of(named("tidemill", [*FLOWS, *PORTS, *STOCK, *SUBJECTS, *GROUPS, *of_hosts("broker")]))

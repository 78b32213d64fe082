"""Every bound of the system, with its reason. Relations between bounds are asserted at import.

A bound that a user can meet is answered with a named error that holds the limit (``errors.py``). What happens at an
inner bound is written where the bound is met.
"""

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

# Names.
SUBJECT_NAME_MAX = 100  # characters; what QMQ's users have in their databases
GROUP_NAME_MAX = 100
CONSUMER_NAME_MAX = 200  # a pod name (253 at most) is cut by the client, a host name with a suffix fits
PARTITION_NAME_BYTES_MAX = 255  # one length byte; "%dead%" + subject + "%" + group fits

# Messages and batches.
MESSAGE_BYTES_DEFAULT = 1 * MIB  # a subject may allow more, up to the next line
MESSAGE_BYTES_MAX = 16 * MIB - 64 * KIB
BATCH_BYTES_MAX = 16 * MIB
BATCH_MESSAGES_MAX = 1 << 20  # fits the 24 bits of a consume log entry
PROPERTIES_BYTES_MAX = 64 * KIB
KEY_BYTES_MAX = 1 * KIB
TAGS_MAX = 10
TAG_BYTES_MAX = 255
COLUMNS_MAX = 32
PRIORITY_MAX = 7  # eight are more than people can tell apart; each costs a subject that uses it a lane

# Frames. A frame of several batches is cut by the client at FRAME_BYTES_MAX; a batch of the largest size fits alone.
CONTROL_BYTES_MAX = 1 * MIB  # the map of a SENT or PULLED
REQUEST_BYTES_MAX = (
    256 * KIB
)  # any other map: msgpack makes up to 64 bytes of one, so this costs 16 MiB at most
FRAME_BYTES_MAX = BATCH_BYTES_MAX + CONTROL_BYTES_MAX
HELLO_BYTES_MAX = 4 * KIB
TOKEN_CHARS_MAX = 2_500  # what a Kubernetes ServiceAccount shows has some 1,000; a HELLO has room for it
DETAIL_CHARS_MAX = (
    1000  # a sentence for a person; longer ones are cut, so that an ERROR fits where a WELCOME may be
)
FRAME_GROWTH_BYTES = 1 * MIB  # a frame's buffer grows as bytes arrive, so an announced length costs nothing
SLOW_FRAME_MS = 30_000  # a frame begun and not finished by then closes its connection
PEER_SILENT_MS = 10_000  # a peer whose kernel was not heard of for so long, though it was asked, is gone
HELLO_MS = 10_000  # a connection that has not said HELLO by then is closed
BACKLOG_BYTES_MAX = 64 * MIB  # waiting for the broker's disk; above it, who sends batches is not read from
RECEIVE_BYTES_MAX = 256 * MIB  # unfinished frames of all connections together; the largest is closed above it
UNREAD_BYTES_MAX = 256 * MIB  # what all peers of a port have not read; above it, answers stay on the disk

# Connections of one broker.
CONNECTIONS_MAX = 20_000
HTTP_CONNECTIONS_MAX = (
    1_000  # people, scrapers, probes, and each client for a moment; more are told to come again
)
HTTP_SPARE_CONNECTIONS = (
    32  # beyond them, for a second each: probes and scrapers, who else is told to come again
)
HTTP_JSON_BYTES_MAX = 2 * MIB  # parsed in one go while nothing else runs: some 50 ms; a larger body comes raw
HTTP_MESSAGES_MAX = (
    1000  # in one send, receive or settlement over HTTP: each costs Python some 10 microseconds
)
HTTP_RECEIVE_BYTES = 1 * MIB  # of batches in one answer; one that is larger comes alone
HTTP_UNPACKED_BYTES = (
    4 * MIB
)  # of them once they are unpacked: some 50 ms; messages beyond it are handed back
HTTP_HELD_BYTES_MAX = (
    128 * MIB
)  # bodies of all requests and answers together; above it, requests are told to wait
HTTP_CONSUMERS_MAX = (
    10_000  # consumer names in use over HTTP; as many Python objects as half of all connections
)
HTTP_CONSUMER_IDLE_MS = 30_000  # a name that holds no lease and was not used for so long is forgotten
HTTP_RECEIPT_CHARS_MAX = 300  # 12 bytes and the longest consumer name, in base64
HTTP_CONSUMER_NAME_MAX = 190  # the broker knows it with a prefix; all of it fits CONSUMER_NAME_MAX
CORRELATIONS_MAX = 1024  # requests of one connection that wait for an answer; more is refused

# Producers.
PRODUCER_BATCHES_REMEMBERED = 5  # of each producer in each partition; a client keeps no more SENDs in flight
PRODUCERS_REMEMBERED_MAX = 1024  # of each partition at least; those silent for longest are forgotten
SINGLES_REMEMBERED_MAX = (
    1024  # of each partition; batches whose producer sends no other, as keyed ones over HTTP
)

# Dedup keys.
DEDUPLICATION_SECONDS_DEFAULT = (
    120  # a program that was cut off tries again within it, and a failover is over
)
DEDUPLICATION_SECONDS_MAX = 24 * 3600
DEDUP_KEYS_MAX = 1 << 22  # remembered by a broker: 56 bytes each, so a quarter of a gigabyte
DEDUP_BATCH_KEYS_MAX = 10_000  # in one batch: were all of them known, where they are fits a control body
DEDUP_ANSWER_ROWS_MAX = (
    20_000  # in the answer to one SEND; further batches with duplicates are refused, and come again
)
PARTS_REMEMBERED_MAX = (
    1024  # of each partition: batches of which some messages were known, for who sends one again
)
PARTS_REMEMBERED_BYTES = 1 * MIB

# Transactions.
TRANSACTION_BATCHES_MAX = 100  # half messages of one transaction; all of them are read and copied in one turn
TRANSACTION_BYTES_MAX = (
    BATCH_BYTES_MAX - 64 * KIB
)  # of them together: what holds one is a batch, too, and they are read at once
TRANSACTIONS_PENDING_MAX = 10_000  # of a broker; each keeps its segment of the log
TRANSACTIONS_REMEMBERED_MAX = (
    100_000  # decided: who says it again is told the same; half a minute of the most that a broker does
)
COMMIT_READ_BYTES_MAX = 64 * MIB  # of half messages that are read to be copied, at a time
CHECK_AFTER_MS = 6_000  # a producer that is silent for so long is asked what became of its transaction
CHECK_INTERVAL_MS = 30_000
CHECKS_MAX = 15  # then it is rolled back: with these, eight minutes after its last half message
CHECK_ROWS_MAX = 20  # transactions that one answer asks about
CHECK_BYTES = 1 * MIB  # of half messages in it; a larger transaction comes alone

# Consumption.
PULL_MESSAGES_MAX = 1 << 20
PULL_BYTES_MAX = 8 * MIB
PULL_WAIT_MS_MAX = 60_000
PULL_WAIT_MS_DEFAULT = 15_000
PULL_SUBJECTS_MAX = 1000  # subjects named in one pull
LEASE_MS_DEFAULT = 60_000
LEASE_MS_MAX = 12 * 3600 * 1000
LEASE_RENEWED_MS_DEFAULT = (
    3600 * 1000
)  # longer than almost any handler works, short enough to find one that hangs
LEASE_RENEWED_MS_MAX = 7 * 24 * 3600 * 1000
CONSUMER_GONE_MS = 10_000
BROADCAST_SILENCE_MS = (
    72 * 3600 * 1000
)  # a long weekend; as long as messages are kept by default, so none is missed
RANGES_MAX = 10_000  # ranges in one ACK, NACK, EXTEND or RELEASE
HELD_RANGES_MAX = 5_000  # ranges a PULL says its consumer holds: they fit a request beside the most subjects
SEND_BATCHES_MAX = 5_000  # batches in one SEND: were all of them refused, the reasons fit a control body
REFUSALS_TOLD_MAX = 500  # of one SENT with their whole sentences; of those behind them its beginning is told
REFUSAL_CHARS_MAX = 20
GRANTS_MAX = 5_000  # grants in one PULLED: with the longest subjects they fit a control body
LANE_SHARE = 16  # of so many messages given to a group, a lane that waits gets one: seven lanes leave the first 9 of 16
IN_FLIGHT_MAX = 1 << 20  # messages leased and not acked, per consumer group and partition
DELAY_MS_MAX = 731 * 24 * 3600 * 1000  # two years, with a day of a leap year
NACK_DELAY_MS_MAX = 24 * 3600 * 1000
CLOCKS_APART_MS = 5_000  # a sender's clock may be ahead: no delay that its subject allows is refused for that
DOOMED_MS = 1 << 62  # the due time of what is never due again, and will be buried
OUTAGE_FAILURES_MIN = 20  # failures alike before a group is paused: fewer may be a few bad messages
PROBE_MS_MIN = 1_000  # between the probes of a paused group; doubled after each that fails
PROBE_MS_MAX = 30_000
DEAD_LETTER_BYTES = 1 * MIB  # bodies of one dead-letter batch, so that burying stalls nobody; or one message
DEAD_READS_MAX = 4  # batches that are read for burying at a time
DEAD_COPIES_MAX = (
    256  # dead-letter batches of what was read, in one turn: tens of milliseconds; the others are read again
)
DEAD_PROPERTIES_BYTES_MAX = 2 * PROPERTIES_BYTES_MAX  # of a dead letter: its own, and what it died of
ATTEMPTS_TOLD_MAX = 1 << 30  # before somebody tells of them; as many may follow
ADOPTED_BYTES_MAX = 64 * MIB  # of what the messages of one ADOPT failed of, which each copy says again

# Queries. What is more comes with the next page.
QUERY_MESSAGES_DEFAULT = 100
QUERY_MESSAGES_MAX = 1000
QUERY_ANSWER_BYTES = 4 * MIB  # of messages in one answer; one message may be larger
QUERY_READ_BYTES = 64 * MIB  # read for one answer
QUERY_ROWS = 1 << 22  # rows of the consume log looked at for one answer
QUERIES_RUNNING_MAX = 2  # of four threads that read; the others are the consumers'
QUERIES_WAITING_MAX = 64

# Ranges, which archives read.
RANGE_BYTES_MAX = 64 * MIB  # of batches in one answer; one batch may be larger
RANGE_CHUNK_BYTES = 4 * MIB  # read and written at once
RANGE_EXTENTS_MAX = 1 << 16  # of one answer: batches that do not lie side by side
RANGE_SPANS_MAX = 1_000  # partitions in one request for batches
RANGE_PATIENCE_S = 30  # with who does not read what it asked for
RANGES_RUNNING_MAX = 2  # of four threads that read; the others are the consumers'
RANGES_WAITING_MAX = 256
RANGE_PIECES_MAX = 10_000  # in one answer; what is behind them is asked for from there
ACTIONS_BYTES_MAX = 1 * MIB  # of the action log, looked through for one answer: some ten thousand records
ACTION_NAMES_MAX = 200_000  # of groups and consumers, known to who tells actions; then it begins anew

# Timers.
TIMERS_PAGE_MAX = 500  # in one WAITING: with the longest keys and subjects they fit a control body
TIMERS_BODIES_BYTES = 256 * KIB  # of bodies in one WAITING; what is more is left out of it
TIMERS_ASKED_MAX = 4096  # questions that wait for the next look through the names; more is refused

# Logs.
MESSAGE_SEGMENT_BYTES = 1 * GIB
MESSAGE_SEGMENT_BATCHES = 1 << 20  # bounds the memory of the open segment's consume log
INDEX_KEYS_MAX = (
    1 << 23
)  # keys in a message segment: 8 bytes each in memory while it is open, 16 in its index
ACTION_SEGMENT_BYTES = 100 * MIB
CHECKPOINT_EVENTS = 10_000
CHECKPOINT_INTERVAL_MS = 60_000
CHECKPOINT_PAUSE_MS = 5_000  # two checkpoints are at least so far apart, however many events come
CHECKPOINTS_KEPT = 5
SYNC_INTERVAL_MS = 500  # `normal`: what is in the page cache is on the disk so much later
LOW_SYNC_INTERVAL_MS = 10_000  # `low`: no promise; the kernel itself begins to write what is half as old
FREE_SPACE_MIN_PERCENT = 5
RETENTION_SECONDS_DEFAULT = 72 * 3600
RETENTION_INTERVAL_MS = (
    10_000  # between two looks for segments to drop: a gigabyte more or less does not matter
)

# Broker groups.
REPLICAS_MAX = 16  # of one group; each gets all bytes from the master
FENCES_MAX = 1000  # rows in one FENCE, and in its answer
EPOCHS_MAX = 1000  # of which a log remembers where they began; a slave that was away for more begins anew
CHUNK_BYTES = 1 * MIB  # of a log in one frame to a slave; smaller ones cost it more
CHUNKS_AHEAD_BYTES = 32 * MIB  # sent to a slave and not known to be written there; the largest batch fits
HEARTBEAT_MS = 1_000  # master and slave say something to each other as often
HANDOVER_MS = 5_000  # a master that hands over and is not succeeded by then goes on as before
SLAVE_SILENT_MS = 5_000  # then a connection between them is given up, and a slave is wished out of sync

SUBJECTS_MAX = 100_000
GROUPS_MAX = 100_000  # of a broker: each costs a kilobyte for good, and a client may name as many as it likes
CONSUMERS_MAX = 10_000  # of a group on a subject: each is looked at when its group's segments are dropped

METRIC_SUBJECTS_MAX = 100  # with a name on a metrics page: each is some lines at each scrape, for ever
METRIC_GROUPS_MAX = 200
METRIC_MISTAKES_MAX = 50
METRIC_QUOTAS_MAX = 50
METRIC_LOOKS_MAX = 4096  # at failures, or runs of deliveries, of one group for the oldest: all of most groups

VIGIL_US = 250  # of one wait are spent awake at most: more than the slowest answer that sleepers give
VIGIL_WORTH_US = 150  # waits that are longer on average are slept through: no core is burnt for them
VIGIL_LOOKS_MAX = 1024  # in one wait, whatever the clock says

assert VIGIL_WORTH_US < VIGIL_US
assert SYNC_INTERVAL_MS <= LOW_SYNC_INTERVAL_MS
assert MESSAGE_BYTES_DEFAULT <= MESSAGE_BYTES_MAX < BATCH_BYTES_MAX
assert BATCH_BYTES_MAX < FRAME_BYTES_MAX < MESSAGE_SEGMENT_BYTES
assert TRANSACTION_BYTES_MAX + CONTROL_BYTES_MAX < FRAME_BYTES_MAX
assert TRANSACTION_BYTES_MAX <= COMMIT_READ_BYTES_MAX
assert CHECK_ROWS_MAX * 64 < REQUEST_BYTES_MAX
assert CHECK_BYTES <= TRANSACTION_BYTES_MAX
assert len("%dead%") + SUBJECT_NAME_MAX + 1 + GROUP_NAME_MAX <= PARTITION_NAME_BYTES_MAX
assert PRIORITY_MAX + 8 <= LANE_SHARE  # the highest lane that waits is given more than half of all
assert BATCH_MESSAGES_MAX < 1 << 24
assert BATCH_BYTES_MAX + CHUNK_BYTES < CHUNKS_AHEAD_BYTES
assert 24 * EPOCHS_MAX + 4 * KIB < REQUEST_BYTES_MAX
assert TOKEN_CHARS_MAX + 4 * 200 + 64 <= HELLO_BYTES_MAX
assert 4 * DETAIL_CHARS_MAX + 64 <= HELLO_BYTES_MAX  # UTF-8 needs at most 4 bytes a character
assert GRANTS_MAX * (SUBJECT_NAME_MAX + 64) < CONTROL_BYTES_MAX
assert TIMERS_PAGE_MAX * (KEY_BYTES_MAX + SUBJECT_NAME_MAX + 128) + TIMERS_BODIES_BYTES < CONTROL_BYTES_MAX
assert 16 * RANGES_MAX + 4 * KIB < REQUEST_BYTES_MAX
assert PULL_SUBJECTS_MAX * (SUBJECT_NAME_MAX + 2) + 16 * HELD_RANGES_MAX + 4 * KIB < REQUEST_BYTES_MAX
assert REQUEST_BYTES_MAX < CONTROL_BYTES_MAX
assert DEDUP_BATCH_KEYS_MAX <= DEDUP_ANSWER_ROWS_MAX
assert (
    32 * DEDUP_ANSWER_ROWS_MAX + 256 * REFUSALS_TOLD_MAX + (32 + REFUSAL_CHARS_MAX) * SEND_BATCHES_MAX
) < CONTROL_BYTES_MAX
assert HELLO_BYTES_MAX < FRAME_GROWTH_BYTES <= FRAME_BYTES_MAX
assert min(RECEIVE_BYTES_MAX, UNREAD_BYTES_MAX) > PULL_BYTES_MAX + BATCH_BYTES_MAX
assert CONTROL_BYTES_MAX < ACTION_SEGMENT_BYTES
assert MESSAGE_BYTES_DEFAULT * 4 // 3 < HTTP_JSON_BYTES_MAX  # a message of the default size fits, in base64
assert 2 * FRAME_BYTES_MAX < HTTP_HELD_BYTES_MAX
assert HTTP_MESSAGES_MAX <= RANGES_MAX
assert HTTP_RECEIVE_BYTES <= PULL_BYTES_MAX
assert HTTP_RECEIVE_BYTES <= HTTP_UNPACKED_BYTES  # what is not packed always fits
assert HTTP_CONSUMERS_MAX < CONNECTIONS_MAX
assert (12 + HTTP_CONSUMER_NAME_MAX) * 4 // 3 < HTTP_RECEIPT_CHARS_MAX
assert HTTP_CONSUMER_NAME_MAX < CONSUMER_NAME_MAX
assert HTTP_CONNECTIONS_MAX <= CORRELATIONS_MAX  # a long poll each, all of one consumer
assert (
    PEER_SILENT_MS <= CONSUMER_GONE_MS < LEASE_MS_DEFAULT
)  # else its messages come again when their lease ends only
assert PULL_WAIT_MS_DEFAULT <= PULL_WAIT_MS_MAX < LEASE_MS_MAX

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

# Frames. A frame of several batches is cut by the client at FRAME_BYTES_MAX; a batch of the largest size fits alone.
CONTROL_BYTES_MAX = 1 * MIB  # the map of a SENT or PULLED
REQUEST_BYTES_MAX = (
    256 * KIB
)  # any other map: msgpack makes up to 64 bytes of one, so this costs 16 MiB at most
FRAME_BYTES_MAX = BATCH_BYTES_MAX + CONTROL_BYTES_MAX
HELLO_BYTES_MAX = 4 * KIB
DETAIL_CHARS_MAX = (
    1000  # a sentence for a person; longer ones are cut, so that an ERROR fits where a WELCOME may be
)
FRAME_GROWTH_BYTES = 1 * MIB  # a frame's buffer grows as bytes arrive, so an announced length costs nothing
SLOW_FRAME_MS = 30_000  # a frame begun and not finished by then closes its connection
HELLO_MS = 10_000  # a connection that has not said HELLO by then is closed
BACKLOG_BYTES_MAX = 64 * MIB  # waiting for the broker's disk; above it, who sends batches is not read from
RECEIVE_BYTES_MAX = 256 * MIB  # unfinished frames of all connections together; the largest is closed above it

# Connections of one broker.
CONNECTIONS_MAX = 20_000
HTTP_CONNECTIONS_MAX = (
    1_000  # people, scrapers, probes, and each client for a moment; more are closed at once
)
CORRELATIONS_MAX = 1024  # requests of one connection that wait for an answer; more is refused

# Producers.
PRODUCER_BATCHES_REMEMBERED = 5  # of each producer in each partition; a client keeps no more SENDs in flight
PRODUCERS_REMEMBERED_MAX = 1024  # of each partition; the one silent for longest is forgotten

# Consumption.
PULL_MESSAGES_MAX = 1 << 20
PULL_BYTES_MAX = 8 * MIB
PULL_WAIT_MS_MAX = 60_000
PULL_WAIT_MS_DEFAULT = 15_000
PULL_SUBJECTS_MAX = 1000  # subjects named in one pull
LEASE_MS_DEFAULT = 60_000
LEASE_MS_MAX = 12 * 3600 * 1000
CONSUMER_GONE_MS = 10_000
BROADCAST_SILENCE_MS = (
    72 * 3600 * 1000
)  # a long weekend; as long as messages are kept by default, so none is missed
RANGES_MAX = 10_000  # ranges in one ACK, NACK, EXTEND or RELEASE
SEND_BATCHES_MAX = 5_000  # batches in one SEND: were all of them refused, the reasons fit a control body
GRANTS_MAX = 5_000  # grants in one PULLED: with the longest subjects they fit a control body
IN_FLIGHT_MAX = 1 << 20  # messages leased and not acked, per consumer group and partition
NACK_DELAY_MS_MAX = 24 * 3600 * 1000

# Logs.
MESSAGE_SEGMENT_BYTES = 1 * GIB
MESSAGE_SEGMENT_BATCHES = 1 << 20  # bounds the memory of the open segment's consume log
ACTION_SEGMENT_BYTES = 100 * MIB
CHECKPOINT_EVENTS = 10_000
CHECKPOINT_INTERVAL_MS = 60_000
CHECKPOINT_PAUSE_MS = 5_000  # two checkpoints are at least so far apart, however many events come
CHECKPOINTS_KEPT = 5
SYNC_INTERVAL_MS = 500  # `normal` and `low`: what is in the page cache is on the disk so much later
FREE_SPACE_MIN_PERCENT = 5
RETENTION_SECONDS_DEFAULT = 72 * 3600

SUBJECTS_MAX = 100_000

assert MESSAGE_BYTES_DEFAULT <= MESSAGE_BYTES_MAX < BATCH_BYTES_MAX
assert BATCH_BYTES_MAX < FRAME_BYTES_MAX < MESSAGE_SEGMENT_BYTES
assert len("%dead%") + SUBJECT_NAME_MAX + 1 + GROUP_NAME_MAX <= PARTITION_NAME_BYTES_MAX
assert BATCH_MESSAGES_MAX < 1 << 24
assert 4 * DETAIL_CHARS_MAX + 64 <= HELLO_BYTES_MAX  # UTF-8 needs at most 4 bytes a character
assert GRANTS_MAX * (SUBJECT_NAME_MAX + 64) < CONTROL_BYTES_MAX
assert 16 * RANGES_MAX + 4 * KIB < REQUEST_BYTES_MAX
assert PULL_SUBJECTS_MAX * (SUBJECT_NAME_MAX + 2) + 4 * KIB < REQUEST_BYTES_MAX < CONTROL_BYTES_MAX
assert HELLO_BYTES_MAX < FRAME_GROWTH_BYTES <= FRAME_BYTES_MAX
assert PULL_BYTES_MAX + BATCH_BYTES_MAX < RECEIVE_BYTES_MAX
assert CONTROL_BYTES_MAX < ACTION_SEGMENT_BYTES
assert PULL_WAIT_MS_DEFAULT <= PULL_WAIT_MS_MAX < LEASE_MS_MAX

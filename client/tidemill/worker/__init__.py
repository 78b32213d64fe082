"""The worker: handlers for messages, with concurrency, timeouts, middleware and an orderly end. See docs/worker.md."""

from tidemill.worker.context import Context
from tidemill.worker.handler import Handler
from tidemill.worker.idempotence import Claim, IdempotencyStore, Idempotent, MemoryStore, State
from tidemill.worker.middleware import Middleware
from tidemill.worker.plain import PlainMessage
from tidemill.worker.statistics import Counts, Statistics
from tidemill.worker.stores import RedisLike, RedisStore, SqlStore
from tidemill.worker.verdicts import HandlerTimeout, Reject, RetryAfter, Skip
from tidemill.worker.worker import Ended, Worker

__all__ = [
    "Claim",
    "Context",
    "Counts",
    "Ended",
    "Handler",
    "HandlerTimeout",
    "IdempotencyStore",
    "Idempotent",
    "MemoryStore",
    "Middleware",
    "PlainMessage",
    "RedisLike",
    "RedisStore",
    "Reject",
    "RetryAfter",
    "Skip",
    "SqlStore",
    "State",
    "Statistics",
    "Worker",
]

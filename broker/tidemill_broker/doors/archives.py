"""The doors that archives come to."""

from __future__ import annotations

from concurrent.futures import Executor

from tidemill_broker.doors.queries import Queries
from tidemill_broker.doors.segments import SegmentRanges
from tidemill_broker.doors.service import Service
from tidemill_broker.doors.stretches import Stretches
from tidemill_broker.doors.telling import Telling
from tidemill_host.disk import Disk
from tidemill_host.files import Files


def archive_doors(
    service: Service, queries: Queries, disk: Disk, read: Executor
) -> tuple[SegmentRanges, Stretches, Telling]:
    """Raw segments, batches of partitions, and what was done with messages."""
    telling = Telling(service, queries, Files(disk))
    return SegmentRanges(service, disk, read), Stretches(service, disk, read), telling

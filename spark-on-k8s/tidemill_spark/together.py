"""Reading many small partitions of a broker group at once: one request, and an answer in which they lie among each
other as in the log.
"""

from __future__ import annotations

import http.client
import json
import struct
from collections.abc import Sequence
from dataclasses import replace

from tidemill_spark.calling import Port
from tidemill_spark.decode import split
from tidemill_spark.ranges import PATH, Range, read
from tidemill_wire.errors import CorruptBatch
from tidemill_wire.limits import MIB

TOGETHER_BYTES = 64 * MIB
HEAD = struct.Struct("<II")


def read_together(wanted: Sequence[Range], answer_bytes: int = TOGETHER_BYTES) -> list[list[memoryview]]:
    """The batches of ranges of one broker group, of each its own: a request for many small ones. The caller bounds what
    they hold together. A broker of an earlier version, and a range that has expired, are asked for one by one.
    """
    at = [one.first_sequence for one in wanted]
    found: list[list[memoryview]] = [[] for _ in wanted]
    urls = list(wanted[0].urls)
    while urls:
        open_ = [number for number, one in enumerate(wanted) if at[number] < one.next_sequence]
        if not open_:
            return found
        port = Port(urls[0])
        try:
            answer = _together(port, [(wanted[number], at[number]) for number in open_], answer_bytes)
        finally:
            port.close()
        if answer is None or not any(answer[0][row] > at[number] for row, number in enumerate(open_)):
            urls.pop(0)
            continue
        for row, number in enumerate(open_):
            at[number] = max(at[number], answer[0][row])
        for row, batch in zip(answer[1], answer[2], strict=True):
            found[open_[row]].append(batch)
    for number, one in enumerate(wanted):
        if at[number] < one.next_sequence:
            for data in read(replace(one, first_sequence=at[number])):
                found[number] += split(data)[0]
    return found


def _together(
    port: Port, spans: Sequence[tuple[Range, int]], size: int
) -> tuple[list[int], list[int], list[memoryview]] | None:
    """Where each goes on, of which each batch is, and the batches; ``None``: ask somebody else, or in another way."""
    rows = [{"partition": one.partition, "from": at, "until": one.next_sequence} for one, at in spans]
    asked = {"spans": rows, "size": size}
    try:
        status, _, body = port.get(f"{PATH}/batches", json.dumps(asked))
    except (OSError, http.client.HTTPException):
        return None
    if status != 200:
        return None
    ranges, batches = HEAD.unpack_from(body)
    owners = HEAD.size + 8 * ranges
    data, used = split(memoryview(body)[owners + 4 * batches :])
    if ranges != len(spans) or len(data) != batches or owners + 4 * batches + used != len(body):
        raise CorruptBatch(f"an answer says {batches} batches and has {len(data)}")
    return (
        list(struct.unpack_from(f"<{ranges}q", body, HEAD.size)),
        list(struct.unpack_from(f"<{batches}I", body, owners)),
        data,
    )

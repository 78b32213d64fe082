"""What has been read of one batch in the log: its head, single columns, single bodies.

``need`` says which bytes have to be read before ``view`` can show them. A batch that is read in parts cannot be checked
against the producer's sum, which is of all of it; the column SUMS has others, of tags and of single messages.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable

from tidemill_wire.batch import Header, check_said, check_stamp, read_header
from tidemill_wire.columns import Column, Entry, read_entries
from tidemill_wire.errors import CorruptBatch

HEAD_BYTES = 1024
WHOLE_BYTES = 8192
GAP_BYTES = 4096

Span = tuple[int, int]
"""First byte in the batch, and size."""

assert HEAD_BYTES >= 104 + 256 + 16 * 32  # the longest head with the longest name and directory


class Excerpt:
    """Parts of the batch of ``length`` bytes at a position of the message log."""

    __slots__ = ("_entries", "_header", "_pieces", "_starts", "awaited", "length", "position", "sought")

    def __init__(self, position: int, length: int) -> None:
        self.position = position
        self.length = length
        self.awaited: set[int] = set()
        """Where the parts begin that are being read."""
        self.sought = False
        """Its tags are wanted, and not only some messages whose places are known."""
        self._starts: list[int] = []
        self._pieces: dict[int, memoryview] = {}
        self._header: Header | None = None
        self._entries: dict[int, Entry] = {}

    @property
    def size(self) -> int:
        """Bytes that are held."""
        return sum(len(piece) for piece in self._pieces.values())

    def head(self) -> list[Span]:
        """What has to be read first: all of it when it is little."""
        size = self.length if self.length <= WHOLE_BYTES else HEAD_BYTES
        return self.need([(0, size)])

    def arrived(self, start: int, data: bytes) -> None:
        """A part that was asked for. Less than that came when its file is gone; it is asked for again then."""
        self.awaited.discard(start)
        if start not in self._pieces:
            insort(self._starts, start)
        self._pieces[start] = memoryview(data)

    def need(self, spans: Iterable[Span]) -> list[Span]:
        """The parts to be read before all of the spans are there; spans that are near become one part."""
        parts: list[Span] = []
        for start, size in sorted(spans):
            if not size or self._find(start, size) is not None:
                continue
            if parts and start <= parts[-1][0] + parts[-1][1] + GAP_BYTES:
                begin = parts[-1][0]
                parts[-1] = begin, max(parts[-1][1], start + size - begin)
            else:
                parts.append((start, size))
        return parts

    def view(self, start: int, size: int) -> memoryview:
        """Bytes that are there."""
        found = self._find(start, size) if size else memoryview(b"")
        assert found is not None, (self.position, start, size)
        return found

    def open(self) -> None:
        """Read the head, which is there; ``CorruptBatch`` when it is not what the row says."""
        if self._header is not None:
            return
        head = self._pieces[0]
        header = read_header(head)
        check_stamp(head, 0, header)
        if header.length != self.length or header.position != self.position:
            raise CorruptBatch("the batch is not the one that its row leads to")
        self._entries = read_entries(head, 0, header)
        if self.length <= WHOLE_BYTES:
            check_said(head, 0, header)
        self._header = header

    @property
    def header(self) -> Header:
        """Header of the batch, once it is open."""
        assert self._header is not None
        return self._header

    @property
    def entries(self) -> dict[int, Entry]:
        """Where the columns are, once it is open."""
        return self._entries

    def span(self, kind: Column) -> Span:
        """Where a column is; nothing when it is absent."""
        entry = self._entries.get(kind)
        return (entry[1], entry[2]) if entry is not None else (0, 0)

    def column(self, kind: Column) -> memoryview:
        """A column that was needed before."""
        return self.view(*self.span(kind))

    def _find(self, start: int, size: int) -> memoryview | None:
        index = bisect_right(self._starts, start) - 1
        while index >= 0:
            begin = self._starts[index]
            piece = self._pieces[begin]
            if start + size <= begin + len(piece):
                return piece[start - begin : start - begin + size]
            index -= 1
        return None

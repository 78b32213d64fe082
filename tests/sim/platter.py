"""What the simulated disk is made of: files as cached and durable bytes, and names as cached and durable folders."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

PAGE_SIZE = 4096
SECTOR_SIZE = 512


def folder_of(name: str) -> str:
    return name.rpartition("/")[0]


@dataclass(slots=True, eq=False)
class Inode:
    """A file's bytes, twice, and the pages in which they differ."""

    cached: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    dirty: set[int] = field(default_factory=set)
    cut_to: int | None = None
    """A truncation that has not reached the platter."""

    def append(self, data: bytes) -> None:
        if data:
            first = len(self.cached) // PAGE_SIZE
            self.cached += data
            self.dirty.update(range(first, (len(self.cached) - 1) // PAGE_SIZE + 1))

    def write(self, position: int, data: bytes) -> None:
        """In place, within the file or right behind its end."""
        assert position <= len(self.cached)
        if data:
            self.cached[position : position + len(data)] = data
            first, last = position // PAGE_SIZE, (position + len(data) - 1) // PAGE_SIZE
            self.dirty.update(range(first, last + 1))

    def truncate(self, size: int) -> None:
        """Cut, or extend by zeros, as ftruncate does."""
        if size > len(self.cached):
            self.append(bytes(size - len(self.cached)))
            return
        del self.cached[size:]
        self.dirty = {page for page in self.dirty if page * PAGE_SIZE < size}
        if size < len(self.durable):
            self.cut_to = size if self.cut_to is None else min(size, self.cut_to)

    def sync(self) -> None:
        self._cut()
        for page in sorted(self.dirty):
            self._keep(page)
        self.dirty.clear()

    def forget(self, rng: random.Random) -> None:
        """A failed sync: every page is clean now, about half of them without having been written."""
        self._cut()
        for page in sorted(self.dirty):
            if rng.random() < 0.5:
                self._keep(page)
        self.dirty.clear()

    def settle(self, rng: random.Random, torn: float) -> bool:
        """The power goes. True when a page was torn."""
        pages = sorted(self.dirty)
        match rng.choice(("none", "all", "each", "prefix")) if pages else "none":
            case "none":
                kept = []
            case "all":
                kept = pages
            case "each":
                kept = [page for page in pages if rng.random() < 0.5]
            case _:
                kept = pages[: rng.randrange(len(pages) + 1)]
        if kept or rng.random() < 0.5:
            self._cut()
        any_torn = False
        for page in kept:
            if rng.random() < torn:
                any_torn = True
                self._tear(page, rng)
            else:
                self._keep(page)
        self.dirty.clear()
        self.cut_to = None
        self.cached = bytearray(self.durable)
        return any_torn

    def _cut(self) -> None:
        if self.cut_to is not None:
            del self.durable[self.cut_to :]
            self.cut_to = None

    def _keep(self, page: int) -> None:
        self._write(page * PAGE_SIZE, min((page + 1) * PAGE_SIZE, len(self.cached)))

    def _tear(self, page: int, rng: random.Random) -> None:
        end = min((page + 1) * PAGE_SIZE, len(self.cached))
        for start in range(page * PAGE_SIZE, end, SECTOR_SIZE):
            if rng.random() < 0.5:
                self._write(start, min(start + SECTOR_SIZE, end))

    def _write(self, start: int, end: int) -> None:
        if len(self.durable) < start:
            self.durable += bytes(start - len(self.durable))
        self.durable[start:end] = self.cached[start:end]


@dataclass(frozen=True, slots=True)
class Change:
    """One change of names that the platter does not know yet. ``old`` is empty for a new one, ``new`` for a removal."""

    old: str
    new: str
    inode: Inode | None
    """``None`` is a folder."""

    def touches(self, folder: str) -> bool:
        return any(name and folder_of(name) == folder for name in (self.old, self.new))


@dataclass(slots=True)
class Names:
    """The folder tree, twice, and the changes in between, in order."""

    cached: dict[str, Inode] = field(default_factory=dict)
    durable: dict[str, Inode] = field(default_factory=dict)
    folders: dict[str, None] = field(default_factory=lambda: {"": None})
    durable_folders: dict[str, None] = field(default_factory=lambda: {"": None})
    changes: list[Change] = field(default_factory=list)

    def all_inodes(self) -> Iterator[Inode]:
        """Every file that either side knows, once, in a fixed order."""
        seen: dict[int, Inode] = {}
        for names in (self.cached, self.durable):
            for name in sorted(names):
                seen.setdefault(id(names[name]), names[name])
        return iter(seen.values())

    def has_folder(self, folder: str) -> bool:
        return folder in self.folders

    def link(self, name: str) -> Inode:
        inode = self.cached[name] = Inode()
        self.changes.append(Change("", name, inode))
        return inode

    def rename(self, old: str, new: str) -> None:
        inode = self.cached.pop(old)
        self.cached[new] = inode
        self.changes.append(Change(old, new, inode))

    def unlink(self, name: str) -> None:
        inode = self.cached.pop(name)
        self.changes.append(Change(name, "", inode))

    def make_folder(self, folder: str) -> None:
        """The folder and those above it; one that is there is fine."""
        if folder in self.folders:
            return
        if folder_of(folder):
            self.make_folder(folder_of(folder))
        self.folders[folder] = None
        self.changes.append(Change("", folder, None))

    def sync(self, folder: str) -> None:
        for change in self.changes:
            if change.touches(folder):
                self._apply(change)
        self.changes = [change for change in self.changes if not change.touches(folder)]

    def settle(self, rng: random.Random, ordered: bool) -> bool:
        """The power goes. True when a change was lost."""
        if ordered:
            kept = self.changes[: rng.randrange(len(self.changes) + 1)]
        else:
            kept = [change for change in self.changes if rng.random() < 0.5]
        lost = len(kept) < len(self.changes)
        for change in kept:
            self._apply(change)
        self.changes = []
        self.durable = {
            name: inode for name, inode in self.durable.items() if self._reachable(folder_of(name))
        }
        self.durable_folders = {folder: None for folder in self.durable_folders if self._reachable(folder)}
        self.cached = dict(self.durable)
        self.folders = dict(self.durable_folders)
        return lost

    def _reachable(self, folder: str) -> bool:
        return not folder or (folder in self.durable_folders and self._reachable(folder_of(folder)))

    def _apply(self, change: Change) -> None:
        if change.inode is None:
            self.durable_folders[change.new] = None
            return
        if change.old and self.durable.get(change.old) is change.inode:
            del self.durable[change.old]
        if change.new:
            self.durable[change.new] = change.inode

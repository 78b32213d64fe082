"""Where the programs of the test clusters lie: outside of the tree, built once for each state of their sources.

``$XDG_CACHE_HOME/tidemill/kubernetes-HASH`` (by default below ``~/.cache``; ``TIDEMILL_TEST_CACHE`` names another
folder than ``tidemill``). Each program is put there by a rename, and a marker last: a build that is killed leaves the
programs it has finished, which the next one keeps, and parts that are never used. A lock beside the folder, which the
kernel gives back whatever becomes of its holder, keeps two builders from doing the same work.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

MARKER = ".complete"
NEWS_SECONDS = 15.0

Show = Callable[[str], None]


def base() -> Path:
    """The tests take ``XDG_CACHE_HOME`` away from clients by naming a device: that is no cache."""
    if given := os.environ.get("TIDEMILL_TEST_CACHE"):
        return Path(given)
    cache = os.environ.get("XDG_CACHE_HOME", os.devnull)
    return (Path.home() / ".cache" if cache == os.devnull else Path(cache)) / "tidemill"


def folder_of(files: Iterable[Path], words: Iterable[str]) -> Path:
    """The folder of what is built of these files and by these words."""
    digest = hashlib.sha256()
    for file in sorted(files):
        content = file.read_bytes()
        digest.update(f"{file.parent.name}/{file.name} {len(content)}\n".encode() + content)
    for word in words:
        digest.update(f"{word}\n".encode())
    return base() / f"kubernetes-{digest.hexdigest()[:12]}"


def is_complete(folder: Path) -> bool:
    return (folder / MARKER).exists()


class News:
    """What a build says of itself, for whoever sees it work, and in a file for those who wait for it."""

    def __init__(self, path: Path, show: Show) -> None:
        self._path = path
        self._show = show

    def say(self, text: str) -> None:
        with self._path.open("a") as file:
            file.write(f"{text}\n")
        self._show(text)


def news_path(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.news")


@contextmanager
def turn(folder: Path, show: Show) -> Iterator[None]:
    """Alone at the folder; until then, what the one before says of its work is shown from time to time."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        wait_for(lock, news_path(folder), show)
        yield


def wait_for(lock: IO[str], news: Path, show: Show) -> None:
    due = time.monotonic() + NEWS_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.2)
        else:
            return
        if time.monotonic() >= due:
            due += NEWS_SECONDS
            show(f"another process builds Kubernetes: {last_line(news)}")


def last_line(news: Path) -> str:
    try:
        return news.read_text().strip().rpartition("\n")[2]
    except FileNotFoundError:
        return "it has just begun"

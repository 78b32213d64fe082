"""What can go wrong with an archive.

ArchiveError
├── LakeDamaged      what lies in a lake is not what a lake holds
├── NoArchive        nothing was ever archived there
├── StoreFailed      where it lies does not answer, or refuses
└── WrongRequest     it was asked for in a wrong way
"""

from __future__ import annotations


class ArchiveError(Exception):
    """The base of all. Its text is a sentence for people."""


class LakeDamaged(ArchiveError):
    """A commit, checkpoint or file of a lake contradicts the others, or cannot be read."""


class NoArchive(ArchiveError):
    """A place that was mistyped is no archive without messages."""


class StoreFailed(ArchiveError):
    """A disk, HDFS or S3 failed; what was committed stays."""


class WrongRequest(ArchiveError):
    """A URI, time or option that cannot be."""

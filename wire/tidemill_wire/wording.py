"""Parts of sentences about what somebody wrote."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

SHOWN_MAX = 60  # characters of a wrong value that an error repeats


def did_you_mean(written: str, known: Iterable[str]) -> str:
    """A hint for a typo, or nothing."""
    from difflib import get_close_matches  # only errors need it

    by_folded = {each.casefold(): each for each in known}
    nearest = get_close_matches(written.casefold(), by_folded, n=1, cutoff=0.6)
    return f"did you mean {by_folded[nearest[0]]}?" if nearest else ""


def listed(values: Iterable[str], last: str = "or") -> str:
    *head, tail = values
    return f"{', '.join(head)} {last} {tail}" if head else tail


def shown_key(key: object) -> str:
    """A field's name as it was written, or what can be printed of it."""
    written = str(key)
    return written if written.isprintable() and len(written) <= SHOWN_MAX else shown(written)


def shown(value: object) -> str:
    """A wrong value, short enough for a sentence."""
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    if value is None:
        return "empty"
    written = {True: "true", False: "false"}[value] if isinstance(value, bool) else repr(value)
    return written if len(written) <= SHOWN_MAX else f"{written[:SHOWN_MAX]}…"

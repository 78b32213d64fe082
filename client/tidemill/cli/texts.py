"""Texts of the command line, checked before anything is connected: an argument may be any bytes, and a key may not."""

from __future__ import annotations

import typer


def parse_text(written: str | None) -> str | None:
    """A text that can be sent."""
    if written is not None:
        try:
            written.encode()
        except UnicodeEncodeError:
            shown = ascii(written[:60])
            raise typer.BadParameter(f"{shown} is not UTF-8: write it in a terminal that is") from None
    return written


def parse_texts(written: list[str] | None) -> list[str] | None:
    """Several."""
    for one in written or ():
        parse_text(one)
    return written


def parse_tags(written: list[str] | None) -> list[str] | None:
    """An empty one could be stored, and asked for by nobody."""
    if "" in (written or ()):
        raise typer.BadParameter("a tag is empty: leave it out, or give 1 character or more")
    return parse_texts(written)


def parse_command(written: str | None) -> str | None:
    """An empty one would end well, whatever the message is."""
    if written is not None and not written.strip():
        raise typer.BadParameter("the command is empty, and every message would be acknowledged: name one")
    return written

"""From whatever went wrong to one sentence that says what to do."""

from __future__ import annotations

import errno
import sys
from typing import cast

FAILURE, USAGE = 1, 2


class CommandFailed(Exception):
    """A command cannot go on. Its text is one sentence for the person who typed it."""

    def __init__(self, sentence: str, exit_code: int = FAILURE) -> None:
        self.exit_code = exit_code
        super().__init__(sentence)


def print_failure(sentence: str) -> None:
    """One line on standard error, whatever the text was made of."""
    try:
        print(f"tidemill: {' '.join(sentence.split())}", file=sys.stderr, flush=True)
    except OSError:
        pass  # nobody reads it; the exit code has to do


def wrong_usage(sentence: str) -> CommandFailed:
    return CommandFailed(sentence, USAGE)


def explained(error: BaseException, server: str, unread: str = "") -> CommandFailed | None:
    """The failure to show for an error met while talking to ``server``. None: a bug, which needs its traceback."""
    from tidemill.errors import BrokerUnreachable
    from tidemill_wire.errors import TidemillError

    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    match error:
        case CommandFailed():
            return error
        case BrokerUnreachable():
            return CommandFailed(f"{error}: `tidemill doctor` says what is wrong")
        case TidemillError():
            return CommandFailed(str(error))
        case KeyboardInterrupt():
            return CommandFailed(
                "interrupted before it was done: run it again, what was answered need not be repeated"
            )
        case BrokenPipeError():
            return CommandFailed(
                f"the reader of the output is gone: {unread or 'what it did not read is not shown'}"
            )
        case TimeoutError():
            return CommandFailed(
                f"no answer from {server} in time: look whether the broker is well, or try again"
            )
        case ConnectionError():
            return CommandFailed(nothing_listens(server, error.strerror or "the connection broke"))
        case OSError(errno=errno.ENOSPC):
            return CommandFailed(
                "the output cannot be written, its disk is full: free space and run it again"
            )
        case OSError():
            return CommandFailed(f"{error.strerror or error} ({server}): look at the address and the network")
        case UnicodeEncodeError():
            return wrong_usage(f"{error.object[:60]!a} is not UTF-8: write it in a terminal that is")
        case ValueError():
            return wrong_usage(str(error))
        case _:
            return None


NO_ANSWER = "no answer"


def nothing_listens(server: str, said: str) -> str:
    """Nobody is there, or somebody who does not answer."""
    if said == NO_ANSWER:
        return (
            f"{server} does not answer in time: look whether what runs there hangs or is overloaded, and whether it is "
            "reached from here; messages go on without meta, docs/oncall/lose-meta.md"
        )
    return (
        f"nothing answers at {server} ({said}): start a queue with `tidemill up`, "
        "or name its HTTP port with --server HOST:PORT or TIDEMILL_SERVER"
    )

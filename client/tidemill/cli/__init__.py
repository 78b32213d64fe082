"""The command line: one file a noun. What a person does wrong is answered with one sentence, never with a traceback.

Exit codes: 0 done, 1 it did not work, 2 it was asked for in a wrong way. Results go to standard output, all else to
standard error. Only what a command needs is imported, and only when it runs: asking for help must not load a client.
"""

from __future__ import annotations

import sys

from tidemill.cli.failures import USAGE, CommandFailed, explained, print_failure
from tidemill.cli.streams import leave_output, opened_streams

DONE, FAILED = 0, 1


def main() -> None:
    """The entry point of the `tidemill` script."""
    opened_streams()
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command; its exit code."""
    try:
        code = _run(arguments)
        sys.stdout.flush()  # at the end of the process it would be too late to say that it cannot be written
    except OSError as error:  # all others were explained where they were met
        leave_output()
        failure = explained(error, "the output")
        assert failure is not None
        print_failure(str(failure))
        return failure.exit_code
    return code


def _run(arguments: list[str]) -> int:
    if arguments in (["--version"], ["-V"]):
        print(f"tidemill {_version()}")
        return DONE
    import typer

    from tidemill.cli import application
    from tidemill.cli.completing import shell_named

    usage_error: type[Exception] = typer.BadParameter.__mro__[
        2
    ]  # ClickException, wherever this typer keeps it
    assert usage_error.__name__ == "ClickException"
    try:
        with shell_named(arguments):
            code = application.build()(args=arguments, prog_name="tidemill", standalone_mode=False)
    except CommandFailed as failure:
        print_failure(str(failure))
        return failure.exit_code
    except usage_error as error:
        return application.explain_usage(error)
    except UnicodeEncodeError as error:
        print_failure(f"{error.object[:60]!a} is not UTF-8: write it in a terminal that is")
        return USAGE
    except (typer.Abort, KeyboardInterrupt):
        print_failure("interrupted before it was done: run it again")
        return FAILED
    return code if isinstance(code, int) else DONE


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("tidemill")
    except PackageNotFoundError:
        return "(not installed, run from its source)"

"""How help reads: arguments and options by what they are called, and lines to copy where a person would want some.

typer says types as Python does, `<int range>`, and how it does so changes from version to version; a person is told a
name, and what it means in the sentence beside it.
"""

from __future__ import annotations

import re
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from tidemill.cli.examples import EXAMPLES

REQUIRED = re.compile(r"\{([^{}]+)\}")
OPTIONAL = re.compile(r"\[(\[[^\[\]]+\])\]")


class PlainCommand(TyperCommand):
    """A command whose help is for people."""

    def get_help(self, ctx: Any) -> str:
        _name(self)
        return _shorn(super().get_help(ctx))


class PlainGroup(TyperGroup):
    """The same of a noun."""

    def get_help(self, ctx: Any) -> str:
        _name(self)
        return _shorn(super().get_help(ctx))


def dressed(application: typer.Typer, path: str = "") -> typer.Typer:
    """All commands with such help, and their examples."""
    application.info.cls = PlainGroup
    for command in application.registered_commands:
        command.cls = PlainCommand
        lines = EXAMPLES.get(f"{path}{command.name}", ())
        if lines:
            command.epilog = "\b\n" + "\n".join(("Examples:", *(f"  tidemill {line}" for line in lines)))
    for noun in application.registered_groups:
        noun.cls = PlainGroup
        if noun.typer_instance is not None:
            dressed(noun.typer_instance, f"{path}{noun.name} ")
    return application


def _name(command: Any) -> None:
    """What has no name for its value is called as its longest option ends: of `--order-key` it is KEY."""
    for each in command.params:
        if each.param_type_name == "argument":
            each.display_type_rich = _no_type
        elif each.metavar is None and not each.is_flag and not _has_choices(each):
            each.metavar = max(each.opts, key=len).rpartition("-")[2].upper()


def _has_choices(option: Any) -> bool:
    """Then these are shown."""
    described = getattr(option, "type_descriptor", None) or option.type
    return bool(getattr(described, "is_choice", hasattr(described, "choices")))


def _no_type(**_context: object) -> str:
    """An argument's name is enough."""
    return ""


def _shorn(said: str) -> str:
    """The first lines, of usage, without brackets that say what is said below."""
    usage, rest, others = said.partition("\n\n")
    return OPTIONAL.sub(r"\1", REQUIRED.sub(r"\1", usage)) + rest + others

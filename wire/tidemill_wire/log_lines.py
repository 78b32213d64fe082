"""An event as one line of a log: a sentence for people, or an object for programs. Values in, a line out.

What could be a secret never leaves: passwords within addresses, bearer tokens, and fields that are called so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple


class Form(StrEnum):
    """How lines are written."""

    TEXT = "text"
    JSON = "json"


class Level(StrEnum):
    """How important; each shows those after it, too."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


RANKS = {level: rank for rank, level in enumerate(Level)}
HIDDEN = "***"
PASSWORD = re.compile(r"(?<=://)[^/\s:@\"']*:[^/\s@\"']+(?=@)")
BEARER = re.compile(r"(?i)(\bbearer\s+)[A-Za-z0-9._~+/=-]{6,}")
SECRET = re.compile(r"(?i)(token|password|passwd|secret|credential)s?$")


class Event(NamedTuple):
    """What happened, who says so, and when."""

    at: str
    """As RFC 3339 has it."""
    level: Level
    name: str
    text: str
    fields: Mapping[str, object] = {}


def log_line(form: Form, event: Event) -> str:
    """With its end; whatever the text is made of, it is one line."""
    text = scrubbed(" ".join(event.text.split()))
    if form is Form.TEXT:
        return f"tidemill: {text}\n"
    told = {"at": event.at, "level": event.level.value, "event": event.name, "text": text}
    more = {name: _shown(name, value) for name, value in event.fields.items() if name not in told}
    return json.dumps({**told, **more}, ensure_ascii=False, default=str) + "\n"


def scrubbed(text: str) -> str:
    """Without what opens doors."""
    return BEARER.sub(rf"\g<1>{HIDDEN}", PASSWORD.sub(HIDDEN, text))


def is_secret(name: str) -> bool:
    """Whether what has such a name is to be shown to nobody."""
    return SECRET.search(name) is not None


def shows(threshold: Level, level: Level) -> bool:
    return RANKS[level] >= RANKS[threshold]


def _shown(name: str, value: object) -> object:
    if is_secret(name) and value:
        return HIDDEN
    return scrubbed(value) if isinstance(value, str) else value

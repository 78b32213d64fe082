"""The operator's log on standard error, in the two forms that every service has."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime

from tidemill_wire.log_lines import Event, Form, Level, log_line

LEVELS = {"CRITICAL": Level.ERROR, "ERROR": Level.ERROR, "WARNING": Level.WARNING, "DEBUG": Level.DEBUG}


class Lines(logging.Formatter):
    """Records as events: one line each, with a traceback as a field."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = {"service": "operator", "pid": record.process}
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        level = LEVELS.get(record.levelname, Level.INFO)
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        event = Event(at.replace("+00:00", "Z"), level, record.name, record.getMessage(), fields)
        return log_line(Form.JSON, event).rstrip("\n")


def begin_logging(form: str) -> None:
    """``ValueError`` says what is no form."""
    if form not in list(Form):
        raise ValueError(f"TIDEMILL_LOG_FORMAT is {form[:60]!r}: write {' or '.join(Form)}")
    handler = logging.StreamHandler(sys.stderr)
    plain = logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s")
    handler.setFormatter(Lines() if form == Form.JSON else plain)
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def say(line: str, level: int = logging.INFO) -> None:
    """What every service says at its start and at its end, as every service says it."""
    handler = logging.getLogger().handlers[0]
    if isinstance(handler.formatter, Lines):
        logging.getLogger("tidemill.operator").log(level, "%s", line)
    else:
        sys.stderr.write(f"tidemill: {line}\n")

"""Logging on stderr: plain lines, or one JSON object per line."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

from leasehold.domain.errors import InvalidInput
from leasehold.surfaces.cli.render import clean, safe_json

_LEVELS = ("debug", "info", "warning", "error")
_FIELDS = ("job", "task", "attempt", "queue", "lease")


def set_up_logging(level: str, as_json: bool) -> None:
    if level.lower() not in _LEVELS:
        raise InvalidInput("log-level", f"{level!r} is not a level", f"use {', '.join(_LEVELS)}")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if as_json else TextLines())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


class TextLines(logging.Formatter):
    """Plain lines. A handler's line begins with its job; our own lines name the job in the message."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(whose)s%(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """The line without control characters: text of a job must not control the terminal."""
        return clean(super().format(record))

    def formatMessage(self, record: logging.LogRecord) -> str:
        values = vars(record)
        own = record.name.startswith("leasehold.") or "job" not in values
        values["whose"] = "" if own else f"[{values.get('task')} {values['job']} #{values.get('attempt')}] "
        return super().formatMessage(record)


class JsonLines(logging.Formatter):
    """One JSON object per line, with the job and the OpenTelemetry span of the record, if there are any."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: vars(record)[name] for name in _FIELDS if name in vars(record)}
        line |= _span()
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return safe_json(json.dumps(line, ensure_ascii=False, default=str))


def _span() -> dict[str, str]:
    """The ids of the current OpenTelemetry span. OpenTelemetry is used only if the app has imported it."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return {}
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return {}
    return {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}

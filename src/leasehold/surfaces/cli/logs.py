"""What the worker says, on stderr: plain lines, or one JSON object a line."""

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
    """What a handler says begins with its job; what we say about one names it anyway."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(whose)s%(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """What jobs say, and what they raise, cannot steer the terminal that it is shown on."""
        return clean(super().format(record))

    def formatMessage(self, record: logging.LogRecord) -> str:
        reported = vars(record)
        own = record.name.startswith("leasehold.") or "job" not in reported
        reported["whose"] = (
            "" if own else f"[{reported.get('task')} {reported['job']} #{reported.get('attempt')}] "
        )
        return super().formatMessage(record)


class JsonLines(logging.Formatter):
    """With the job that it is about or from, and the span that it was said in, if there is one."""

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
    """Of OpenTelemetry, where somebody uses it: nothing is imported for this."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return {}
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return {}
    return {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}

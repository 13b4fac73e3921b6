"""Copies records that a handler logs with the standard `logging` to its job's log tail."""

from __future__ import annotations

import logging

from leasehold.run.state import current_run
from leasehold.run.stream_buffer import StreamWriter


class LogCapture(logging.Handler):
    """A handler on the root logger while a worker lives: it keeps whatever the root logger's level lets through."""

    def __init__(self, events: StreamWriter) -> None:
        super().__init__()
        self._events = events
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))

    def start(self) -> None:
        logging.getLogger().addHandler(self)

    def stop(self) -> None:
        logging.getLogger().removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self._stand_in(record)
        run = current_run.get()
        # Another worker in this process has its own handler; our own records are about the job, not from it.
        if run is None or run.writer is not self._events or record.name.startswith("leasehold."):
            return
        try:
            run.log_line(self.format(record))
        except Exception:
            self.handleError(record)

    def _stand_in(self, record: logging.LogRecord) -> None:
        """Without logging set up, Python prints warnings to stderr; our handler must not silence them."""
        root, last_resort = logging.getLogger().handlers, logging.lastResort
        if last_resort is None or record.levelno < last_resort.level:
            return
        if root[:1] != [self] or not all(isinstance(handler, LogCapture) for handler in root):
            return  # another handler prints it, or another worker's capture does this
        logger: logging.Logger | None = logging.getLogger(record.name)
        while logger is not None and logger.parent is not None:
            if logger.handlers:
                return
            logger = logger.parent
        last_resort.handle(record)

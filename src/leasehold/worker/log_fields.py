"""Adds the fields job, task, attempt, queue and lease to records that a handler logs with the standard `logging`."""

from __future__ import annotations

import logging
import threading
from typing import Any

from leasehold.run.state import current_run


class RunRecord(logging.LogRecord):
    """Adds the fields when the record is formatted, and only those whose names are free: `logging` refuses a call with
    `extra={"job": …}` if the record already has a `job`, and the handler's own fields win."""

    def getMessage(self) -> str:
        run = current_run.get()
        if run is not None:
            grant, fields = run.grant, self.__dict__
            fields.setdefault("job", grant.id)
            fields.setdefault("task", grant.task)
            fields.setdefault("attempt", grant.attempt)
            fields.setdefault("queue", grant.queue)
            fields.setdefault("lease", grant.token)
        return super().getMessage()


class LogFields:
    """Active while the process has a live worker. Another record factory still makes the records."""

    def start(self) -> None:
        global _workers, _before
        with _lock:
            _workers += 1
            if _before is None:
                _before = logging.getLogRecordFactory()
                logging.setLogRecordFactory(_make)

    def stop(self) -> None:
        """Stop, but leave our factory if another one was installed on top of it: that one still calls it."""
        global _workers, _before
        with _lock:
            _workers -= 1
            if not _workers and _before is not None and logging.getLogRecordFactory() is _make:
                logging.setLogRecordFactory(_before)
                _before = None


def _make(*args: Any, **kwargs: Any) -> logging.LogRecord:
    record = (_before or logging.LogRecord)(*args, **kwargs)
    if current_run.get() is not None and type(record) is logging.LogRecord:
        record.__class__ = RunRecord
    return record


_lock = threading.Lock()
_workers = 0
_before: Any = None
"""The factory before ours; None: ours is not installed."""

"""Records that a handler makes with the standard `logging` say whose they are: job, kind, attempt, queue, lease."""

from __future__ import annotations

import logging
import threading
from typing import Any

from leasehold.run.state import current_run


class RunRecord(logging.LogRecord):
    """The fields are added when the record is formatted, and only where there are none of that name: `logging` refuses
    a call with `extra={"job": …}` if the record has a `job` by then, and a handler's own fields count for more."""

    def getMessage(self) -> str:
        run = current_run.get()
        if run is not None:
            grant, told = run.grant, self.__dict__
            told.setdefault("job", grant.id)
            told.setdefault("kind", grant.kind)
            told.setdefault("attempt", grant.attempt)
            told.setdefault("queue", grant.queue)
            told.setdefault("lease", grant.token)
        return super().getMessage()


class LogFields:
    """In the process while one of its workers lives. Another factory of records still makes them."""

    def start(self) -> None:
        global _workers, _before
        with _lock:
            _workers += 1
            if _before is None:
                _before = logging.getLogRecordFactory()
                logging.setLogRecordFactory(_make)

    def stop(self) -> None:
        """Ours stays where somebody has put another one on top of it: that one still asks it."""
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
"""What made the records before us; None: we are not in between."""

"""Writes the batches of steps that their attempts have not written for a while."""

from __future__ import annotations

import threading
import time

from leasehold.run.journal import Batching
from leasehold.run.step_batch import NEVER
from leasehold.worker.service import Service

IDLE = 3600.0


class BatchWriter:
    """The first batch starts its thread: most workers never have one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._batching: set[Batching] = set()
        self._service: Service | None = None

    def expect(self, steps: Batching) -> None:
        with self._lock:
            self._batching.add(steps)
            if self._service is None:
                self._service = Service("step batches", self._write_due, slowest=1.0)
                self._service.start()
        self._service.nudge()

    def stop(self) -> None:
        if self._service is not None:
            self._service.stop()

    def _write_due(self) -> float:
        with self._lock:
            batching = list(self._batching)
        for steps in batching:
            if steps.due_at <= time.monotonic():
                steps.flush_late()
        with self._lock:
            # Due times are set before `expect` is called, so nothing needed is dropped here.
            self._batching = {steps for steps in self._batching if steps.due_at != NEVER}
            due = min((steps.due_at for steps in self._batching), default=NEVER)
        return min(IDLE, max(0.01, due - time.monotonic()))

"""What a handler learns about its own run."""

from __future__ import annotations

import threading
from typing import Any

from leasehold.domain.job import Grant
from leasehold.domain.signals import StopRequested
from leasehold.engine.events import EventWriter
from leasehold.engine.telling import Telling, TellingInThread, TellingOnLoop


class RunFacts(Telling):
    """One run of one job. `stop_requested` is set from another thread when the run shall end."""

    def __init__(self, grant: Grant, resources: Any = None, events: EventWriter | None = None) -> None:
        self._grant = grant
        self._events = events
        self._stopped = threading.Event()
        self.resources = resources
        """What the app's lifespan has yielded."""

    @property
    def job_id(self) -> str:
        return self._grant.id

    @property
    def kind(self) -> str:
        return self._grant.kind

    @property
    def queue(self) -> str:
        return self._grant.queue

    @property
    def attempt(self) -> int:
        """1 for the first run."""
        return self._grant.attempt

    @property
    def lease_token(self) -> int:
        """Names this lease and no other: a resource that remembers the highest token it has seen can refuse a run
        that has lost its lease."""
        return self._grant.token

    @property
    def lane(self) -> str | None:
        return self._grant.lane

    @property
    def group(self) -> str | None:
        return self._grant.group_name

    @property
    def stop_requested(self) -> bool:
        """The run shall end: cancelled, paused, drained, timed out, or its lease is lost."""
        return self._stopped.is_set()

    def raise_if_stopped(self) -> None:
        if self._stopped.is_set():
            raise StopRequested

    def _stop_waiting(self) -> None:
        self.raise_if_stopped()


class Context(RunFacts, TellingOnLoop):
    """The context of an async handler."""


class SyncContext(RunFacts, TellingInThread):
    """The context of a plain handler, which runs in a thread."""

    def wait(self, seconds: float) -> None:
        """Sleep, but not longer than until a stop is requested; then raise."""
        self._stopped.wait(seconds)
        self.raise_if_stopped()

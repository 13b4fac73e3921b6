"""Watching a job: its events and its changes of state, in order, from any process, resumable.

A watcher looks again and again: one indexed read a look, often while things happen and less often while they do not.
It is not woken: a bell that rings for every event would wake every worker as well.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from leasehold.domain.errors import WaitTimedOut
from leasehold.domain.poll import Poll
from leasehold.domain.states import State
from leasehold.domain.stream import STATE, Seen, Update

PAGE = 500
SOONEST, LATEST = 0.1, 1.0
AT_REST = frozenset({State.SUCCEEDED, State.FAILED, State.TIMED_OUT, State.CANCELLED})

Read = Callable[[str, int, int], Seen]


class Watch:
    """One watcher's place in the stream. `look` reads; `pause` says how long to wait before the next look."""

    def __init__(self, job_id: str, read: Read, since: int, timeout: float | None) -> None:
        self._job_id = job_id
        self._read = read
        self._since = since
        self._timeout = timeout
        self._poll = Poll(SOONEST, LATEST, time.monotonic, timeout)
        self._reported: tuple[State, int] | None = None
        self.pause = 0.0
        self.over = False
        """The job has come to rest, and everything was shown."""

    def look(self) -> list[Update]:
        seen = self._read(self._job_id, self._since, PAGE)
        events = list(seen.events)
        if events:
            self._since = events[-1].seq
        if len(seen.events) == PAGE:
            # More may be there: the state comes behind all that was stored before it.
            self.pause = 0.0
            return events
        now = (seen.state, seen.attempt)
        if now != self._reported:
            self._reported = now
            data = {"state": seen.state.value, "attempt": seen.attempt}
            events.append(Update(self._since, STATE, data, attempt=seen.attempt))
        self.over = seen.state in AT_REST
        if events:
            self._poll.again()
        if not self.over:
            self._wait(seen.state)
        return events

    def _wait(self, state: State) -> None:
        pause = self._poll.pause()
        if pause is None:
            raise WaitTimedOut(self._job_id, self._timeout or 0.0, state.value)
        self.pause = pause

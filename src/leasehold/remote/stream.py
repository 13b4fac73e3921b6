"""One watcher's place in the stream of a job: what it has seen, where it goes on after a lost connection, and when it
gives up."""

from __future__ import annotations

import time

from pydantic import TypeAdapter

from leasehold.domain.errors import LeaseholdError, RemoteError, RemoteUnreachable, WaitTimedOut
from leasehold.domain.poll import Poll
from leasehold.domain.states import State
from leasehold.domain.stream import STATE, Update
from leasehold.remote.exchange import LONGEST_WAIT, Ask, answer_to, strange

_UPDATE = TypeAdapter(Update)
AT_REST = frozenset({State.SUCCEEDED, State.FAILED, State.TIMED_OUT, State.CANCELLED})
SOONEST, LATEST = 0.1, 2.0
SILENCE = 30.0
"""Seconds without a sign of life, of which the server gives one every 15, after which a connection is taken as lost."""


def is_stream(status: int, content_type: str) -> bool:
    """False: a problem. Raises RemoteError for a page that somebody in between has answered with: it would be taken
    for a stream that was lost, and asked for again without end."""
    if status == 200 and not content_type.lower().startswith("text/event-stream"):
        raise strange(status, "it is no stream of events")
    return status == 200


class Following:
    """`patience`: seconds for which a server that was there before may be away."""

    def __init__(self, job_id: str, since: int, timeout: float | None, patience: float) -> None:
        self._job_id = job_id
        self._since = since
        self._timeout = timeout
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._patience = patience
        self._connected = False
        self._away: Poll | None = None
        self._state = State.QUEUED
        self._reported: object = None
        self._pause = SOONEST
        self.over = False
        """The job has come to rest, and everything was told."""

    def ask(self) -> Ask:
        """Goes on behind the last event. With a time-out, the server ends the stream in time."""
        left = None if self._deadline is None else max(0.01, self._deadline - time.monotonic())
        return Ask(
            "GET",
            f"/v1/jobs/{self._job_id}/watch",
            {"wait": None if left is None else min(left, LONGEST_WAIT)},
            headers={"Last-Event-ID": str(self._since)},
            wait=SILENCE,
        )

    def opened(self) -> None:
        self._connected, self._away, self._pause = True, None, SOONEST

    def received(self, data: str) -> Update | None:
        """None: it was told before the connection was lost."""
        event = answer_to(200, data.encode()).read(_UPDATE)
        self._since = event.seq
        if event.kind != STATE:
            return event
        if event.data == self._reported:
            return None
        self._reported = event.data
        self._state = _state_of(event)
        self.over = self._state in AT_REST
        return event

    def lost(self, error: LeaseholdError) -> None:
        """Raises it, unless it may pass: a server that has been there is waited for."""
        passes = isinstance(error, RemoteUnreachable) or (
            isinstance(error, RemoteError) and error.status >= 500
        )
        if not self._connected or not passes:
            raise error
        if self._away is None:
            self._away = Poll(SOONEST, LATEST, time.monotonic, self._patience)
        pause = self._away.pause()
        if pause is None:
            raise error
        self._pause = pause

    def pause(self) -> float:
        """Seconds until the next try. Raises WaitTimedOut."""
        if self._deadline is None:
            return self._pause
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise WaitTimedOut(self._job_id, self._timeout or 0.0, self._state.value)
        return min(self._pause, left)


def _state_of(update: Update) -> State:
    """Of an update that tells of a change."""
    try:
        return State(update.data["state"])
    except (ValueError, KeyError, TypeError) as error:
        raise strange(200, f"{update.data!r} tells of no state") from error

"""A watcher's position in a job's stream: where to resume after a lost connection, and when to give up."""

from __future__ import annotations

import time

from pydantic import TypeAdapter

from leasehold.domain.errors import LeaseholdError, RemoteError, RemoteUnreachable, WaitTimedOut
from leasehold.domain.poll import Poll
from leasehold.domain.states import State
from leasehold.domain.stream import STATE, Update
from leasehold.remote.exchange import LONGEST_WAIT, Request, parse_response, unexpected

_UPDATE = TypeAdapter(Update)
AT_REST = frozenset({State.SUCCEEDED, State.FAILED, State.TIMED_OUT, State.CANCELLED})
RECONNECT_FIRST_AFTER, RECONNECT_SLOWEST_EVERY = 0.1, 2.0
LOST_AFTER = 30.0
"""Seconds of silence after which a connection counts as lost; the server sends a sign of life every 15."""


def is_stream(status: int, content_type: str) -> bool:
    """Whether the response is a stream; if not, it is a problem. Raises RemoteError for a page of a proxy: it would
    look like a lost stream, and be requested again without end."""
    if status == 200 and not content_type.lower().startswith("text/event-stream"):
        raise unexpected(status, "it is not an event stream")
    return status == 200


class Following:
    """Follows one job. `patience`: seconds that the server may be unreachable after a first connection."""

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
        self._pause = RECONNECT_FIRST_AFTER
        self.over = False
        """Whether the job has ended and every update was delivered."""

    def request(self) -> Request:
        """Request the stream after the last update. With a time-out, the server ends the stream in time."""
        left = None if self._deadline is None else max(0.01, self._deadline - time.monotonic())
        return Request(
            "GET",
            f"/v1/jobs/{self._job_id}/watch",
            {"wait": None if left is None else min(left, LONGEST_WAIT)},
            headers={"Last-Event-ID": str(self._since)},
            wait=LOST_AFTER,
        )

    def opened(self) -> None:
        self._connected, self._away, self._pause = True, None, RECONNECT_FIRST_AFTER

    def received(self, data: str) -> Update | None:
        """Read one update. None: a state that was delivered before the connection was lost."""
        event = parse_response(200, data.encode()).read(_UPDATE)
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
        """Plan the next try; raise the error if it is permanent, or the server never answered before."""
        temporary = isinstance(error, RemoteUnreachable) or (
            isinstance(error, RemoteError) and error.status >= 500
        )
        if not self._connected or not temporary:
            raise error
        if self._away is None:
            self._away = Poll(RECONNECT_FIRST_AFTER, RECONNECT_SLOWEST_EVERY, time.monotonic, self._patience)
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
    """Return the state in an update of the state."""
    try:
        return State(update.data["state"])
    except (ValueError, KeyError, TypeError) as error:
        raise unexpected(200, f"{update.data!r} has no state") from error

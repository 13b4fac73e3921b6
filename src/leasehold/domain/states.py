"""The state machine: which event may occur in which state, and where it may lead.

A pair that is not in TRANSITIONS is refused and changes nothing. ARCHITECTURE.md's diagram is generated from here, and
the contract suite walks every (state, event) pair on both stores.
"""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """The state of a job: what moves it on, and what happens if nothing does."""

    PENDING = "pending"
    """Created, on hold or waiting for parents. Moved on by release or by its last parent; otherwise it stays."""
    QUEUED = "queued"
    """May run from `available_at` on. Moved on by a worker's claim; with no worker it stays, and `why` says so."""
    RUNNING = "running"
    """A worker holds the lease. Moved on by its settle, or by the reaper when the lease is missed. Without a worker it
    is an orphan: its execution may still run, and a worker of its site adopts it."""
    WAITING = "waiting"
    """Parked for an answer; holds no worker, keeps its lane. Moved on by the answer, the question's time-out or an
    operator."""
    PAUSED = "paused"
    """Interrupted and resumable; halts its lane. Moved on by resume or cancel."""
    FAILED = "failed"
    """Ended without success, resumable, may halt its lane. Moved on by resume; resolve lets the lane go on."""
    TIMED_OUT = "timed_out"
    """Like failed, because time ran out."""
    SUCCEEDED = "succeeded"
    """Final."""
    CANCELLED = "cancelled"
    """Final."""


LIVE = frozenset({State.PENDING, State.QUEUED, State.RUNNING, State.WAITING})
HALTED = frozenset({State.PAUSED, State.FAILED, State.TIMED_OUT})
FINAL = frozenset({State.SUCCEEDED, State.CANCELLED})
RESTING = HALTED | FINAL
HOLDS_UNIQUE_KEY = LIVE | {State.PAUSED}


class Event(StrEnum):
    """What can happen to a job. Every layer uses the same word."""

    RELEASE = "release"
    CLAIM = "claim"
    ADOPT = "adopt"
    RENEW = "renew"
    SETTLE = "settle"
    REAP = "reap"
    CANCEL = "cancel"
    PAUSE = "pause"
    INTERRUPT = "interrupt"
    RESUME = "resume"
    RESOLVE = "resolve"
    ANSWER = "answer"
    RETRY = "retry"
    EXPIRE = "expire"


class Flag(StrEnum):
    """A stop requested of a running job. The stronger wins; the worker gets it by a wake-up or its next renewal."""

    FINISH = "finish"
    """Let the attempt end, but do not retry it."""
    PAUSE = "pause"
    CANCEL = "cancel"


STRENGTH: dict[Flag | None, int] = {None: 0, Flag.FINISH: 1, Flag.PAUSE: 2, Flag.CANCEL: 3}


def stronger(one: Flag | None, other: Flag | None) -> Flag | None:
    return one if STRENGTH[one] >= STRENGTH[other] else other


_ENDINGS = frozenset(
    {
        State.SUCCEEDED,
        State.QUEUED,
        State.FAILED,
        State.TIMED_OUT,
        State.CANCELLED,
        State.PAUSED,
        State.WAITING,
        State.RUNNING,  # becomes an orphan: its execution goes on
    }
)

TRANSITIONS: dict[tuple[State, Event], frozenset[State]] = {
    (State.PENDING, Event.RELEASE): frozenset({State.QUEUED, State.PENDING}),
    (State.PENDING, Event.CANCEL): frozenset({State.CANCELLED}),
    (State.PENDING, Event.PAUSE): frozenset({State.PAUSED}),
    (State.PENDING, Event.INTERRUPT): frozenset({State.CANCELLED}),
    (State.PENDING, Event.EXPIRE): frozenset({State.CANCELLED, State.TIMED_OUT}),
    (State.QUEUED, Event.EXPIRE): frozenset({State.CANCELLED, State.TIMED_OUT}),
    (State.WAITING, Event.EXPIRE): frozenset({State.TIMED_OUT, State.QUEUED, State.WAITING}),
    (State.QUEUED, Event.CLAIM): frozenset({State.RUNNING}),
    (State.QUEUED, Event.CANCEL): frozenset({State.CANCELLED}),
    (State.QUEUED, Event.PAUSE): frozenset({State.PAUSED}),
    (State.QUEUED, Event.INTERRUPT): frozenset({State.CANCELLED}),
    (State.RUNNING, Event.RENEW): frozenset({State.RUNNING}),
    (State.RUNNING, Event.ADOPT): frozenset({State.RUNNING}),
    (State.RUNNING, Event.SETTLE): _ENDINGS,
    (State.RUNNING, Event.REAP): frozenset(
        {State.QUEUED, State.FAILED, State.PAUSED, State.CANCELLED, State.TIMED_OUT, State.RUNNING}
    ),
    (State.RUNNING, Event.CANCEL): frozenset({State.RUNNING}),
    (State.RUNNING, Event.PAUSE): frozenset({State.RUNNING}),
    (State.RUNNING, Event.INTERRUPT): frozenset({State.RUNNING}),
    (State.RUNNING, Event.RESUME): frozenset({State.RUNNING}),
    (State.WAITING, Event.ANSWER): frozenset({State.QUEUED, State.WAITING}),
    (State.WAITING, Event.CANCEL): frozenset({State.CANCELLED}),
    (State.WAITING, Event.PAUSE): frozenset({State.PAUSED}),
    (State.WAITING, Event.INTERRUPT): frozenset({State.CANCELLED}),
    (State.PAUSED, Event.ANSWER): frozenset({State.PAUSED}),
    (State.PAUSED, Event.RESUME): frozenset({State.QUEUED, State.PENDING}),
    (State.PAUSED, Event.CANCEL): frozenset({State.CANCELLED}),
    (State.PAUSED, Event.INTERRUPT): frozenset({State.CANCELLED}),
    (State.PAUSED, Event.RETRY): frozenset({State.PAUSED}),
    (State.FAILED, Event.RESUME): frozenset({State.QUEUED}),
    (State.FAILED, Event.RESOLVE): frozenset({State.FAILED}),
    (State.FAILED, Event.CANCEL): frozenset({State.CANCELLED}),
    (State.FAILED, Event.RETRY): frozenset({State.FAILED}),
    (State.TIMED_OUT, Event.RESUME): frozenset({State.QUEUED, State.PENDING}),
    (State.TIMED_OUT, Event.RESOLVE): frozenset({State.TIMED_OUT}),
    (State.TIMED_OUT, Event.CANCEL): frozenset({State.CANCELLED}),
    (State.TIMED_OUT, Event.RETRY): frozenset({State.TIMED_OUT}),
    (State.SUCCEEDED, Event.RETRY): frozenset({State.SUCCEEDED}),
    (State.CANCELLED, Event.RETRY): frozenset({State.CANCELLED}),
}


def allowed(state: State, event: Event) -> bool:
    return (state, event) in TRANSITIONS

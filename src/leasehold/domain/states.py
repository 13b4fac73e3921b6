"""The state machine: which trigger may occur in which state, and which states it may lead to.

A pair that is not in TRANSITIONS is refused and changes nothing. ARCHITECTURE.md's diagram is generated from here, and
the contract suite walks every (state, trigger) pair on both stores.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from leasehold.domain.errors import InvalidInput


class State(StrEnum):
    """The state of a job, with what moves the job on, and what happens if nothing does."""

    PENDING = "pending"
    """Created, on hold or waiting for parents. Its release or its last parent moves it on; otherwise it stays."""
    QUEUED = "queued"
    """May run from `available_at` on. A worker's claim moves it on; with no worker it stays, and `why` says so."""
    RUNNING = "running"
    """A worker holds the lease. The worker's settle moves the job on, or the reaper when the lease runs out.
    Without a worker its execution may still run, and a worker of its site adopts it."""
    WAITING = "waiting"
    """Parked for an answer; holds no worker, keeps its lane. The answer, the question's time-out or an
    operator moves it on."""
    PAUSED = "paused"
    """Interrupted and resumable; halts its lane. Resume or cancel moves it on."""
    FAILED = "failed"
    """Ended without success, resumable, may halt its lane. Resume moves it on; skip lets the lane go on."""
    TIMED_OUT = "timed_out"
    """Like failed, because time ran out."""
    SUCCEEDED = "succeeded"
    """Final."""
    CANCELLED = "cancelled"
    """Final."""


LIVE = frozenset({State.PENDING, State.QUEUED, State.RUNNING, State.WAITING})
HALTED = frozenset({State.PAUSED, State.FAILED, State.TIMED_OUT})
FINAL = frozenset({State.SUCCEEDED, State.CANCELLED})
ENDED = (State.SUCCEEDED, State.CANCELLED, State.FAILED, State.TIMED_OUT)
"""Waits for the job return, and retention may delete it. A failed one may be resumed."""
HOLDS_UNIQUE_KEY = LIVE | {State.PAUSED}


class Trigger(StrEnum):
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
    SKIP = "skip"
    SNOOZE = "snooze"
    ANSWER = "answer"
    RETRY = "retry"
    EXPIRE = "expire"


class Flag(StrEnum):
    """What an operator requested of a running job. The stronger request wins; the worker gets it by a wake-up or its
    next renewal."""

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

TRANSITIONS: dict[tuple[State, Trigger], frozenset[State]] = {
    (State.PENDING, Trigger.RELEASE): frozenset({State.QUEUED, State.PENDING}),
    (State.PENDING, Trigger.CANCEL): frozenset({State.CANCELLED}),
    (State.PENDING, Trigger.PAUSE): frozenset({State.PAUSED}),
    (State.PENDING, Trigger.INTERRUPT): frozenset({State.CANCELLED}),
    (State.PENDING, Trigger.SNOOZE): frozenset({State.PENDING}),
    (State.PENDING, Trigger.EXPIRE): frozenset({State.CANCELLED, State.TIMED_OUT}),
    (State.QUEUED, Trigger.EXPIRE): frozenset({State.CANCELLED, State.TIMED_OUT}),
    (State.WAITING, Trigger.EXPIRE): frozenset({State.TIMED_OUT, State.QUEUED, State.WAITING}),
    (State.QUEUED, Trigger.CLAIM): frozenset({State.RUNNING, State.FAILED}),  # failed: its row is refused
    (State.QUEUED, Trigger.CANCEL): frozenset({State.CANCELLED}),
    (State.QUEUED, Trigger.PAUSE): frozenset({State.PAUSED}),
    (State.QUEUED, Trigger.INTERRUPT): frozenset({State.CANCELLED}),
    (State.QUEUED, Trigger.SNOOZE): frozenset({State.QUEUED}),
    (State.RUNNING, Trigger.RENEW): frozenset({State.RUNNING}),
    (State.RUNNING, Trigger.ADOPT): frozenset({State.RUNNING}),
    (State.RUNNING, Trigger.SETTLE): _ENDINGS,
    (State.RUNNING, Trigger.REAP): frozenset(
        {State.QUEUED, State.FAILED, State.PAUSED, State.CANCELLED, State.TIMED_OUT, State.RUNNING}
    ),
    (State.RUNNING, Trigger.CANCEL): frozenset({State.RUNNING}),
    (State.RUNNING, Trigger.PAUSE): frozenset({State.RUNNING}),
    (State.RUNNING, Trigger.INTERRUPT): frozenset({State.RUNNING}),
    (State.RUNNING, Trigger.RESUME): frozenset({State.RUNNING}),
    (State.WAITING, Trigger.ANSWER): frozenset({State.QUEUED, State.WAITING}),
    (State.WAITING, Trigger.CANCEL): frozenset({State.CANCELLED}),
    (State.WAITING, Trigger.PAUSE): frozenset({State.PAUSED}),
    (State.WAITING, Trigger.INTERRUPT): frozenset({State.CANCELLED}),
    (State.PAUSED, Trigger.ANSWER): frozenset({State.PAUSED}),
    (State.PAUSED, Trigger.RESUME): frozenset({State.QUEUED, State.PENDING}),
    (State.PAUSED, Trigger.CANCEL): frozenset({State.CANCELLED}),
    (State.PAUSED, Trigger.INTERRUPT): frozenset({State.CANCELLED}),
    (State.PAUSED, Trigger.SNOOZE): frozenset({State.PAUSED}),
    (State.PAUSED, Trigger.RETRY): frozenset({State.PAUSED}),
    (State.FAILED, Trigger.RESUME): frozenset({State.QUEUED}),
    (State.FAILED, Trigger.SKIP): frozenset({State.FAILED}),
    (State.FAILED, Trigger.CANCEL): frozenset({State.CANCELLED}),
    (State.FAILED, Trigger.RETRY): frozenset({State.FAILED}),
    (State.TIMED_OUT, Trigger.RESUME): frozenset({State.QUEUED, State.PENDING}),
    (State.TIMED_OUT, Trigger.SKIP): frozenset({State.TIMED_OUT}),
    (State.TIMED_OUT, Trigger.CANCEL): frozenset({State.CANCELLED}),
    (State.TIMED_OUT, Trigger.RETRY): frozenset({State.TIMED_OUT}),
    (State.SUCCEEDED, Trigger.RETRY): frozenset({State.SUCCEEDED}),
    (State.CANCELLED, Trigger.RETRY): frozenset({State.CANCELLED}),
}


def allowed(state: State, trigger: Trigger) -> bool:
    return (state, trigger) in TRANSITIONS


# -- states ------------------------------------------------------------------------------------------------------------


def checked_states(states: State | str | Iterable[State | str]) -> tuple[State, ...]:
    """Return the states as a tuple. Raises InvalidInput for an unknown state."""
    return tuple(map(_checked, (states,) if isinstance(states, str) else states))


def _checked(name: State | str) -> State:
    try:
        return State(name)
    except ValueError:
        raise InvalidInput("state", f"{name!r} is not a state", f"known: {', '.join(State)}") from None

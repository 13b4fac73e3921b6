"""What the model of the fence is made of: the job's row, its claimants, the files of one run, and what lives outside.

Every guard has a name, with the danger it keeps off. A setup can be walked without a guard: that is a mutant.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

RUNNING = "running"
NEXT, NEXT_RUNS = "queued again", "running as attempt n+1"
OVER = "over"

ABSENT, CREATED, ALIVE, EXITED, TOMBSTONE, VANISHED = (
    "absent",
    "created",
    "running",
    "exited",
    "tombstone",
    "vanished",
)
STARTED, FOUND, FENCED, FAILED = "started", "found", "fenced", "failed"
GIVEN_UP = ("vanished", "never started")
"""Outcomes that cost the job an attempt though no command has come to an end."""


class Row(NamedTuple):
    """The job, as attempt n sees it. Without a holder, and placed, it is an orphan."""

    state: str = RUNNING
    token: int = 1
    held: bool = True
    placed: bool = False
    marked: bool = False
    cancelled: bool = False


class Task(NamedTuple):
    """A claimant of attempt n: one lease, one token. It knows nothing but what it has read itself."""

    token: int
    at: str = "place"
    """Its next step. It may be frozen before it for as long as the others like."""
    why: str = ""
    """What the runner's verb that it is in was called for."""
    saw: Any = None
    told: int = 0
    """1: it has heard of the cancel; 2: it has asked the run to stop."""
    knows_start: bool = False
    outcome: str = ""
    entry: str = ""
    """Docker: the try that it is at."""


class Budget(NamedTuple):
    """Faults and choices. A job never needs one of them to come to rest."""

    losses: int = 0  # a claimant is frozen for longer than its lease
    deaths: int = 0
    cancels: int = 0
    refusals: int = 0  # the outside system does not start it, or does not say whether it has
    kills: int = 0  # somebody kills a shim, or removes a container


class State(NamedTuple):
    row: Row
    tasks: tuple[Task, ...]  # by token
    files: frozenset[str]  # in the run's folder
    outside: Any  # shims, or a container: the runner's own
    ran: bool
    fence: int  # the highest token that has left its mark and then found no shim at work
    budget: Budget


@dataclass(frozen=True)
class Setup:
    name: str
    runner: str  # shim or docker
    budget: Budget
    endless: bool = False  # the command ends only if it is told to
    without: frozenset[str] = field(default_factory=frozenset)


# Each with the danger that it keeps off, for both runners.
GUARDS = {
    "the place is stored before the start": "an execution that nobody knows of outlives its attempt",
    "the start is stored after the start": "an adopter waits for what nobody will start",
    "a failed start is buried": "it starts after all, beside the next attempt",
    "a burial looks again": "a start that was under way runs beside the next attempt",
    "a stop buries what was not started": "a cancelled run is started later",
    "what has run is never started": "an adopter runs the command again",
    "remove keeps the tombstone": "a starter that wakes up late finds a free name",
}
SHIM_GUARDS = {
    "a token has a mark of its own": "the slower of two adopters lowers the fence again",
    "a starter marks, then looks": "an older token starts after a newer one was there",
    "the shim holds a lock": "two shims have both looked and both run the command",
    "the shim looks under its lock": "what happened since its starter looked is missed",
    "`started` is written before the run": "a killed shim leaves no trace of its run",
    "a tombstone is above every token": "a shim that its starter has lost sight of starts after the settle",
    "the exit is written before the lock is let go": "a run that has ended well is taken for vanished",
}
DOCKER_GUARDS = {
    "a stored start that never was is buried": "its claimant waits for what nobody will start",
    "a try opens its folder, then looks": "whoever closes the tries does so before this one is there",
    "a try looks for the marks of others": "it has the name once a container has run and gone",
    "a tombstone found is raised again": "who has raised it froze before it had closed the tries",
    "who has the name closes the other tries": "one of them has the name after a container has run and gone",
    "a tombstone closes the tries": "a container made before is started after",
    "a try has a folder of its own": "a new try opens the folder of an old one again",
    "a container is started by its id": "a container that has exited, or another's, is run once more",
    "a container's start is marked before": "a container that was removed leaves no trace of its run",
    "the mark lies in the folder": "a mark that comes late says that a discarded container has run",
    "a container is looked at once its try is closed": "one that was started meanwhile is discarded",
    "a discarded container loses its mark first": "it is taken for one that has run and vanished",
}

# (runner, guard) whose absence breaks no promise of this model, and why it is kept all the same.
REDUNDANT_GUARDS = {
    ("docker", "a starter leaves its token"): "it only spares a late starter a try that it would lose",
    (
        "shim",
        "a tombstone found is raised again",
    ): "a tombstone is one file: nobody freezes in the middle of it",
    ("shim", "probe looks at the lock first"): "the look after the tombstone finds the exit",
    ("shim", "a stored start that never was is buried"): "what a shim has begun never looks as if it had not",
}


def with_task(state: State, task: Task, **changes: Any) -> State:
    by = task._replace(**changes)
    tasks = tuple(by if other.token == task.token else other for other in state.tasks)
    return State(state.row, tasks, *state[2:])


def drop(state: State, task: Task) -> State:
    return State(state.row, tuple(t for t in state.tasks if t.token != task.token), *state[2:])


def with_files(state: State, files: frozenset[str]) -> State:
    return State(*state[:2], files, *state[3:])


def with_outside(state: State, outside: Any) -> State:
    return State(*state[:3], outside, *state[4:])


def spend(state: State, what: str) -> State:
    return state._replace(budget=state.budget._replace(**{what: getattr(state.budget, what) - 1}))


def with_token(state: State, token: int, of_its_own: bool = True) -> State:
    files = state.files
    if not of_its_own:  # one number in one file
        files = frozenset(name for name in files if not name.startswith("token."))
    return with_files(state, files | {f"token.{token}"})


def highest_token(files: frozenset[str]) -> int:
    return max((int(name[6:]) for name in files if name.startswith("token.")), default=0)

"""The fence of decision 38 as a model: one attempt's execution, claimants that freeze and wake, and the next attempt.

Here are the worker's steps (`run/external.py`), the store's fenced writes and the world; the verbs of the runners,
step by step, are in `fence_shim` and `fence_docker`. A claimant may be frozen before each of its steps: then others
adopt the run, end it, remove it and begin the next attempt, and it goes on where it was.
"""

from collections.abc import Iterator

from tests.protocol.explorer import Move
from tests.protocol.fence_docker import DockerSteps
from tests.protocol.fence_shim import ShimSteps
from tests.protocol.fence_state import (
    ALIVE,
    CREATED,
    EXITED,
    FAILED,
    FENCED,
    GIVEN_UP,
    NEXT,
    NEXT_RUNS,
    OVER,
    RUNNING,
    TOMBSTONE,
    Row,
    Setup,
    State,
    Task,
    drop,
    spend,
    with_task,
)


class FenceModel:
    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.without = setup.without
        self.runner = (ShimSteps if setup.runner == "shim" else DockerSteps)(self)

    def initial(self) -> State:
        outside = self.runner.nothing
        first = "start" if "the place is stored before the start" in self.without else "place"
        return State(Row(), (Task(1, first),), frozenset(), outside, False, 0, self.setup.budget)

    def finished(self, state: State) -> bool:
        return state.row.state in (NEXT_RUNS, OVER) and not state.tasks and self.runner.at_rest(state)

    def counts_as_progress(self, state: State, after: State) -> bool:
        """An endless command waits for nothing but its cancel."""
        cancelled = self.setup.endless and after.budget.cancels != state.budget.cancels
        return after.budget is state.budget or cancelled

    def broken_promise(self, state: State) -> str | None:
        if not self.runner.alive(state):
            return None
        match state.row.state:
            case "running as attempt n+1":
                return "attempt n+1 runs beside attempt n"
            case "queued again":
                return "attempt n is alive though it was settled"
            case "over":
                return "an execution is alive though its job is over"
        return None

    def moves(self, state: State) -> Iterator[Move]:
        for task in state.tasks:
            yield from self._step(state, task)
            if state.budget.deaths:
                dead = drop(self.runner.left_alone(state, task), task)
                yield ("claimant dies", f"t{task.token}"), spend(dead, "deaths"), None
        yield from self.runner.moves(state)
        yield from self._world(state)

    # -- the world --

    def _world(self, state: State) -> Iterator[Move]:
        row, budget = state.row, state.budget
        if row.state == RUNNING and row.held:
            unheld = self._lost(state)
            if not any(task.token == row.token for task in state.tasks):
                yield ("lease runs out", f"t{row.token}"), unheld, None
            elif budget.losses:
                yield ("claimant freezes, lease lost", f"t{row.token}"), spend(unheld, "losses"), None
        if row.state == RUNNING and not row.held:
            granted = row._replace(token=row.token + 1, held=True)
            at = "follow" if row.marked or row.cancelled else "start"
            task = Task(granted.token, at, told=int(row.cancelled), knows_start=row.marked)
            yield ("adopt", f"t{task.token}"), state._replace(row=granted, tasks=(*state.tasks, task)), None
        if row.state == NEXT:
            yield ("attempt n+1 starts",), state._replace(row=row._replace(state=NEXT_RUNS)), None
        if budget.cancels and row.state in (RUNNING, NEXT) and not row.cancelled:
            cancelled = row._replace(cancelled=True, state=RUNNING if row.state == RUNNING else OVER)
            yield ("cancel",), spend(state._replace(row=cancelled), "cancels"), None

    def _lost(self, state: State) -> State:
        """Placed: an orphan. Not placed: nothing can have been started, and the next attempt may begin."""
        row = state.row
        if row.placed:
            return state._replace(row=row._replace(held=False))
        return state._replace(row=row._replace(held=False, state=OVER if row.cancelled else NEXT))

    # -- a claimant --

    def holds(self, state: State, task: Task) -> bool:
        return state.row.state == RUNNING and state.row.held and state.row.token == task.token

    def _step(self, state: State, task: Task) -> Iterator[Move]:
        row, who = state.row, f"t{task.token}"
        match task.at:
            case "place":
                if not self.holds(state, task):
                    yield ("place: lost", who), drop(state, task), None
                    return
                placed = state._replace(row=row._replace(placed=True))
                yield ("place", who), with_task(placed, task, at="check"), None
            case "check":
                yield ("is not stopped", who), with_task(state, task, at="start"), None
                if row.cancelled and self.holds(state, task):
                    stopped = with_task(state, task, at="settle", outcome="stopped")
                    yield ("is stopped before the start", who), stopped, None
            case "start":
                if "the start is stored after the start" in self.without and self.holds(state, task):
                    state = state._replace(row=row._replace(marked=True))
                yield ("ensure_started", who), with_task(state, task, **self.runner.start()), None
            case "mark":
                if self.holds(state, task):
                    marked = state._replace(row=row._replace(marked=True, placed=True))
                    yield ("mark_started", who), with_task(marked, task, at="follow", knows_start=True), None
                else:
                    yield ("mark_started: lost", who), drop(state, task), None
            case "follow":
                yield from self._follow(state, task)
            case "settle":
                yield self._settle(state, task)
            case _:
                yield from self.runner.step(state, task)

    def _follow(self, state: State, task: Task) -> Iterator[Move]:
        who = f"t{task.token}"
        if not self.holds(state, task):
            yield ("renew: lost", who), drop(state, task), None
        elif state.row.cancelled and not task.told:
            yield ("renew: cancelled", who), with_task(state, task, told=1), None
        if task.told == 1:
            yield ("stop", who), with_task(state, task, at="stop", told=2), None
        else:
            yield ("follow", who), with_task(state, task, at="look", why="follow"), None

    def _settle(self, state: State, task: Task) -> Move:
        row, label = state.row, ("settle", f"t{task.token}", task.outcome)
        if not self.holds(state, task):
            return (*label, "lost"), drop(state, task), None
        broken = None
        if self.runner.alive(state):
            broken = f"an attempt was settled as {task.outcome} while it was alive"
        elif task.outcome in GIVEN_UP and not self._has_a_cause(state):
            broken = "an attempt was given up though only its claimants had failed"
        # Whatever was not cancelled ends badly here: that is when the next attempt begins.
        after = state._replace(row=row._replace(state=OVER if row.cancelled else NEXT, held=False))
        return label, with_task(after, task, at="look", why="remove"), broken

    def _has_a_cause(self, state: State) -> bool:
        given, left = self.setup.budget, state.budget
        return (given.kills, given.refusals, given.cancels) != (left.kills, left.refusals, left.cancels)

    # -- what a runner's verbs come to --

    def returned(self, state: State, task: Task, start: str) -> State:
        """From ensure_started."""
        if start == FAILED:
            buries = "a failed start is buried" not in self.without
            at = "bury" if buries else "settle"
            return with_task(state, task, at=at, why="never started", saw=None, outcome="never started")
        if start == FENCED:
            return with_task(state, task, at="look", why="fenced", saw=None)
        return with_task(state, task, at="mark", saw=None)

    def looked(self, state: State, task: Task, phase: str) -> State:
        """From probe, or from the look at the end of tombstone and remove."""
        match task.why:
            case "fenced":
                return (
                    with_task(state, task, at="follow", saw=None) if phase == TOMBSTONE else drop(state, task)
                )
            case "remove":
                return drop(state, task) if phase == ALIVE else with_task(state, task, at="bury", saw=None)
            case "remove again":
                return drop(state, task) if phase == ALIVE else with_task(state, task, at="delete", saw=None)
            case "never started" | "judge" if phase == TOMBSTONE:
                return self._gone(state, task)
            case "never started" | "judge":
                return with_task(state, task, at="follow", saw=None)
        waits = phase == ALIVE
        if "a stored start that never was is buried" in self.without:
            waits = phase in (ALIVE, CREATED)
        if waits:
            return with_task(state, task, at="follow", saw=None)
        if phase == EXITED:
            outcome = "stopped" if task.told == 2 else "exited"
            return with_task(state, task, at="settle", saw=None, outcome=outcome)
        if phase == TOMBSTONE and "a tombstone found is raised again" in self.without:
            return self._gone(state, task)
        return with_task(state, task, at="bury", why="judge", saw=None)

    def buried(self, state: State, task: Task) -> State:
        """The tombstone is there: now look again."""
        if task.why == "remove":
            return with_task(state, task, at="look", why="remove again", saw=None)
        if "a burial looks again" in self.without:
            return self._gone(state, task)
        return with_task(state, task, at="look", saw=None)

    def _gone(self, state: State, task: Task) -> State:
        outcome = "vanished" if task.knows_start else "never started"
        if task.told == 2:
            outcome = "stopped"
        return with_task(state, task, at="settle", saw=None, outcome=outcome)

    def begun(self, state: State, token: int) -> tuple[State, str | None]:
        """The outside system runs the command now."""
        broken, row = None, state.row
        if state.ran:
            broken = "two starts under one name"
        elif row.state == OVER:
            broken = "a cancelled attempt was started" if row.cancelled else "a settled attempt was started"
        elif row.state == NEXT:
            broken = "a settled attempt was started"
        elif row.state == NEXT_RUNS:
            broken = "attempt n was started beside attempt n+1"
        elif token < state.fence:
            broken = "an older token started after a newer one was there"
        return state._replace(ran=True), broken

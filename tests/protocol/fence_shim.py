"""The verbs of the subprocess runner, in the steps that nothing can split: a file made, a file looked for, a lock.

A shim is a party of its own. It goes on when its starter dies or loses sight of it, and it freezes like anybody else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.protocol.explorer import Move
from tests.protocol.fence_state import (
    ABSENT,
    ALIVE,
    CREATED,
    EXITED,
    FAILED,
    FENCED,
    FOUND,
    STARTED,
    TOMBSTONE,
    VANISHED,
    State,
    Task,
    drop,
    highest_token,
    spend,
    with_files,
    with_outside,
    with_task,
    with_token,
)

if TYPE_CHECKING:
    from tests.protocol.fence_model import FenceModel

HOLDS_THE_LOCK = frozenset(("look", "write", "fork", "late write", "running", "ended", "unlock"))


class Shim(NamedTuple):
    token: int
    at: str = "open"
    is_alone: bool = False  # nobody waits for it any more
    lock_is_gone: bool = False  # its lock file was deleted: nobody else can see that it is held


class ShimSteps:
    """`state.outside` is the shims."""

    nothing: tuple[Shim, ...] = ()

    def __init__(self, model: FenceModel) -> None:
        self.model = model
        self.without = model.without
        self.endless = model.setup.endless

    def alive(self, state: State) -> bool:
        return any(shim.at in ("running", "late write") for shim in state.outside)

    def at_rest(self, state: State) -> bool:
        return not state.outside

    def left_alone(self, state: State, task: Task) -> State:
        shims = [s._replace(is_alone=True) if s.token == task.token else s for s in state.outside]
        return with_outside(state, tuple(sorted(shims)))

    def start(self) -> dict[str, Any]:
        if "a starter marks, then looks" in self.without:
            return {"at": "look", "why": "start"}
        return {"at": "raise", "why": "start"}

    def step(self, state: State, task: Task) -> Iterator[Move]:
        files, who = state.files, f"t{task.token}"
        match task.at:
            case "raise":
                then = "launch" if "a starter marks, then looks" in self.without else "look"
                own = "a token has a mark of its own" not in self.without
                yield (
                    ("leave a mark", who),
                    with_task(with_token(state, task.token, own), task, at=then),
                    None,
                )
            case "look":
                if "probe looks at the lock first" in self.without:
                    yield ("probe: exit", who), self._look_for_exit(state, task, "look: lock"), None
                    return
                held = self._is_held(state)
                yield ("probe: lock", who), with_task(state, task, at="look: exit", saw=held), None
            case "look: lock":
                held = self._is_held(state)
                yield ("probe: lock", who), with_task(state, task, at="look: marks", saw=held), None
            case "look: exit":
                yield ("probe: exit", who), self._look_for_exit(state, task, "look: marks"), None
            case "look: marks":
                phase = self._phase(files, task.saw)
                yield ("probe", who, phase), self._looked(state, task, phase), None
            case "look: tokens":
                yield from self._judge_start(state, task)
            case "launch":
                shims = tuple(sorted((*state.outside, Shim(task.token))))
                yield ("launch", who), with_task(with_outside(state, shims), task, at="wait"), None
                if state.budget.refusals:
                    failed = self.model.returned(state, task, FAILED)
                    yield ("launch: failed", who), spend(failed, "refusals"), None
            case "wait":
                if state.budget.refusals:  # the process between it and the shim is killed
                    alone = spend(self.left_alone(state, task), "refusals")
                    yield ("lose sight, give up", who), self.model.returned(alone, task, FAILED), None
                    yield ("lose sight, try again", who), with_task(alone, task, **self.start()), None
            case "bury":
                mark = "tombstone"
                if "a tombstone is above every token" in self.without:
                    mark = f"tombstone.{task.token}"
                yield ("tombstone", who), self.model.buried(with_files(state, files | {mark}), task), None
            case "stop":
                stopped = state
                if "a stop buries what was not started" not in self.without or "started" in files:
                    stopped = with_files(state, files | {"stop"})
                yield ("leave a stop", who), with_task(stopped, task, at="look", why="follow"), None
            case "delete":
                yield (
                    ("remove: exit", who),
                    with_task(with_files(state, files - {"exit"}), task, at="delete the rest"),
                    None,
                )
            case "delete the rest":
                kept = frozenset(name for name in files if name.startswith("tombstone"))
                if "remove keeps the tombstone" in self.without:
                    kept = frozenset()
                shims = [s._replace(lock_is_gone=s.at != "open") for s in state.outside]
                removed = with_outside(with_files(state, kept), tuple(sorted(shims)))
                yield ("remove: the rest", who), drop(removed, task), None

    def _is_held(self, state: State) -> bool:
        return any(shim.at in HOLDS_THE_LOCK and not shim.lock_is_gone for shim in state.outside)

    def _look_for_exit(self, state: State, task: Task, then: str) -> State:
        if "exit" in state.files:
            return self._looked(state, task, EXITED)
        return with_task(state, task, at=then)

    def _phase(self, files: frozenset[str], held: bool) -> str:
        if not files:
            return ABSENT
        started, stopped = "started" in files, "stop" in files
        buried = any(name.startswith("tombstone") for name in files)
        if held:
            return ALIVE if started or stopped or buried else CREATED
        if buried:
            return TOMBSTONE
        if started:
            return VANISHED
        return TOMBSTONE if stopped else CREATED

    def _looked(self, state: State, task: Task, phase: str) -> State:
        if task.why != "start":
            return self.model.looked(state, task, phase)
        if phase in (ABSENT, CREATED) and not task.saw:
            # No shim is at work: from here on, none with an older token may start.
            state = state._replace(fence=max(state.fence, task.token))
        return with_task(state, task, at="look: tokens", saw=phase)

    def _judge_start(self, state: State, task: Task) -> Iterator[Move]:
        who, phase = f"t{task.token}", task.saw
        may_start = (CREATED,)
        if "what has run is never started" in self.without:
            may_start = (CREATED, VANISHED)
        if "a starter marks, then looks" in self.without:
            may_start = (*may_start, ABSENT)
        if phase == TOMBSTONE or highest_token(state.files) > task.token:
            yield ("ensure_started: fenced", who), self.model.returned(state, task, FENCED), None
        elif phase not in may_start:
            yield ("ensure_started: found", who), self.model.returned(state, task, FOUND), None
        else:
            then = "launch"
            if "a starter marks, then looks" in self.without and f"token.{task.token}" not in state.files:
                then = "raise"
            yield ("may start", who), with_task(state, task, at=then, saw=None), None

    # -- the shims --

    def moves(self, state: State) -> Iterator[Move]:
        for shim in state.outside:
            yield from self._run(state, shim)
            if state.budget.kills:
                yield ("shim killed", f"s{shim.token}"), spend(self._leave(state, shim), "kills"), None

    def _run(self, state: State, shim: Shim) -> Iterator[Move]:
        files, who = state.files, f"s{shim.token}"
        match shim.at:
            case "open":
                yield ("shim opens its lock", who), self._turn(state, shim, "lock"), None
            case "lock":
                rivals = [s for s in state.outside if s.lock_is_gone == shim.lock_is_gone]
                if (
                    any(s.at in HOLDS_THE_LOCK for s in rivals)
                    and "the shim holds a lock" not in self.without
                ):
                    yield ("shim gives up", who), self._leave(state, shim), None
                else:
                    unseen = "the shim looks under its lock" in self.without
                    then = "look" if not unseen else "write"
                    yield ("shim takes the lock", who), self._turn(state, shim, then), None
            case "look":
                if self._may_run(files, shim.token):
                    then = "fork" if "`started` is written before the run" in self.without else "write"
                    yield ("shim may start", who), self._turn(state, shim, then), None
                else:
                    yield ("shim may not start", who), self._leave(state, shim), None
            case "write":
                written = with_files(state, files | {"started"})
                yield ("shim writes `started`", who), self._turn(written, shim, "fork"), None
            case "fork":
                begun, broken = self.model.begun(state, shim.token)
                then = "running" if "started" in files else "late write"
                yield (
                    ("shim runs the command", who),
                    self._notify(self._turn(begun, shim, then), shim),
                    broken,
                )
            case "late write":
                written = with_files(state, files | {"started"})
                yield ("shim writes `started`", who), self._turn(written, shim, "running"), None
            case "running":
                if "stop" in files or not self.endless:
                    yield ("command ends", who), self._turn(state, shim, "ended"), None
            case "ended":
                if "the exit is written before the lock is let go" in self.without:
                    yield ("shim lets go", who), self._turn(state, shim, "late exit"), None
                else:
                    written = with_files(state, files | {"exit"})
                    yield ("shim writes the exit", who), self._turn(written, shim, "unlock"), None
            case "unlock":
                yield ("shim lets go", who), self._leave(state, shim), None
            case "late exit":
                yield (
                    ("shim writes the exit", who),
                    self._leave(with_files(state, files | {"exit"}), shim),
                    None,
                )

    def _may_run(self, files: frozenset[str], token: int) -> bool:
        if files & {"stop", "tombstone"}:
            return False
        if files & {"started", "exit"} and "what has run is never started" not in self.without:
            return False
        graves = [int(name[10:]) for name in files if name.startswith("tombstone.")]
        return highest_token(files) <= token and all(token >= grave for grave in graves)

    def _turn(self, state: State, shim: Shim, at: str) -> State:
        """Twins of one token that are at the same step are alike."""
        shims = list(state.outside)
        shims.remove(shim)
        shims.append(shim._replace(at=at))
        return with_outside(state, tuple(sorted(shims)))

    def _leave(self, state: State, shim: Shim) -> State:
        shims = list(state.outside)
        shims.remove(shim)
        return self._notify(with_outside(state, tuple(shims)), shim, "")

    def _notify(self, state: State, shim: Shim, start: str = STARTED) -> State:
        """Its starter, if it still waits."""
        for task in state.tasks:
            if task.token == shim.token and task.at == "wait" and not shim.is_alone:
                if start:
                    return self.model.returned(state, task, start)
                return with_task(state, task, at="look", saw=None)
        return state

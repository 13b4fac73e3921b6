"""The verbs of the Docker runner, in the steps that nothing can split: a file or folder made, renamed or looked for,
and one question to the engine. The engine holds one container under the run's name, and refuses to start one whose
folder is gone. A request may still be on its way to it when its sender has given up.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tests.protocol.explorer import Move
from tests.protocol.fence_engine import Engine, judge, marks, renamed, started, token_of
from tests.protocol.fence_state import (
    CREATED,
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


class DockerSteps:
    """`state.outside` is the engine."""

    nothing = Engine()

    def __init__(self, model: FenceModel) -> None:
        self.model = model
        self.without = model.without
        self.endless = model.setup.endless

    def alive(self, state: State) -> bool:
        return state.outside.status == "running"

    def at_rest(self, state: State) -> bool:
        """A container that was made too late and never ran is left to the sweep."""
        return not self.alive(state) and not state.outside.on_its_way

    def left_alone(self, state: State, task: Task) -> State:
        return state

    def start(self) -> dict[str, Any]:
        return {"at": "raise", "why": "start"}

    def step(self, state: State, task: Task) -> Iterator[Move]:
        verb = task.at.partition(":")[0]
        match verb:
            case "raise" | "bury" | "stop" | "close" | "ask":
                yield from self._fence(state, task)
            case "look":
                yield from self._look(state, task)
            case "try":
                yield from self._try(state, task)
            case "failed" | "discard":
                yield from self._discard(state, task)
            case "delete":
                yield from self._delete(state, task)

    # -- the fence --

    def _fence(self, state: State, task: Task) -> Iterator[Move]:
        files, who, without = state.files, f"t{task.token}", self.without
        match task.at:
            case "raise":
                token = task.token if "a starter leaves its token" not in without else 0
                yield ("leave a mark", who), with_task(with_token(state, token), task, at="look"), None
            case "bury":
                buried = with_files(state, files | {"tombstone"})
                then = "close" if "a tombstone closes the tries" not in without else "close: done"
                yield ("tombstone", who), with_task(buried, task, at=then), None
            case "stop":
                yield from self._stop(state, task)
            case "close":
                listed = sorted(name[5:] for name in files if name.startswith("open."))
                if task.why == "start":
                    listed = [entry for entry in listed if entry != self._folder(task.entry)]
                yield self._close_next(state, task, tuple(listed), ("list the open folders", who))
            case "close: next":
                closed = with_files(state, renamed(files, task.saw[0]))
                yield self._close_next(closed, task, task.saw[1:], ("close a folder", who))
            case "close: done":
                yield self._close_next(state, task, (), ("go on", who))
            case "ask":
                engine = state.outside
                if engine.status == "running":
                    state = with_outside(state, engine._replace(is_requested=True))
                yield ("ask it to end", who), with_task(state, task, at="look", why="follow"), None

    def _stop(self, state: State, task: Task) -> Iterator[Move]:
        who, then = f"t{task.token}", "close"
        if "a stop buries what was not started" in self.without:
            then = "ask"
        else:
            state = with_files(state, state.files | {"stop"})
        yield ("leave a stop", who), with_task(state, task, at=then, why="stop"), None

    def _close_next(self, state: State, task: Task, listed: tuple[str, ...], label: tuple[str, ...]) -> Move:
        if listed:
            return label, with_task(state, task, at="close: next", saw=listed), None
        task = task._replace(saw=None)
        if task.why == "start":
            return label, with_task(state, task, at="try: start"), None
        if task.why == "stop":
            return label, with_task(state, task, at="ask"), None
        return label, self.model.buried(with_task(state, task), task), None

    # -- looking --

    def _look(self, state: State, task: Task) -> Iterator[Move]:
        files, engine, who = state.files, state.outside, f"t{task.token}"
        match task.at:
            case "look":
                seen = marks(files)
                yield ("probe: files", who), with_task(state, task, at="look: engine", saw=seen), None
            case "look: engine":
                if not engine.entry and started(task.saw):
                    yield ("probe: no container", who), with_task(state, task, at="look: again"), None
                else:
                    phase = judge(task.saw, engine.status)
                    yield ("probe", who, phase), self._looked(state, task, phase, engine.entry), None
            case "look: again":
                now = marks(files)
                if started(now) & started(task.saw):
                    phase = judge(now, "")
                    yield ("probe", who, phase), self._looked(state, task, phase, ""), None
                else:
                    yield ("probe: replaced", who), with_task(state, task, at="look", saw=None), None
            case "look: tokens":
                yield from self._judge_start(state, task)

    def _looked(self, state: State, task: Task, phase: str, entry: str) -> State:
        if task.why != "start":
            return self.model.looked(state, task, phase)
        return with_task(state, task, at="look: tokens", saw=(phase, entry))

    def _judge_start(self, state: State, task: Task) -> Iterator[Move]:
        who, (phase, entry) = f"t{task.token}", task.saw
        may_start = [CREATED]
        if "what has run is never started" in self.without:
            may_start.append(VANISHED)
        if phase == TOMBSTONE or highest_token(state.files) > task.token:
            yield ("ensure_started: fenced", who), self.model.returned(state, task, FENCED), None
        elif phase not in may_start:
            yield ("ensure_started: found", who), self.model.returned(state, task, FOUND), None
        elif entry:
            then = "discard: close"
            if "a container is looked at once its try is closed" in self.without:
                then = "discard: unmark"
            yield ("may discard", who, entry), with_task(state, task, at=then, saw=entry), None
        else:
            yield ("may start", who), with_task(state, task, at="try", saw=None), None

    # -- making a container and starting it --

    def _try(self, state: State, task: Task) -> Iterator[Move]:
        files, engine, who, entry = state.files, state.outside, f"t{task.token}", task.entry
        looks_first = "a try opens its folder, then looks" in self.without
        match task.at:
            case "try":
                at = "try: pass" if not looks_first else "try: create"
                if looks_first and not self._lets_pass(files, task):
                    yield ("may not start", who), with_task(state, task, at="look"), None
                elif looks_first:
                    yield ("may start", who), with_task(state, task, at="try: open"), None
                else:
                    yield from self._open(state, task, at)
            case "try: open":
                yield from self._open(state, task, "try: create")
            case "try: pass":
                if self._lets_pass(files, task):
                    yield ("may start", who), with_task(state, task, at="try: create"), None
                else:
                    yield ("may not start", who), self._forget(state, task, "look"), None
            case "try: create":
                if engine.entry or f"open.{self._folder(entry)}" not in files:
                    yield ("create: refused", who), self._forget(state, task, "look"), None
                    return
                made = with_outside(state, Engine(entry, "created", False, engine.on_its_way))
                yield ("create", who, entry), with_task(made, task, at="try: mark"), None
                if state.budget.refusals:
                    yield from self._unanswered(state, task, f"create {entry}")
                    no_image = self.model.returned(self._forget(state, task, ""), task, FAILED)
                    yield ("create: no image", who), spend(no_image, "refusals"), None
            case "try: mark":
                if not self._may_mark(files, entry):
                    yield (
                        ("the try was closed", who, entry),
                        with_task(state, task, at="failed: inspect"),
                        None,
                    )
                    return
                if "a container's start is marked before" not in self.without:
                    state = with_files(state, files | {f"started.{entry}"})
                then = "try: start" if "who has the name closes the other tries" in self.without else "close"
                yield ("mark the try", who, entry), with_task(state, task, at=then), None
            case "try: start":
                yield from self._start(state, task)

    def _open(self, state: State, task: Task, then: str) -> Iterator[Move]:
        entry = self._new_entry(state, task)
        opened = with_files(state, state.files | {f"open.{self._folder(entry)}"})
        yield ("open a folder", f"t{task.token}", entry), with_task(opened, task, at=then, entry=entry), None

    def _start(self, state: State, task: Task) -> Iterator[Move]:
        who, entry = f"t{task.token}", task.entry
        begun = self._begun(state, entry)
        if begun is None:
            yield ("start: refused", who, entry), with_task(state, task, at="failed: close"), None
        else:
            after, broken = begun
            if "a container's start is marked before" in self.without:
                after = with_files(after, after.files | {f"started.{entry}"})
            yield ("start", who, entry), self.model.returned(after, task, STARTED), broken
        if state.budget.refusals:
            yield from self._unanswered(state, task, f"start {entry}")
            no_program = with_task(spend(state, "refusals"), task, at="failed: close", saw="no program")
            yield ("start: no program", who, entry), no_program, None

    def _unanswered(self, state: State, task: Task, request: str) -> Iterator[Move]:
        """The engine takes its time, and its answer finds nobody."""
        who, engine = f"t{task.token}", state.outside
        sent = with_outside(state, engine._replace(on_its_way=engine.on_its_way | {request}))
        paid = spend(sent, "refusals")
        yield ("no answer, try again", who, request), with_task(paid, task, **self.start()), None
        yield ("no answer, give up", who, request), self.model.returned(paid, task, FAILED), None

    def _may_mark(self, files: frozenset[str], entry: str) -> bool:
        """The mark is moved out of the open folder: it is not there in one that was closed."""
        return f"open.{self._folder(entry)}" in files or "the mark lies in the folder" in self.without

    def _begun(self, state: State, entry: str) -> tuple[State, str | None] | None:
        """What the engine does with a start; None: it refuses."""
        engine = state.outside
        if "a container is started by its id" in self.without and engine.status in ("created", "exited"):
            entry = engine.entry
        elif engine.entry != entry or engine.status != "created":
            return None
        if f"open.{self._folder(entry)}" not in state.files:
            return None
        after, broken = self.model.begun(state, token_of(entry))
        return with_outside(after, engine._replace(status="running")), broken

    def _lets_pass(self, files: frozenset[str], task: Task) -> bool:
        if started(files) and "a try looks for the marks of others" not in self.without:
            return False
        return not files & {"stop", "tombstone"} and highest_token(files) <= task.token

    def _new_entry(self, state: State, task: Task) -> str:
        """A name that nobody has ever heard of: here the first that nobody remembers."""
        known = {name.partition(".")[2] for name in state.files}
        known.update(request.partition(" ")[2] for request in state.outside.on_its_way)
        known.add(state.outside.entry)
        for other in state.tasks:
            known.add(other.entry)
            if other.at == "close: next":
                known.update(other.saw)
            elif other.at.startswith("discard"):
                known.add(other.saw)
            elif other.at in ("look: engine", "look: again"):
                known |= started(other.saw)
            elif other.at == "look: tokens":
                known.add(other.saw[1])
        number = 0
        while f"{task.token}.{number}" in known:
            number += 1
        return f"{task.token}.{number}"

    def _folder(self, entry: str) -> str:
        return entry if "a try has a folder of its own" not in self.without else "0.shared"

    def _forget(self, state: State, task: Task, at: str) -> State:
        """The folder of its own try, which has no container and no mark."""
        return with_task(
            with_files(state, self._without_folder(state.files, task.entry)), task, at=at, entry=""
        )

    def _without_folder(self, files: frozenset[str], entry: str) -> frozenset[str]:
        return files - {f"open.{self._folder(entry)}", f"closed.{self._folder(entry)}"}

    # -- a container that was made and not started --

    def _discard(self, state: State, task: Task) -> Iterator[Move]:
        """Its own, which the engine has refused to start, or that of one before."""
        files, engine, who = state.files, state.outside, f"t{task.token}"
        verb, _, step = task.at.partition(": ")
        own = verb == "failed"
        entry = task.entry if own else task.saw
        # The mark and the folder first: without the container they would say that it has run.
        steps = ["close", "inspect", "unmark", "forget", "delete"]
        if "a discarded container loses its mark first" in self.without:
            steps = ["close", "inspect", "delete", "unmark", "forget"]
        then = f"{verb}: {steps[steps.index(step) + 1]}" if step != steps[-1] else ""
        match step:
            case "close":
                closed = with_files(state, renamed(files, self._folder(entry)))
                yield ("close the folder", who, entry), with_task(closed, task, at=then), None
            case "inspect":
                is_there = engine.entry == entry
                if own and is_there and engine.status != "created":
                    yield ("it was started", who, entry), self.model.returned(state, task, STARTED), None
                elif own or (is_there and engine.status == "created"):
                    yield ("it was not started", who, entry), with_task(state, task, at=then), None
                else:
                    yield (
                        ("it is not as it was", who, entry),
                        with_task(state, task, at="look", saw=None),
                        None,
                    )
            case "unmark":
                unmarked = with_files(state, files - {f"started.{entry}"})
                yield ("take the mark back", who, entry), with_task(unmarked, task, at=then), None
            case "forget":
                forgotten = with_files(state, self._without_folder(files, entry))
                yield ("delete the folder", who, entry), self._next(forgotten, task, then), None
            case "delete":
                if engine.entry == entry and engine.status != "running":
                    state = with_outside(state, Engine(on_its_way=engine.on_its_way))
                yield ("delete the container", who, entry), self._next(state, task, then), None

    def _next(self, state: State, task: Task, then: str) -> State:
        return with_task(state, task, at=then) if then else self._discarded(state, task)

    def _discarded(self, state: State, task: Task) -> State:
        if task.saw == "no program":
            return self.model.returned(state, task, FAILED)
        return with_task(state, task, at="look", saw=None, entry="")

    # -- remove --

    def _delete(self, state: State, task: Task) -> Iterator[Move]:
        files, engine, who = state.files, state.outside, f"t{task.token}"
        if task.at == "delete":
            if engine.status == "running":
                yield ("remove: it runs", who), drop(state, task), None
            else:
                gone = with_outside(state, Engine(on_its_way=engine.on_its_way))
                yield ("remove: container", who), with_task(gone, task, at="delete: files"), None
            return
        kept = files & {"tombstone"} if "remove keeps the tombstone" not in self.without else frozenset()
        yield ("remove: the rest", who), drop(with_files(state, kept), task), None

    # -- the engine --

    def moves(self, state: State) -> Iterator[Move]:
        engine = state.outside
        if engine.status == "running" and (engine.is_requested or not self.endless):
            yield ("container exits",), with_outside(state, engine._replace(status="exited")), None
        if engine.entry and state.budget.kills:
            removed = with_outside(state, Engine(on_its_way=engine.on_its_way))
            yield ("container removed by hand",), spend(removed, "kills"), None
        for request in engine.on_its_way:
            verb, _, entry = request.partition(" ")
            arrived = with_outside(state, engine._replace(on_its_way=engine.on_its_way - {request}))
            after, broken = arrived, None
            if verb == "start":
                after, broken = self._begun(arrived, entry) or (arrived, None)
            elif not engine.entry and f"open.{self._folder(entry)}" in state.files:
                made = arrived.outside._replace(entry=entry, status="created", is_requested=False)
                after = with_outside(arrived, made)
            yield (f"{verb} arrives late", entry), after, broken

"""The workers' half of the lease model: claim, adopt, run, renew, settle, and what follows a lost reply.

Each move is one step that nothing can split: one transaction, or one call to the site where executions live.
Between two moves of one worker any other may move any number of times: that is what a freeze is.
"""

from collections.abc import Iterator

from tests.protocol.explorer import Move
from tests.protocol.lease_state import (
    ABSENT,
    ACCEPTED,
    ALIVE,
    ASKED,
    ATTACHED,
    CLAIMED,
    CLEAR,
    EXITED_BAD,
    EXITED_OK,
    GIVEN_UP,
    HELD,
    IN_FLIGHT,
    MISSED,
    NAME_IS_FREE,
    NEVER_SITED,
    NO_QUESTION,
    NOBODY,
    NOT_SENT,
    NOWHERE,
    PAUSE,
    PROBE,
    REPEAT,
    RUN,
    SETTLE,
    SETTLE_QUEUE,
    SITED,
    STARTED,
    STOP,
    TOMBSTONE,
    UNSURE,
    Row,
    Setup,
    State,
    Task,
    drop_task,
    execution,
    replace_task,
    spend,
    with_execution,
    with_row,
    with_task,
)
from tests.protocol.lease_store import Store
from tests.protocol.settle_table import RUNNING

NOT_THE_HOLDER = "a write was accepted from a worker that does not hold the lease"


class Workers:
    def __init__(self, setup: Setup, store: Store) -> None:
        self.setup = setup
        self.store = store
        self.without = setup.without
        self.count = len(setup.sites)
        self.reads_back = "a lost claim is found" not in setup.without

    def owner_name(self, state: State, worker: int) -> int:
        """Host and pid and a random id made at every start."""
        if "owner names are never shared" in self.without:
            return 0
        return worker + self.count * state.workers[worker].start

    def holds(self, state: State, task: Task) -> bool:
        """Does this task have the one lease of its job? The promise, not what any statement tests."""
        row = state.rows[task.job]
        return (
            row.state is RUNNING
            and row.token == task.token
            and row.owner == self.owner_name(state, task.worker)
        )

    def moves(self, state: State) -> Iterator[Move]:
        for worker in range(self.count):
            if not state.workers[worker].draining:
                yield from self._take(state, worker)
            if state.budget.lost_replies < self.setup.budget.lost_replies and self.reads_back:
                yield from self._find_unheld(state, worker)
        for task in state.tasks:
            yield from self._beat(state, task)
            if task.phase in SETTLE_QUEUE:
                yield from self._settle(state, task)
            elif task.phase == RUN:
                yield from self._run(state, task)
            elif task.phase == GIVEN_UP:
                yield self._ended(state, task, "handed back")
            else:
                yield from self._run_external(state, task)
                yield from self._detach(state, task)

    # -- taking work --

    def _take(self, state: State, worker: int) -> Iterator[Move]:
        store, budget = self.store, state.budget
        owner = self.owner_name(state, worker)
        for job, row in enumerate(state.rows):
            if store.can_claim(state.rows, job):
                granted, verb = store.claim(row, owner), "claim"
            elif store.can_adopt(row, self.setup.sites[worker]):
                granted, verb = store.adopt(row, owner), "adopt"
            else:
                continue
            after = with_row(state, job, granted)
            yield (verb, f"w{worker}", f"j{job}"), with_task(after, self.new_task(worker, job, granted)), None
            if budget.lost_replies:
                label = (f"{verb}, reply lost", f"w{worker}", f"j{job}")
                yield label, spend(after, "lost_replies"), None

    def new_task(self, worker: int, job: int, row: Row) -> Task:
        """The first thing to do with a grant: run it, store the site, or ask what is there already."""
        if not self.setup.external:
            phase, note = RUN, ""
        elif row.site == NOWHERE:
            phase, note = CLAIMED, ""
        else:
            phase, note = PROBE, "marked" if row.marked else ""
        return Task(worker, job, row.token, row.attempt, phase, row.flag, note)

    def _find_unheld(self, state: State, worker: int) -> Iterator[Move]:
        """After a lost reply: a row with my owner that I do not hold is mine. Run it, or (draining) hand it back."""
        owner = self.owner_name(state, worker)
        for job, row in enumerate(state.rows):
            if row.state is not RUNNING or row.owner != owner:
                continue
            known = [t for t in state.tasks if t.worker == worker and t.job == job and t.token == row.token]
            broken = None
            if known:
                forgotten = known[0].phase == GIVEN_UP and "a run given up is not found again" in self.without
                if not forgotten:
                    continue
                broken = "user code ran twice under one grant"
            task = self.new_task(worker, job, row)
            yield ("find unheld", f"w{worker}", f"j{job}"), with_task(state, task), broken

    # -- the beat --

    def _beat(self, state: State, task: Task) -> Iterator[Move]:
        row = state.rows[task.job]
        label = f"w{task.worker}", f"j{task.job}", f"t{task.token}"
        accepted = self._accepts(state, task, "renew checks the token")
        if row.lease == MISSED and "renew ignores the expiry" in self.without:
            accepted = False
        if accepted:
            if task.phase == GIVEN_UP:
                return
            if row.lease != HELD or row.flag != task.seen:
                broken = None if self.holds(state, task) else f"{NOT_THE_HOLDER}: renew"
                # Not the expiry: a late renewal of a row that nobody has fenced is a renewal.
                renewed = row if row.lease == HELD else row._replace(lease=HELD, expiry=row.expiry + 1)
                after = with_row(state, task.job, renewed)
                yield ("renew", *label), replace_task(after, task, task._replace(seen=row.flag)), broken
        elif task.phase not in SETTLE_QUEUE:
            # An in-process handler is stopped here; an external run is left alive for its adopter.
            yield ("renew: lost", *label), drop_task(state, task), None
        elif "renew spares the settle queue" in self.without:
            broken = "a worker called its accepted settle a loss" if task.sent == ACCEPTED else None
            yield ("renew: lost", *label), drop_task(state, task), broken

    def _accepts(self, state: State, task: Task, guard: str) -> bool:
        """What the statement's WHERE tests: a lease with this token. Every grant moves the token on, and every
        ending takes the lease away."""
        row = state.rows[task.job]
        if guard in self.without:
            return row.state is RUNNING and row.owner == self.owner_name(state, task.worker)
        return self._has_lease(row) and row.token == task.token

    def _has_lease(self, row: Row) -> bool:
        return row.owner != NOBODY or row.left_lease

    # -- running in the worker's own process --

    def _keep(self, state: State, task: Task) -> Move:
        """Store a step or a checkpoint, under the fence. A run that is refused knows that its lease is lost."""
        label = f"w{task.worker}", f"j{task.job}"
        if not self._accepts(state, task, "what a run keeps checks the token"):
            return ("keep: lost", *label), drop_task(state, task), None
        broken = None if self.holds(state, task) else f"{NOT_THE_HOLDER}: keep"
        kept = with_row(state, task.job, state.rows[task.job]._replace(kept=True))
        return ("keep", *label), spend(kept, "keeps"), broken

    def _run(self, state: State, task: Task) -> Iterator[Move]:
        outcomes = ["success", "failure"]
        if task.seen >= PAUSE:
            outcomes.append("stopped")
        if state.workers[task.worker].draining:
            outcomes.append("handed back")
        for outcome in outcomes:
            yield self._ended(state, task, outcome)
        if state.budget.stalls:  # the beats do not come through: it stops by itself before the lease runs out
            given_up = replace_task(state, task, task._replace(phase=GIVEN_UP))
            yield ("give up", f"w{task.worker}", f"j{task.job}"), spend(given_up, "stalls"), None
        if state.budget.keeps:
            yield self._keep(state, task)
        question = state.rows[task.job].question
        for whim in self.setup.whims:
            if whim == "question" and question != NO_QUESTION:
                if question == ASKED:  # resumed without an answer: it asks again, at no cost to the budget
                    yield self._ended(state, task, whim)
            elif state.budget.whims:
                label, after, broken = self._ended(state, task, whim)
                yield label, spend(after, "whims"), broken

    def _ended(self, state: State, task: Task, outcome: str) -> Move:
        ended = task._replace(phase=SETTLE, note=outcome)
        label = ("run ends", f"w{task.worker}", f"j{task.job}", f"t{task.token}", outcome)
        return label, replace_task(state, task, ended), None

    # -- running outside --

    def _run_external(self, state: State, task: Task) -> Iterator[Move]:
        row, site = state.rows[task.job], self.setup.sites[task.worker]
        there = execution(state, task, site)
        who = f"w{task.worker}", f"j{task.job}", f"t{task.token}"
        must_stop = task.seen >= PAUSE

        def turn(phase: str, note: str = "", base: State = state) -> State:
            return replace_task(base, task, task._replace(phase=phase, note=note))

        match task.phase:
            case "claimed" if must_stop:
                # No site is stored, so nothing can have been started: no tombstone is needed.
                yield ("stop before the site", *who), turn(SETTLE, "stopped"), None
            case "claimed" if "the site is stored before the start" in self.without and there in NAME_IS_FREE:
                yield ("start", *who), turn(STARTED, "", with_execution(state, task, site, ALIVE)), None
            case "claimed":
                yield from self._store_site(state, task, row, site, SITED)
            case "sited" if must_stop:
                yield ("stop before the start", *who), turn(*self._clear("stopped")), None
            case "sited":
                if there in NAME_IS_FREE or "a start occupies the name" in self.without:
                    alive = with_execution(state, task, site, ALIVE)
                    broken = "two executions of one attempt are alive" if there == ALIVE else None
                    yield ("start", *who), turn(STARTED, "", alive), broken
                else:
                    yield ("start: name taken", *who), turn(PROBE), None
            case "started" if row.site == NOWHERE and "the site is stored before the start" in self.without:
                yield from self._store_site(state, task, row, site, STARTED)
            case "started":
                if self._accepts(state, task, "the start mark checks the token"):
                    broken = None if self.holds(state, task) else f"{NOT_THE_HOLDER}: start mark"
                    marked = with_row(state, task.job, row._replace(marked=True))
                    yield ("mark the start", *who), turn(ATTACHED, "", marked), broken
                else:
                    yield ("mark the start: lost", *who), drop_task(state, task), None
            case "attached" if must_stop:
                yield ("see the stop request", *who), turn(STOP, "stopped"), None
            case "attached":
                if there == ALIVE and "attempt time-out" in self.setup.whims and state.budget.whims:
                    yield ("attempt time-out", *who), spend(turn(STOP, "attempt time-out"), "whims"), None
                if there != ALIVE:
                    yield ("see the end", *who), turn(*self._seen(there, "marked", must_stop)), None
            case "stop":
                if there == ALIVE:
                    stopped = with_execution(state, task, site, EXITED_BAD)
                    yield ("stop", *who), turn(SETTLE, task.note, stopped), None
                else:
                    yield ("stop: no longer alive", *who), turn(*self._seen(there, "marked", must_stop)), None
            case "probe":
                yield ("probe", *who), turn(*self._seen(there, task.note, must_stop)), None
            case "clear":
                if there in NAME_IS_FREE:
                    buried = with_execution(state, task, site, TOMBSTONE)
                    yield ("tombstone", *who), turn(SETTLE, task.note, buried), None
                else:
                    yield ("tombstone: name taken", *who), turn(PROBE, "marked"), None

    def _seen(self, there: str, note: str, must_stop: bool) -> tuple[str, str]:
        """What to do next, after looking at the execution."""
        if there == ALIVE:
            return (STOP, "stopped") if must_stop else (ATTACHED if note else STARTED, "")
        if there == EXITED_OK:
            return SETTLE, "success"  # collected, even under a cancel: the result was there before the stop
        if there in (EXITED_BAD, TOMBSTONE):
            return SETTLE, "stopped" if must_stop else "failure"
        if must_stop:
            return self._clear("stopped")
        if not note or "a vanished run is not started again" in self.without:
            return SITED, ""  # absent without a start mark: start it under the same name, the same attempt
        if "a vanished run gets a tombstone" in self.without:
            return SETTLE, "vanished"
        return CLEAR, "vanished"

    def _clear(self, outcome: str) -> tuple[str, str]:
        if "a stop of an absent run leaves a tombstone" in self.without:
            return SETTLE, outcome
        return CLEAR, outcome

    def _store_site(self, state: State, task: Task, row: Row, site: int, then: str) -> Iterator[Move]:
        who = f"w{task.worker}", f"j{task.job}", f"t{task.token}"
        accepted = self._accepts(state, task, "the site write checks the token")
        if not accepted:
            yield ("store the site: lost", *who), drop_task(state, task), None
            return
        broken = None if self.holds(state, task) else f"{NOT_THE_HOLDER}: site"
        after = with_row(state, task.job, row._replace(site=site))
        if execution(state, task, site) == NEVER_SITED:
            after = with_execution(after, task, site, ABSENT)
        yield ("store the site", *who), replace_task(after, task, task._replace(phase=then)), broken

    def _detach(self, state: State, task: Task) -> Iterator[Move]:
        """Drain: an external run is let go, not stopped; one without a site goes back to the queue."""
        if state.workers[task.worker].draining:
            ended = task._replace(phase=SETTLE, note="detached")
            yield ("let go", f"w{task.worker}", f"j{task.job}"), replace_task(state, task, ended), None

    # -- settling --

    def _settle(self, state: State, task: Task) -> Iterator[Move]:
        who = f"w{task.worker}", f"j{task.job}", f"t{task.token}", task.note
        guard = {"handed back": "hand-back", "detached": "detach"}.get(
            task.note, "settle"
        ) + " checks the token"
        accepted = self._accepts(state, task, guard)
        if task.sent == IN_FLIGHT:  # the statement outlived its connection and arrives at last
            if accepted:
                after, broken = self._settled(state, task)
                yield (
                    ("settle arrives late", *who),
                    replace_task(after, task, task._replace(sent=ACCEPTED)),
                    broken,
                )
            else:
                refused = task._replace(sent=NOT_SENT)
                yield ("settle arrives late: lost", *who), replace_task(state, task, refused), None
        if task.phase == UNSURE:
            yield self._read_again(state, task)
            return
        if not accepted:
            yield self._refused(state, task)
            return
        after, broken = self._settled(state, task)
        yield ("settle", *who), drop_task(after, task), broken
        if state.budget.lost_replies:
            label = ("settle, reply lost", *who)
            unsure = task._replace(phase=UNSURE, sent=ACCEPTED)
            yield label, spend(replace_task(after, task, unsure), "lost_replies"), broken
            unsure = task._replace(phase=UNSURE, sent=IN_FLIGHT)
            yield ("settle, on its way", *who), spend(replace_task(state, task, unsure), "lost_replies"), None

    def _settled(self, state: State, task: Task) -> tuple[State, str | None]:
        row = state.rows[task.job]
        broken = None if self.holds(state, task) else f"{NOT_THE_HOLDER}: settle"
        flag = task.seen if "settle reads the flag under the lock" in self.without else row.flag
        settled = self.store.settle(row, task.note, flag, self.owner_name(state, task.worker))
        after = with_row(state, task.job, settled)
        if (
            self.setup.external
            and "a settled name stays taken" in self.without
            and settled.state is not RUNNING
        ):
            after = with_execution(after, task, self.setup.sites[task.worker], NEVER_SITED)
        return after, broken

    def _refused(self, state: State, task: Task) -> Move:
        label = ("settle: lost", f"w{task.worker}", f"j{task.job}", f"t{task.token}")
        if task.phase == SETTLE:
            return label, drop_task(state, task), None
        if "a refused repeat is read again" in self.without:
            broken = "a worker called its accepted settle a loss" if task.sent == ACCEPTED else None
            return label, drop_task(state, task), broken
        return label, replace_task(state, task, task._replace(phase=UNSURE)), None

    def _read_again(self, state: State, task: Task) -> Move:
        """settled_by me with my token → done; still mine → repeat; a later settle on the row → nobody can say
        any more; else fenced."""
        row, me = state.rows[task.job], self.owner_name(state, task.worker)
        who = f"w{task.worker}", f"j{task.job}", f"t{task.token}"
        mine = row.settled_by == me or "a lost reply is read by owner" in self.without
        same = row.settled_token == task.token or "a lost reply is read by token" in self.without
        if mine and same and row.settled_token >= 0:
            broken = (
                None if task.sent == ACCEPTED else "a worker believed in a settle that was never accepted"
            )
            return ("read: settled", *who), drop_task(state, task), broken
        if self._has_lease(row) and row.token == task.token:
            return ("read: still mine", *who), replace_task(state, task, task._replace(phase=REPEAT)), None
        if (
            row.settled_token > task.token
            and "an overwritten settle is not called a loss" not in self.without
        ):
            return ("read: overwritten", *who), drop_task(state, task), None
        broken = "a worker called its accepted settle a loss" if task.sent == ACCEPTED else None
        return ("read: fenced", *who), drop_task(state, task), broken

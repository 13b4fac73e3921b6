"""The lease protocol of semantics.md as a model that can be walked to the last state.

`LeaseModel` puts three parties side by side: the workers (`lease_worker`), the reapers with their two looks, and
the world outside: time, crashes, executions that end, operators. The store (`lease_store`) decides every ending
by the literal table. After each move the promises of section 1 are held against what has happened.
"""

from collections.abc import Iterator

from tests.protocol.explorer import Move
from tests.protocol.lease_state import (
    ABSENT,
    ALIVE,
    ANSWERED,
    ASKED,
    AT_REST,
    CANCEL,
    EXITED_BAD,
    EXITED_OK,
    FINAL,
    FINISH,
    GIVEN_UP,
    HELD,
    INITIAL_PENDING,
    JUMPED,
    MISSED,
    NO_FLAG,
    NO_QUESTION,
    NOBODY,
    NOWHERE,
    PAUSE,
    Look,
    Row,
    Setup,
    State,
    Task,
    Worker,
    put_execution,
    spend,
    with_row,
    with_task,
    with_worker,
)
from tests.protocol.lease_store import HALTED, Store
from tests.protocol.lease_worker import Workers
from tests.protocol.settle_table import CANCELLED, FAILED, PAUSED, PENDING, QUEUED, RUNNING, WAITING

NOT_STARTED = frozenset((PENDING, QUEUED, WAITING))


class LeaseModel:
    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.without = setup.without
        self.store = Store(setup)
        self.workers = Workers(setup, self.store)
        # A look that no longer fits its row is forgotten at once, unless a mutant would still act on it.
        self.keeps_old_looks = bool(
            self.without & {"reap decides under the lock", "reap compares the expiry"},
        )

        # This mutant is to be caught by what follows (an orphan that nobody can adopt), not by its definition.
        self.orphans_may_lack_a_site = "a lost external run without a site is requeued" in self.without
        self.weaker_flag_may_win = "the stronger flag wins" in self.without
        self.flags_resume_clears = (
            (PAUSE, CANCEL) if "resume clears a pause only" in self.without else (PAUSE,)
        )

    def initial(self) -> State:
        setup = self.setup
        rows = [Row(halts=setup.halts) for _ in range(setup.jobs)]
        if setup.starts_on_hold:
            rows[0] = INITIAL_PENDING._replace(halts=setup.halts)
        executions = tuple(() for _ in rows)
        return State(tuple(rows), executions, (), (), tuple(Worker() for _ in setup.sites), setup.budget)

    def finished(self, state: State) -> bool:
        return all(row.state in AT_REST for row in state.rows)

    def counts_as_progress(self, state: State, after: State) -> bool:
        """What is paid for is a fault, or somebody's choice: no job may need one to come to rest. A release is
        the exception, because a job on hold waits for nothing else."""
        return after.budget is state.budget or after.budget.releases != state.budget.releases

    def moves(self, state: State) -> Iterator[Move]:
        for label, after, broken in self._all_moves(state):
            if after.rows is not state.rows:
                if after.looks and not self.keeps_old_looks:
                    after = self._forget_looks(after)
                broken = broken or self._broken_by_move(state, after)
            yield label, after, broken

    def _all_moves(self, state: State) -> Iterator[Move]:
        yield from self.workers.moves(state)
        yield from self._reaper_moves(state)
        yield from self._world_moves(state)
        for job, row in enumerate(state.rows):
            for label, after, spends in self._operator_moves(row, state):
                moved = with_row(state, job, after)
                yield (label, f"j{job}"), spend(moved, spends) if spends else moved, None

    def _forget_looks(self, state: State) -> State:
        looks = tuple(look for look in state.looks if self._fits(look, state.rows[look.job]))
        return State(*state[:3], looks, *state[4:])

    def _fits(self, look: Look, row: Row) -> bool:
        """A row that nobody holds keeps its token, but a look at its lease is of no use any more."""
        return row.owner != NOBODY and (row.token, row.expiry) == (look.token, look.expiry)

    # -- reapers --

    def _reaper_moves(self, state: State) -> Iterator[Move]:
        for reaper in self.setup.reapers:
            looks = {look.job: look for look in state.looks if look.reaper == reaper}
            for job, row in enumerate(state.rows):
                look = looks.get(job)
                if look is not None and self._may_reap(row, look):
                    yield from self._reap(state, reaper, job, look)
                if self._looks_expired(row):
                    now = Look(reaper, job, row.token, row.expiry, row.flag)
                    if "reap looks twice" in self.without:
                        yield from self._reap(state, reaper, job, now)
                    elif look is None:
                        after = State(*state[:3], tuple(sorted((*state.looks, now))), *state[4:])
                        yield ("look", f"w{reaper}", f"j{job}"), after, None

    def _looks_expired(self, row: Row) -> bool:
        if row.state is not RUNNING:
            return False
        if row.owner == NOBODY:  # an orphan has no expiry; "null counts as expired" must not mean this
            return "reap spares orphans" in self.without
        return row.lease != HELD

    def _may_reap(self, row: Row, look: Look) -> bool:
        """The second look, at least ttl/3 after the first."""
        if "reap decides under the lock" in self.without:
            return True
        if not self._looks_expired(row) or look.token != row.token:
            return False
        if look.expiry != row.expiry:
            return "reap compares the expiry" in self.without
        # A healthy holder beats every ttl/3, so no second look can still find the expiry of the first one.
        return row.lease != JUMPED

    def _reap(self, state: State, reaper: int, job: int, look: Look) -> Iterator[Move]:
        row, owner = state.rows[job], self.workers.owner_name(state, reaper)
        # A reap that signed with a worker's name would be read by that worker as its own accepted settle.
        signer = owner if "reap does not sign as settler" in self.without else NOBODY
        decides_with = look.flag if "reap reads the flag under the lock" in self.without else row.flag
        reaped = self.store.settle(row, "lost", decides_with, signer)
        broken = None
        if row.owner == NOBODY:
            broken = "a row that nobody holds was reaped"
        elif row.lease == JUMPED:
            broken = "a lease was taken from a healthy worker"
        without_look = State(*state[:3], tuple(k for k in state.looks if k != look), *state[4:])
        after = with_row(without_look, job, reaped)
        yield ("reap", f"w{reaper}", f"j{job}", reaped.state), after, broken
        if self.setup.steals and not state.workers[reaper].draining:
            yield from self._steal(without_look, after, reaper, job, broken)

    def _steal(
        self, state: State, reaped: State, worker: int, job: int, broken: str | None
    ) -> Iterator[Move]:
        """Claim by id of an expired row: the reap of that row and the next grant in one transaction."""
        row, owner = reaped.rows[job], self.workers.owner_name(reaped, worker)
        if self.store.can_claim(reaped.rows, job):
            granted, verb = self.store.claim(row, owner), "steal, claim"
        elif self.store.can_adopt(row, self.setup.sites[worker]):
            granted, verb = self.store.adopt(row, owner), "steal, adopt"
        else:
            return  # failed, paused, cancelled or not the head: the reap stands, the caller is told
        after = with_row(reaped, job, granted)
        task = self.workers.new_task(worker, job, granted)
        yield (verb, f"w{worker}", f"j{job}"), with_task(after, task), broken
        if reaped.budget.lost_replies:
            yield (f"{verb}, reply lost", f"w{worker}", f"j{job}"), spend(after, "lost_replies"), broken

    # -- the world: time, faults, executions --

    def _world_moves(self, state: State) -> Iterator[Move]:
        budget = state.budget
        for job, row in enumerate(state.rows):
            if row.state is QUEUED and not row.due:
                yield ("becomes due", f"j{job}"), with_row(state, job, row._replace(due=True)), None
            if row.state is RUNNING and row.owner != NOBODY and row.lease != MISSED:
                missed = with_row(state, job, row._replace(lease=MISSED))
                if not any(t.job == job and self._keeps_up(state, t) for t in state.tasks):
                    yield ("lease runs out", f"j{job}"), missed, None
                else:
                    if budget.stalls:
                        yield ("holder stalls", f"j{job}"), spend(missed, "stalls"), None
                    if budget.jumps and row.lease == HELD:
                        jumped = with_row(state, job, row._replace(lease=JUMPED))
                        yield ("clock leaps", f"j{job}"), spend(jumped, "jumps"), None
            for attempt, sites in enumerate(state.executions[job], start=1):
                for site, there in enumerate(sites):
                    if there == ALIVE:
                        yield from self._execution_ends(state, job, attempt, site)
        for number, worker in enumerate(state.workers):
            restarted = Worker(worker.start + 1)
            if budget.crashes and self._has_something(state, number):
                yield (
                    ("crash", f"w{number}"),
                    spend(self._without_memory(state, number, restarted), "crashes"),
                    None,
                )
            if worker.draining and not any(t.worker == number for t in state.tasks):
                yield ("restart", f"w{number}"), self._without_memory(state, number, restarted), None
            if budget.drains and not worker.draining:
                draining = worker._replace(draining=True)
                yield ("drain", f"w{number}"), spend(with_worker(state, number, draining), "drains"), None

    def _keeps_up(self, state: State, task: Task) -> bool:
        """Is there somebody who would renew this lease if nothing went wrong?"""
        return task.phase != GIVEN_UP and self.workers.holds(state, task)

    def _has_something(self, state: State, worker: int) -> bool:
        owner = self.workers.owner_name(state, worker)
        return any(t.worker == worker for t in state.tasks) or any(row.owner == owner for row in state.rows)

    def _without_memory(self, state: State, number: int, worker: Worker) -> State:
        tasks = tuple(t for t in state.tasks if t.worker != number)
        looks = tuple(look for look in state.looks if look.reaper != number)
        return with_worker(State(*state[:2], tasks, looks, *state[4:]), number, worker)

    def _execution_ends(self, state: State, job: int, attempt: int, site: int) -> Iterator[Move]:
        where = f"j{job}.{attempt}"
        yield ("execution exits well", where), put_execution(state, job, attempt, site, EXITED_OK), None
        yield ("execution exits badly", where), put_execution(state, job, attempt, site, EXITED_BAD), None
        if state.budget.vanishes:
            gone = put_execution(state, job, attempt, site, ABSENT)
            yield ("execution vanishes", where), spend(gone, "vanishes"), None

    # -- operators --

    def _operator_moves(self, row: Row, state: State) -> Iterator[tuple[str, Row, str]]:
        """(verb, the row after it, what it costs). A verb that does not fit the state is refused: no move."""
        budget, running = state.budget, row.state is RUNNING
        if budget.releases and row.on_hold:
            if row.state is PENDING:
                yield "release", row._replace(state=QUEUED, on_hold=False), "releases"
            elif row.state is PAUSED:
                reached = "release reaches a paused job" not in self.without
                yield "release of a paused job", row._replace(on_hold=not reached), "releases"
        if budget.cancels and row.state not in FINAL and row.flag != CANCEL:
            if running:
                yield "cancel a running job", row._replace(flag=CANCEL), "cancels"
            else:
                closes = "cancel closes the question" not in self.without
                question = NO_QUESTION if closes else row.question
                cancelled = row._replace(state=CANCELLED, question=question, keeps_lane=False, due=True)
                yield "cancel", cancelled, "cancels"
        if budget.pauses:
            if row.state in NOT_STARTED:
                yield "pause", row._replace(state=PAUSED), "pauses"
            elif running and (row.flag < PAUSE or (row.flag > PAUSE and self.weaker_flag_may_win)):
                yield "pause a running job", row._replace(flag=PAUSE), "pauses"
        if budget.finishes and running and row.flag < FINISH:
            yield "finish a running job", row._replace(flag=FINISH), "finishes"
        if row.state is WAITING:
            state_after = WAITING if "answer requeues" in self.without else QUEUED
            yield "answer", row._replace(state=state_after, question=ANSWERED), ""
        if row.state is PAUSED and row.question == ASKED:
            yield "answer a paused job", row._replace(question=ANSWERED), ""
        if row.state in HALTED and row.halts and "resolve lets the lane go on" not in self.without:
            yield "skip", row._replace(halts=False, keeps_lane=False), ""
        yield from self._resumes(row, state)

    def _resumes(self, row: Row, state: State) -> Iterator[tuple[str, Row, str]]:
        held = row.on_hold and "resume keeps the hold" not in self.without
        resumed = row._replace(state=PENDING if held else QUEUED, failures=0, crashes=0, due=True)
        if row.state is PAUSED:
            yield "resume", resumed, ""
        elif row.state in HALTED and state.budget.revivals:
            yield "resume after failure", resumed._replace(halts=self.setup.halts), "revivals"
        elif row.state is CANCELLED and "resume refuses final states" in self.without:
            yield "resume", resumed, ""
        elif row.state is RUNNING and row.flag in self.flags_resume_clears:
            yield "resume a running job", row._replace(flag=NO_FLAG), ""

    # -- promises --

    def _broken_by_move(self, before: State, after: State) -> str | None:
        for job, row in enumerate(before.rows):
            new = after.rows[job]
            if new is row:
                continue
            if row.state in FINAL and new.state is not row.state:
                return "a final state was left"
            if row.flag == CANCEL and not (
                new.state in FINAL or (new.state is RUNNING and new.flag == CANCEL)
            ):
                return "a cancelled job was made runnable again"
            if row.flag and row.state is RUNNING and new.state is QUEUED:
                return "a stop request was forgotten"
            if new.owner != NOBODY and (new.owner, new.token) != (row.owner, row.token):
                if new.token <= row.granted:
                    return "a token was granted twice"
                if row.owner != NOBODY and row.lease != MISSED:
                    return "a lease was taken from its living holder"
            if new.state is RUNNING and new.owner == NOBODY and new.crashes != row.crashes:
                return "a loss whose execution lives on was counted"
            if self._is_poisoned(row, new) and row.kept:
                return "a job that went on since its last crash was failed as poison"
            if new.attempt != row.attempt:
                broken = self._broken_by_claim(before, job)
                if broken:
                    return broken
        return None

    def _is_poisoned(self, row: Row, new: Row) -> bool:
        """Failed by a loss, for the number of its crashes alone."""
        setup = self.setup
        by_a_loss = row.state is RUNNING and new.state is FAILED and new.crashes != row.crashes
        return (
            by_a_loss
            and setup.on_lost == "retry"
            and new.failures < setup.max_attempts
            and setup.max_crashes > 1
        )

    def _broken_by_claim(self, before: State, job: int) -> str | None:
        """A new attempt begins: was it this job's turn in its lane?"""
        row = before.rows[job]
        for other, beside in enumerate(before.rows):
            if other == job:
                continue
            if beside.state in (RUNNING, WAITING, PAUSED) or (beside.state in HALTED and beside.halts):
                return f"a job started in a lane held by a {beside.state} one"
            if beside.state is QUEUED:
                if beside.keeps_lane:
                    return "a job overtook one that had started"
                if not row.keeps_lane and other < job:
                    return "a job overtook an earlier one of its lane"
        return None

    def broken_promise(self, state: State) -> str | None:
        alive_in_lane = running_in_lane = 0
        for job, row in enumerate(state.rows):
            running = row.state is RUNNING
            running_in_lane += running
            if row.flag and not running:
                return "a row that is not running carries a flag"
            if row.on_hold and row.attempt:
                return "a job on hold was started"
            if running and row.owner == NOBODY and row.site == NOWHERE and not self.orphans_may_lack_a_site:
                return "an orphan has no site"
            if row.state in FINAL and row.question == ASKED:
                return "a final job has an open question"
            if row.state is WAITING and row.question != ASKED and "answer requeues" not in self.without:
                return "a waiting job has no open question"
            for attempt, sites in enumerate(state.executions[job], start=1):
                alive = sites.count(ALIVE)
                alive_in_lane += alive
                if alive and not running:
                    return f"an execution is alive though its job is {row.state}"
                if alive and attempt != row.attempt:
                    return "an execution of an earlier attempt is alive"
                if ABSENT in sites and not (running and attempt == row.attempt):
                    return "an attempt was given up without being exited or buried"
        if alive_in_lane > 1:
            return "two executions are alive in one lane"
        if running_in_lane > 1:
            return "two jobs of one lane are running"
        for job in range(len(state.rows)):
            if sum(t.job == job and self.workers.holds(state, t) for t in state.tasks) > 1:
                return "two live leases on one job"
        return None

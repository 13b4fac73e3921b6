"""What a careful verb does with the row it has found and locked: decide, write and commit, in one step.

Nothing can come between deciding and committing, because the row is locked and every party that could move it back
needs the anchor. "→" of the design is `move`: a delete of this very row, then the insert.
"""

from collections.abc import Iterator

from tests.protocol.explorer import Label, Move
from tests.protocol.place_state import (
    ASK,
    AT_REST,
    AWAITED,
    BEING_INSERTED,
    CANCEL,
    CANCELLED,
    FAILED,
    FREE,
    JUDGED,
    LEASE,
    LIVE,
    NO_FLAG,
    NOBODY,
    NOTED,
    ORPHAN,
    OURS,
    OUTCOME,
    PARKED,
    PAUSE,
    PAUSED,
    PLACES,
    READY,
    RIVALS,
    RUN,
    SUCCEEDED,
    WAITS,
    WHO,
    Lease,
    Outcome,
    Parked,
    Ready,
    Setup,
    State,
    Transaction,
    Worker,
    change,
    closed,
    delete,
    flush,
    move,
    put,
    with_worker,
)

ENDINGS = frozenset(("fail", "handback", "detach", "succeed"))
MAY_FIND_NOTHING = frozenset(("adopt", "reap", "step", "prune"))
FENCED_WRITE = "a fenced writer has changed the job"
LOST_FLAG = "a flag was lost"


class Verbs:
    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.without = setup.without

    def decide(self, state: State, actor: int, tx: Transaction) -> Iterator[Move]:
        match tx.verb:
            case "fail" | "handback" | "detach" | "succeed":
                yield from self._end_run(state, actor, tx)
            case "tied settle":
                yield from self.succeeded(state, actor, "tied")
            case "reap" | "steal":
                yield from self._recover(state, actor, tx)
            case "adopt":
                yield self._adopt(state, actor, tx)
            case "step":
                yield self._write_step(state, actor, tx)
            case "child":
                yield self._add_child(state, actor, tx)
            case "cancel":
                yield self._cancel(state, actor, tx)
            case "pause":
                yield self._pause(state, actor, tx)
            case "resume":
                yield from self._resume(state, actor, tx)
            case "replace":
                yield self._replace(state, actor, tx)
            case "prune":
                yield from self._prune(state, actor)

    def not_found(self, state: State, actor: int, tx: Transaction) -> Move:
        """No place has it, though the job row is there."""
        after = closed(state, actor)
        if tx.verb in ENDINGS:
            return self.fenced(state, after, actor, tx.verb)
        if tx.verb == "prune" and "prune deletes only a job whose outcome it deleted" in self.without:
            return ("prune",), after._replace(pruned=True), None
        broken = None if tx.verb in MAY_FIND_NOTHING else f"a verb did not find the job: {tx.verb}"
        return (f"{tx.verb}: not found", WHO[actor]), after, broken

    def job_not_found(self, state: State, actor: int, verb: str) -> Move:
        if verb in ENDINGS:
            return self.fenced(state, state, actor, verb)
        return ("job not found", verb, WHO[actor]), state, None

    def fenced(self, before: State, after: State, worker: int, verb: str) -> Move:
        me, lease = before.workers[worker], before.places[LEASE]
        label = (f"{verb}: fenced", WHO[worker])
        if lease is not None and (lease.token, lease.owner) == (me.token, worker):
            return label, with_worker(after, worker, AT_REST), "a holder was told that it is fenced"
        if me.unsure and "a refused repeat is read again" not in self.without:
            return label, with_worker(after, worker, me._replace(phase=ASK)), None
        broken = "a settled run was called lost" if (me.token, worker) in before.settled else None
        return label, with_worker(after, worker, AT_REST), broken

    def granted(
        self, state: State, owner: int, lease: Lease, starts: bool = True
    ) -> tuple[State, str | None]:
        """Book a grant that was just written: claim, steal or adopt."""
        broken = None
        if lease.token <= state.granted:
            broken = "a token was granted twice"
        elif starts and state.cancelled:
            broken = "a cancelled job was started"
        running = with_worker(state, owner, Worker(RUN, lease.token, "", lease.stop))
        return running._replace(granted=max(state.granted, lease.token)), broken

    def next_token(self, token: int, guard: str) -> int:
        return token if guard in self.without else token + 1

    # -- the end of a run --

    def _end_run(self, state: State, worker: int, tx: Transaction) -> Iterator[Move]:
        row, me = state.places[LEASE], state.workers[worker]
        if row.token != me.token and "decided settle asks for the token" not in self.without:
            yield self.fenced(state, closed(state, worker), worker, tx.verb)
            return
        if tx.verb == "succeed":
            yield from self.succeeded(state, worker, "decided")
            return
        flag = me.seen if "the flag is read under the lock" in self.without else row.stop
        label = (tx.verb, WHO[worker])
        if tx.verb == "detach":
            yield from self._leave(state, worker, label, worker, *self._orphan(row))
            return
        yield from self._leave(state, worker, label, worker, *self._requeued(row, flag, worker))
        if tx.verb == "fail" and self.setup.fails_for_good:
            state_after = CANCELLED if flag == CANCEL else FAILED
            last = Outcome(state_after, self._token(row.token, OUTCOME), worker, row.special)
            yield from self._leave(state, worker, ("fail for good", WHO[worker]), worker, OUTCOME, last)

    def succeeded(self, state: State, worker: int, way: str) -> Iterator[Move]:
        """Lease → outcome. A success passes over a flag, by right."""
        row = state.places[LEASE]
        outcome = Outcome(SUCCEEDED, self._token(row.token, OUTCOME), worker, row.special)
        after = self._ended(move(closed(state, worker), LEASE, OUTCOME, outcome), way)
        yield from self._settled(state, after, worker, row, ("succeed", WHO[worker]))

    def _requeued(self, row: Lease, flag: int, settler: int) -> tuple[int, Ready | Parked | Outcome]:
        if flag == CANCEL:
            return OUTCOME, Outcome(CANCELLED, self._token(row.token, OUTCOME), settler, row.special)
        if flag == PAUSE:
            return PARKED, Parked(PAUSED, self._token(row.token, PARKED), self._noted(row))
        return READY, Ready(self._token(row.token, READY), self._noted(row))

    def _orphan(self, row: Lease) -> tuple[int, Parked]:
        stop = NO_FLAG if "an orphan keeps its flag" in self.without else row.stop
        return PARKED, Parked(ORPHAN, self._token(row.token, PARKED), self._noted(row), stop)

    def _token(self, token: int, place: int) -> int:
        return 0 if f"the token is carried to {PLACES[place]}" in self.without else token

    def _noted(self, row: Lease | Outcome) -> int:
        """An attempt row is filed: the pruner has to know of it."""
        return row.special if "an attempt filed raises special" in self.without else max(row.special, NOTED)

    def _leave(
        self,
        state: State,
        actor: int,
        label: Label,
        settler: int,
        place: int,
        row: Ready | Parked | Outcome,
    ) -> Iterator[Move]:
        """A run that did not succeed goes where it was decided. `settler` is NOBODY for a reaper."""
        lease = state.places[LEASE]
        orphan = place == PARKED and row.state == ORPHAN
        broken = None
        if orphan:
            broken = LOST_FLAG if row.stop < state.requested else None
        elif (state.requested and place == READY) or (state.requested == CANCEL and place == PARKED):
            broken = LOST_FLAG
        after = move(closed(state, actor), LEASE, place, row)
        if not orphan:
            after = after._replace(requested=NO_FLAG)
        if place == OUTCOME:
            after = self._ended(after, "decided")
        elif "a requeue files its attempt" not in self.without:
            signs = settler
            if settler == NOBODY and "reap does not sign as settler" in self.without:
                signs = lease.owner
            after = after._replace(attempts=after.attempts | {(lease.token, signs)})
        if settler == NOBODY:
            yield (*label, f"to {PLACES[place]}"), after, broken
        else:
            yield from self._settled(state, after, settler, lease, (*label, f"to {PLACES[place]}"), broken)

    def _settled(
        self, before: State, after: State, worker: int, lease: Lease, label: Label, broken: str | None = None
    ) -> Iterator[Move]:
        """A worker's settle was accepted. Its reply may be lost."""
        me = before.workers[worker]
        if (lease.owner, lease.token) != (worker, me.token):
            broken = FENCED_WRITE
        after = after._replace(settled=after.settled | {(lease.token, worker)})
        yield label, with_worker(after, worker, AT_REST), broken
        if before.budget.lost:
            unsure = with_worker(after, worker, me._replace(phase=ASK, unsure=True))
            yield (f"{label[0]}, reply lost", *label[1:]), flush(unsure, "lost"), broken

    def _ended(self, state: State, way: str) -> State:
        """The job has come to its outcome. What hangs on it goes in the same transaction, if the way there looks:
        a plain settle looks at nothing, a tied one at the key, and only a decided one at the children."""
        deletes_key = way != "plain" and f"a {way} end deletes the key" not in self.without
        return state._replace(
            requested=NO_FLAG,
            key=FREE if deletes_key and state.key == OURS else state.key,
            child=JUDGED if way == "decided" and state.child == WAITS else state.child,
        )

    # -- recovery --

    def _recover(self, state: State, actor: int, tx: Transaction) -> Iterator[Move]:
        row, after, who = state.places[tx.found], closed(state, actor), WHO[actor]
        if tx.found != LEASE:
            yield self._claim_by_id(state, actor, tx)
            return
        if tx.verb == "steal" and tx.aim is None:
            if row.expired:
                after = after._replace(sights=put(after.sights, 1, (row.token, row.renewals)))
            yield ("steal: first look", who), after, None
            return
        if (row.token, row.renewals) != tx.aim or not row.expired:
            if f"{tx.verb} asks again under the lock" in self.without:
                yield (tx.verb, who), after, "a live lease was taken"
            else:
                yield (f"{tx.verb}: left alone", who), after, None
        elif tx.verb == "reap":
            left = self._orphan(row) if self.setup.external else self._requeued(row, row.stop, NOBODY)
            yield from self._leave(state, actor, ("reap", who), NOBODY, *left)
        elif row.stop:
            left = self._requeued(row, row.stop, NOBODY)
            yield from self._leave(state, actor, ("steal obeys the flag", who), NOBODY, *left)
        else:
            token = self.next_token(row.token, "steal moves the token on")
            stolen = Lease(token, actor, self._noted(row), renewals=row.renewals + 1)
            filed = after._replace(attempts=after.attempts | {(row.token, NOBODY)})
            after, broken = self.granted(change(filed, LEASE, stolen), actor, stolen)
            yield ("steal", who), after, broken

    def _claim_by_id(self, state: State, actor: int, tx: Transaction) -> Move:
        after, row = closed(state, actor), state.places[tx.found]
        if tx.found != READY:
            return ("steal: denied", WHO[actor]), after, None
        lease = Lease(self.next_token(row.token, "claim moves the token on"), actor, row.special)
        after, broken = self.granted(move(after, READY, LEASE, lease), actor, lease)
        return ("claim by id", WHO[actor]), after, broken

    def _adopt(self, state: State, worker: int, tx: Transaction) -> Move:
        row, after = state.places[PARKED], closed(state, worker)
        if row.state != ORPHAN:
            return ("adopt: no orphan", WHO[worker]), after, None
        token = self.next_token(row.token, "adoption moves the token on")
        lease = Lease(token, worker, row.special, row.stop)
        after, broken = self.granted(move(after, PARKED, LEASE, lease), worker, lease, starts=False)
        return ("adopt", WHO[worker]), after, broken

    # -- the run, and jobs that wait for it --

    def _write_step(self, state: State, actor: int, tx: Transaction) -> Move:
        row, after = state.places[LEASE], closed(state, actor)
        mine = row is not None and row.token == tx.aim
        if not mine:
            unguarded = {"a run's write locks its lease row", "a run's write asks for the token"}
            if not unguarded & self.without:
                return ("step: lost", WHO[actor]), after, None
            return ("step", WHO[actor]), after, "a step was written after its run had ended"
        if "a step raises special" not in self.without:
            after = change(after, LEASE, row._replace(special=max(row.special, NOTED)))
        return ("step", WHO[actor]), after._replace(stepped=True), None

    def _add_child(self, state: State, actor: int, tx: Transaction) -> Move:
        row, after = state.places[tx.found], closed(state, actor)
        ended = tx.found == OUTCOME
        guard = "an ended parent is marked" if ended else "the parent's place is marked"
        if guard not in self.without:
            after = change(after, tx.found, row._replace(special=AWAITED))
        label = ("child of an ended job" if ended else "child", PLACES[tx.found])
        return label, after._replace(child=JUDGED if ended else WAITS), None

    # -- operators --

    def _cancel(self, state: State, actor: int, tx: Transaction) -> Move:
        row, after, where = state.places[tx.found], closed(state, actor), PLACES[tx.found]
        if self._runs(state, tx.found):
            return self._raise_flag(after, tx.found, CANCEL)
        if tx.found == OUTCOME:
            if row.state != FAILED:
                return ("cancel: refused", where), after, None
            after = change(after, OUTCOME, row._replace(state=CANCELLED))
            if "a key is deleted by its holder only" in self.without:
                after = after._replace(key=FREE)
            return ("cancel", where), after._replace(cancelled=True), None
        cancelled = Outcome(CANCELLED, self._token(row.token, OUTCOME), NOBODY, row.special)
        after = self._ended(move(after, tx.found, OUTCOME, cancelled), "decided")
        return ("cancel", where), after._replace(cancelled=True), None

    def _pause(self, state: State, actor: int, tx: Transaction) -> Move:
        row, after = state.places[tx.found], closed(state, actor)
        if self._runs(state, tx.found):
            return self._raise_flag(after, tx.found, PAUSE)
        if tx.found != READY:
            return ("pause: refused", PLACES[tx.found]), after, None
        paused = Parked(PAUSED, self._token(row.token, PARKED), row.special)
        return ("pause",), move(after, READY, PARKED, paused), None

    def _runs(self, state: State, place: int) -> bool:
        return place == LEASE or (place == PARKED and state.places[PARKED].state == ORPHAN)

    def _raise_flag(self, state: State, place: int, flag: int) -> Move:
        row = state.places[place]
        flagged = change(state, place, row._replace(stop=max(row.stop, flag)))
        after = flagged._replace(
            requested=max(state.requested, flag), cancelled=state.cancelled or flag == CANCEL
        )
        return ("flag", "cancel" if flag == CANCEL else "pause", PLACES[place]), after, None

    def _resume(self, state: State, actor: int, tx: Transaction) -> Iterator[Move]:
        row, after, where = state.places[tx.found], closed(state, actor), PLACES[tx.found]
        if tx.found == LEASE and row.stop == PAUSE:
            withdrawn = change(after, LEASE, row._replace(stop=NO_FLAG))
            yield ("resume a running job",), withdrawn._replace(requested=NO_FLAG), None
        elif tx.found == PARKED and row.state == PAUSED:
            yield ("resume", where), move(after, PARKED, READY, Ready(row.token, row.special)), None
        elif tx.found == OUTCOME and row.state == FAILED:
            yield from self._resume_failed(state, after, row)
        else:
            yield ("resume: refused", where), after, None

    def _resume_failed(self, before: State, after: State, row: Outcome) -> Iterator[Move]:
        if self.setup.keyed and "resume takes the key again" not in self.without:
            if before.key == BEING_INSERTED:
                return  # waits for that insert to be committed or rolled back
            if before.key == RIVALS and "resume is refused while another has the key" not in self.without:
                yield ("resume: key taken",), after, None
                return
            after = after._replace(key=OURS)
        special = row.special
        if row.owner != NOBODY and "resume files the attempt that the outcome told" not in self.without:
            after = after._replace(attempts=after.attempts | {(row.token, row.owner)})
            special = self._noted(row)
        yield ("resume", "outcome"), move(after, OUTCOME, READY, Ready(row.token, special)), None

    def _replace(self, state: State, actor: int, tx: Transaction) -> Move:
        """An enqueue that met its key in use, now with the holder's anchor."""
        row, after = state.places[tx.found], closed(state, actor)
        if self._runs(state, tx.found):
            return ("replace: holder runs",), after, None
        if tx.found != OUTCOME:
            replaced = Outcome(CANCELLED, row.token, NOBODY, row.special)
            after = self._ended(move(after, tx.found, OUTCOME, replaced), "decided")
            after = after._replace(cancelled=True)
        key = after.key if "replace takes the key over" in self.without else RIVALS
        return ("replace", PLACES[tx.found]), after._replace(key=key, rival=LIVE), None

    # -- retention --

    def _prune(self, state: State, actor: int) -> Iterator[Move]:
        if state.anchor not in (actor, NOBODY):
            return  # deleting the job row waits for whoever has it locked
        row, after = state.places[OUTCOME], closed(state, actor)
        has_side_rows = bool(state.attempts) or state.child or state.stepped
        broken = "side rows outlive their job" if has_side_rows and row.special == 0 else None
        gone = delete(after, OUTCOME)._replace(pruned=True, attempts=frozenset())
        yield ("prune",), gone, broken

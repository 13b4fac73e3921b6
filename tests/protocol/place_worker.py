"""The workers' half of the place model: hot claims and settles, renewals, endings, and what follows a lost reply.

A hot statement is two steps: it takes its snapshot, then it comes to the row. A row deleted since is gone, a locked one
is skipped, and of a changed one the conditions are asked again (EvalPlanQual).
"""

from collections.abc import Iterator

from tests.protocol.explorer import Move
from tests.protocol.place_state import (
    A_DEAD_PROCESS,
    ASK,
    ASK_ON,
    AT_REST,
    CAREFUL,
    END,
    GONE,
    IDLE,
    LEASE,
    NO_FLAG,
    NOBODY,
    ORPHAN,
    OUTCOME,
    PLAIN,
    READY,
    RUN,
    SUCCEEDED,
    TIED,
    W1,
    WHO,
    WORKERS,
    Hot,
    Lease,
    Outcome,
    Setup,
    State,
    Transaction,
    Worker,
    change,
    flush,
    insert,
    move,
    put,
    with_transaction,
    with_worker,
)
from tests.protocol.place_transactions import Transactions
from tests.protocol.place_verbs import FENCED_WRITE, Verbs


class Workers:
    def __init__(self, setup: Setup, verbs: Verbs, transactions: Transactions) -> None:
        self.setup = setup
        self.without = setup.without
        self.verbs = verbs
        self.begin = transactions.begin

    def moves(self, state: State) -> Iterator[Move]:
        for worker in WORKERS:
            hot = state.hots[worker]
            if hot is not None:
                landed = state._replace(hots=put(state.hots, worker, None))
                take = self._claim if hot.verb == "claim" else self._settle
                yield from take(state, landed, worker, hot)
            elif state.transactions[worker] is None:
                yield from self._next(state, worker)
        if state.late is not None:
            yield self._settle_lands_late(state)

    def _next(self, state: State, worker: int) -> Iterator[Move]:
        me = state.workers[worker]
        if me.phase == IDLE:
            yield from self._take_work(state, worker)
            return
        if state.budget.crash:
            yield ("crash", WHO[worker]), flush(self._crashed(state, worker), "crash"), None
        if me.phase in (RUN, END):
            yield from self._renew(state, worker)
        if me.phase == RUN:
            yield from self._end(state, worker)
        elif me.phase == END and me.how == "succeed":
            yield from self._look_to_settle(state, worker)
        elif me.phase == END:
            yield from self.begin(state, worker, me.how)
        elif me.phase == CAREFUL:
            yield from self.begin(state, worker, "succeed")
        else:
            yield self._read_settlements(state, worker)

    def _crashed(self, state: State, worker: int) -> State:
        lease = state.places[LEASE]
        after = with_worker(state, worker, AT_REST)
        if lease is not None and lease.owner == worker:
            return change(after, LEASE, lease._replace(owner=A_DEAD_PROCESS))
        return after

    # -- taking work --

    def _take_work(self, state: State, worker: int) -> Iterator[Move]:
        ready, lease, parked, _ = state.places
        if ready is not None:
            looks = put(state.hots, worker, Hot("claim", READY, ready))
            yield ("claim looks", WHO[worker]), state._replace(hots=looks), None
        if parked is not None and parked.state == ORPHAN:
            yield from self.begin(state, worker, "adopt")
        if worker == W1 and state.budget.steal:
            yield from self.begin(flush(state, "steal"), worker, "steal", state.sights[1])
        if lease is not None and lease.owner == worker:  # the reply to a claim was lost
            yield ("find held", WHO[worker]), with_worker(state, worker, Worker(RUN, lease.token)), None

    def _claim(self, state: State, landed: State, worker: int, hot: Hot) -> Iterator[Move]:
        who, row = WHO[worker], state.places[READY]
        if hot.snapshot == GONE or state.locks[READY] != NOBODY:
            keeps_what_it_saw = "claim inserts only what it deleted" in self.without
            if hot.snapshot != GONE or not keeps_what_it_saw or state.places[LEASE] is not None:
                yield ("claim: gone or locked", who), landed, None
                return
            row = hot.row
        token = self.verbs.next_token(row.token, "claim moves the token on")
        special = PLAIN if "a move carries special" in self.without else row.special
        lease = Lease(token, worker, special)
        moved = insert(landed, LEASE, lease) if hot.snapshot == GONE else move(landed, READY, LEASE, lease)
        after, broken = self.verbs.granted(moved, worker, lease)
        yield ("claim", who), after, broken
        if state.budget.lost:
            yield ("claim, reply lost", who), flush(with_worker(after, worker, AT_REST), "lost"), broken

    # -- running --

    def _renew(self, state: State, worker: int) -> Iterator[Move]:
        me, lease, who = state.workers[worker], state.places[LEASE], WHO[worker]
        if lease is None or state.locks[LEASE] != NOBODY or not state.budget.renew:
            return
        mine = lease.token == me.token
        if mine and not lease.expired:
            return  # it would change nothing but the number of states
        if mine or "renew asks for the token" in self.without:
            renewed = change(state, LEASE, lease._replace(expired=False, renewals=lease.renewals + 1))
            yield ("renew", who), flush(renewed, "renew"), None if mine else FENCED_WRITE
        elif not me.unsure:
            yield ("renew: lost", who), flush(with_worker(state, worker, AT_REST), "renew"), None

    def _end(self, state: State, worker: int) -> Iterator[Move]:
        me, lease = state.workers[worker], state.places[LEASE]
        seen = lease.stop if lease is not None and lease.token == me.token else NO_FLAG
        ended = me._replace(phase=END, how="succeed", seen=seen)
        yield ("run ends", "succeed", WHO[worker]), with_worker(state, worker, ended), None
        for how in ("fail", "handback", "detach"):
            if getattr(state.budget, how):
                after = with_worker(state, worker, ended._replace(how=how))
                yield ("run ends", how, WHO[worker]), flush(after, how), None

    # -- settling a success --

    def _look_to_settle(self, state: State, worker: int) -> Iterator[Move]:
        me, lease, who = state.workers[worker], state.places[LEASE], WHO[worker]
        if lease is not None and self._is_mine(lease, me) and self._is_hot(lease, TIED):
            verb = "tied settle" if lease.special == TIED else "settle"
            looks = put(state.hots, worker, Hot(verb, LEASE, None))
            yield ("settle looks", who), state._replace(hots=looks), None
        else:
            yield ("settle: none", who), with_worker(state, worker, me._replace(phase=CAREFUL)), None
        if state.budget.lost and state.late is None:
            unsure = with_worker(state, worker, me._replace(phase=ASK, unsure=True))
            late = flush(unsure, "lost")._replace(late=(worker, me.token))
            yield ("settle, on its way", who), late, None

    def _is_mine(self, lease: Lease, me: Worker) -> bool:
        return lease.token == me.token or "settle asks for the token" in self.without

    def _is_hot(self, lease: Lease, most: int) -> bool:
        return lease.special <= most or "settle asks for special" in self.without

    def _settle(self, state: State, landed: State, worker: int, hot: Hot) -> Iterator[Move]:
        me, lease, who = state.workers[worker], state.places[LEASE], WHO[worker]
        if hot.snapshot != GONE and state.locks[LEASE] != NOBODY:
            if self.setup.settle_waits:
                return
            if "what was skipped is settled with care" in self.without:
                yield self.verbs.fenced(state, landed, worker, "settle")
            else:
                yield ("settle: skipped", who), self._with_care(landed, worker), None
            return
        tied = hot.verb == "tied settle"
        stale = "special is asked again under the lock" in self.without
        if (
            hot.snapshot == GONE
            or not self._is_mine(lease, me)
            or not (stale or self._is_hot(lease, TIED if tied else TIED - 1))
        ):
            yield ("settle: none", who), self._with_care(landed, worker), None
        elif tied:
            # Its first statement has deleted the lease; those for the ties follow in the same transaction.
            open_ = with_transaction(landed, worker, Transaction(hot.verb, found=LEASE))
            yield ("tied settle", who), open_._replace(locks=put(open_.locks, LEASE, worker)), None
        else:
            yield from self.verbs.succeeded(landed, worker, "plain")

    def _with_care(self, state: State, worker: int) -> State:
        return with_worker(state, worker, state.workers[worker]._replace(phase=CAREFUL))

    def _settle_lands_late(self, state: State) -> Move:
        """The statement outlived its connection. Nobody reads its answer."""
        worker, token = state.late
        lease, after = state.places[LEASE], state._replace(late=None)
        if lease is None or lease.token != token or lease.special >= TIED or state.locks[LEASE] != NOBODY:
            return ("settle lands late: none", WHO[worker]), after, None
        broken = None if lease.owner in (worker, A_DEAD_PROCESS) else FENCED_WRITE
        outcome = Outcome(SUCCEEDED, token, worker, lease.special)
        after = move(after, LEASE, OUTCOME, outcome)._replace(requested=NO_FLAG)
        after = after._replace(settled=after.settled | {(token, worker)})
        return ("settle lands late", WHO[worker]), after, broken

    # -- after a lost reply --

    def _read_settlements(self, state: State, worker: int) -> Move:
        """Outcome or attempt with my token, settled by me: done. Lease with my token: mine, repeat. Else fenced,
        unless the job row itself is gone: then nobody can say any more."""
        me, lease, outcome = state.workers[worker], state.places[LEASE], state.places[OUTCOME]
        records = set(state.attempts)
        if "a lost reply is read in one snapshot" in self.without:
            if me.phase == ASK and not self._done(records, me, worker):
                return (
                    ("read attempts", WHO[worker]),
                    with_worker(state, worker, me._replace(phase=ASK_ON)),
                    None,
                )
            if me.phase == ASK_ON:
                records = set()
        if outcome is not None:
            records.add((outcome.token, outcome.owner))
        settled = (me.token, worker) in state.settled
        if self._done(records, me, worker):
            broken = None if settled else "a lost run was called settled"
            return ("read: done", WHO[worker]), with_worker(state, worker, AT_REST), broken
        if lease is not None and lease.token == me.token:
            broken = None if lease.owner == worker and not settled else "an ended run was called held"
            return ("read: mine", WHO[worker]), with_worker(state, worker, me._replace(phase=END)), broken
        if state.pruned and "a pruned job is not called lost" not in self.without:
            return ("read: pruned", WHO[worker]), with_worker(state, worker, AT_REST), None
        broken = "a settled run was called lost" if settled else None
        return ("read: fenced", WHO[worker]), with_worker(state, worker, AT_REST), broken

    def _done(self, records: set[tuple[int, int]], me: Worker, worker: int) -> bool:
        any_owner = "a lost reply is read by owner" in self.without
        any_token = "a lost reply is read by token" in self.without
        return any(
            (any_token or token == me.token) and (any_owner or settler == worker)
            for token, settler in records
        )

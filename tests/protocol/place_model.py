"""The place protocol as a model that can be walked to the last state: one job, statement by statement.

A job is a row that stays and a row that moves: ready → lease → parked → outcome. `PlaceModel` puts two workers
(`place_worker`), an operator, a reaper, a producer of a dependent job, a thread of the handler, a rival for the unique
key and a pruner side by side. Careful verbs find the job (`place_transactions`) and decide (`place_verbs`). Between any
two steps everything else may happen: workers crash, stall past their lease and lose replies.
"""

from collections.abc import Iterator

from tests.protocol.explorer import Move
from tests.protocol.place_state import (
    AT_REST,
    BEING_INSERTED,
    END,
    ENDED,
    FREE,
    IDLE,
    LEASE,
    LIVE,
    NO_CHILD,
    NOBODY,
    NOT_ENQUEUED,
    OPERATOR,
    OURS,
    OUTCOME,
    PARKED,
    PAUSED,
    PLAIN,
    PRODUCER,
    PRUNER,
    REAPER,
    RIVAL,
    RIVALS,
    RUN,
    THREAD,
    TIED,
    WAITS,
    WHO,
    WORKERS,
    Ready,
    Setup,
    State,
    Transaction,
    change,
    flush,
    put,
    with_transaction,
)
from tests.protocol.place_transactions import Transactions
from tests.protocol.place_verbs import Verbs
from tests.protocol.place_worker import Workers


class PlaceModel:
    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.without = setup.without
        verbs = Verbs(setup)
        self.transactions = Transactions(setup, verbs)
        self.workers = Workers(setup, verbs, self.transactions)
        self.begin = self.transactions.begin

    def initial(self) -> State:
        keyed = self.setup.keyed
        return State(
            places=(Ready(0, TIED if keyed else PLAIN), None, None, None),
            anchor=NOBODY,
            locks=(NOBODY,) * 4,
            pruned=False,
            attempts=frozenset(),
            key=OURS if keyed else FREE,
            transactions=(None,) * len(WHO),
            hots=(None, None),
            late=None,
            workers=(AT_REST, AT_REST),
            sights=(None, None, None),
            child=NO_CHILD,
            rival=NOT_ENQUEUED,
            budget=self.setup.budget,
        )

    def finished(self, state: State) -> bool:
        parked = state.places[PARKED]
        return (
            (
                state.places[OUTCOME] is not None
                or state.pruned
                or (parked is not None and parked.state == PAUSED)
            )
            and not any(state.transactions)
            and not any(state.hots)
            and state.late is None
            and all(worker.phase == IDLE for worker in state.workers)
        )

    def counts_as_progress(self, state: State, after: State) -> bool:
        """What is paid for is a fault, or somebody's choice: no job may need one to come to rest."""
        return after.budget is state.budget

    def moves(self, state: State) -> Iterator[Move]:
        yield from self.workers.moves(state)
        for actor, transaction in enumerate(state.transactions):
            if transaction is not None and actor != RIVAL:
                yield from self.transactions.step(state, actor)
        yield from self._asked_for(state)
        yield from self._reaper(state)
        yield from self._pruner(state)
        yield from self._rival(state)
        yield from self._time(state)

    def _asked_for(self, state: State) -> Iterator[Move]:
        budget, transactions = state.budget, state.transactions
        if transactions[OPERATOR] is None:
            for verb in ("cancel", "pause", "resume"):
                if getattr(budget, verb):
                    yield from self.begin(flush(state, verb), OPERATOR, verb)
        if budget.child and transactions[PRODUCER] is None:
            yield from self.begin(flush(state, "child"), PRODUCER, "child")
        if budget.step and transactions[THREAD] is None:
            for worker in state.workers:
                if worker.phase in (RUN, END):
                    yield from self.begin(flush(state, "step"), THREAD, "step", worker.token)

    def _reaper(self, state: State) -> Iterator[Move]:
        lease, sight = state.places[LEASE], state.sights[0]
        if state.transactions[REAPER] is not None:
            return
        if lease is not None and lease.expired and sight != (lease.token, lease.renewals):
            seen = put(state.sights, 0, (lease.token, lease.renewals))
            yield ("reaper looks",), state._replace(sights=seen), None
        if sight is not None:
            forgotten = state._replace(sights=put(state.sights, 0, None))
            yield from self.begin(forgotten, REAPER, "reap", sight)

    def _pruner(self, state: State) -> Iterator[Move]:
        if state.transactions[PRUNER] is not None or not state.budget.prune:
            return
        if state.sights[2] is None:
            if state.places[OUTCOME] is not None:
                yield ("pruner looks",), state._replace(sights=put(state.sights, 2, True)), None
        else:
            forgotten = state._replace(sights=put(state.sights, 2, None))
            yield from self.begin(flush(forgotten, "prune"), PRUNER, "prune")

    def _rival(self, state: State) -> Iterator[Move]:
        """A second enqueue of the key: the key's row first, ON CONFLICT DO NOTHING, then the job."""
        transaction = state.transactions[RIVAL]
        looks_only = "the key's row is the guard" in self.without
        if transaction is not None and transaction.verb != "enqueue":
            yield from self.transactions.step(state, RIVAL)
        elif transaction is not None:
            done = with_transaction(state, RIVAL, None)
            yield ("enqueue", "rival"), done._replace(key=RIVALS, rival=LIVE), None
            key = state.key if looks_only else FREE
            yield ("enqueue rolled back", "rival"), done._replace(key=key), None
        elif state.rival == LIVE:
            yield ("end", "rival"), state._replace(key=FREE, rival=ENDED), None
        elif state.rival == NOT_ENQUEUED and state.budget.rival:
            paid = flush(state, "rival")
            if state.key == FREE:
                begun = with_transaction(paid, RIVAL, Transaction("enqueue"))
                key = FREE if looks_only else BEING_INSERTED
                yield ("insert the key", "rival"), begun._replace(key=key), None
            elif self.setup.replaces:
                yield from self.begin(paid, RIVAL, "replace")
            else:
                yield ("enqueue: key in use", "rival"), paid, None

    def _time(self, state: State) -> Iterator[Move]:
        lease = state.places[LEASE]
        if lease is None or lease.expired or state.locks[LEASE] != NOBODY:
            return
        expired = change(state, LEASE, lease._replace(expired=True))
        if state.budget.expire:
            yield ("lease runs out",), flush(expired, "expire"), None
        # Nobody renews the lease of a dead holder: it runs out without another fault. While a reply may still be
        # lost, an owner without a run is one that finds its lease again.
        at_work = any(worker.phase != IDLE and worker.token == lease.token for worker in state.workers)
        if not at_work and (lease.owner not in WORKERS or not state.budget.lost):
            yield ("a dead holder's lease runs out",), expired, None

    # -- promises --

    def broken_promise(self, state: State) -> str | None:
        rows = [row for row in state.places if row is not None]
        if len(rows) != (not state.pruned):
            if state.pruned:
                return "a place row has no job"
            return f"the job is in {len(rows)} places"
        if rows and rows[0].token != state.granted:
            return "the token is not the one granted last"
        if state.child == WAITS and (state.pruned or state.places[OUTCOME] is not None):
            return "a child waits for a parent that has ended"
        lease = state.places[LEASE]
        if lease is not None and lease.stop < state.requested:
            return "a flag was lost"
        return self._broken_key(state) if self.setup.keyed else None

    def _broken_key(self, state: State) -> str | None:
        live = not state.pruned and state.places[OUTCOME] is None
        if live and state.rival == LIVE:
            return "two live jobs have one key"
        if (live and state.key != OURS) or (state.rival == LIVE and state.key != RIVALS):
            return "a live job lives without its key"
        if not live and state.key == OURS:
            return "a job that has ended keeps its key"
        if state.key == RIVALS and state.rival != LIVE:
            return "a job that has ended keeps its key"
        return None

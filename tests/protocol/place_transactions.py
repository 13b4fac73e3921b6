"""How a careful verb finds its job: the anchor, then one locking probe a place in the order of life.

Each probe is two steps, its snapshot and its lock, so that a row can leave between them. Hot moves only go forward, and
every move back holds the anchor: what left a place while the verb waited is in a later one.
"""

from collections.abc import Iterator
from typing import Any

from tests.protocol.explorer import Move
from tests.protocol.place_state import (
    GONE,
    LEASE,
    NOBODY,
    ORDER_OF_LIFE,
    OUTCOME,
    PARKED,
    PLACES,
    WHO,
    Setup,
    State,
    Transaction,
    put,
    with_transaction,
)
from tests.protocol.place_verbs import Verbs

MOVES_BACK = frozenset(("fail", "handback", "adopt", "resume", "reap", "steal"))
ASKED_BY_OTHERS = frozenset(("cancel", "pause", "child", "replace"))
# Verbs that know where their job must be. All others look everywhere.
LOOKS_IN = {
    **dict.fromkeys(("fail", "handback", "detach", "succeed", "reap", "step", "tied settle"), (LEASE,)),
    "adopt": (PARKED,),
    "prune": (OUTCOME,),
}


class Transactions:
    def __init__(self, setup: Setup, verbs: Verbs) -> None:
        self.without = setup.without
        self.verbs = verbs
        self.order = ORDER_OF_LIFE
        if "probes go in the order of life" in self.without:
            self.order = ORDER_OF_LIFE[::-1]
        self.one_snapshot = "each probe has its own snapshot" in self.without

    def begin(self, state: State, actor: int, verb: str, aim: Any = None) -> Iterator[Move]:
        """Lock the anchor. Who cannot have it waits and holds nothing: the same as coming later."""
        if state.pruned:
            yield self.verbs.job_not_found(state, actor, verb)
            return
        needs_anchor = self._needs_anchor(verb)
        if needs_anchor and state.anchor != NOBODY:
            return
        begun = state._replace(
            anchor=actor if needs_anchor else state.anchor,
            transactions=put(state.transactions, actor, Transaction(verb, aim)),
        )
        yield (f"{verb} begins", WHO[actor]), begun, None

    def _needs_anchor(self, verb: str) -> bool:
        if verb in MOVES_BACK and "moves back hold the anchor" in self.without:
            return False
        if verb in ASKED_BY_OTHERS and "verbs hold the anchor" in self.without:
            return False
        return verb != "prune" or "prune holds the anchor" not in self.without

    def step(self, state: State, actor: int) -> Iterator[Move]:
        tx = state.transactions[actor]
        places = LOOKS_IN.get(tx.verb, self.order)
        if tx.found is not None:
            yield from self.verbs.decide(state, actor, tx)
        elif tx.probes == len(places):
            yield self.verbs.not_found(state, actor, tx)
        elif tx.snapshot is None:
            yield self._look(state, actor, tx, places)
        elif tx.snapshot == GONE:
            passed = len(places) if self.one_snapshot else tx.probes + 1
            after = with_transaction(state, actor, tx._replace(probes=passed, snapshot=None))
            yield ("probe: gone", PLACES[places[tx.probes]], WHO[actor]), after, None
        elif state.locks[places[tx.probes]] == NOBODY:  # else it waits
            yield self._lock(state, actor, tx, places[tx.probes])

    def _look(self, state: State, actor: int, tx: Transaction, places: tuple[int, ...]) -> Move:
        place = places[tx.probes]
        if self.one_snapshot and len(places) > 1:  # one UNION over all places
            seen = next((where for where in places if state.places[where] is not None), None)
            probes = len(places) if seen is None else places.index(seen)
            looked = tx._replace(probes=probes, snapshot=seen)
        elif state.places[place] is not None:
            looked = tx._replace(snapshot=place)
        else:
            looked = tx._replace(probes=tx.probes + 1)
        return ("probe", PLACES[place], WHO[actor]), with_transaction(state, actor, looked), None

    def _lock(self, state: State, actor: int, tx: Transaction, place: int) -> Move:
        label = ("lock", PLACES[place], WHO[actor])
        found = with_transaction(state, actor, tx._replace(found=place, snapshot=None))
        if tx.verb == "step" and "a run's write locks its lease row" in self.without:
            # It only reads its lease, and writes later.
            if state.places[place].token != tx.aim:
                found = with_transaction(state, actor, tx._replace(probes=1, snapshot=None))
            return label, found, None
        return label, found._replace(locks=put(found.locks, place, actor)), None

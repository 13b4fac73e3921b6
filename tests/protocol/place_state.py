"""What the place model talks about: the rows of one job, the transactions in flight, the faults, the guards.

A job has a row that stays (`job`, the anchor) and a row that moves from place to place. Whoever looks at a place takes
a snapshot first and comes to the row later. A row that was deleted in between is gone for that snapshot, even if
another row of the same job was inserted into the same place since.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

READY, LEASE, PARKED, OUTCOME = range(4)  # the order of life
PLACES = ("ready", "lease", "parked", "outcome")
ORDER_OF_LIFE = (READY, LEASE, PARKED, OUTCOME)
GONE = -1  # instead of a place: the row in the snapshot was deleted since

NO_FLAG, PAUSE, CANCEL = range(3)  # the stronger wins
PLAIN, NOTED, TIED, AWAITED = range(4)  # `special`
PAUSED, ORPHAN = "paused", "orphan"
SUCCEEDED, FAILED, CANCELLED = "succeeded", "failed", "cancelled"

# Everybody who can have a transaction open. The thread belongs to a handler whose run may have ended meanwhile; the
# rival enqueues a second job with the same unique key.
W0, W1, OPERATOR, REAPER, PRODUCER, THREAD, RIVAL, PRUNER = range(8)
WHO = ("w0", "w1", "operator", "reaper", "producer", "thread", "rival", "pruner")
WORKERS = (W0, W1)
NOBODY = -1
A_DEAD_PROCESS = -2  # as owner of a lease: the next process has another name

# The row of `unique_key`, by whose it is.
FREE, OURS, BEING_INSERTED, RIVALS = range(4)
NOT_ENQUEUED, LIVE, ENDED = range(3)  # the rival's job
NO_CHILD, WAITS, JUDGED = range(3)


class Ready(NamedTuple):
    token: int = 0
    special: int = PLAIN


class Lease(NamedTuple):
    token: int
    owner: int
    special: int
    stop: int = NO_FLAG
    renewals: int = 0  # stands for expires_at: a renewal writes another one
    expired: bool = False


class Parked(NamedTuple):
    state: str
    token: int
    special: int
    stop: int = NO_FLAG


class Outcome(NamedTuple):
    state: str
    token: int
    owner: int  # NOBODY: not settled by its holder
    special: int


# The phases of a worker.
IDLE, RUN, END, CAREFUL, ASK, ASK_ON = "idle", "run", "end", "careful", "ask", "ask on"


class Worker(NamedTuple):
    """What a worker believes about its one grant."""

    phase: str = IDLE
    token: int = 0
    how: str = ""  # how its run ended
    seen: int = NO_FLAG  # the flag as the last renewal told it
    unsure: bool = False  # a settle was sent before, and its reply never came


AT_REST = Worker()


class Transaction(NamedTuple):
    """A careful verb in progress. `snapshot` is the place in which its present probe has seen a row."""

    verb: str
    aim: Any = None  # a token, or what the first look has seen
    probes: int = 0  # how many places lie behind it
    snapshot: int | None = None
    found: int | None = None


class Hot(NamedTuple):
    """A claim or settle between its snapshot and its row."""

    verb: str
    snapshot: int
    row: Any


class Budget(NamedTuple):
    """How often each fault and each choice may still happen."""

    cancel: int = 0
    pause: int = 0
    resume: int = 0
    child: int = 0
    expire: int = 0
    crash: int = 0
    fail: int = 0
    handback: int = 0
    detach: int = 0
    lost: int = 0  # replies
    steal: int = 0
    renew: int = 0
    step: int = 0
    rival: int = 0
    prune: int = 0


class State(NamedTuple):
    # The database.
    places: tuple[Any, Any, Any, Any]
    anchor: int  # who has the job row locked
    locks: tuple[int, int, int, int]  # who has the row of each place locked
    pruned: bool  # the job row is deleted
    attempts: frozenset[tuple[int, int]]  # (token, settled by)
    key: int
    # Everybody else.
    transactions: tuple[Transaction | None, ...]
    hots: tuple[Hot | None, Hot | None]
    late: (
        tuple[int, int] | None
    )  # a settle on its way, (worker, token); the worker has stopped waiting for it
    workers: tuple[Worker, Worker]
    sights: tuple[Any, Any, Any]  # the first looks of the reaper, of the thief, of the pruner
    child: int
    rival: int
    budget: Budget
    # History that only the promises look at.
    granted: int = 0
    requested: int = NO_FLAG
    cancelled: bool = False
    stepped: bool = False
    settled: frozenset[tuple[int, int]] = frozenset()


@dataclass(frozen=True)
class Setup:
    """One configuration to walk."""

    name: str
    budget: Budget
    external: bool = False  # a lost run becomes an orphan
    fails_for_good: bool = False  # a failure may be the last one
    settle_waits: bool = False  # a settle waits for a locked row: allowed, only slower
    keyed: bool = False  # the job has a unique key
    replaces: bool = False  # the rival replaces a holder that is not running
    without: frozenset[str] = field(default_factory=frozenset)  # the guards taken away: a mutant


# Every guard that can be taken away, and the danger it keeps off. The names are what a test is parametrized by.
GUARDS = {
    # special
    "settle asks for special": "a child waits for ever for a parent that has ended",
    "special is asked again under the lock": "a child that came between look and lock is missed",
    "a move carries special": "what was tied in the queue is settled as plain",
    "the parent's place is marked": "nothing tells the settle of a child",
    "an attempt filed raises special": "the pruner leaves attempts of a job that is gone",
    "a step raises special": "the pruner leaves steps of a job that is gone",
    "an ended parent is marked": "the pruner leaves the dependency on a job that is gone",
    # exactly one place
    "claim inserts only what it deleted": "a cancelled job is started",
    "probes go in the order of life": "a verb misses a job that moved on",
    "each probe has its own snapshot": "a verb misses a job that moved on",
    "moves back hold the anchor": "a verb misses a job that moved back",
    "verbs hold the anchor": "a verb misses a job that moved back",
    # the token
    "claim moves the token on": "two grants share a token",
    "steal moves the token on": "two grants share a token",
    "adoption moves the token on": "two grants share a token",
    "the token is carried to ready": "a token reset in a place is granted again",
    "the token is carried to parked": "a token reset in a place is granted again",
    "the token is carried to outcome": "a token reset in a place is granted again",
    "settle asks for the token": "a fenced worker ends its successor's run",
    "decided settle asks for the token": "a fenced worker sends its successor's run back",
    "renew asks for the token": "a fenced worker keeps its successor's lease alive",
    "a run's write asks for the token": "a fenced run writes into its successor's",
    "a run's write locks its lease row": "a step is written after its run was settled",
    # decided under the lock
    "reap asks again under the lock": "a lease renewed since the look is reaped",
    "steal asks again under the lock": "a lease renewed since the look is stolen",
    "the flag is read under the lock": "a cancel during the last beat is forgotten",
    "an orphan keeps its flag": "a cancelled orphan runs on",
    # lost replies
    "what was skipped is settled with care": "a holder is told that it is fenced",
    "a requeue files its attempt": "a settled run is called lost",
    "resume files the attempt that the outcome told": "a settled run is called lost",
    "a refused repeat is read again": "a settle that landed late is called lost",
    "a lost reply is read in one snapshot": "a resume in between hides the record from both reads",
    "a lost reply is read by owner": "a reaper's verdict is taken for the worker's own settle",
    "a lost reply is read by token": "an earlier settle is taken for this one",
    "reap does not sign as settler": "a reaper's verdict is taken for the worker's own settle",
    "a pruned job is not called lost": "a settled run is called lost, because its record is gone with its job",
    # prune
    "prune holds the anchor": "prune and resume wait for each other",
    "prune deletes only a job whose outcome it deleted": "a resumed job loses the row that stays",
    # the unique key
    "a tied end deletes the key": "a key is left behind, and nobody can use it again",
    "a decided end deletes the key": "a key is left behind, and nobody can use it again",
    "a key is deleted by its holder only": "the end of one job frees the key of another",
    "the key's row is the guard": "an enqueue that looked first makes a second holder",
    "resume takes the key again": "a resumed job lives without its key",
    "resume is refused while another has the key": "a resumed job is a second holder",
    "replace takes the key over": "the job that replaced another lives without its key",
}


# -- small edits of a state --


def put(items: tuple[Any, ...], index: int, value: Any) -> tuple[Any, ...]:
    return (*items[:index], value, *items[index + 1 :])


def flush(state: State, what: str) -> State:
    return state._replace(budget=state.budget._replace(**{what: getattr(state.budget, what) - 1}))


def with_worker(state: State, number: int, worker: Worker) -> State:
    return state._replace(workers=put(state.workers, number, worker))


def with_transaction(state: State, actor: int, transaction: Transaction | None) -> State:
    return state._replace(transactions=put(state.transactions, actor, transaction))


def closed(state: State, actor: int) -> State:
    """The transaction is over: its locks are free."""
    return state._replace(
        anchor=NOBODY if state.anchor == actor else state.anchor,
        locks=tuple(NOBODY if holder == actor else holder for holder in state.locks),
        transactions=put(state.transactions, actor, None),
    )


def change(state: State, place: int, row: Any) -> State:
    """Update a row where it is: a snapshot of it finds the new version."""
    return state._replace(places=put(state.places, place, row))


def move(state: State, source: int, target: int, row: Any) -> State:
    """Delete a row here and insert it there. Whoever has seen the old one finds it gone."""
    return insert(delete(state, source), target, row)


def delete(state: State, place: int) -> State:
    hots, transactions = state.hots, state.transactions
    if any(hot is not None and hot.snapshot == place for hot in hots):
        hots = tuple(
            hot._replace(snapshot=GONE) if hot is not None and hot.snapshot == place else hot for hot in hots
        )
    if any(tx is not None and tx.snapshot == place for tx in transactions):
        transactions = tuple(
            tx._replace(snapshot=GONE) if tx is not None and tx.snapshot == place else tx
            for tx in transactions
        )
    return state._replace(places=put(state.places, place, None), hots=hots, transactions=transactions)


def insert(state: State, place: int, row: Any) -> State:
    return state._replace(places=put(state.places, place, row))

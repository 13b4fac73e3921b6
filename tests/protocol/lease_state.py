"""What the lease model talks about: the row, the worker's own knowledge of it, the faults, the guards.

Time is abstract. A lease whose holder is gone may expire at any moment; a living holder's lease expires only by
a fault that the setup pays for (`Budget`). A frozen worker needs no mark of its own: it is a worker whose next
move comes late. Every worker restarts at once under a new owner name, so what a crash leaves behind has to be
taken up by somebody else's recovery, never by memory.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from tests.protocol.settle_table import CANCELLED, FAILED, PENDING, QUEUED, SUCCEEDED, TIMED_OUT

FINAL = frozenset((SUCCEEDED, CANCELLED))
AT_REST = FINAL | {FAILED, TIMED_OUT}

NO_FLAG, FINISH, PAUSE, CANCEL = range(4)  # indexes into settle_table.FLAGS

# How a lease stands. JUMPED: expired by a leap of the database's clock while its holder is well and beats on
# time; MISSED: expired because its holder is dead or stalled. The database cannot tell the two apart.
HELD, JUMPED, MISSED = range(3)

NOBODY = -1
NOWHERE = -1
NO_QUESTION, ASKED, ANSWERED = range(3)

# One external execution, by what occupies its name at a site.
NEVER_SITED, ABSENT, ALIVE, EXITED_OK, EXITED_BAD, TOMBSTONE = "-aRKXT"
NAME_IS_FREE = frozenset((NEVER_SITED, ABSENT))


class Row(NamedTuple):
    """The job's row. `granted` and `keeps_lane` are ghosts: history that only the promises look at
    (though `keeps_lane` is also what the mended head rule needs to be told)."""

    state: str = QUEUED
    token: int = 0
    attempt: int = 0
    failures: int = 0
    crashes: int = 0
    owner: int = NOBODY
    lease: int = HELD
    expiry: int = 0  # which value of lease_expires_at: a renewal writes another one
    flag: int = NO_FLAG
    site: int = NOWHERE
    marked: bool = False
    halts: bool = False
    on_hold: bool = False  # by hand or by a dependency; what `pending` shows
    due: bool = True
    question: int = NO_QUESTION
    settled_by: int = NOBODY
    settled_token: int = -1
    left_lease: bool = False  # a mutant has ended the run and not its lease
    granted: int = -1
    keeps_lane: bool = False
    kept: bool = False  # a step or a checkpoint, since the last crash


# The phases of a task, in the order in which a run meets them.
RUN = "run"  # an in-process handler is at work
GIVEN_UP = "given up"  # the beats did not come through: the worker has stopped the handler by itself
CLAIMED = "claimed"  # external from here on: nothing stored, nothing started
SITED = "sited"  # site and name stored by a fenced write
STARTED = "started"  # the execution lives, the mark is not yet written
ATTACHED = "attached"
STOP = "stop"
PROBE = "probe"
CLEAR = "clear"  # put a tombstone on the name before settling
SETTLE = "settle"  # the outcome is known and in this worker's settle queue
UNSURE = "unsure"  # a settle was sent, its reply never came: read before anything else
REPEAT = "repeat"  # read, and the row is still mine: send it again

SETTLE_QUEUE = frozenset((SETTLE, UNSURE, REPEAT))

# What became of a settle whose reply was lost; the worker does not know, only the promises do.
NOT_SENT, IN_FLIGHT, ACCEPTED = range(3)


class Task(NamedTuple):
    """What one worker believes about one grant. It may be long out of date."""

    worker: int
    job: int
    token: int
    attempt: int
    phase: str
    seen: int = NO_FLAG  # the flag as the last beat told it
    note: str = ""  # the outcome to settle with, or "marked" while probing
    sent: int = NOT_SENT


class Worker(NamedTuple):
    start: int = 0  # counts restarts: the random part of the owner name
    draining: bool = False


class Look(NamedTuple):
    """A reaper's first look at an expired row."""

    reaper: int
    job: int
    token: int
    expiry: int
    flag: int


class Budget(NamedTuple):
    """How often each fault and each choice that could repeat for ever may still happen."""

    crashes: int = 0
    stalls: int = 0
    jumps: int = 0
    lost_replies: int = 0
    vanishes: int = 0
    drains: int = 0
    cancels: int = 0
    pauses: int = 0
    finishes: int = 0
    revivals: int = 0  # resume of failed or timed_out; resume of paused is bounded by `pauses`
    whims: int = 0  # snooze, question, time-out and the other outcomes a handler may choose
    releases: int = 0
    keeps: int = 0  # steps and checkpoints that runs store


class State(NamedTuple):
    rows: tuple[Row, ...]
    executions: tuple[tuple[str, ...], ...]  # per job, per attempt: one letter per site
    tasks: tuple[Task, ...]
    looks: tuple[Look, ...]
    workers: tuple[Worker, ...]
    budget: Budget


@dataclass(frozen=True)
class Setup:
    """One configuration to walk."""

    name: str
    budget: Budget
    on_lost: str = "retry"
    jobs: int = 1
    external: bool = False
    sites: tuple[int, ...] = (0, 0)  # which site each worker serves
    halts: bool = False
    backoff: bool = False  # tell a queued job in backoff from a due one: only a lane can see the difference
    starts_on_hold: bool = False  # the first job
    whims: tuple[str, ...] = ()
    max_attempts: int = 2
    max_crashes: int = 2
    reapers: tuple[int, ...] = (1,)
    steals: bool = False
    without: frozenset[str] = field(default_factory=frozenset)  # the guards taken away: a mutant


# Every guard that can be taken away, and the danger it keeps off. The names are what a test is parametrized by.
GUARDS = {
    "settle checks the token": "a reaped worker overwrites its successor's run",
    "renew checks the token": "a reaped worker keeps its successor's lease alive",
    "hand-back checks the token": "a reaped worker sends its successor's run back to the queue",
    "detach checks the token": "a reaped worker orphans its successor's run",
    "the site write checks the token": "a requeued job is started by the worker that lost it",
    "the start mark checks the token": "a reaped worker marks another attempt as started",
    "what a run keeps checks the token": "a reaped worker stores the steps of its successor's run",
    "progress sets the crashes back": "a job that goes on after every crash is failed as poison",
    "settle takes the lease away": "a settle repeated after a lost reply is accepted again",
    "reap takes the lease away": "the worker it was taken from still settles it",
    "detach takes the lease away": "the one who let go still settles it",
    "claim moves the token on": "two grants share a token",
    "adopt moves the token on": "two grants share a token",
    "the token is never reset": "two grants share a token",
    "an ending carries the token": "two grants share a token, because the place between them forgot the first",
    "claim takes queued rows only": "a live lease is taken from its holder",
    "adopt takes orphans only": "a live lease is taken from its holder",
    "adopt serves its own site only": "a second execution is started at another site",
    "reap looks twice": "a leap of the clock takes every lease from healthy workers",
    "reap compares the expiry": "an old look reaps a lease that was renewed since",
    "reap decides under the lock": "a row that went on is brought back",
    "reap reads the flag under the lock": "a cancel between look and reap is forgotten",
    "reap spares orphans": "a row that nobody holds is counted as a crash, sweep after sweep",
    "reap does not sign as settler": "a worker takes its own reaper's verdict for its own settle",
    "settle reads the flag under the lock": "a cancel during the last beat is forgotten",
    "settle clears the flag": "the next run is born with a stop request",
    "a cancelled run is not retried": "a cancelled job runs again",
    "a paused run is not retried": "a pause is forgotten",
    "a lost run with a flag is not requeued": "a cancelled job runs again after a crash",
    "a lost external run becomes an orphan": "attempt n+1 runs beside attempt n",
    "an adopted loss costs nothing": "deploys use up the crashes of a run that was never disturbed",
    "a lost external run is not failed": "an execution outlives its job",
    "a lost external run without a site is requeued": "an orphan that nobody can adopt",
    "a drained external run becomes an orphan": "attempt n+1 runs beside attempt n",
    "the site is stored before the start": "an execution that recovery does not know of",
    "a start occupies the name": "two executions of one attempt",
    "a vanished run gets a tombstone": "a frozen worker starts the attempt after it was settled",
    "a stop of an absent run leaves a tombstone": "a frozen worker starts a cancelled job",
    "a settled name stays taken": "a frozen worker starts the attempt after it was settled",
    "a cancelled orphan is adopted": "an orphan that is never stopped",
    "resume refuses final states": "a cancelled job runs again",
    "resume clears a pause only": "a cancel is taken back",
    "resume keeps the hold": "a job starts before its dependency",
    "release reaches a paused job": "the dependency's word is lost and the job never starts",
    "resolve lets the lane go on": "a lane stands still for ever",
    "answer requeues": "a question answered leads nowhere",
    "cancel closes the question": "a dead job asks its operator",
    "an orphan holds its lane": "two executions in a lane",
    "a halting failure holds its lane": "the next job runs on a failed one's ruins",
    "a paused job holds its lane": "the next job overtakes a paused one",
    "a waiting job holds its lane": "the next job overtakes a waiting one",
    "a head in backoff holds its lane": "the next job overtakes a retry",
    "a started job keeps its lane": "a job released late overtakes a started one",
    "the stronger flag wins": "a pause takes a cancel back",
    "owner names are never shared": "a worker takes another's row for its own",
    "a lost reply is read by token": "a worker believes in a settle that was never accepted",
    "a lost reply is read by owner": "a worker believes in a settle that was never accepted",
    "a refused repeat is read again": "a worker calls its accepted settle a loss",
    "renew spares the settle queue": "a worker calls its accepted settle a loss",
    "an overwritten settle is not called a loss": "a worker calls its accepted settle a loss",
    "a run given up is not found again": "user code runs twice under one grant",
}

# Guards whose absence breaks no promise of this model, and why they are kept all the same.
REDUNDANT_GUARDS = {
    "renew ignores the expiry": "a late worker would only give up work that it could have finished",
    "a lost claim is found": "the lease runs out and the row is reaped: it costs a lease time, not a job",
    "a vanished run is not started again": "it would only not be counted: a run that always vanishes never fails",
}

INITIAL_PENDING = Row(state=PENDING, on_hold=True)


# -- small edits of a state; tuples are rebuilt by position because _replace is slow and this is the inner loop --


def with_row(state: State, job: int, row: Row) -> State:
    rows = state.rows
    if rows[job] is row:
        return state
    return State((*rows[:job], row, *rows[job + 1 :]), *state[1:])


def with_task(state: State, task: Task) -> State:
    return State(*state[:2], tuple(sorted((*state.tasks, task))), *state[3:])


def drop_task(state: State, task: Task) -> State:
    return State(*state[:2], tuple(t for t in state.tasks if t is not task), *state[3:])


def replace_task(state: State, task: Task, by: Task) -> State:
    return State(*state[:2], tuple(sorted(by if t is task else t for t in state.tasks)), *state[3:])


def execution(state: State, task: Task, site: int) -> str:
    attempts = state.executions[task.job]
    return attempts[task.attempt - 1][site] if task.attempt <= len(attempts) else NEVER_SITED


def with_execution(state: State, task: Task, site: int, status: str) -> State:
    return put_execution(state, task.job, task.attempt, site, status)


def put_execution(state: State, job: int, attempt: int, site: int, status: str) -> State:
    attempts = list(state.executions[job])
    while len(attempts) < attempt:
        attempts.append(NEVER_SITED * 2)
    sites = attempts[attempt - 1]
    attempts[attempt - 1] = sites[:site] + status + sites[site + 1 :]
    executions = (*state.executions[:job], tuple(attempts), *state.executions[job + 1 :])
    return State(state.rows, executions, *state[2:])


def spend(state: State, what: str) -> State:
    return State(*state[:5], state.budget._replace(**{what: getattr(state.budget, what) - 1}))


def with_worker(state: State, number: int, worker: Worker) -> State:
    workers = (*state.workers[:number], worker, *state.workers[number + 1 :])
    return State(*state[:4], workers, state.budget)

"""Settle: ends attempts under their tokens, reports lost leases, and stores follow-ups with the success."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, ClassVar, NamedTuple, cast

from leasehold.domain.checks.payload import check_text
from leasehold.domain.errors import GroupOnHold
from leasehold.domain.job import MOST_INSERTED, Job, NewJob
from leasehold.domain.outcome import Crashed, Failure, Move, Outcome, Success
from leasehold.domain.questions import QuestionAsked
from leasehold.domain.settle import settle as decide
from leasehold.domain.states import State
from leasehold.domain.stop import StopMark
from leasehold.stores.database.database import Columns, Records, Session
from leasehold.stores.results import Ending, Settled
from leasehold.stores.verbs.dependencies import lock_free_descendants
from leasehold.stores.verbs.enqueue import EnqueueVerbs, enqueue_in
from leasehold.stores.verbs.groups import held_groups
from leasehold.stores.verbs.limits import limit_problems
from leasehold.stores.verbs.locking import find_progress, lock_held, lock_held_skip_locked
from leasehold.stores.verbs.stop import Marks, find_marks, stopped_follow_ups
from leasehold.stores.verbs.writing import BATCH, batches, bump_groups, write_moves

WayToSucceed = Callable[[Any, Sequence[Ending]], tuple[set[int], bool]]
"""A dialect's method to settle successes in one transaction: returns the numbers of the jobs that it left alone, and
whether slots are free again. It also writes what a job is tied to: lane, key, slots, time limits, questions, group."""


class _ChildLocked(Exception):
    """A job that waits for an ending job, and has to be judged with its end, is locked."""


@dataclass(slots=True)
class _Call:
    """The parameters of one settle, and what it has found out so far."""

    wait: bool
    not_serializable: set[str]
    decided: dict[str, Job] = field(default_factory=dict)

    @property
    def frees_limits(self) -> bool:
        """Whether a decided job has freed units of slots; a success may be among the decided jobs."""
        return any(job.limited and job.state is not State.RUNNING for job in self.decided.values())


class SettleVerbs(EnqueueVerbs):
    """End attempts."""

    _ways_to_succeed: ClassVar[tuple[WayToSucceed, ...]]
    """The ways of the dialect, tried in turn."""

    def settle(self, endings: Sequence[Ending], *, wait: bool = True) -> Settled:
        """End attempts; only the holder of the token can. A result that the database refuses fails only its own job.
        The follow-ups of a success are stored with it, once, however often the call is repeated; a follow-up that
        cannot be stored (another job holds its key and `on_duplicate` is "raise", or a parent is gone) is left out and
        noted in the history. Jobs that wait for an ended job are released, or cancelled with the reason, in the same
        transaction. Without `wait`, attempts with locked rows stay untouched and are named in the result, so that the
        other attempts do not wait."""
        latest = _latest(endings)
        screened = _screened(latest.values())
        call = _Call(wait, screened.not_serializable)
        done, freed = self._settle_successes(screened.good, call)
        # A job that the statement left out is fenced, awaited or locked: its rows, once locked, show which.
        careful = [ending for ending in screened.good if ending.id not in done] + screened.followed
        if careful:
            done |= self._settle_successes_locked(careful, call)
        for batch in batches(screened.other):
            done |= self._decide_and_settle(batch, call)
        left = {job_id: ending.token for job_id, ending in latest.items() if job_id not in done}
        locked = set() if wait else {job_id for job_id, _ in self._still_held(left.items())}
        return Settled(
            accepted=sorted(done),
            fenced=sorted(left.keys() - locked),
            not_serializable=sorted(call.not_serializable & done),
            locked=sorted(locked),
            freed=freed or call.frees_limits or any(ending.id in done for ending in careful),
            decided=call.decided,
        )

    def read_settlements(self, leases: Mapping[str, int], worker: str) -> dict[str, str]:
        """After a lost reply: for each lease `done` (this worker settled it), `mine` (repeat the settle, and read again
        if it is refused, because the first try may still have been under way) or `fenced`. A job that was pruned
        meanwhile is `fenced` too. `unknown`: its tenant is in trouble; only a store of many tenants says so."""
        rows = self._database.read(
            lambda session: session.rows(
                "read_settlements", leases=Columns(ids=list(leases), tokens=list(leases.values()))
            )
        )
        verdicts = dict.fromkeys(leases, "fenced")
        for row in rows:
            if row["held"]:
                verdicts[row["id"]] = "mine"
            elif row["settled_by"] == worker:
                verdicts[row["id"]] = "done"
        return verdicts

    def _numbered(self, endings: Sequence[Ending]) -> list[Ending]:
        """Add the number (seq) by which the lease is found. Deleted jobs are left out: their lease is lost."""
        unknown = sorted(ending.id for ending in endings if ending.seq is None)
        if not unknown:
            return list(endings)
        rows = self._database.read(lambda session: session.rows("find_ids", ids=unknown))
        seqs = {row["id"]: row["seq"] for row in rows}
        found = [e if e.seq is not None else e._replace(seq=seqs.get(e.id)) for e in endings]
        return [ending for ending in found if ending.seq is not None]

    def _settle_successes(self, endings: Sequence[Ending], call: _Call) -> tuple[set[str], bool]:
        """Settle successes that need no decision; returns the settled ids, and whether slots are free again."""
        done: set[str] = set()
        freed = False
        for batch in batches(self._numbered(endings)):
            settled, slots = self._settle_succeeded(batch, call)
            done |= settled
            freed |= slots
        return done, freed

    def _settle_succeeded(self, endings: Sequence[Ending], call: _Call) -> tuple[set[str], bool]:
        """Try each way with the jobs that earlier ways left. When the database refuses a value, halve until
        the culprit is alone: it ends failed, the others are settled. Each way is a transaction of its own, so
        each is halved by itself: a job that an earlier way has settled must not be sent again. Returns the
        settled ids, and whether slots are free again."""
        done: set[str] = set()
        freed: list[bool] = []
        for way in self._ways_to_succeed:

            def write(some: Sequence[Ending], way: WayToSucceed = way) -> set[str]:
                left, slots = way(self, some)
                freed.append(slots)
                return {ending.id for ending in some if ending.seq not in left}

            left = [ending for ending in endings if ending.id not in done] if done else endings
            if left:
                done |= self._bisected(left, call, write)
        return done, any(freed)

    def _settle_successes_locked(self, endings: Sequence[Ending], call: _Call) -> set[str]:
        """Settle successes that other jobs wait for, or that have follow-ups; halves as `_settle_succeeded` does."""
        self._make_gates([job for ending in endings for job in _follow_ups(ending)], strict=False)
        done: set[str] = set()
        for batch in _with_follow_ups(endings):
            done |= self._bisected(batch, call, lambda some: self._decide_and_settle(some, call))
        return done

    def _bisected(
        self,
        endings: Sequence[Ending],
        call: _Call,
        write: Callable[[Sequence[Ending]], set[str]],
    ) -> set[str]:
        try:
            return write(endings)
        except Exception as error:
            if not self._database.refuses_data(error):
                raise
            if len(endings) == 1:
                call.not_serializable.add(endings[0].id)
                return self._decide_and_settle([_as_not_serializable(endings[0], str(error))], call)
        middle = len(endings) // 2
        first = self._bisected(endings[:middle], call, write)
        return first | self._bisected(endings[middle:], call, write)

    def _decide_and_settle(self, endings: Sequence[Ending], call: _Call) -> set[str]:
        """Decide and settle under the rows' locks: a stop request may have come a moment ago."""
        try:
            jobs = self._database.transact(lambda session: settle_in(session, endings, call.wait))
        except _ChildLocked:
            # Halve until the parent of the locked job is alone, and leave that parent.
            middle = len(endings) // 2
            halves = (endings[:middle], endings[middle:]) if middle else ()
            return {job_id for half in halves for job_id in self._decide_and_settle(half, call)}
        except GroupOnHold:
            # The hold came between the check and the write; the second try sees it and leaves out only the follow-ups.
            jobs = self._database.transact(lambda session: settle_in(session, endings, call.wait))
        call.decided.update((job.id, job) for job in jobs)
        return {job.id for job in jobs}


def settled_columns(endings: Sequence[Ending]) -> Columns:
    outcomes = cast(list[Success], [ending.outcome for ending in endings])
    return Columns(
        jobs=[ending.seq for ending in endings],
        tokens=[ending.token for ending in endings],
        results=[outcome.result for outcome in outcomes],
        references=[outcome.result_ref for outcome in outcomes],
    )


def settle_in(session: Session, endings: Sequence[Ending], wait: bool = True) -> list[Job]:
    """Decide and write in an open transaction; returns the settled jobs as they are now, without lost leases. Without
    `wait`, locked jobs are left out, and _ChildLocked is raised if a job that waits for a settled one is locked."""
    wanted = {ending.id: ending for ending in endings}
    jobs, now = lock_held(session, wanted) if wait else lock_held_skip_locked(session, wanted)
    moves = [] if now is None else _decide(session, jobs.values(), wanted, now)
    if not wait and not lock_free_descendants(session, moves):
        raise _ChildLocked
    if now is not None:
        follow_ups = {ending.id: _follow_ups(ending) for ending in endings}
        stopping = [m.job.id for m in moves if m.before.stop_requested is not None and follow_ups[m.job.id]]
        marks = find_marks(session, stopping)  # before the moves clear them
        groups = write_moves(session, moves, now)
        file_follow_ups(session, [(m.job, new) for m in moves for new in follow_ups[m.job.id]], groups, marks)
    return [move.job for move in moves]


def _decide(
    session: Session, jobs: Collection[Job], wanted: Mapping[str, Ending], now: datetime
) -> list[Move]:
    """Decide the moves of the jobs whose lease is still held under the ending's token."""
    crashed = [job for job in jobs if isinstance(wanted[job.id].outcome, Crashed)]
    progressed = find_progress(session, crashed)
    moves = []
    for job in jobs:
        ending = wanted[job.id]
        outcome = ending.outcome
        if job.seq in progressed and isinstance(outcome, Crashed):
            outcome = replace(outcome, progressed=True)
        if job.lease_token == ending.token:
            moves.append(decide(job, outcome, job.policy, now=now, jitter=random.random()))
    return moves


def _latest(endings: Sequence[Ending]) -> dict[str, Ending]:
    """The latest ending of each job: one lost and claimed again may have two, and only its latest lease can be held."""
    latest = {ending.id: ending for ending in endings}
    if len(latest) < len(endings):
        latest = {ending.id: ending for ending in sorted(endings, key=lambda ending: ending.token)}
    return latest


class _Screened(NamedTuple):
    good: list[Ending]
    """Successes."""
    followed: list[Ending]
    """Successes with follow-ups."""
    other: list[Ending]
    not_serializable: set[str]
    """Jobs whose ending cannot be stored as it is."""


def _screened(endings: Iterable[Ending]) -> _Screened:
    """Sort endings. Text that the databases treat differently is refused before it is sent: SQLite stores a
    NUL, or only the text before it; PostgreSQL takes neither a NUL nor half a surrogate pair."""
    screened = _Screened([], [], [], set())
    good = screened.good
    for ending in endings:
        if ending.token < 1:
            continue  # no lease has token 0
        outcome = ending.outcome
        says_nothing = type(outcome) is Success and outcome.result is None and outcome.result_ref is None
        # Most successes of a busy worker have no result: they need no check.
        problem = None if says_nothing else _problem(outcome)
        if problem is not None:
            screened.not_serializable.add(ending.id)
            screened.other.append(_as_not_serializable(ending, problem))
        elif type(outcome) is not Success:
            screened.other.append(ending)
        elif outcome.follow_ups:
            screened.followed.append(ending)
        else:
            good.append(ending)
    return screened


def _problem(outcome: Outcome) -> str | None:
    try:
        if isinstance(outcome, Success):
            if outcome.result is not None:
                check_text(outcome.result, "result")
            if outcome.result_ref is not None:
                check_text(outcome.result_ref, "result_ref")
        elif isinstance(outcome, QuestionAsked):
            for question in outcome.questions:
                check_text(question.key, "key")
                check_text(question.text, "text")
                json.loads(check_text(question.schema or "null", "schema"))
    except ValueError as error:
        return str(error)
    return None


def _as_not_serializable(ending: Ending, problem: str) -> Ending:
    what = "question" if isinstance(ending.outcome, QuestionAsked) else "result"
    return ending._replace(outcome=Failure(f"the {what} is not serializable: {problem}", final=True))


def _with_follow_ups(endings: Iterable[Ending]) -> Iterator[list[Ending]]:
    """As `batches`, but ends a batch before its follow-ups exceed the jobs that one transaction stores."""
    batch: list[Ending] = []
    number = 0
    for ending in endings:
        more = len(_follow_ups(ending))
        if batch and (len(batch) == BATCH or number + more > MOST_INSERTED):
            yield batch
            batch, number = [], 0
        batch.append(ending)
        number += more
    if batch:
        yield batch


def _follow_ups(ending: Ending) -> tuple[NewJob, ...]:
    return ending.outcome.follow_ups if isinstance(ending.outcome, Success) else ()


# -- follow-ups --------------------------------------------------------------------------------------------------------
# The fence stores follow-ups once: a repeated settle finds the parent settled, and stores nothing. A follow-up that
# cannot be stored must not undo the success, whose effects are done: it is left out, and noted in the parent's history.


def file_follow_ups(
    session: Session, requested_by: Sequence[tuple[Job, NewJob]], groups: Mapping[str, int], marks: Marks
) -> None:
    """Store the follow-ups of jobs that have just succeeded, then notify all groups, once each. `marks` are
    the stops that have reached those jobs."""
    if not requested_by:
        bump_groups(session, groups)
        return
    parent_of = {job.id: parent for parent, job in requested_by}
    follow_ups = [replace(job, follow_up_of=parent.id) for parent, job in requested_by]
    refused = _without_parents(session, follow_ups)
    refused |= {job_id: str(problem) for job_id, problem in limit_problems(session, follow_ups).items()}
    refused |= _into_held_groups(session, follow_ups, stopped_follow_ups(follow_ups, marks))
    accepted = [job for job in follow_ups if job.id not in refused]
    # With "raise", a held key would undo the success too.
    mild = [replace(job, on_duplicate="return") if job.on_duplicate == "raise" else job for job in accepted]
    for job, made in zip(accepted, enqueue_in(session, mild, groups, marks), strict=True):
        if made.id != job.id and job.on_duplicate == "raise":
            refused[job.id] = f"its unique key {job.unique_key!r} is held by job {made.id}"
    if refused:
        entries = [_entry(parent_of[j.id], j, refused[j.id]) for j in follow_ups if j.id in refused]
        session.run("insert_history", entries=Records(entries))


def _into_held_groups(
    session: Session, follow_ups: Sequence[NewJob], stopped: Mapping[str, StopMark]
) -> dict[str, str]:
    """Follow-ups into held groups, by id with the reason; follow-ups that a stop covers are stored as cancelled."""
    wanted = [job for job in follow_ups if job.group is not None and job.id not in stopped]
    held = held_groups(session, [job.group or "" for job in wanted]) if wanted else []
    names = {group.name for group in held}
    return {job.id: f"its group {job.group!r} is on hold" for job in wanted if job.group in names}


def _without_parents(session: Session, follow_ups: Sequence[NewJob]) -> dict[str, str]:
    """Follow-ups that would wait for a missing job, or for a follow-up that is left out itself; by id, with the
    reason."""
    there = {job.id for job in follow_ups}
    parents = {parent for job in follow_ups for parent in job.after} - there
    found = {row["id"] for row in session.rows("find_ids", ids=sorted(parents))} if parents else set()
    refused: dict[str, str] = {}
    for job in follow_ups:
        for parent in job.after:
            if parent in refused or (parent not in there and parent not in found):
                refused[job.id] = f"it waits for job {parent}, which does not exist"
    return refused


def _entry(parent: Job, job: NewJob, why: str) -> dict[str, object]:
    return {
        "job_id": parent.id,
        "event": "follow_up_refused",
        "from_state": parent.state.value,
        "to_state": parent.state.value,
        "token": parent.settled_token,
        "attempt": parent.attempt,
        "actor": parent.settled_by,
        "detail": f"{job.task}: {why}",
    }

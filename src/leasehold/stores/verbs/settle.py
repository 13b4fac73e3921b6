"""Renew and settle: every write is fenced by the token, and what was lost is said so."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from leasehold.domain.checks.payload import check_text
from leasehold.domain.errors import GroupOnHold
from leasehold.domain.job import Grant, Job, NewJob, Renewal
from leasehold.domain.outcome import Asked, Failure, Outcome, Success
from leasehold.domain.settle import settle as decide
from leasehold.domain.states import Flag, State
from leasehold.stores.answers import Ending, Settled
from leasehold.stores.base.database import Columns, Records, Session
from leasehold.stores.verbs.enqueue import EnqueueVerbs
from leasehold.stores.verbs.follow_ups import file_follow_ups
from leasehold.stores.verbs.stop_marks import find_marks
from leasehold.stores.verbs.writing import batches, lock, write_moves


class SettleVerbs(EnqueueVerbs):
    """Settling a success may enqueue: its follow-ups are stored with it."""

    def renew(self, leases: Mapping[str, int]) -> list[Renewal]:
        if not leases:
            return []
        # Token 0 stands on rows that nobody ever held.
        held = [{"id": job_id, "token": leases[job_id]} for job_id in sorted(leases) if leases[job_id] > 0]
        records = Records(held)
        rows = self._database.single(lambda session: session.tuples("renew", leases=records))
        return [Renewal(job_id, Flag(flag) if flag else None) for job_id, flag in rows]

    def settle(self, endings: Sequence[Ending]) -> Settled:
        latest: dict[str, Ending] = {}
        for ending in endings:
            # A job may stand here twice: lost, claimed again, and both runs ended. Only the latest lease can be held.
            known = latest.get(ending.id)
            if known is None or known.token <= ending.token:
                latest[ending.id] = ending
        good: list[Ending] = []
        other: list[Ending] = []
        unstorable: set[str] = set()
        for job_id in sorted(latest):
            ending = latest[job_id]
            screened = _screened(ending)
            if screened is not ending:
                unstorable.add(job_id)
            if ending.token > 0:  # Token 0 stands on rows that nobody ever held.
                (good if isinstance(screened.outcome, Success) else other).append(screened)
        done: set[str] = set()
        limited: set[str] = set()
        for batch in batches([ending for ending in good if not _follow_ups(ending)]):
            done |= self._settle_succeeded(batch, unstorable, limited)
        # What the statement left out is fenced, or awaited by others: the row tells which, under its lock.
        careful = [ending for ending in good if ending.id not in done]
        self._make_gates([job for ending in careful for job in _follow_ups(ending)], strict=False)
        for batch in batches(careful):
            done |= self._settle_carefully(batch, unstorable)
        for batch in batches(other):
            done |= self._settle_decided(batch, limited)
        return Settled(
            accepted=sorted(done),
            fenced=sorted(latest.keys() - done),
            unstorable=sorted(unstorable & done),
            freed=bool(limited) or any(ending.id in done for ending in careful),
        )

    def place_execution(self, job_id: str, token: int, site: str, name: str) -> bool:
        return bool(
            self._database.single(
                lambda session: session.tuples(
                    "place_execution", id=job_id, token=token, site=site, name=name
                )
            )
        )

    def mark_started(self, job_id: str, token: int) -> bool:
        return bool(
            self._database.single(lambda session: session.tuples("mark_started", id=job_id, token=token))
        )

    def find_held(self, owner: str) -> list[Grant]:
        rows = self._database.read(lambda session: session.rows("find_held", owner=owner))
        return [Grant(*row.values()) for row in rows]

    def read_settlements(self, leases: Mapping[str, int], owner: str) -> dict[str, str]:
        rows = self._database.read(lambda session: session.rows("read_settlements", ids=sorted(leases)))
        verdicts = dict.fromkeys(leases, "fenced")
        for row in rows:
            token = leases[row["id"]]
            if row["lease_token"] == token:
                verdicts[row["id"]] = "mine"
            elif row["settled_token"] == token and row["settled_by"] == owner:
                verdicts[row["id"]] = "done"
            elif row["settled_token"] is not None and row["settled_token"] > token:
                # A later run was settled since: what became of this one can no longer be told.
                verdicts[row["id"]] = "unknown"
        return verdicts

    def _settle_succeeded(
        self, endings: Sequence[Ending], unstorable: set[str], limited: set[str]
    ) -> set[str]:
        """One statement for all. When the database refuses a value, halve until the culprit stands alone: it ends
        failed, the others go through."""
        return self._bisected(endings, unstorable, lambda some: self._write_plain(some, limited))

    def _settle_carefully(self, endings: Sequence[Ending], unstorable: set[str]) -> set[str]:
        """As above, for successes that others wait for, or that have follow-ups."""
        return self._bisected(endings, unstorable, self._settle_decided)

    def _bisected(
        self, endings: Sequence[Ending], unstorable: set[str], write: Callable[[Sequence[Ending]], set[str]]
    ) -> set[str]:
        try:
            return write(endings)
        except Exception as error:
            if not self._database.refuses_data(error):
                raise
            if len(endings) == 1:
                unstorable.add(endings[0].id)
                return self._settle_decided([_unstorable(endings[0], str(error))])
        middle = len(endings) // 2
        first = self._bisected(endings[:middle], unstorable, write)
        return first | self._bisected(endings[middle:], unstorable, write)

    def _write_plain(self, endings: Sequence[Ending], limited: set[str]) -> set[str]:
        outcomes = [cast(Success, ending.outcome) for ending in endings]
        rows = self._write_succeeded(
            Columns(
                ids=[ending.id for ending in endings],
                tokens=[ending.token for ending in endings],
                results=[outcome.result for outcome in outcomes],
                references=[outcome.result_ref for outcome in outcomes],
            )
        )
        limited.update([row[0] for row in rows if row[1]])
        return {row[0] for row in rows}

    def _write_succeeded(self, settled: Columns) -> list[tuple[Any, ...]]:
        """First who was still the holder, and whether it held slots. The statement itself files the lanes' tickets and
        moves the groups' versions on."""
        return self._database.single(lambda session: session.tuples("settle_succeeded", settled=settled))

    def _settle_decided(self, endings: Sequence[Ending], limited: set[str] | None = None) -> set[str]:
        """The flag may have come a moment ago, so the decision is taken under the row's lock."""
        try:
            jobs = self._database.transact(lambda session: settle_in(session, endings))
        except GroupOnHold:
            # The hold came between the look for it and the write; now it is seen, and costs only the follow-ups.
            jobs = self._database.transact(lambda session: settle_in(session, endings))
        if limited is not None:
            limited.update(job.id for job in jobs if job.limited and job.state is not State.RUNNING)
        return {job.id for job in jobs}


def settle_in(session: Session, endings: Sequence[Ending]) -> list[Job]:
    """Decide and write in a transaction that is open; the jobs whose holder it still was, as they are now."""
    wanted: dict[str, tuple[int, Outcome]] = {e.id: (e.token, e.outcome) for e in endings}
    jobs, now = lock(session, wanted)
    moves = []
    for job in jobs.values():
        token, outcome = wanted[job.id]
        if job.lease_token == token and job.state is State.RUNNING and now is not None:
            moves.append(decide(job, outcome, job.policy, now=now, jitter=random.random()))
    if now is not None:
        asked = {ending.id: _follow_ups(ending) for ending in endings}
        told = [m.job.id for m in moves if m.before.stop_requested is not None and asked[m.job.id]]
        marks = find_marks(session, told)  # before the moves clear them
        groups = write_moves(session, moves, now)
        file_follow_ups(session, [(m.job, new) for m in moves for new in asked[m.job.id]], groups, marks)
    return [move.job for move in moves]


def _screened(ending: Ending) -> Ending:
    """Text that the databases would treat differently is refused before they are asked: SQLite keeps a NUL, or all
    that stands before it, PostgreSQL takes neither it nor half a surrogate pair."""
    try:
        match ending.outcome:
            case Success(None, None):
                pass
            case Success(result, result_ref):
                check_text(result or "", "result")
                check_text(result_ref or "", "result_ref")
            case Asked(key, text, schema):
                check_text(key, "key")
                check_text(text, "text")
                json.loads(check_text(schema or "null", "schema"))
    except ValueError as error:
        return _unstorable(ending, str(error))
    return ending


def _unstorable(ending: Ending, problem: str) -> Ending:
    what = "question" if isinstance(ending.outcome, Asked) else "result"
    return Ending(ending.id, ending.token, Failure(f"unstorable {what}: {problem}", final=True))


def _follow_ups(ending: Ending) -> tuple[NewJob, ...]:
    return ending.outcome.follow_ups if isinstance(ending.outcome, Success) else ()

"""Budgets: a ledger that no fence guards, and totals that change in the same transaction as its rows.

Spending is recorded even after the lease was lost: the token is stored, but never checked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime

from leasehold.domain.budgets import (
    BudgetLine,
    BudgetOwner,
    BudgetPage,
    BudgetRow,
    Spend,
    Spending,
    first_over,
    halts,
    lines_of,
)
from leasehold.domain.checks.numbers import check_page
from leasehold.domain.checks.payload import cursor_of, parts_of
from leasehold.domain.errors import InvalidInput, InvalidState, JobNotFound
from leasehold.domain.hooks import PendingNotification, budget_is_exhausted
from leasehold.domain.job import Job
from leasehold.domain.outcome import Move
from leasehold.domain.policy import Policy
from leasehold.domain.states import FINAL, HALTED
from leasehold.stores.database.database import Records, Row, Session
from leasehold.stores.verbs.locking import lock
from leasehold.stores.verbs.writing import Verbs, reading, transaction, write, write_outbox


class BudgetVerbs(Verbs):
    """What jobs and groups may spend and have spent."""

    def spend(self, job_id: str, token: int, attempt: int, spends: Sequence[Spend]) -> list[BudgetLine]:
        """Record what an attempt spent. This always succeeds, even after the lease is lost; the token is only kept. A
        key that is recorded already is skipped. The result is the budgets of the job and its group afterwards. Raises
        JobNotFound."""
        return self._database.transact(lambda session: record_spends(session, job_id, token, attempt, spends))

    @reading
    def budget(self, session: Session, job_id: str, attempt: int | None = None) -> list[BudgetLine]:
        """What the job and its group may spend and have spent, by unit. With `budget_for="attempt"` it counts this
        attempt's spending: the latest attempt unless one is given. Raises JobNotFound."""
        found = session.rows("find_spender", id=job_id)
        if not found:
            raise JobNotFound(job_id)
        return _lines(session, found[0], attempt)

    def list_budgets(
        self, scope: BudgetOwner | None = None, limit: int = 50, cursor: str | None = None
    ) -> BudgetPage:
        """Budgets of groups by name, then of jobs by id. A job appears once it has spent something or was topped up."""
        check_page(limit)
        after = (scope or "", "", "") if cursor is None else parts_of(cursor, str, str, str)
        key = dict(zip(("scope", "name", "unit"), after, strict=True))

        def work(session: Session) -> BudgetPage:
            rows = session.rows("list_budgets", **key, last=scope or "job", limit=limit + 1)
            page = rows[:limit]
            more = cursor_of(*(page[-1][part] for part in key)) if len(rows) > limit else None
            return BudgetPage(_budget_rows(session, page), more)

        return self._database.read(work)

    def spending(self, job_id: str) -> list[Spending]:
        """The job's ledger in the order of time."""
        return [Spending(**row) for row in self._rows("list_spending", id=job_id)]

    @transaction
    def top_up(
        self, session: Session, job_id: str, amounts: Mapping[str, int], actor: str | None = None
    ) -> list[BudgetLine]:
        """Raise the job's limits by these amounts. Raises InvalidState if the job is final, and InvalidInput for a unit
        without a limit."""
        jobs, now = lock(session, [job_id])
        if job_id not in jobs or now is None:
            raise JobNotFound(job_id)
        return _top_up(session, jobs[job_id], amounts, actor, now)

    @transaction
    def set_group_budget(
        self, session: Session, group: str, limits: Mapping[str, int | None]
    ) -> list[BudgetLine]:
        """Set these limits of a group; None removes one. The other limits stay."""
        over = {line.unit for line in _group_lines(session, group) if line.exhausted}
        _set_limits(session, "group", group, limits)
        lines = _group_lines(session, group)
        passed = [line for line in lines if line.exhausted and line.unit not in over]
        write_outbox(session, [budget_is_exhausted(line, None, "", group) for line in passed])
        return lines

    def group_budget(self, group: str) -> list[BudgetLine]:
        """What the group may spend and has spent, by unit."""
        return self._database.read(lambda session: _group_lines(session, group))


def _budget_rows(session: Session, rows: Sequence[Row]) -> list[BudgetRow]:
    """The same lines as `budget`. A job's limits are its policy's unless they were raised; if they count each
    attempt separately, the latest attempt's spending is read job by job."""
    found = []
    of_attempts: dict[str, dict[str, BudgetLine]] = {}
    for row in rows:
        if row["scope"] == "group":
            found.append(BudgetRow.of(_group_line(row), None, None, None))
            continue
        policy = Policy.load(row["policy"])
        job_id, unit = row["name"], row["unit"]
        if policy.budget_for == "attempt" and row["task"] is not None:
            if job_id not in of_attempts:
                lines = _lines(session, {**row, "id": job_id}, None)
                of_attempts[job_id] = {line.unit: line for line in lines if line.scope == "attempt"}
            line = of_attempts[job_id][unit]
        else:
            limit = (policy.budget or {}).get(unit) if row["lim"] is None else row["lim"]
            line = BudgetLine("job", job_id, unit, limit, row["spent"])
        found.append(BudgetRow.of(line, policy.on_breach, row["task"], row["queue"]))
    return found


def record_spends(
    session: Session, job_id: str, token: int, attempt: int, spends: Sequence[Spend]
) -> list[BudgetLine]:
    """Record spending in an open transaction. Raises JobNotFound, also for a job that was pruned."""
    found = session.rows("lock_spender", id=job_id)
    if not found:
        raise JobNotFound(job_id)
    records = Records([asdict(spend) for spend in spends])
    moved: dict[str, int] = {}
    for unit, amount in session.tuples(
        "insert_spending", id=job_id, token=token, attempt=attempt, spends=records
    ):
        moved[unit] = moved.get(unit, 0) + amount
    group = found[0]["group_name"]
    owners = [("group", group), ("job", job_id)] if group is not None else [("job", job_id)]
    totals = [
        {"scope": scope, "name": name, "unit": unit, "spent": moved[unit]}
        for scope, name in owners
        for unit in sorted(moved)
    ]
    if totals:
        session.run("add_spent", totals=Records(totals))
    lines = _lines(session, found[0], attempt)
    write_outbox(session, _exhausted(lines, moved, found[0]))
    return lines


def _exhausted(lines: Sequence[BudgetLine], moved: Mapping[str, int], job: Row) -> list[PendingNotification]:
    """Notifications for limits passed by this spending; earlier ones were reported then. The totals are locked."""
    passed = [
        line for line in lines if line.exhausted and not _before(line, moved.get(line.unit, 0)).exhausted
    ]
    return [budget_is_exhausted(line, job["id"], job["task"], job["group_name"]) for line in passed]


def _before(line: BudgetLine, amount: int) -> BudgetLine:
    return replace(line, spent=line.spent - amount)


def refuse_over_budget(session: Session, job: Job) -> None:
    """Raise InvalidState, with the remedy, if the job would breach its budget again after a resume. A limit
    for each attempt is no reason: the next attempt begins at 0."""
    if job.state not in HALTED or not halts(job.policy):
        return
    if job.policy.budget is None and job.group is None:
        return
    rows = session.rows("read_budget", id=job.id, group=job.group)
    of_next_attempt: dict[str, int] | None = {} if job.policy.budget_for == "attempt" else None
    line = first_over(lines_of(job.id, job.policy, job.group, rows, of_next_attempt))
    if line is not None:
        remedy = (
            f"raise it first: top_up({line.unit}=…), more than {line.spent - (line.limit or 0):,}"
            if line.scope == "job"
            else f"raise the limit of group {line.name!r} first"
        )
        raise InvalidState(job.id, "resume", job.state.value, f"{line.describe()}; {remedy}")


def _top_up(
    session: Session, job: Job, amounts: Mapping[str, int], actor: str | None, now: datetime
) -> list[BudgetLine]:
    if job.state in FINAL:
        raise InvalidState(job.id, "top_up", job.state.value, "it spends nothing any more")
    row = {"id": job.id, "policy": job.policy.dump(), "group_name": job.group}
    lines = {line.unit: line for line in _lines(session, row, job.attempt) if line.scope != "group"}
    limits: dict[str, int | None] = {}
    for unit, amount in amounts.items():
        limit = lines[unit].limit if unit in lines else None
        if limit is None:
            known = ", ".join(u for u, line in lines.items() if line.limit is not None) or "none"
            raise InvalidInput(unit, f"job {job.id} has no limit for it", f"units with a limit: {known}")
        limits[unit] = limit + amount
    _set_limits(session, "job", job.id, limits)
    detail = ", ".join(f"{unit} +{amounts[unit]} to {limits[unit]}" for unit in sorted(amounts))
    write(session, [Move(job, job, "topped_up", actor, detail)], now)
    return _lines(session, row, job.attempt)


def _set_limits(session: Session, scope: str, name: str, limits: Mapping[str, int | None]) -> None:
    records = Records([{"unit": unit, "lim": limit} for unit, limit in sorted(limits.items())])
    session.run("set_limits", scope=scope, name=name, limits=records)


def _lines(session: Session, job: Row, attempt: int | None) -> list[BudgetLine]:
    """The budgets of a job and its group. A limit for each attempt counts this attempt; None: the latest."""
    policy = Policy.load(job["policy"])
    rows = session.rows("read_budget", id=job["id"], group=job["group_name"])
    of_attempt = None
    if policy.budget_for == "attempt":
        if attempt is None:
            attempt = session.rows("get_job", id=job["id"])[0]["attempt"]
        spent = session.tuples("sum_attempt_spending", id=job["id"], attempt=attempt)
        of_attempt = {unit: int(amount) for unit, amount in spent}
    return lines_of(job["id"], policy, job["group_name"], rows, of_attempt)


def _group_lines(session: Session, group: str) -> list[BudgetLine]:
    rows = session.rows("read_budget", id="", group=group)
    return sorted((_group_line(row) for row in rows), key=lambda line: line.unit)


def _group_line(row: Row) -> BudgetLine:
    return BudgetLine("group", row["name"], row["unit"], row["lim"], row["spent"])

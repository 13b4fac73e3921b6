"""Groups: status in a few indexed reads, versions in one read, stops and holds."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from leasehold.domain.checks.numbers import check_page
from leasehold.domain.checks.payload import cursor_of, parts_of
from leasehold.domain.errors import GroupOnHold
from leasehold.domain.groups import (
    GROUP_TOTAL_CAP,
    FiledResult,
    GroupAttempt,
    GroupError,
    GroupPage,
    GroupResult,
    GroupRow,
    GroupState,
    GroupStatus,
    GroupStop,
    GroupSummary,
    status_of,
)
from leasehold.domain.job import Job
from leasehold.domain.states import State
from leasehold.domain.stop import StopMode, StopScope
from leasehold.domain.stream import Update
from leasehold.stores.database.database import Row, Session
from leasehold.stores.verbs.audit import changed
from leasehold.stores.verbs.results import ResultVerbs
from leasehold.stores.verbs.stream import progress_of, update_of
from leasehold.stores.verbs.writing import bump_groups, group_records, write_outbox_of_groups

MOST_IN_STATUS = 100
LONGEST_ERROR = 2000
STOPPING_FOR = 60.0
"""Seconds after its last batch of jobs at which a stop of a group counts as killed."""


class GroupVerbs(ResultVerbs):
    """Jobs under one name, and waits for their end."""

    def group(self, name: str) -> GroupRow | None:
        """The group, or None."""
        rows = self._rows("get_group", name=name)
        return _group(rows[0]) if rows else None

    def list_groups(
        self, state: GroupState | None = None, limit: int = 50, cursor: str | None = None
    ) -> GroupPage:
        """Groups by name; `cursor` is the last page's `next`."""
        check_page(limit)
        (after,) = ("",) if cursor is None else parts_of(cursor, str)
        parameters: dict[str, Any] = {"after": after, "limit": limit + 1, "cap": GROUP_TOTAL_CAP}
        statement = "list_groups"
        if state is not None:
            statement = "list_groups_in"
            parameters["state"] = state
        rows = self._rows(statement, **parameters)
        groups = [_group_summary(row) for row in rows[:limit]]
        return GroupPage(groups, cursor_of(groups[-1].name) if len(rows) > limit else None)

    def group_versions(self, names: Sequence[str]) -> dict[str, int]:
        """The version of each group that exists, in one read."""
        if not names:
            return {}
        return dict(self._tuples("group_versions", names=sorted(names)))

    def group_notes(self, names: Sequence[str]) -> dict[str, int]:
        """For each of these groups with a running job, a number that changes when an attempt emits something. One read
        covers all groups."""
        if not names:
            return {}
        return dict(self._tuples("group_notes", names=sorted(names)))

    def group_status(
        self, name: str, tasks: Sequence[str] | None = None, partial: bool = False
    ) -> GroupStatus:
        """The status of the group's jobs, or of its jobs of these tasks; with `partial` also what running jobs have
        emitted so far. The content is at least as new as the version and `noted` in it."""
        status = self._database.read(lambda session: _status(session, name, tasks, partial))
        if all(one.result_ref is None for one in status.results):
            return status
        return replace(status, results=tuple(self._readable(one) for one in status.results))

    def _readable(self, one: GroupResult) -> GroupResult:
        reference = one.result_ref
        if reference is None:
            return one
        return FiledResult(
            one.id, one.task, reference, lambda: json.loads(self.read_result(one.id, reference))
        )

    def stop_group(
        self,
        name: str,
        hold: bool,
        actor: str | None = None,
        reason: str | None = None,
        scope: StopScope | None = None,
        mode: StopMode = "graceful",
    ) -> None:
        """Record that the group was stopped; with `scope`, that a part of it was stopped, and then its state
        stays. Until `end_group_stop`, follow-ups in the scope are stored as cancelled. With `hold`, a verb that adds a
        job to the group, or resumes, releases, answers or retries one in it, raises GroupOnHold until
        `release_group`."""
        scope = scope or StopScope(group=name)

        def work(session: Session) -> None:
            if hold or scope.whole_group:
                statement = "hold_group" if hold else "stop_group"
                session.run(statement, name=name, actor=actor, reason=reason)
            else:
                bump_groups(session, {name: 0})
            note_stops(session, [name], scope, mode, actor, reason)
            keep_stopping(session, name)

        self._database.transact(work)

    def end_group_stop(self, name: str) -> None:
        """A stop of the group has found all jobs: from now on, follow-ups run again."""
        self._run("end_stopping", name=name)

    def release_group(self, name: str, actor: str | None = None) -> bool:
        """End a hold. False: the group was not on hold."""
        return bool(
            self._database.single(lambda s: changed(s.tuples("release_group", name=name, actor=actor)))
        )


def _status(session: Session, name: str, tasks: Sequence[str] | None, partial: bool) -> GroupStatus:
    # Read the version and the updates first: all later reads are at least as new, so a later change never
    # passes for one that the caller has seen.
    noted = dict(session.tuples("group_notes", names=[name])).get(name, 0) if partial else 0
    which: dict[str, Any] = {"name": name, "tasks": None if tasks is None else list(tasks)}
    counts: dict[str, dict[State, int]] = {}
    rows = session.rows("read_group_counts", **which)
    for row in rows:
        task, state, jobs = row.pop("task"), row.pop("job_state"), row.pop("jobs")
        if task is not None:
            counts.setdefault(task, {})[State(state)] = jobs
    states = {state for by_state in counts.values() for state in by_state}
    results: list[dict[str, Any]] = []
    errors: list[dict[str, Any]] = []
    questions = 0
    if State.SUCCEEDED in states:
        results = session.rows("list_group_results", limit=MOST_IN_STATUS, **which)
    if State.FAILED in states or State.TIMED_OUT in states:
        errors = session.rows("list_group_errors", limit=MOST_IN_STATUS, length=LONGEST_ERROR, **which)
    if State.WAITING in states or State.PAUSED in states:
        questions = session.rows("count_group_questions", **which)[0]["questions"]
    status = status_of(
        name,
        _group(rows[0]) if rows else None,
        counts,
        tuple(_result(row) for row in results),
        tuple(GroupError(row["id"], row["task"], State(row["state"]), row["error"]) for row in errors),
        cap=MOST_IN_STATUS,
        questions=questions,
    )
    if partial and State.RUNNING in states:
        status = replace(status, running=_running(session, which))
    return replace(status, noted=noted) if partial else status


def _running(session: Session, which: dict[str, Any]) -> tuple[GroupAttempt, ...]:
    rows = session.rows("list_group_running", limit=MOST_IN_STATUS, **which)
    emitted: dict[str, list[Update]] = {row["id"]: [] for row in rows}
    if rows:
        share = max(1, MOST_IN_STATUS // len(rows))
        for row in session.rows("list_emitted", ids=list(emitted), limit=share):
            emitted[row["job_id"]].append(update_of(row | {"emitted_in": row["attempt"]}))
    return tuple(
        GroupAttempt(
            row["id"],
            row["task"],
            row["attempt"],
            None if row["progress"] is None else progress_of(row["progress"], row["at"]),
            tuple(emitted[row["id"]]),
        )
        for row in rows
    )


def _group(row: Row) -> GroupRow:
    stop = {
        name: row.pop(name) for name in ("stop_scope", "stop_mode", "stop_reason", "stopped_by", "stopped_at")
    }
    if stop["stopped_at"] is None:
        return GroupRow(**row)
    scope = StopScope.load(stop["stop_scope"]).as_dict()
    last = GroupStop(scope, stop["stop_mode"], stop["stop_reason"], stop["stopped_by"], stop["stopped_at"])
    return GroupRow(**row, last_stop=last)


def _group_summary(row: Row) -> GroupSummary:
    live, total = row.pop("live"), row.pop("total")
    kept = _group(row)
    return GroupSummary(**{one.name: getattr(kept, one.name) for one in fields(kept)}, live=live, total=total)


def note_stops(
    session: Session,
    names: Sequence[str],
    scope: StopScope,
    mode: StopMode,
    actor: str | None,
    reason: str | None,
) -> None:
    """Record a stop of these groups, which are locked: this transaction has changed their versions."""
    if names:
        values = {"scope": scope.dump(), "mode": mode, "actor": actor, "reason": reason}
        session.run("note_stops", names=sorted(names), **values)


def keep_stopping(session: Session, name: str) -> None:
    """Note that a stop of the group is at work."""
    session.run("keep_stopping", name=name, seconds=STOPPING_FOR)


def _result(row: dict[str, Any]) -> GroupResult:
    result = row["result"]
    return GroupResult(
        row["id"], row["task"], None if result is None else json.loads(result), row["result_ref"]
    )


def touch_groups(session: Session, groups: Mapping[str, int], reopens: bool) -> None:
    """Record new jobs in these groups: make the groups, reopen them if `reopens`, count the live jobs, notify watchers.
    One statement; raises GroupOnHold, which rolls the transaction back."""
    rows = session.tuples("touch_groups", groups=group_records(groups), reopens=reopens)
    write_outbox_of_groups(session, rows)
    opened = {row[0] for row in rows}
    if len(opened) < len(groups):
        refuse_held(session, [name for name in sorted(groups) if name not in opened])


def refuse_held(session: Session, names: Sequence[str]) -> None:
    """Raises GroupOnHold if one of these groups is held. They stay locked: no hold comes during the transaction."""
    for group in held_groups(session, names):
        raise GroupOnHold(group.name, group.reason, group.changed_by)


def refuse_known_holds(session: Session, names: Iterable[str]) -> None:
    """As `refuse_held`, but without locks: a hold may still come before the commit."""
    for name in sorted(names):
        for row in session.rows("get_group", name=name):
            if row["state"] == "held":
                raise GroupOnHold(name, row["reason"], row["changed_by"])


def refuse_in_held_group(session: Session, job: Job) -> None:
    """Raises GroupOnHold if the job's group is held: no job in it may go on."""
    if job.group is not None:
        refuse_held(session, [job.group])


def held_groups(session: Session, names: Sequence[str]) -> list[GroupRow]:
    rows = session.rows("lock_groups", names=sorted(set(names)))
    return [_group(row) for row in rows if row["state"] == "held"]

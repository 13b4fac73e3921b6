"""The SQLite store: one writer at a time, in the user's own file."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from leasehold.domain.hooks import SUCCEEDED, Happened
from leasehold.domain.job import TIED, NewJob
from leasehold.domain.records import Finding
from leasehold.stores.database.audit import changed
from leasehold.stores.database.database import Clock, Records, Session
from leasehold.stores.database.migrate import missing
from leasehold.stores.database.places import DEADLINE, START_BY
from leasehold.stores.database.rows import record_of
from leasehold.stores.database.statements import read_migrations
from leasehold.stores.database.wakeups import (
    Hint,
    NearWakeups,
    Notify,
    groups_of,
    ignore,
    notify_here,
    tenants_of,
)
from leasehold.stores.results import Ending, Enqueued
from leasehold.stores.sqlite.caller_transaction import SqliteEnlisting
from leasehold.stores.sqlite.database import SqliteDatabase
from leasehold.stores.sqlite.database_checks import examine
from leasehold.stores.sqlite.mirror import SqliteMirrors
from leasehold.stores.sqlite.wakeup import SqliteWakeups
from leasehold.stores.verbs.outbox import notify, read_listeners
from leasehold.stores.verbs.settle import settled_columns
from leasehold.stores.verbs.writing import bump_groups


class SqliteStore(SqliteEnlisting):
    _migrations = read_migrations("leasehold.stores.sqlite")

    def __init__(
        self,
        path: str,
        clock: Clock | None = None,
        *,
        create: bool = True,
        results: str | None = None,
        family: str | None = None,
        notify: Notify | None = None,
    ) -> None:
        super().__init__(SqliteDatabase(path, clock, create=create, family=family))
        self._notify = notify
        self._results_root = os.path.abspath(results or f"{self._sqlite.path}.results")
        self._results_named = results is not None
        self._sqlite.on_replaced.extend(
            [
                self._known_gates.clear,
                self._worker_names.clear,
                self._labelled.clear,
                self._forget_result_files,
            ]
        )

    def another(self) -> SqliteStore:
        own = self._sqlite
        return SqliteStore(
            own.path,
            own.clock,
            create=False,
            family=own.family,
            notify=self._notify,
            results=self._named_results,
        )

    @property
    def _named_results(self) -> str | None:
        return self._results_root if self._results_named else None

    # -- tenants ---------------------------------------------------------------------------------------------------
    def open_tenant(self, name: str, notify: Notify) -> SqliteStore:
        return self._open_tenant(name, notify, create=False)

    def tenant_wakeups(self, listen_url: str | None = None) -> SqliteWakeups:
        """Every notification of a tenant is a commit to this file."""
        return SqliteWakeups(self._sqlite, self.label, tenants_of(self.label))

    def _open_tenant(self, name: str, notify: Notify, create: bool) -> SqliteStore:
        own = self._sqlite
        path = str(own.path_of_tenant(name))
        return SqliteStore(
            path, own.clock, create=create, family=own.family, notify=notify, results=self._named_results
        )

    def _taken(self, name: str) -> str | None:
        path = self._sqlite.path_of_tenant(name)
        return f"the file {path}" if path.exists() else None

    def _make(self, name: str) -> None:
        with closing(self._open_tenant(name, ignore, create=True)) as made:
            made.upgrade()

    def _remove(self, name: str) -> None:
        path = self._sqlite.path_of_tenant(name)
        for part in ("", "-wal", "-shm"):
            Path(f"{path}{part}").unlink(missing_ok=True)
        shutil.rmtree(f"{path}.results", ignore_errors=True)

    # -- enqueue ---------------------------------------------------------------------------------------------------
    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        made = super().enqueue(jobs)
        if any(one.created for one in made):
            self.notify_workers()
        return made

    # -- wake-ups --------------------------------------------------------------------------------------------------
    def _notify_others(self, hint: Hint) -> None:
        """They see the commit itself."""

    def wakeups(self, listen_url: str | None = None) -> SqliteWakeups:
        return SqliteWakeups(self._sqlite, self.label)

    def notify_watchers(self) -> None:
        """Other processes see the commit itself."""
        notify_here(groups_of(self.label))

    def group_wakeups(self, listen_url: str | None = None) -> SqliteWakeups | NearWakeups:
        """Of a tenant without a connection: its file would have to stay open."""
        label = groups_of(self.label)
        return SqliteWakeups(self._sqlite, label) if self._notify is None else NearWakeups(label)

    # -- schema ----------------------------------------------------------------------------------------------------
    def upgrade(self) -> list[int]:
        def work(session: Session) -> list[int]:
            self._sqlite.script(
                "CREATE TABLE IF NOT EXISTS leasehold_migration"
                " (version INTEGER PRIMARY KEY, applied_at INTEGER NOT NULL);"
            )
            found = session.rows("schema_version")[0]["version"]
            todo = missing(self.label, found, self._migrations)
            for version, text in todo.items():
                self._sqlite.script(text)
                session.run("record_migration", version=version)
            if todo:
                self._renew_mirrors(session)
            return changed(list(todo))

        return self._sqlite.transact(work)

    def drop(self) -> None:
        """The creator of the file removes it."""

    def upgrade_sql(self, after: int = 0) -> str:
        now = "CAST((julianday('now') - 2440587.5) * 86400e6 AS INTEGER)"
        parts = [
            "BEGIN IMMEDIATE;",
            "CREATE TABLE IF NOT EXISTS leasehold_migration"
            " (version INTEGER PRIMARY KEY, applied_at INTEGER NOT NULL);",
        ]
        for version, text in missing(self.label, after, self._migrations).items():
            parts += [
                text.strip(),
                f"INSERT INTO leasehold_migration (version, applied_at) VALUES ({version}, {now});",
            ]
        return "\n".join([*parts, "COMMIT;"])

    # -- mirrors ---------------------------------------------------------------------------------------------------
    @property
    def _mirrors(self) -> SqliteMirrors:
        return SqliteMirrors()

    def _run_script(self, session: Session, text: str) -> None:
        self._sqlite.script(text)

    # -- vitals ----------------------------------------------------------------------------------------------------
    def examine(self) -> list[Finding]:
        return list(examine(self._sqlite))

    # -- settle ----------------------------------------------------------------------------------------------------
    def _settle_at_once(self, endings: Sequence[Ending]) -> tuple[set[int], bool]:
        return self._sqlite.transact(lambda session: _settle_succeeded(session, endings))

    _ways_to_succeed = (_settle_at_once,)


def _settle_succeeded(session: Session, endings: Sequence[Ending]) -> tuple[set[int], bool]:
    """Outcomes first, then the leases go, then what the jobs are tied to. With one writer at a time nothing comes in
    between."""
    rows = session.tuples("settle_succeeded", settled=settled_columns(endings))
    done = [job for job, _, _ in rows]
    if done:
        session.run("end_leases", jobs=done)
    # What has a listener comes as tied, and so does much that has none.
    listened = {ending.seq for ending in endings if ending.special == TIED}
    if listened:
        _notify(session, [job for job in done if job in listened])
    tied = [job for job, special, _ in rows if special == TIED]
    freed = _untie(session, tied, {job for job, _, attempt in rows if attempt > 1}) if tied else False
    return {ending.seq for ending in endings if ending.seq is not None} - set(done), freed


def _notify(session: Session, jobs: Sequence[int]) -> None:
    if jobs and read_listeners(session, {SUCCEEDED}):
        rows = session.rows("read_succeeded", jobs=jobs)
        notify(session, [record_of(Happened, row, event=SUCCEEDED, detail="", data={}) for row in rows])


def _untie(session: Session, jobs: Sequence[int], ran_before: set[int]) -> bool:
    """Whether slots are free again. It is safe to look whether anybody waits: a lane gets its ticket only if it has a
    next job, filed where that job belongs."""
    ties = session.rows("read_ties", jobs=jobs)
    limited = [tie for tie in ties if tie["limited"]]
    lanes = [tie for tie in ties if tie["lane"] is not None]
    keys = [tie for tie in ties if tie["key"] is not None and not tie["for_ever"]]
    timed = [
        {"job": tie["job"], "what": what}
        for tie in ties
        for what, due_at in ((DEADLINE, tie["deadline_at"]), (START_BY, tie["start_by"]))
        if due_at is not None
    ]
    # Only a job that has run before can have a question.
    requested = [tie["job_id"] for tie in ties if tie["job"] in ran_before]
    for statement, records in (
        ("drop_lease_slots", limited),
        ("drop_lane_holds", lanes),
        ("drop_keys", keys),
        ("drop_time_limits", timed),
    ):
        if records:
            session.run(statement, rows=Records([_plain(record) for record in records]))
    if requested:
        session.run("close_questions", ids=requested)
    if lanes:
        session.run("file_next_tickets", lanes=sorted({tie["lane"] for tie in lanes}))
    groups = Counter(tie["group_name"] for tie in ties if tie["group_name"] is not None)
    bump_groups(session, {name: -number for name, number in groups.items()})
    return bool(limited)


def _plain(tie: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tie[name] for name in ("job", "what", "lane", "task", "key", "job_id") if name in tie}

"""The SQLite store: one writer at a time in the user's own file, and checks of that file."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from leasehold.domain.hooks import SUCCEEDED, PendingNotification
from leasehold.domain.job import TIED, Enqueued, NewJob
from leasehold.domain.records import Finding, Verdict
from leasehold.stores.caller_transaction import Borrowed, Execute
from leasehold.stores.database.database import Clock, Records, Session
from leasehold.stores.database.places import DEADLINE, START_BY, record_of
from leasehold.stores.database.statements import missing, read_migrations
from leasehold.stores.database.wakeups import (
    Hint,
    LocalWakeups,
    Notify,
    groups_label,
    ignore,
    notify_here,
    tenants_label,
)
from leasehold.stores.results import Ending
from leasehold.stores.sqlite.claim import SqliteClaims
from leasehold.stores.sqlite.database import STATEMENTS, SqliteDatabase, SqliteWakeups
from leasehold.stores.sqlite.mirror import SqliteMirrors
from leasehold.stores.verbs.audit import changed
from leasehold.stores.verbs.caller_transaction import another_database, filled_in, insert_parameters
from leasehold.stores.verbs.enqueue import update_groups
from leasehold.stores.verbs.limits import make_limited_gates
from leasehold.stores.verbs.settle import settled_columns
from leasehold.stores.verbs.writing import Groups, bump_groups, read_listeners, write_outbox

# -- what can be wrong with a file -------------------------------------------------------------------------------------

_NETWORK = ("nfs", "cifs", "smb", "9p", "ceph", "glusterfs", "afs", "fuse.sshfs", "lustre")
_SCARCE, _LOW = 64 * 2**20, 512 * 2**20
_SYNCHRONOUS = ("OFF", "NORMAL", "FULL", "EXTRA")


def examine(database: SqliteDatabase) -> Iterator[Finding]:
    yield Finding("database", "ok", f"SQLite {sqlite3.sqlite_version}")
    mode = str(database.read_pragma("PRAGMA journal_mode"))
    synchronous = _SYNCHRONOUS[int(database.read_pragma("PRAGMA synchronous"))]
    yield (
        Finding("journal", "ok", "write-ahead log")
        if mode == "wal"
        else Finding(
            "journal", "bad", f"journal mode is {mode}", "put the file on a local disk: WAL needs one"
        )
    )
    yield Finding("synchronous", "ok" if synchronous in ("FULL", "EXTRA") else "bad", synchronous)
    path = Path(database.path).absolute()
    yield _filesystem(path)
    yield _space(path)


def _filesystem(path: Path) -> Finding:
    kind = filesystem_of(path, _mounts())
    if kind is None:
        return Finding("file system", "ok", "unknown")
    if kind.startswith(_NETWORK):
        return Finding(
            "file system",
            "bad",
            f"{path} is on a network file system ({kind})",
            "locks and shared memory do not work there: use a local disk, or PostgreSQL",
        )
    return Finding("file system", "ok", kind)


def filesystem_of(path: Path, mounts: str) -> str | None:
    """The type of the mount that the path lies on, as /proc/mounts shows it."""
    found: dict[Path, str] = {}
    for line in mounts.splitlines():
        _, place, kind, *_ = line.split(" ")
        found[Path(place.replace("\\040", " "))] = kind
    return next((found[parent] for parent in (path, *path.parents) if parent in found), None)


def _mounts() -> str:
    try:
        return Path("/proc/mounts").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _space(path: Path) -> Finding:
    free = shutil.disk_usage(path.parent).free
    verdict: Verdict = "bad" if free < _SCARCE else "warn" if free < _LOW else "ok"
    remedy = "" if verdict == "ok" else "make room: a full disk stops every write"
    return Finding("free disk", verdict, f"{free / 2**20:,.0f} MB", remedy)


# -- in the user's own transaction -------------------------------------------------------------------------------------


class SqliteCallerTransaction(SqliteClaims):
    def _session_over(self, borrowed: Borrowed, execute: Execute) -> Session:
        if borrowed.database != "sqlite":
            raise another_database(self.label, "PostgreSQL")
        return self._sqlite.session_over(execute)

    def _insert_sql(self, job: NewJob) -> str:
        left = {"id": ":id", "args": ":args"}
        return filled_in(STATEMENTS["insert_by_hand"], insert_parameters(job), left) + ";"

    def _check_same_database(self, session: Session) -> None:
        ((file,),) = session.tuples("identify")
        if not file:
            raise another_database(self.label, "a database in memory")
        try:
            same = os.path.samefile(file, self._sqlite.path)
        except OSError:
            same = False
        if not same:
            raise another_database(self.label, file)

    def _prepare(self, session: Session, jobs: Sequence[NewJob]) -> None:
        """Makes gates in this session: our writer would wait for it. A rollback may remove them, so none is cached."""
        missing = self._unknown_gates(jobs)
        if missing:
            make_limited_gates(session, missing)

    def _update_groups_at_commit(
        self, session: Session, changed: Groups, opened: Mapping[str, bool], cancelled: set[str]
    ) -> None:
        """Writes at once: a transaction that ends a job of the group waits for the one writer anyway."""
        update_groups(session, changed, opened, cancelled)


# -- store -------------------------------------------------------------------------------------------------------------


class SqliteStore(SqliteCallerTransaction):
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
        self._forward_hint = notify
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
            notify=self._forward_hint,
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
        return SqliteWakeups(self._sqlite, self.label, tenants_label(self.label))

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
        """Does nothing: other processes see the commit itself."""

    def wakeups(self, listen_url: str | None = None) -> SqliteWakeups:
        return SqliteWakeups(self._sqlite, self.label)

    def notify_watchers(self) -> None:
        """Other processes see the commit itself."""
        notify_here(groups_label(self.label))

    def group_wakeups(self, listen_url: str | None = None) -> SqliteWakeups | LocalWakeups:
        """A tenant's wake-ups use no connection: its file would have to stay open."""
        label = groups_label(self.label)
        return SqliteWakeups(self._sqlite, label) if self._forward_hint is None else LocalWakeups(label)

    # -- schema ----------------------------------------------------------------------------------------------------
    def check_for_worker(self) -> None:
        self._sqlite.check_writable()
        super().check_for_worker()

    def upgrade(self) -> list[int]:
        self._sqlite.check_writable()

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
        """Does nothing: the creator of the file removes it."""

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
    """Writes the outcomes, ends the leases, then updates what the jobs are tied to. With one writer at a time nothing
    comes in between."""
    rows = session.tuples("settle_succeeded", settled=settled_columns(endings))
    done = [job for job, _, _ in rows]
    if done:
        session.run("end_leases", jobs=done)
    # A job with a listener is tied, and so are many jobs without one.
    listened = {ending.seq for ending in endings if ending.special == TIED}
    if listened:
        _write_outbox_of_successes(session, [job for job in done if job in listened])
    tied = [job for job, special, _ in rows if special == TIED]
    freed = _untie(session, tied, {job for job, _, attempt in rows if attempt > 1}) if tied else False
    return {ending.seq for ending in endings if ending.seq is not None} - set(done), freed


def _write_outbox_of_successes(session: Session, jobs: Sequence[int]) -> None:
    if jobs and read_listeners(session, {SUCCEEDED}):
        rows = session.rows("read_succeeded", jobs=jobs)
        fields: dict[str, Any] = {"event": SUCCEEDED, "detail": "", "data": {}}
        write_outbox(
            session,
            [record_of(PendingNotification, row, **fields) for row in rows],
        )


def _untie(session: Session, jobs: Sequence[int], ran_before: set[int]) -> bool:
    """Frees what the jobs were tied to; whether slots are free again. With one writer it is safe to read first: a lane
    gets a ticket only if it has a next job, filed where that job belongs."""
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
    with_questions = [tie["job_id"] for tie in ties if tie["job"] in ran_before]
    for statement, records in (
        ("drop_lease_slots", limited),
        ("drop_lane_holds", lanes),
        ("drop_keys", keys),
        ("drop_time_limits", timed),
    ):
        if records:
            session.run(statement, rows=Records([_plain(record) for record in records]))
    if with_questions:
        session.run("close_questions", ids=with_questions)
    if lanes:
        session.run("file_next_tickets", lanes=sorted({tie["lane"] for tie in lanes}))
    groups = Counter(tie["group_name"] for tie in ties if tie["group_name"] is not None)
    bump_groups(session, {name: -number for name, number in groups.items()})
    return bool(limited)


def _plain(tie: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tie[name] for name in ("job", "what", "lane", "task", "key", "job_id") if name in tie}

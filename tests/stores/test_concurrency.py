"""renew ∥ settle ∥ reap ∥ enqueue ∥ claim ∥ cancel, pause, resume on the same rows: no deadlock, no lost update."""

from __future__ import annotations

import itertools
import threading
from collections import Counter, defaultdict
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from leasehold.domain.outcome import Failure, Success
from leasehold.stores.postgres import database
from tests.backends import Backend, new_job
from tests.measured import Page
from tests.servers import PostgresServer
from tests.stores.crowd import Crowd, Ledger

SECONDS, LONG_SECONDS = 6.0, 20.0
PAGE = Page(
    "crowd.md",
    "A crowd, and a planner that was misled",
    "Written by `make soak` (tests/stores/test_concurrency.py): for 20 seconds threads of three stores enqueue,\n"
    "claim, renew, settle, reap and operate on the same rows, while the statistics say that the tables have so\n"
    "few rows, as after a large one was pruned. Then every grant, row, lane and group is checked.",
    ("PostgreSQL", "rows believed", "jobs", "calls", "runs", "reaped", "fenced", "deadlocks", "on"),
    named_by=2,
)

SCATTERED = {"job": "priority", "ready": "priority", "lease": "stop"}
COLUMNS = ("id", "state", "attempt", "lease_token", "failures", "crashes", "settled_token", "lane")
IN_ORDER = (
    "SELECT id, lane, first_started_at FROM leasehold.job_row WHERE lane IS NOT NULL ORDER BY created_at, seq"
)


@pytest.mark.slow(8)
@pytest.mark.parametrize("seconds", [SECONDS, pytest.param(LONG_SECONDS, marks=pytest.mark.soak)])
def test_a_crowd_on_the_same_rows_loses_nothing_and_never_deadlocks(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    check_a_crowd(backend, monkeypatch, seconds)


@pytest.mark.soak
@pytest.mark.parametrize("rows", [1, 3, 10, 100])
@pytest.mark.parametrize("backend", ["postgres"], indirect=True)
def test_a_crowd_never_deadlocks_though_the_planner_believes_in_few_rows(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, rows: int, postgres_server: PostgresServer
) -> None:
    """As after a large table was pruned and vacuumed: see decision 20."""
    scatter(backend)
    over = threading.Event()
    misleading = threading.Thread(target=keep_misleading, args=(backend, rows, over))
    misleading.start()
    try:
        ledger = check_a_crowd(backend, monkeypatch, LONG_SECONDS)
    finally:
        over.set()
        misleading.join()
        for table in SCATTERED:
            backend.query(f"ALTER TABLE leasehold.{table} RESET (autovacuum_enabled)")
    PAGE.put(
        *(postgres_server.version, rows, len(ledger.made), sum(ledger.calls.values()), len(ledger.runs)),
        *(sum(ledger.reaped.values()), fenced(ledger), 0, datetime.now(UTC).date().isoformat()),
    )


def check_a_crowd(backend: Backend, monkeypatch: pytest.MonkeyPatch, seconds: float) -> Ledger:
    repeated = note_what_is_repeated(monkeypatch)
    crowd = Crowd(backend.open, seconds)
    before = deadlocks(backend)
    crowd.work()
    ledger = crowd.ledger
    assert ledger.errors == []
    crowd.drain(60.0)
    rows = {row["id"]: row for row in read_jobs(backend)}
    print(len(ledger.made), ledger.calls, f"{sum(ledger.reaped.values())} reaped, {fenced(ledger)} fenced")
    check_it_was_crowded(ledger)
    check_grants(ledger)
    check_rows(ledger, rows)
    check_lanes_never_overlapped(ledger)
    check_lanes_kept_their_order(backend)
    check_groups(ledger, backend)
    assert backend.open().misplaced() == []
    backend.close_opened()
    assert deadlocks(backend) == before
    assert repeated["40P01"] == 0, "the store repeats a deadlock, but there shall be none to repeat"
    return ledger


def scatter(backend: Backend) -> None:
    """Free places all over the tables: new rows then lie in no order."""
    store = backend.open()
    store.enqueue([new_job() for _ in range(5_000)])
    store.claim("scatter", ["default"], 2_500)
    for table, column in SCATTERED.items():
        backend.query(f"ALTER TABLE leasehold.{table} SET (autovacuum_enabled = false)")
        backend.query(f"DELETE FROM leasehold.{table} WHERE random() < 0.9")
        backend.query(f"VACUUM leasehold.{table}")
        backend.query(f"UPDATE leasehold.{table} SET {column} = {column}")
        backend.query(f"DELETE FROM leasehold.{table}")
        backend.query(f"VACUUM (TRUNCATE false) leasehold.{table}")


def keep_misleading(backend: Backend, rows: int, over: threading.Event) -> None:
    while not over.wait(0.2):
        backend.mislead_planner(rows)


def read_jobs(backend: Backend) -> list[dict[str, Any]]:
    rows = backend.query(f"SELECT {', '.join(COLUMNS)} FROM leasehold.job_row")
    return [dict(zip(COLUMNS, (str(row[0]), *row[1:]), strict=True)) for row in rows]


def deadlocks(backend: Backend) -> int:
    if backend.name == "sqlite":
        return 0
    return backend.query("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")[0][0]


def note_what_is_repeated(monkeypatch: pytest.MonkeyPatch) -> Counter[str | None]:
    """The errors that the PostgreSQL store met on the way, by their codes."""
    met: Counter[str | None] = Counter()
    judge = database._worth_repeating

    def noting(error: psycopg.Error) -> bool:
        met[error.sqlstate] += 1
        print(error.sqlstate, error, error.diag.context)
        return judge(error)

    monkeypatch.setattr(database, "_worth_repeating", noting)
    return met


def fenced(ledger: Ledger) -> int:
    return sum(run.outcome is not None and not run.accepted for run in ledger.runs)


def check_it_was_crowded(ledger: Ledger) -> None:
    """Else the rest would show little."""
    assert len(ledger.made) > 300
    assert sum(ledger.reaped.values()) > 5
    assert fenced(ledger) > 5
    assert ledger.refusals


def check_grants(ledger: Ledger) -> None:
    """An id and a token name exactly one grant, and each ended once: settled by its holder or reaped."""
    names = Counter((run.grant.id, run.grant.token) for run in ledger.runs)
    assert [name for name, count in names.items() if count > 1] == []
    ended = Counter(run.grant.id for run in ledger.runs if run.accepted) + ledger.reaped
    assert ended == Counter(run.grant.id for run in ledger.runs)


def check_rows(ledger: Ledger, rows: dict[str, dict[str, Any]]) -> None:
    claimed = Counter(run.grant.id for run in ledger.runs)
    succeeded = {
        r.grant.id: r.grant.token for r in ledger.runs if r.accepted and isinstance(r.outcome, Success)
    }
    failed = Counter(r.grant.id for r in ledger.runs if r.accepted and isinstance(r.outcome, Failure))
    assert rows.keys() == {job.id for job in ledger.made}
    assert succeeded == {i: row["settled_token"] for i, row in rows.items() if row["state"] == "succeeded"}
    assert {row["state"] for row in rows.values()} <= {"succeeded", "cancelled"}
    for job_id, row in rows.items():
        assert row["attempt"] == claimed[job_id]
        assert row["lease_token"] == claimed[job_id], "one step for each claim"
        if job_id not in ledger.resumed:
            assert (row["failures"], row["crashes"]) == (failed[job_id], ledger.reaped[job_id])


def check_lanes_never_overlapped(ledger: Ledger) -> None:
    """Runs whose lease was lost may overlap their successors; those that were accepted may not."""
    lanes = defaultdict(list)
    for run in ledger.runs:
        if run.grant.lane is not None and run.accepted:
            lanes[run.grant.lane].append((run.started, run.ended, run.grant.id))
    for runs in lanes.values():
        runs.sort()
        for (_, ended, first), (started, _, second) in itertools.pairwise(runs):
            assert ended <= started, f"{first} and {second} overlapped"


def check_lanes_kept_their_order(backend: Backend) -> None:
    """First started in the order of their enqueue; what was cancelled before it started has no place."""
    lanes = defaultdict(list)
    for _, lane, first_started_at in backend.query(IN_ORDER):
        if first_started_at is not None:
            lanes[lane].append(first_started_at)
    assert lanes
    assert [lane for lane, starts in lanes.items() if starts != sorted(starts)] == []


def check_groups(ledger: Ledger, backend: Backend) -> None:
    """Once per transaction, none lost; and all of their jobs have ended."""
    for name, version in backend.query("SELECT name, version FROM leasehold.job_group"):
        most = ledger.reported[name] + ledger.settles[name]
        assert (
            ledger.reported[name] <= version <= (ledger.reported[name] if backend.name == "sqlite" else most)
        ), name
    assert backend.query("SELECT name FROM leasehold.job_group WHERE live <> 0") == []

"""The doctor, which looks for problems around jobs; and the health check, for probes.

The store has the checks of the database itself; the checks here are the same on both databases.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from leasehold.domain.errors import SchemaOutdated, SchemaTooNew, StoreError
from leasehold.domain.records import Finding
from leasehold.domain.states import State
from leasehold.operations.mirrors import mirror_problems
from leasehold.operations.queues import queue_rows

if TYPE_CHECKING:
    from leasehold.stores.store import JobStore

SKEW, TOO_MUCH_SKEW = 2.0, 30.0
MOST_PROBLEMS = 3
"""Problems of one kind that a finding lists; it counts the rest."""
MANY_WAITING = 1000
LONG_EXPIRED = 120.0
"""Seconds after the end of a lease: by then any live worker has checked it twice and taken the job over."""


def examine(store: JobStore) -> list[Finding]:
    return [
        *store.examine(),
        check_clock(store),
        _schema(store),
        *_mirrors(store),
        _places(store),
        _lanes(store),
        _children(store),
        _leases(store),
        _hooks(store),
        *_troubles(store),
        *_unserved(store),
    ]


def check_clock(store: JobStore) -> Finding:
    before = time.time()
    then = store.now().timestamp()
    skew = then - (before + time.time()) / 2
    size = abs(skew)
    if size < SKEW:
        return Finding("clock", "ok", f"within {max(size, 0.001):.3f} s of the database")
    side = "behind" if skew > 0 else "ahead of"
    return Finding(
        "clock",
        "bad" if size >= TOO_MUCH_SKEW else "warn",
        f"this machine is {size:.1f} s {side} the database",
        "leases still hold, but delays and deadlines are off: run a time service on both",
    )


def _schema(store: JobStore) -> Finding:
    lacking = store.missing_objects()
    if not lacking:
        return Finding("schema", "ok", "complete")
    return Finding(
        "schema",
        "bad",
        f"missing: {', '.join(lacking)}",
        "they were removed: leasehold db sql prints the statements that make them",
    )


def _mirrors(store: JobStore) -> Iterator[Finding]:
    for problem in mirror_problems(store):
        yield Finding("mirrors", "bad", problem, "see leasehold db verify, and create the mirror again")


def _places(store: JobStore) -> Finding:
    wrong = store.misplaced()
    if not wrong:
        return Finding("jobs", "ok", "every job is in one place, and every group's counts are right")
    more = f"; and {len(wrong) - MOST_PROBLEMS} more" if len(wrong) > MOST_PROBLEMS else ""
    return Finding(
        "jobs",
        "bad",
        "; ".join(wrong[:MOST_PROBLEMS]) + more,
        "this is a bug, or the tables were changed by hand: please report it, with this line",
    )


def _lanes(store: JobStore) -> Finding:
    stuck = store.stuck_lanes()
    if not stuck:
        return Finding("lanes", "ok", "none is stuck")
    return Finding(
        "lanes",
        "bad",
        f"stuck, because they have no ticket: {', '.join(stuck)}",
        "this is a bug: please report it; pausing and resuming the first job of the lane writes one",
    )


def _children(store: JobStore) -> Finding:
    stuck = store.stuck_children()
    if not stuck:
        return Finding("dependencies", "ok", "no job waits for one that has ended")
    return Finding(
        "dependencies",
        "bad",
        f"{len(stuck)} or more jobs wait for jobs that have ended, such as {stuck[0]}",
        "this is a bug, or a worker older than the schema ended them: retry each such job, then cancel it",
    )


def _leases(store: JobStore) -> Finding:
    expired = store.long_expired(LONG_EXPIRED)
    if not expired:
        return Finding("leases", "ok", "none ran out long ago")
    return Finding(
        "leases",
        "warn",
        f"{len(expired)} or more ran out long ago, such as that of job {expired[0]}",
        "no live worker could take them over: start one",
    )


def _hooks(store: JobStore) -> Finding:
    rows = store.list_listeners()
    given_up = [row for row in rows if row.given_up]
    if given_up:
        number, one = sum(row.given_up for row in given_up), given_up[0]
        return Finding(
            "hooks",
            "warn",
            f"{number} event(s) could not be delivered, such as {one.event} to {one.name}: {one.last_error}",
            "fix the hook; leasehold webhooks hooks shows these events, which are forgotten after a week",
        )
    behind = [row for row in rows if row.waiting > MANY_WAITING]
    if behind:
        return Finding(
            "hooks",
            "warn",
            f"{behind[0].waiting} event(s) wait for {behind[0].name}",
            f"start a worker that has it, or: leasehold webhooks hooks remove {behind[0].name}",
        )
    return Finding("hooks", "ok", "none is behind")


def _unserved(store: JobStore) -> Iterator[Finding]:
    for row in queue_rows(store):
        waiting = row.counts.get(State.QUEUED, 0)
        if waiting and not row.workers:
            yield Finding(
                "workers",
                "warn",
                f"{waiting} job(s) of task {row.task!r} wait in queue {row.queue!r}; no live worker serves both",
                f"start one: leasehold worker MODULE:APP --queues {row.queue}",
            )


def _troubles(store: JobStore) -> Iterator[Finding]:
    """A line for each tenant in trouble, and for each problem of a worker itself."""
    reported: dict[tuple[str | None, str], list[str]] = {}
    for card in store.list_workers():
        for problem in card.problems:
            # Each worker counts the seconds that it has waited: one line for a tenant, with the first text.
            text = problem.text if problem.tenant is None else ""
            reported.setdefault((problem.tenant, text), []).append(f"worker {card.name}: {problem.text}")
    for (tenant, _), lines in reported.items():
        more = f" (and {len(lines) - 1} more workers)" if len(lines) > 1 else ""
        if tenant is None:
            yield Finding("workers", "bad", lines[0] + more, "see the worker's log")
        else:
            yield Finding(
                "tenants",
                "bad",
                f"{tenant} is in trouble; {lines[0]}{more}",
                f"its jobs wait, others do not; see leasehold doctor --tenant {tenant}",
            )


# -- health ------------------------------------------------------------------------------------------------------------
# The doctor checks more, and takes longer.


def check_health(find_store: Callable[[], JobStore]) -> list[Finding]:
    """Check that the database answers, its schema fits this code, and a worker is live."""
    try:
        store = find_store()
        store.now()
        cards = store.list_workers()
    except (SchemaOutdated, SchemaTooNew) as error:
        return [Finding("database", "ok", "answers"), Finding("schema", "bad", str(error))]
    except StoreError as error:
        return [Finding("database", "bad", str(error))]
    # A worker without queues runs only jobs of `run_now` and `run_by_id`.
    alive = [card for card in cards if card.queues and not card.draining]
    workers = (
        Finding("workers", "ok", f"{len(alive)} live")
        if alive
        else Finding("workers", "bad", "no live worker", "start one: leasehold worker MODULE:APP")
    )
    return [Finding("database", "ok", "answers"), Finding("schema", "ok", "current"), workers]

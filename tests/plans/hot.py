"""The statements that run all day, as a busy worker and an operator send them: by the verbs themselves, undone."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from bench.backgrounds import BATCH, FEW, GATE, KIND, LIMITED_GATE, OWNER, QUEUE, SITE
from leasehold.domain.errors import ResultMissing
from leasehold.domain.outcome import Failure, Success
from leasehold.domain.stop import StopScope
from leasehold.domain.stream import Note, RunNotes
from leasehold.stores.results import Ending
from leasehold.stores.store import JobStore
from tests.backends import new_job
from tests.plans.traced import Call, Traced

ROWS = 10 * BATCH
"""A batch of 500 may meet this many rows in any step of its plan: dead versions count, the background does not. A
join of two batches without an index or a hash would meet 250,000."""

Query = Callable[[str], list[tuple[Any, ...]]]
"""Looks at the tables behind the store's back; they are called leasehold.job and so on."""


@dataclass(frozen=True)
class Work:
    """What bench.backgrounds.load_work has put in place: (id, seq) of jobs."""

    queued: list[tuple[str, int]]
    in_lanes: list[tuple[str, int]]
    running: list[tuple[str, int]]
    running_in_lanes: list[tuple[str, int]]
    paused: list[tuple[str, int]]
    halting: list[tuple[str, int]]
    stopping: list[tuple[str, int]]
    awaited: list[tuple[str, int]]
    ended: list[tuple[str, int]]

    def endings(self, outcome: Success | Failure) -> list[Ending]:
        half = BATCH // 2
        some = self.running[:half] + self.running_in_lanes[:half]
        return [Ending(job_id, 1, outcome, seq) for job_id, seq in some]


def find_work(query: Query) -> Work:
    def jobs(place: str, condition: str) -> list[tuple[str, int]]:
        key = "seq" if place in ("ready", "lane_place") else "job"
        rows = query(
            f"SELECT j.id, j.seq FROM leasehold.{place} AS p JOIN leasehold.job AS j ON j.seq = p.{key}"
            f" WHERE {condition} ORDER BY j.seq DESC LIMIT {BATCH}"
        )
        return [(str(job_id), seq) for job_id, seq in rows]

    mine = f"p.worker = (SELECT o.number FROM leasehold.worker_name AS o WHERE o.name = '{OWNER}')"
    return Work(
        queued=jobs(
            "ready", f"p.gate = {GATE} AND p.priority = 0 AND p.special = 0 AND j.available_at IS NULL"
        ),
        in_lanes=jobs("lane_place", "p.lane LIKE 'lane-%'"),
        running=jobs("lease", f"{mine} AND j.lane IS NULL"),
        running_in_lanes=jobs("lease", f"{mine} AND j.lane IS NOT NULL"),
        paused=jobs("parked", "p.state = 3 AND j.lane IS NULL"),
        halting=jobs("outcome", "j.lane LIKE 'stuck-%'"),
        stopping=jobs("parked", "j.lane LIKE 'stopped-%'"),
        awaited=jobs("lease", "p.special = 2"),
        ended=jobs("outcome", "j.group_name LIKE 'done-%'"),
    )


# --- What is sent ---------------------------------------------------------------------------------------------------


def hot_calls(store: JobStore, work: Work) -> list[Call]:
    """One of every statement that the deeds below need."""
    with Traced(store, undone=True) as calls:
        for deed in (
            _produce,
            _wait_for_others,
            _claim,
            _hold,
            _report,
            _settle,
            _recover,
            _operate,
            _keep_up,
        ):
            deed(store, work)
    found: dict[str, Call] = {}
    for call in calls:
        known = found.setdefault(call.statement, call)
        if _size(call) > _size(known):
            found[call.statement] = call
    return list(found.values())


def postgres_calls(store: JobStore, work: Work) -> list[Call]:
    one = new_job()
    alike = {"gate": GATE, "priority": 0, "lease_seconds": 30.0}
    plain = {"id": one.id, **alike, "task": KIND, "queue": QUEUE, "policy": None, "args": "{}", "delay": None}
    return [
        look(),
        claim_idle(),
        claim_shares(),
        Call("find_limited_groups", {"gates": [LIMITED_GATE, GATE]}),
        Call("insert_plain", {**plain, "notify": False, "channel": ""}),
        Call("ready_many", {**alike, "count": BATCH}),
        *(call for call in hot_calls(store, work) if call.statement != "find_due_groups"),
    ]


def look() -> Call:
    return Call("find_due_groups", {"queues": [QUEUE], "tasks": None})


def claim_idle() -> Call:
    return Call("claim_idle", {"worker": OWNER, "queues": [QUEUE], "tasks": None, "limit": BATCH})


def claim_shares() -> Call:
    begins = {"dues": ["2000-01-01T00:00:00+00:00"], "firsts": [0]}
    groups = {"turns": [0], "gates": [GATE], "priorities": [0], **begins}
    return Call("claim_shares", {"worker": OWNER, "share": BATCH, **groups})


def _size(call: Call) -> int:
    return len(str(call.parameters))


def _produce(store: JobStore, work: Work) -> None:
    many = range(BATCH)
    store.enqueue([new_job() for _ in many])
    store.enqueue([new_job(group="batch-1", deadline=60.0, start_by=60.0, tags=("tag",)) for _ in many])
    store.enqueue([new_job(lane=f"lane-{n}") for n in many])
    store.enqueue([new_job(task="keyed", unique_key=f"new-{n}") for n in many])
    keyed = [new_job(task="keyed", unique_key=f"key-{n + 1}", on_duplicate="return") for n in many]
    assert not any(one.created for one in store.enqueue(keyed))
    store.enqueue([replace(job, on_duplicate="replace") for job in keyed])


def _wait_for_others(store: JobStore, work: Work) -> None:
    parents = [some[0][0] for some in (work.queued, work.in_lanes, work.running, work.paused)]
    store.enqueue([new_job(after=tuple(parents)) for _ in range(FEW)])


def _claim(store: JobStore, work: Work) -> None:
    # Those whose time is over are taken, and not handed out; and again by the next look, for the first take is undone.
    grants = store.claim(OWNER, [QUEUE], 2 * BATCH)
    assert 2 * BATCH - 3 * FEW <= len(grants) <= 2 * BATCH, len(grants)
    store.claim_by_id(work.in_lanes[0][0], OWNER)
    store.run_now(new_job(), OWNER, 10 * BATCH)


def _hold(store: JobStore, work: Work) -> None:
    leases = {job_id: 1 for job_id, _ in work.running}
    assert len(store.renew(leases)) == BATCH
    assert store.renew(dict.fromkeys(leases, 7)) == []
    assert store.read_stop_requests({job_id: (seq, 1) for job_id, seq in work.running}) == {}
    assert len(store.find_leases_of(OWNER)) == 2 * BATCH
    assert set(store.read_settlements(leases, OWNER).values()) == {"mine"}


def _report(store: JobStore, work: Work) -> None:
    job_id = work.running[0][0]
    assert store.record_site(job_id, 1, SITE, "run")
    store.mark_started(job_id, 1)
    assert store.save_steps(job_id, 1, {f"step-{n}": "1" for n in range(BATCH)}, "{}")
    assert store.acquire(job_id, 1, "gpu").granted
    store.release_slot(job_id, 1, "gpu")
    with suppress(ResultMissing):  # what is written here is undone
        store.read_result(job_id, store.keep_result(job_id, 1, "1"))
    notes = (Note(1, "item", "1", "key"), Note(2, "progress", "1"), Note(3, "log", text="line\n"))
    store.write_updates([RunNotes(running, 1, 1, notes) for running, _ in work.running])


def _settle(store: JobStore, work: Work) -> None:
    for outcome in (Success("true"), Failure("no"), Failure("no", final=True)):
        assert len(store.settle(work.endings(outcome), wait=False).accepted) == BATCH
    awaited = [Ending(job_id, 1, Success("true"), seq) for job_id, seq in work.awaited]
    assert len(store.settle(awaited, wait=False).accepted) == FEW


def _recover(store: JobStore, work: Work) -> None:
    sighted = store.sight_overdue(5.0, BATCH)
    assert len(store.reap([replace(one, seen_at=-1e9) for one in sighted])) == BATCH
    assert len(store.adopt(OWNER, [SITE])) == FEW
    assert len([job for job in store.expire() if job.task == KIND]) == FEW
    assert store.count_leases() > 3 * BATCH


def _operate(store: JobStore, work: Work) -> None:
    everywhere = work.queued[:100] + work.in_lanes[:100] + work.running[:100] + work.running_in_lanes[:100]
    ids = [job_id for job_id, _ in everywhere + work.paused[:FEW]]
    assert len(store.stop_jobs(ids, StopScope(everything=True), "immediate")) == 400 + FEW
    store.pause(work.in_lanes[0][0])
    store.resume(work.paused[0][0])
    store.cancel(work.stopping[0][0])
    store.resume(work.halting[0][0], args="{}")
    store.skip(work.halting[0][0])
    assert store.still_running(ids)
    store.list_slots()
    store.list_rates()


def _keep_up(store: JobStore, work: Work) -> None:
    assert store.get(work.running[0][0]).worker == OWNER
    first = min(seq for _, seq in work.ended)
    store.sweep_results(part=0)
    assert store.prune(600.0, after=str(first - 1)).deleted == BATCH

"""The statements that run all day, with the parameters of a busy worker, and the indexes they were written for."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from bench.backgrounds import BATCH, GATE, KEY, KIND, OWNER, QUEUE, SITE
from leasehold.domain.checks.ids import LOWEST_ID, make_id
from leasehold.domain.job import HIGHEST_PRIORITY
from leasehold.domain.lanes import ANY_GATE
from leasehold.stores.base.database import Columns, Database, Records, Row
from leasehold.stores.base.rows import job_from_row, record_from_job
from leasehold.stores.verbs.enqueue import parameters_for
from tests.backends import new_job

ROWS = 10 * BATCH
"""A batch of 500 may meet this many rows in any step of its plan: dead versions count, the background does not. A
join of two batches without an index or a hash would meet 250,000."""

LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)

Query = Callable[[str], list[tuple[Any, ...]]]
"""Looks at the tables behind the store's back; they are called leasehold.job and so on."""

# Statements that read too much, and why they still do. An entry that is no longer needed fails a test.
KNOWN: dict[str, str] = {}

POSTGRES_INDEXES = {
    "look": {"job_claim", "ticket_claim"},
    "look_limited": {"job_claim", "ticket_claim"},
    "read_slots": {"job_limited", "job_pkey"},
    "read_rates": set(),
    "list_slot_holders": {"job_limited", "job_pkey"},
    "sweep_holds": {"job_pkey"},
    "claim_idle": {"job_claim", "ticket_claim"},
    "claim_plain": {"job_claim"},
    "claim_lanes": {"ticket_claim", "job_lane", "job_lane_held", "job_lane_halt"},
    "find_lane_head": {"job_lane", "job_lane_held", "job_lane_halt"},
    "renew": {"job_pkey"},
    "lock_leases": {"job_pkey"},
    "settle_succeeded": {"job_pkey", "job_lane"},
    "insert_tickets": {"job_lane"},
    "lock_jobs": {"job_pkey"},
    "update_jobs": {"job_pkey"},
    "sight_expired": {"job_lease"},
    "lock_sighted": {"job_pkey"},
    "adopt": {"job_orphan"},
    "list_places": {"job_lease", "job_orphan"},
    "insert_jobs": set(),
    "find_key_holders": {"job_unique"},
    "get_job": {"job_pkey"},
    "examine_old_jobs": {"job_pkey", "job_group_live"},
    "prune_jobs": {"job_pkey"},
}
_ID = "sqlite_autoindex_job_1"
SQLITE_INDEXES = {
    "list_open_gates": set(),
    "read_slots": {"job_limited", _ID},
    "read_rates": set(),
    "list_slot_holders": {"job_limited", _ID},
    "sweep_holds": {_ID},
    "first_plain": {"job_claim"},
    "first_ticket": {"ticket_claim"},
    "list_due": {"job_claim"},
    "list_tickets": {"ticket_claim", "job_lane", "job_lane_held", "job_lane_halt", "rowid"},
    "drop_tickets": {"rowid"},
    "take": {"rowid"},
    "file_next_tickets": {"job_lane", "rowid"},
    "find_lane_head": {"job_lane", "job_lane_held", "job_lane_halt"},
    "renew": {_ID},
    "lock_leases": {_ID},
    "settle_succeeded": {_ID},
    "insert_tickets": {"job_lane"},
    "lock_jobs": {_ID},
    "update_jobs": {_ID},
    "sight_expired": {"job_lease"},
    "lock_sighted": {_ID},
    "adopt": {"job_orphan", "rowid"},
    "list_places": {"job_lease", "job_orphan"},
    "insert_jobs": set(),
    "find_key_holders": {"job_unique"},
    "get_job": {_ID},
    "examine_old_jobs": {_ID, "job_group_live"},
    "prune_jobs": {_ID},
}


@dataclass(frozen=True)
class Call:
    statement: str
    parameters: dict[str, Any]


@dataclass(frozen=True)
class Work:
    """What bench.backgrounds.load_work has put in place, by id or seq."""

    plain: list[int]
    tickets: list[int]
    running: list[str]
    running_in_lanes: list[str]
    expired: list[Row]
    moved: list[dict[str, Any]]


def find_work(database: Database, query: Query) -> Work:
    def ids(condition: str) -> list[str]:
        return [str(row[0]) for row in query(f"SELECT id FROM leasehold.job WHERE {condition} ORDER BY id")]

    running = ids(f"lease_owner = '{OWNER}' AND lane IS NULL")
    due = f"gate = {GATE} AND lane IS NULL AND state = 'queued' AND priority = 0 ORDER BY available_at LIMIT {BATCH}"
    rows = database.read(lambda session: session.rows("lock_jobs", ids=running))
    expired = database.read(lambda session: session.rows("sight_expired", limit=BATCH))
    return Work(
        plain=[row[0] for row in query(f"SELECT seq FROM leasehold.job WHERE {due}")],
        tickets=list(range(1, BATCH + 1)),
        running=running,
        running_in_lanes=ids(f"lease_owner = '{OWNER}' AND lane IS NOT NULL"),
        expired=sorted(expired, key=lambda row: str(row["id"])),
        moved=[record_from_job(job_from_row(row)) for row in rows],
    )


def postgres_calls(work: Work) -> list[Call]:
    plain = {"gates": [GATE], "priorities": [0], "dues": [LONG_AGO]}
    lanes = {"gates": [GATE, ANY_GATE], "priorities": [0, 0], "open": [GATE]}
    return [
        look(),
        claim_idle(),
        Call("look_limited", {"gates": [GATE]}),
        Call("claim_plain", {"owner": OWNER, "limit": BATCH, **plain}),
        Call("claim_lanes", {"owner": OWNER, "limit": BATCH, **lanes}),
        *shared_calls(work),
    ]


def sqlite_calls(work: Work) -> list[Call]:
    group = {"gate": GATE, "priority": 0, "limit": BATCH}
    return [
        Call("list_open_gates", {"queues": [QUEUE], "kinds": None}),
        Call("first_plain", {"gate": GATE, "below": HIGHEST_PRIORITY + 1}),
        Call("first_ticket", {"gate": GATE, "below": HIGHEST_PRIORITY + 1}),
        Call("list_due", group),
        Call("list_tickets", group),
        Call("drop_tickets", {"tickets": work.tickets}),
        Call("take", {"owner": OWNER, "rows": work.plain}),
        Call("file_next_tickets", {"lanes": [f"lane-{n}" for n in range(1, BATCH + 1)]}),
        *shared_calls(work),
    ]


def look() -> Call:
    return Call("look", {"queues": [QUEUE], "kinds": None})


def claim_idle() -> Call:
    return Call("claim_idle", {"owner": OWNER, "queues": [QUEUE], "kinds": None, "limit": BATCH})


def renew(ids: list[str]) -> Call:
    return Call("renew", {"leases": Records([{"id": job_id, "token": 1} for job_id in ids])})


def settle(ids: list[str]) -> Call:
    many = len(ids)
    settled = Columns(ids=ids, tokens=[1] * many, results=["true"] * many, references=[None] * many)
    return Call("settle_succeeded", {"settled": settled})


def shared_calls(work: Work) -> list[Call]:
    """Those that both dialects have."""
    half = BATCH // 2
    settled = sorted(work.running[:half] + work.running_in_lanes[:half])
    sighted = [
        {"id": row["id"], "token": row["lease_token"], "expires_at": row["lease_expires_at"]}
        for row in work.expired
    ]
    new = parameters_for([new_job(lane=f"new-{n}") for n in range(BATCH)])
    # Few: those of a transaction that was rolled back lie in the way of the looks that are measured after it.
    left = [
        {"gate": ANY_GATE, "priority": 0, "available_at": datetime.now(UTC), "lane": f"lane-{n}"}
        for n in range(1, 21)
    ]
    keys = {"kinds": ["keyed"] * BATCH, "keys": [f"key-{n}" for n in range(1, BATCH + 1)]}
    return [
        Call("read_slots", {"names": ["browser"]}),
        Call("read_rates", {"keys": [KEY]}),
        Call("list_slot_holders", {"name": "browser", "limit": 20}),
        Call("sweep_holds", {"name": "browser"}),
        Call("find_lane_head", {"lane": "lane-7"}),
        renew(work.running),
        Call("lock_leases", renew(work.running).parameters),
        settle(settled),
        Call("insert_tickets", {"tickets": Records(left)}),
        Call("lock_jobs", {"ids": settled}),
        Call("update_jobs", {"jobs": Records(work.moved)}),
        Call("sight_expired", {"limit": 1000}),
        Call("lock_sighted", {"sightings": Records(sighted)}),
        Call("adopt", {"owner": OWNER, "sites": [SITE], "kinds": None, "limit": 100}),
        Call("list_places", {"kind": KIND}),
        Call("insert_jobs", new),
        Call("find_key_holders", keys),
        Call("get_job", {"id": work.running[0]}),
        Call("examine_old_jobs", {"age": 600.0, "limit": 1000, "after": LOWEST_ID, "before": _tomorrow()}),
        Call("prune_jobs", {"ids": settled}),
    ]


def _tomorrow() -> str:
    return make_id(int((time.time() + 86_400) * 1000), bytes(10))

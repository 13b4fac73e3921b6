"""Vitals: what `why`, `queues` and the doctor ask of a store besides its jobs. Nothing is decided by it."""

from __future__ import annotations

import re
from datetime import datetime

from leasehold.domain.records import QueueCount
from leasehold.domain.states import State
from leasehold.stores.verbs.writing import Verbs

_NAMED = re.compile(
    r"\b(?:CREATE (?:UNIQUE )?(?P<made>TABLE|VIEW|INDEX)|(?P<check>CONSTRAINT)(?: TRIGGER)?) "
    r"(?:IF NOT EXISTS )?(?:leasehold\.)?\"?(?P<name>[a-z_]+)"
)
_KEYED = re.compile(
    r"^CREATE TABLE leasehold\.([a-z_]+) \((?:(?!^\)).)*?\bPRIMARY KEY\b", re.DOTALL | re.MULTILINE
)
"""A table of PostgreSQL, where a primary key is a constraint that can be dropped alone, named after its table."""

LOOKED_AT = 200_000
"""Jobs that the search for misplaced ones looks at, the newest first. A server ends a statement that takes too long."""
_MISPLACED = {
    "nowhere": "job {} is in no place",
    "twice": "job {} is in more than one place",
    "no_job": "there is a place for number {}, but no such job",
    "group": "group {!r} miscounts its jobs that live",
}


class VitalVerbs(Verbs):
    """Checks of the store itself."""

    def now(self) -> datetime:
        """The time on the store's own clock."""
        found: datetime = self._rows("store_now")[0]["now"]
        return found

    def count_by_queue(self, cap: int = 10_000) -> list[QueueCount]:
        """The number of jobs by queue, task and state, each state read up to `cap`, without final states."""
        rows = self._rows("count_by_queue", cap=cap)
        return [QueueCount(row["queue"], row["task"], State(row["state"]), row["jobs"]) for row in rows]

    def stuck_lanes(self, limit: int = 20) -> list[str]:
        """Lanes that no job blocks, whose head is due, and that have no ticket. There must be none."""
        return [row["lane"] for row in self._rows("list_stuck_lanes", limit=limit)]

    def stuck_children(self, limit: int = 20) -> list[str]:
        """Jobs that wait for others although none of those can still end. There must be none."""
        return [row["id"] for row in self._rows("list_stuck_children", limit=limit)]

    def long_expired(self, age: float, limit: int = 20) -> list[str]:
        """Jobs whose lease expired more than `age` seconds ago and that no worker has taken over."""
        return [row["id"] for row in self._rows("list_long_expired", age=age, limit=limit)]

    def misplaced(self, limit: int = 20) -> list[str]:
        """Jobs in no place or in two, and groups that miscount their jobs, as sentences. There must be none."""
        rows = self._rows("list_misplaced", rows=LOOKED_AT, limit=limit)
        return [_MISPLACED[row["what"]].format(row["id"]) for row in rows]


def named_objects(text: str) -> set[str]:
    """What a piece of DDL makes, such as "index job_claim"."""
    named = {
        f"{(found['made'] or found['check']).lower()} {found['name']}" for found in _NAMED.finditer(text)
    }
    return named | {f"constraint {table}_pkey" for table in _KEYED.findall(text)}

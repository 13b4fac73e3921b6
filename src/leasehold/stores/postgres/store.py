"""The PostgreSQL store: claims that never wait for each other, migrations under a lock."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import psycopg
from psycopg.errors import DataError, UniqueViolation

from leasehold.domain.batch import AlikeJobs
from leasehold.domain.job import PLAIN, Grant, NewJob
from leasehold.domain.views import Finding
from leasehold.stores.answers import Ending, Enqueued
from leasehold.stores.base.database import Clock
from leasehold.stores.base.migrate import check_version, missing
from leasehold.stores.base.statements import read_migrations
from leasehold.stores.base.wakeups import Bell, groups_of, wake_here
from leasehold.stores.postgres.database import PostgresDatabase, PostgresSession, qualified
from leasehold.stores.postgres.enqueue import copy_plain, insert_plain
from leasehold.stores.postgres.vitals import examine
from leasehold.stores.postgres.wakeup import PostgresWakeups
from leasehold.stores.store import JobStore
from leasehold.stores.verbs.claim import Look, LookedAt, Source, claim_by_looks, take_by
from leasehold.stores.verbs.enqueue import is_plain
from leasehold.stores.verbs.limits import AT_ONCE
from leasehold.stores.verbs.settle import settled_columns
from leasehold.stores.verbs.writing import batches

_MIGRATIONS = read_migrations("leasehold.stores.postgres")


LARGE = 100
LOOK_LASTS, LOOK_LASTS_AT_MOST = 0.1, 1.0
"""While large claims come back full, a look serves for so many seconds: it costs a claim a fifth of its time. A pause,
or a job of a higher priority, is seen that much later by a worker that is busy."""
LOOK_SHARE = 0.05
"""Of the time, for looks: one that had to walk past many dead index entries, before a vacuum, serves for longer."""

LOOKS_LAST = 5.0
"""Seconds for which an idle worker looks first, after it has met lanes or limits."""


class Seen(NamedTuple):
    until: float
    look: Look


class PostgresStore(JobStore):
    def __init__(
        self,
        url: str,
        schema: str = "leasehold",
        clock: Clock | None = None,
        *,
        pooler: bool = False,
        pool_size: int = 8,
    ) -> None:
        self._pooler = pooler
        self._postgres = PostgresDatabase(url, schema, clock, pooler=pooler, pool_size=pool_size)
        self._bell = Bell(self._postgres.notify)
        self._group_bell = Bell(self._postgres.notify_watchers)
        super().__init__(self._postgres)
        self._seen_full: dict[tuple[object, ...], Seen] = {}
        """The last look of large claims that came back full. One job for one free place says nothing about the next."""
        self._idle: dict[tuple[object, ...], float] = {}
        """Claims that came back empty, and from when on the same may be asked in one statement."""

    def another(self) -> PostgresStore:
        database = self._postgres
        return PostgresStore(database.url, database.schema, database.clock, pooler=self._pooler, pool_size=1)

    # -- enqueue ---------------------------------------------------------------------------------------------------
    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        if len(jobs) == 1 and is_plain(jobs[0]):
            return [self._enqueue_plain(jobs[0])]
        made = self._copy(jobs) if isinstance(jobs, AlikeJobs) else None
        if made is None:
            made = super().enqueue(jobs)
        if any(one.created for one in made):
            self.wake()
        return made

    def _enqueue_plain(self, job: NewJob) -> Enqueued:
        self._make_gates([job])
        ring = self._bell.due()
        created = False
        try:
            created = self._postgres.single(
                lambda session: insert_plain(session, job, self._postgres.channel if ring else None)
            )
        finally:
            if created != ring:  # stored and not told, or a turn that was taken for nothing
                self._bell.owe()
        if created:
            wake_here(self.label)
        return Enqueued(job.id, created=created)

    def _copy(self, jobs: AlikeJobs) -> list[Enqueued] | None:
        """None: they are too special, or the database would not take them this way."""
        if self._postgres.clock.now() is not None or not is_plain(jobs.first) or jobs.first.delay:
            return None
        self._make_gates([jobs.first])
        try:
            self._postgres.transact(lambda session: copy_plain(session, jobs))
        except (UniqueViolation, DataError):
            # A repeat after a lost reply, or a value that cannot be stored: the careful way tells which.
            return None
        return [Enqueued(job_id, created=True) for job_id in jobs.ids]

    # -- wake-ups --------------------------------------------------------------------------------------------------
    def wake(self) -> None:
        wake_here(self.label)
        self._bell()

    def wakeups(self, listen_url: str | None = None) -> PostgresWakeups:
        return PostgresWakeups(listen_url or self._postgres.url, self._postgres.channel, self.label)

    def tell_watchers(self) -> None:
        wake_here(groups_of(self.label))
        self._group_bell()

    def group_wakeups(self, listen_url: str | None = None) -> PostgresWakeups:
        database = self._postgres
        return PostgresWakeups(listen_url or database.url, database.group_channel, groups_of(self.label))

    # -- schema ----------------------------------------------------------------------------------------------------
    def upgrade(self) -> list[int]:
        def work(session: PostgresSession) -> list[int]:
            found = self._postgres.prepare_schema(session)
            todo = missing(self.label, found, _MIGRATIONS)
            for version, text in todo.items():
                self._postgres.script(text, session)
                session.run("record_migration", version=version)
            return list(todo)

        return self._postgres.transact(work)

    def drop(self) -> None:
        self._postgres.transact(self._postgres.drop_schema)

    def check_schema(self) -> None:
        check_version(self.label, self._postgres.schema_version(), len(_MIGRATIONS))

    def upgrade_sql(self, after: int = 0) -> str:
        parts = [
            "BEGIN;",
            "CREATE SCHEMA IF NOT EXISTS leasehold;",
            "CREATE TABLE IF NOT EXISTS leasehold.migration"
            " (version integer PRIMARY KEY, applied_at timestamptz NOT NULL);",
        ]
        for version, text in missing(self.label, after, _MIGRATIONS).items():
            parts += [text.strip(), f"INSERT INTO leasehold.migration VALUES ({version}, now());"]
        return qualified("\n".join([*parts, "COMMIT;"]), self._postgres.schema)

    # -- vitals ----------------------------------------------------------------------------------------------------
    def missing_objects(self) -> list[str]:
        return self._missing_objects("leasehold.stores.postgres")

    def examine(self) -> list[Finding]:
        return list(examine(self._postgres, self._pooler))

    # -- claim -----------------------------------------------------------------------------------------------------
    def claim(
        self, owner: str, queues: Sequence[str], limit: int, kinds: Sequence[str] | None = None
    ) -> list[Grant]:
        if limit < 1:
            return []
        self._make_owner(owner)
        taken: list[Grant] = []
        try:
            return self._claim(owner, queues, limit, kinds, taken)
        except psycopg.Error:
            # Each source is a transaction of its own. What an earlier one gave is held: unheard of, it would lie until
            # its leases run out. The trouble comes up again with the next claim.
            if taken:
                return taken
            raise

    def _claim(
        self,
        owner: str,
        queues: Sequence[str],
        limit: int,
        kinds: Sequence[str] | None,
        taken: list[Grant],
    ) -> list[Grant]:
        waits: list[float] = []

        def look_again() -> Look:
            return self._look(queues, kinds, waits)

        def take(source: Source, groups: list[LookedAt], look: Look, room: int) -> list[Grant] | None:
            if source in ("plain", "lane"):
                grants: list[Grant] | None = self._take(owner, source, groups, look, room)
            else:
                grants = self._take_behind_limits(owner, source, groups, room, waits)
            taken.extend(grants or [])
            return grants

        key = (tuple(queues), None if kinds is None else tuple(kinds))
        if self._idle.get(key, math.inf) <= self._now():
            at_once = self._look_and_take(owner, queues, kinds, limit)
            if at_once is not None:
                if len(at_once) == limit:
                    self._idle.pop(key, None)
                self._expect_opening(queues, kinds, waits)
                return at_once
            self._idle[key] = self._now() + LOOKS_LAST
        grants: list[Grant] = []
        seen = self._seen_full.get(key)
        if seen is not None and limit >= LARGE and self._now() < seen.until:
            grants, _ = take_by(seen.look, limit, take)
        if len(grants) < limit:
            began = self._now()
            look = look_again()
            looked = self._now()
            lasts = min(max(LOOK_LASTS, (looked - began) / LOOK_SHARE), LOOK_LASTS_AT_MOST)
            grants += claim_by_looks(limit - len(grants), look_again, take, look)
            if len(grants) < limit:
                self._seen_full.pop(key, None)
            elif limit >= LARGE:
                self._seen_full[key] = Seen(looked + lasts, look.without_limits())
            if not grants:
                self._idle.setdefault(key, -math.inf)
        self._expect_opening(queues, kinds, waits)
        return grants

    def _look_and_take(
        self, owner: str, queues: Sequence[str], kinds: Sequence[str] | None, limit: int
    ) -> list[Grant] | None:
        """None: there is more than plain jobs, which takes a look first."""
        rows = self._postgres.single(
            lambda session: session.tuples(
                "claim_idle",
                owner=owner,
                queues=list(queues),
                kinds=None if kinds is None else list(kinds),
                limit=limit,
            )
        )
        return None if rows and rows[-1][0] is None else [Grant(*row) for row in rows]

    # -- settle ----------------------------------------------------------------------------------------------------
    def _write_succeeded(self, endings: Sequence[Ending]) -> tuple[set[int], bool]:
        left, _ = self._end("settle_plain", [ending for ending in endings if ending.special == PLAIN])
        # What is left has ties by now, or is fenced.
        tied = [ending for ending in endings if ending.special != PLAIN or ending.seq in left]
        return self._end("settle_succeeded", tied)

    def _end(self, statement: str, endings: Sequence[Ending]) -> tuple[set[int], bool]:
        if not endings:
            return set(), False
        rows = self._postgres.single(
            lambda session: session.tuples(statement, settled=settled_columns(endings))
        )
        return {seq for seq, _ in rows if seq is not None}, any(slots for _, slots in rows)

    def _now(self) -> float:
        return self._postgres.clock.monotonic()

    def _look(self, queues: Sequence[str], kinds: Sequence[str] | None, waits: list[float]) -> Look:
        rows = self._postgres.read(
            lambda session: session.tuples(
                "look", queues=list(queues), kinds=None if kinds is None else list(kinds)
            )
        )
        found: dict[str, list[LookedAt]] = {"gate": [], "limited": [], "plain": [], "lane": []}
        for source, gate, priority, due, first in rows:
            found[source].append(LookedAt(gate, priority, due, first))
        look = Look([group.gate for group in found["gate"]], found["plain"], found["lane"])
        if found["limited"]:
            self._look_behind_limits(look, [group.gate for group in found["limited"]], waits)
        return look

    def _look_behind_limits(self, look: Look, gates: list[int], waits: list[float]) -> None:
        """Only gates that are open are looked at: a million rows behind a full slot are not touched."""
        open_gates, opening = self._postgres.read(lambda session: self._open_gates(session, gates))
        waits += opening
        if open_gates:
            rows = self._postgres.read(lambda session: session.tuples("look_limited", gates=open_gates))
            for source, gate, priority, due, first in rows:
                groups = look.limited if source == "plain" else look.limited_lanes
                groups.append(LookedAt(gate, priority, due, first))

    def _take_behind_limits(
        self, owner: str, source: Source, groups: list[LookedAt], room: int, waits: list[float]
    ) -> list[Grant]:
        grants: list[Grant] = []
        for some in batches(groups, AT_ONCE):

            def work(
                session: PostgresSession, some: Sequence[LookedAt] = some, left: int = room - len(grants)
            ) -> tuple[list[Grant], list[float]]:
                def take(group: LookedAt, fits: int) -> list[Grant]:
                    return _take(session, owner, source, [group], [group.gate], fits) or []

                return self._take_limited(session, some, left, take)

            taken, opening = self._postgres.transact(work)
            grants += taken
            waits += opening
            if len(grants) >= room:
                break
        return grants

    def _take(
        self, owner: str, source: Source, groups: list[LookedAt], look: Look, room: int
    ) -> list[Grant] | None:
        return self._postgres.single(lambda session: _take(session, owner, source, groups, look.gates, room))


def _take(
    session: PostgresSession,
    owner: str,
    source: Source,
    groups: Sequence[LookedAt],
    open_gates: list[int],
    room: int,
) -> list[Grant] | None:
    asked: dict[str, Any] = {
        "owner": owner,
        "gates": [group.gate for group in groups],
        "priorities": [group.priority for group in groups],
        "limit": room,
        "limited": source in ("limited", "limited lane"),
    }
    if source in ("lane", "limited lane"):
        rows = session.tuples("claim_lanes", open=open_gates, **asked)
        if rows and rows[0][0] is None:
            return None
    else:
        begins = {"dues": [group.due for group in groups], "firsts": [group.first for group in groups]}
        rows = session.tuples("claim_plain", **begins, **asked)
    return [Grant(*row) for row in rows]

"""Hooks: who listens, and what is delivered to them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from leasehold.domain.hooks import EVENTS, Delivery, Happened, HookEvent, Listener, ListenerRow
from leasehold.domain.job import NewJob
from leasehold.stores.base.audit import changed
from leasehold.stores.base.database import Records, Row, Session
from leasehold.stores.base.rows import record_of
from leasehold.stores.verbs.enqueue import EnqueueVerbs, enqueue_in
from leasehold.stores.verbs.outbox import SILENT_FOR, read_listeners, tell

KEPT_FOR = 7 * 86_400.0
"""Seconds after which an event that could not be delivered is forgotten."""


class HookVerbs(EnqueueVerbs):
    def register_listeners(self, listeners: Sequence[Listener], kept: bool = False) -> None:
        if listeners:
            self._database.transact(lambda session: file_listeners(session, listeners, kept))

    def touch_listeners(self, names: Sequence[str]) -> None:
        self._database.single(lambda session: session.run("touch_listeners", names=sorted(names)))

    def remove_listener(self, name: str) -> bool:
        return self._database.transact(lambda session: changed(drop_listener(session, name)))

    def list_listeners(self) -> list[ListenerRow]:
        rows = self._database.read(lambda session: session.rows("list_listeners"))
        return [record_of(ListenerRow, row) for row in rows]

    def find_listeners(self) -> list[Listener]:
        return self._database.read(lambda session: read_listeners(session, set(EVENTS)))

    def tell_listeners(self, happened: Sequence[Happened]) -> None:
        self._database.transact(lambda session: tell(session, happened))

    def take_events(self, listeners: Sequence[str], limit: int, seconds: float) -> list[Delivery]:
        """The look is a read of its own: one that finds nothing writes nothing."""
        found: list[Delivery] = []
        for name in self._due_listeners(listeners):
            asked = {"listener": name, "limit": limit - len(found), "seconds": seconds}
            rows = self._database.single(lambda session, asked=asked: session.rows("take_outbox", **asked))  # type: ignore[misc]
            found += sorted(map(_delivery, rows), key=lambda one: one.event.at or 0)
            if len(found) >= limit:
                break
        return found

    def drop_events(self, ids: Sequence[str]) -> None:
        self._database.single(lambda session: session.run("drop_outbox", ids=list(ids)))

    def give_back_events(self, ids: Sequence[str]) -> None:
        self._database.single(lambda session: session.run("give_back_outbox", ids=list(ids)))

    def retry_event(self, event_id: str, seconds: float | None, error: str) -> None:
        asked = {"id": event_id, "seconds": seconds, "error": error}
        self._database.single(lambda session: session.run("retry_outbox", **asked))

    def enqueue_events(
        self, listeners: Sequence[str], make_job: Callable[[Delivery], NewJob], limit: int = 100
    ) -> int:
        made = 0
        for name in self._due_listeners(listeners):
            made += self._enqueue_events_of(name, make_job, limit)
        return made

    def _enqueue_events_of(self, name: str, make_job: Callable[[Delivery], NewJob], limit: int) -> int:
        # The gate is made beforehand, as for every job.
        self._make_gates([make_job(Delivery(name, HookEvent("", "", "", "", 0, ""), 0))])

        def work(session: Session) -> int:
            rows = session.rows("take_outbox", listener=name, limit=limit, seconds=60.0)
            if rows:
                enqueue_in(session, [make_job(_delivery(row)) for row in rows])
                session.run("drop_outbox", ids=[row["id"] for row in rows])
            return len(rows)

        return self._database.transact(work)

    def forget_listeners(self) -> None:
        def work(session: Session) -> None:
            session.run("forget_listeners", age=SILENT_FOR)
            session.run("forget_outbox", age=KEPT_FOR)
            session.run("drop_lonely_webhooks")

        self._database.transact(work)

    def _due_listeners(self, names: Sequence[str]) -> list[str]:
        if not names:
            return []
        rows = self._database.read(lambda session: session.tuples("find_due_listeners", names=list(names)))
        return [row[0] for row in rows]


def file_listeners(session: Session, listeners: Sequence[Listener], kept: bool) -> None:
    rows = Records([_record(listener, kept) for listener in listeners])
    session.run("insert_listeners", rows=rows)
    names = sorted({listener.name for listener in listeners})
    session.run("drop_other_listeners", names=names, rows=rows)


def drop_listener(session: Session, name: str) -> bool:
    found = session.tuples("drop_listener", name=name)
    session.run("drop_outbox_of", name=name)
    return bool(found)


def _record(listener: Listener, kept: bool) -> dict[str, object]:
    return {
        "name": listener.name,
        "event": listener.event,
        "task": listener.kind,
        "webhook": listener.webhook,
        "kept": kept,
    }


def _delivery(row: Row) -> Delivery:
    event = HookEvent(
        row["event"],
        row["job_id"] or "",
        row["task"],
        row["queue"],
        row["attempt"],
        row["detail"],
        json.loads(row["data"]),
        row["id"],
        row["at"],
        row["group_name"],
    )
    return Delivery(row["listener"], event, row["tries"])

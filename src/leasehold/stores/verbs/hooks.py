"""Hooks and webhooks: listeners, their addresses, and the deliveries to them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict

from leasehold.domain.hooks import (
    EVENTS,
    HookDelivery,
    Listener,
    ListenerRow,
    Notification,
    PendingNotification,
    Webhook,
    listener_of,
)
from leasehold.domain.job import NewJob
from leasehold.stores.database.database import Records, Row, Session
from leasehold.stores.database.places import record_of
from leasehold.stores.verbs.audit import changed
from leasehold.stores.verbs.enqueue import EnqueueVerbs, enqueue_in
from leasehold.stores.verbs.writing import SILENT_FOR, read_listeners, transaction, write_outbox

KEPT_FOR = 7 * 86_400.0
"""Seconds after which an event that could not be delivered is forgotten."""


class HookVerbs(EnqueueVerbs):
    """Listeners and their deliveries. The transaction that changes something also writes the event for each listener,
    whichever verb makes the change."""

    def register_listeners(self, listeners: Sequence[Listener], kept: bool = False) -> None:
        """Replace everything that listeners of these names listen to. Unless `kept`, a listener that is not
        touched for a day gets no more events."""
        if listeners:
            self._database.transact(lambda session: file_listeners(session, listeners, kept))

    def touch_listeners(self, names: Sequence[str]) -> None:
        """Record that the code of these listeners still exists."""
        self._run("touch_listeners", names=sorted(names))

    def remove_listener(self, name: str) -> bool:
        """Delete a listener and its waiting events. False: there is no such listener."""
        return self._database.transact(lambda session: changed(drop_listener(session, name)))

    def list_listeners(self) -> list[ListenerRow]:
        """All listeners, with the number of events that wait for each."""
        return [record_of(ListenerRow, row) for row in self._rows("list_listeners")]

    def find_listeners(self) -> list[Listener]:
        """The listeners that get events now."""
        return self._database.read(lambda session: read_listeners(session, set(EVENTS)))

    def notify_listeners(self, happened: Sequence[PendingNotification]) -> None:
        """Write events that are not a change of a job's state."""
        self._database.transact(lambda session: write_outbox(session, happened))

    def take_events(self, listeners: Sequence[str], limit: int, seconds: float) -> list[HookDelivery]:
        """Take up to `limit` events of these listeners for delivery. After `seconds`, an event that was not dropped can
        be taken again. A separate read looks for events first: if it finds none, nothing is written."""
        found: list[HookDelivery] = []
        for name in self._due_listeners(listeners):
            which = {"listener": name, "limit": limit - len(found), "seconds": seconds}
            rows = self._database.single(lambda session, which=which: session.rows("take_outbox", **which))  # type: ignore[misc] # mypy cannot infer a lambda with a default
            found += sorted(map(_delivery, rows), key=lambda one: one.event.at or 0)
            if len(found) >= limit:
                break
        return found

    def drop_events(self, ids: Sequence[str]) -> None:
        """Delete delivered events."""
        self._run("drop_outbox", ids=list(ids))

    def give_back_events(self, ids: Sequence[str]) -> None:
        """Return events that were taken and not delivered."""
        self._run("give_back_outbox", ids=list(ids))

    def retry_event(self, event_id: str, seconds: float | None, error: str) -> None:
        """Record a failed delivery: deliver again after `seconds`, or never (None)."""
        which = {"id": event_id, "seconds": seconds, "error": error}
        self._run("retry_outbox", **which)

    def enqueue_events(
        self, listeners: Sequence[str], make_job: Callable[[HookDelivery], NewJob], limit: int = 100
    ) -> int:
        """Store a job for each event of these listeners and delete the event in the same transaction; the result is the
        number of jobs."""
        made = 0
        for name in self._due_listeners(listeners):
            made += self._enqueue_events_of(name, make_job, limit)
        return made

    def _enqueue_events_of(self, name: str, make_job: Callable[[HookDelivery], NewJob], limit: int) -> int:
        # The gate is made beforehand, as for every job.
        self._make_gates([make_job(HookDelivery(name, Notification("", "", "", "", 0, ""), 0))])

        def work(session: Session) -> int:
            rows = session.rows("take_outbox", listener=name, limit=limit, seconds=60.0)
            if rows:
                enqueue_in(session, [make_job(_delivery(row)) for row in rows])
                session.run("drop_outbox", ids=[row["id"] for row in rows])
            return len(rows)

        return self._database.transact(work)

    @transaction
    def forget_listeners(self, session: Session) -> None:
        """Delete listeners whose code was not seen for a day with their waiting events, and events that are a week
        old."""
        session.run("forget_listeners", age=SILENT_FOR)
        session.run("forget_outbox", age=KEPT_FOR)
        session.run("drop_lonely_webhooks")

    def _due_listeners(self, names: Sequence[str]) -> list[str]:
        if not names:
            return []
        return [row[0] for row in self._tuples("find_due_listeners", names=list(names))]


def file_listeners(session: Session, listeners: Sequence[Listener], kept: bool) -> None:
    rows = Records([{**asdict(listener), "kept": kept} for listener in listeners])
    session.run("insert_listeners", rows=rows)
    names = sorted({listener.name for listener in listeners})
    session.run("drop_other_listeners", names=names, rows=rows)


def drop_listener(session: Session, name: str) -> bool:
    found = session.tuples("drop_listener", name=name)
    session.run("drop_outbox_of", name=name)
    return bool(found)


def _delivery(row: Row) -> HookDelivery:
    event = Notification(
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
    return HookDelivery(row["listener"], event, row["tries"])


# -- webhooks ----------------------------------------------------------------------------------------------------------
# Webhook secrets leave the store only for signing.


class WebhookVerbs(HookVerbs):
    """Listeners with an address."""

    @transaction
    def set_webhook(self, session: Session, webhook: Webhook, listeners: Sequence[Listener]) -> None:
        """Create or change a webhook; these are its listeners."""
        session.run(
            "set_webhook",
            name=webhook.name,
            url=webhook.url,
            signing_key=webhook.secret,
            allow_private=webhook.allow_private,
            source=webhook.source,
        )
        file_listeners(session, listeners, kept=webhook.source == "set")

    def list_webhooks(self) -> list[Webhook]:
        """All webhooks."""
        return [Webhook(secret=row.pop("signing_key"), **row) for row in self._rows("list_webhooks")]

    def find_webhook(self, name: str) -> Webhook | None:
        """The webhook, or None."""
        return next((webhook for webhook in self.list_webhooks() if webhook.name == name), None)

    @transaction
    def remove_webhook(self, session: Session, name: str) -> bool:
        """Delete a webhook and its waiting events. False: there is no such webhook."""
        drop_listener(session, listener_of(name))
        return changed(bool(session.tuples("drop_webhook", name=name)))

"""The outbox: notifications for listeners, written in the transaction that causes them."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from leasehold.domain.checks.payload import check_text
from leasehold.domain.hooks import Happened, Listener, group_is_done
from leasehold.domain.transitions import clean_error
from leasehold.stores.database.database import Records, Session
from leasehold.stores.database.rows import record_of

SILENT_FOR = 86_400.0
"""Seconds after which a listener whose code no process has shown gets nothing more. settle.sql knows them too."""


def notify(session: Session, happened: Sequence[Happened]) -> None:
    """Write these notifications, for listeners that want them."""
    if not happened:
        return
    listeners = read_listeners(session, {one.event for one in happened})
    rows = [_row(listener, one) for one in happened for listener in listeners if listener.wants(one)]
    if rows:
        session.run("insert_outbox", rows=Records(rows))


def notify_about_groups(
    session: Session, rows: Sequence[tuple[Any, ...]], ended: Mapping[str, int] | None = None
) -> None:
    """Notify about the groups that have no job left which could run. `ended`: by how many each has changed; a group
    that has lost none was done before."""
    done = [
        (name, version) for name, live, version in rows if live == 0 and (ended is None or ended[name] < 0)
    ]
    notify(session, [group_is_done(name, version) for name, version in done])


def read_listeners(session: Session, events: set[str]) -> list[Listener]:
    rows = session.rows("read_listeners", events=sorted(events), age=SILENT_FOR)
    return [record_of(Listener, row) for row in rows]


def _row(listener: Listener, one: Happened) -> dict[str, Any]:
    return {
        "id": secrets.token_hex(16),
        "listener": listener.name,
        "event": one.event,
        "job_id": one.job_id,
        "task": one.task,
        "queue": one.queue,
        "attempt": one.attempt,
        "group_name": one.group,
        "detail": clean_error(one.detail),
        "data": check_text(json.dumps(one.data), "data"),
    }

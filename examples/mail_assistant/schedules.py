"""What is due by itself. A tick happens once, however many processes run."""

from __future__ import annotations

import logging

from examples.mail_assistant.app import Resources, app
from examples.mail_assistant.settings import settings
from examples.mail_assistant.tasks import sync
from leasehold import SyncContext

log = logging.getLogger(__name__)


class WatchManager:
    """Gmail forgets a watch after 7 days; without one there are no notifications."""

    def __init__(self, shared: Resources) -> None:
        self._shared = shared

    def renew_all_watches(self) -> int:
        """How many were renewed. One user's failure is logged, and the others get theirs."""
        renewed = 0
        for user in self._shared.active_users():
            try:
                answer = self._shared.gmail_of(user).watch(settings.pubsub_topic)
                statement = "UPDATE users SET watch_expiration = ? WHERE id = ?"
                self._shared.db.write(statement, answer["expiration"], user.id)
                renewed += 1
            except Exception:
                log.exception("the watch of user %s was not renewed", user.id)
        return renewed


@app.schedule(every="24h", at_start=True)
def watch_renewal(ctx: SyncContext) -> int:
    return WatchManager(ctx.resources).renew_all_watches()


@app.schedule(every=settings.sync_fallback_interval_minutes * 60)
def fallback_sync(ctx: SyncContext) -> None:
    """For notifications that were lost: the history since the last checkpoint, which costs little."""
    for user in ctx.resources.active_users():
        ctx.enqueue(sync, user_id=user.id, history_id="")


@app.schedule(every=settings.sync_full_sync_interval_hours * 3600)
def full_sync(ctx: SyncContext) -> None:
    """For what the history does not tell: a search for unlabelled mail."""
    for user in ctx.resources.active_users():
        ctx.enqueue(sync, user_id=user.id, history_id="", force_full=True)


class JobRepository:
    @staticmethod
    def cleanup_old(days: int = 7) -> int:
        """Purge jobs that ended longer ago. Every worker does so by itself once an hour; this is for now, by hand."""
        return app.prune(f"{days}d").jobs

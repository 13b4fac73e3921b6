"""The hook dispatcher: calls hooks with notifications from the outbox, and makes jobs that post to webhooks."""

from __future__ import annotations

import logging
import random
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Container
from typing import TYPE_CHECKING, Any

from leasehold.domain.errors import StoreError
from leasehold.domain.hooks import (
    GROUP_DONE,
    SUCCEEDED,
    Delivery,
    Happened,
    Listener,
    retry_in,
)
from leasehold.domain.job import NewJob
from leasehold.domain.transitions import clean_error
from leasehold.stores.database.wakeups import ANYTHING, Hint
from leasehold.worker.hooks import Hooks
from leasehold.worker.service import Service

if TYPE_CHECKING:
    from leasehold.stores.store import JobStore

logger = logging.getLogger("leasehold.hooks")

POLL_EVERY, POLL_SELDOM = 1.0, 5.0
"""Seconds between two polls without a hint; the longer one if there is nothing to deliver."""
POLL_GAP = 0.1
"""Seconds between two polls, however many hints come: on SQLite every commit by any process is a hint."""
TOUCH_EVERY = 60.0
FORGET_EVERY = 3600.0
LEASE = 60.0
"""Seconds that a batch may take. In its second half no more hooks are called, so that another worker does not repeat a
delivery under way, unless a single call takes half a minute."""
BATCH = 20
MOST_UNDELIVERED = 1000
LONGEST_ERROR = 2000


class _Every(Container[Any]):
    def __contains__(self, _: object) -> bool:
        return True


class HookDispatcher(Service):
    def __init__(
        self,
        store: JobStore,
        hooks: Hooks,
        make_job: Callable[[Delivery], NewJob],
        on_webhooks: Callable[[], None],
    ) -> None:
        super().__init__("hooks", self._beat, slowest=POLL_SELDOM)
        self._store = store
        self._hooks = hooks
        self._make_job = make_job
        self._on_webhooks = on_webhooks
        self._listeners: list[Listener] = []
        self.notified_tasks: Container[str] | None = None
        """The tasks whose successes have a listener; None: no task has one."""
        self.notifies_groups = False
        self._unsent: deque[Happened] = deque(maxlen=MOST_UNDELIVERED)
        self._registered = False
        self._touched_at = time.monotonic()
        self._forget_at = time.monotonic() + random.uniform(30, 300)
        self._looked_at = float("-inf")
        self._hurry = False
        self._begun = self._ended = 0
        self._turn = threading.Condition()

    # -- for the worker --------------------------------------------------------------------------------------------
    def register(self) -> None:
        """Register before the first claim, so that nothing from then on is missed."""
        try:
            self._register()
        except StoreError as error:
            logger.warning("hooks could not be registered yet: %s", error)

    def hint(self, hint: Hint = Hint.HOOKS) -> None:
        # A commit by another process concerns us only if there is a hook to call.
        if hint != ANYTHING or self._serves:
            self.nudge()

    def notify(self, happened: Happened) -> None:
        """Send a notification that no transition in the database causes. Called on the loop; our thread delivers it."""
        self._unsent.append(happened)
        self.nudge()

    def flush(self, seconds: float = 5.0) -> None:
        """Wait until everything up to now was delivered, as far as possible."""
        if not self._serves:
            return
        with self._turn:
            begun = self._begun
            self._hurry = True
            self.nudge()
            self._turn.wait_for(lambda: self._ended > begun, seconds)

    def stop(self) -> None:
        super().stop()
        if self._serves or self._unsent:
            try:
                self._round()
            except Exception as error:
                logger.warning("left the last events to other workers: %s", error)

    @property
    def _serves(self) -> bool:
        return bool(self._hooks.names or self._webhooks)

    @property
    def _declared(self) -> list[str]:
        """Names of listeners whose code is in this process."""
        return [*self._hooks.names, *(webhook.listener for webhook, _ in self._hooks.webhooks)]

    @property
    def _webhooks(self) -> list[str]:
        return sorted({listener.name for listener in self._listeners if listener.webhook})

    # -- in its thread ---------------------------------------------------------------------------------------------
    def _beat(self) -> float:
        wait = self._looked_at + POLL_GAP - time.monotonic()
        if wait > 0 and not self._hurry:
            return wait
        with self._turn:
            self._hurry = False
            self._begun += 1
            begun = self._begun
        try:
            self._round()
        finally:
            self._looked_at = time.monotonic()
            with self._turn:
                self._ended = begun
                self._turn.notify_all()
        return POLL_EVERY if self._serves else POLL_SELDOM

    def _round(self) -> None:
        if not self._registered:
            self._register()
        while self._unsent:
            self._store.notify_listeners([self._unsent[0]])
            self._unsent.popleft()
        self._look()
        self._keep_up()
        if self._store.enqueue_events(self._webhooks, self._make_job):
            self._store.notify_workers()
        while taken := self._store.take_events(self._hooks.names, BATCH, LEASE):
            if not self._deliver(taken):
                break

    def _register(self) -> None:
        self._store.register_listeners(self._hooks.listeners)
        for webhook, listeners in self._hooks.webhooks:
            self._store.set_webhook(webhook, listeners)
        if self._declared:
            self._store.notify_hooks()
        self._look()
        self._registered = True

    def _look(self) -> None:
        self._listeners = self._store.find_listeners()
        tasks = {listener.task for listener in self._listeners if listener.event == SUCCEEDED}
        self.notified_tasks = None if not tasks else _Every() if "" in tasks else frozenset(tasks)
        if self._webhooks:
            self._on_webhooks()
        self.notifies_groups = any(listener.event == GROUP_DONE for listener in self._listeners)

    def _keep_up(self) -> None:
        now = time.monotonic()
        if self._declared and now >= self._touched_at + TOUCH_EVERY:
            self._store.touch_listeners(self._declared)
            self._touched_at = now
        if self._listeners and now >= self._forget_at:
            self._store.forget_listeners()
            self._forget_at = now + FORGET_EVERY

    def _deliver(self, taken: list[Delivery]) -> bool:
        """Return False if the time is over; the rest is given back."""
        until = time.monotonic() + LEASE / 2
        for number, delivery in enumerate(taken):
            if time.monotonic() >= until:
                self._store.give_back_events([one.event.id for one in taken[number:]])
                return False
            self._call(delivery)
        return True

    def _call(self, delivery: Delivery) -> None:
        event = delivery.event
        try:
            self._hooks.get(delivery.listener)(event)
        except Exception as error:
            again = retry_in(delivery.tries)
            then = "giving up" if again is None else f"trying again in {again:g} s"
            logger.exception("hook %s failed on %r; %s", delivery.listener, event.name, then)
            self._store.retry_event(event.id, again, _error_text(error))
        else:
            self._store.drop_events([event.id])


def _error_text(error: Exception) -> str:
    """Format the error as every store accepts it, also if it has no text: the next delivery waits for this record."""
    return clean_error("".join(traceback.format_exception_only(error)).strip()[:LONGEST_ERROR])

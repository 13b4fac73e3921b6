"""Wake-ups: hints of what may have changed, passed inside a process, and throttled on their way to others."""

from __future__ import annotations

import enum
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import Protocol

from leasehold.threads import ForkLock

logger = logging.getLogger("leasehold.wakeups")

NOTIFY_GAP = 0.01
"""Seconds after which a deferred notification is sent. Notifications must be few: every NOTIFY commit takes a
lock of the whole PostgreSQL instance."""
NOTIFY_SILENCE = 0.8 * NOTIFY_GAP
"""After this quiet time the next INSERT carries the NOTIFY itself, which saves a statement."""


class Hint(enum.Flag):
    """What may have changed."""

    WORK = enum.auto()
    """There may be a job to claim; for waits for groups, something to read."""
    STOP = enum.auto()
    """A running job may have a stop request."""
    HOOKS = enum.auto()
    """There may be events to deliver, or other listeners."""


NOTHING, ANYTHING = Hint(0), Hint.WORK | Hint.STOP | Hint.HOOKS

Notify = Callable[[Hint], None]
"""Called after a commit that others may want to know of."""


def ignore(hint: Hint) -> None:
    """A `Notify` for stores whose hints have no receiver."""


class Wakeups(Protocol):
    """The waiting side of hints. A hint only shortens a wait; a lost hint loses nothing else."""

    def wait(self, seconds: float) -> Hint:
        """Block until a hint arrives, at most `seconds`; returns the hint, or NOTHING."""

    def subscribe(self, on_hint: Callable[[Hint], None]) -> bool:
        """Call this function with each hint as it comes, from the thread that receives it; `wait` then returns no
        hints. False: hints come only to a thread that calls `wait`."""

    def expect_more(self) -> None:
        """Report that there was work: more may follow soon."""

    @property
    def listens(self) -> bool:
        """Whether hints arrive, also from other processes. False: until they do, only polling finds changes."""

    def close(self) -> None: ...


class LocalListener:
    """Keeps hints until a thread waits for them; once it has a function to call, it calls that instead."""

    def __init__(self) -> None:
        self._received = NOTHING
        self._keeping = threading.Lock()
        self._notify = threading.Event()
        self._on_hint: Callable[[Hint], None] | None = None
        self._pid = os.getpid()

    def subscribe(self, on_hint: Callable[[Hint], None]) -> None:
        self._on_hint = on_hint
        if received := self._take():
            on_hint(received)

    def receive(self, hint: Hint) -> None:
        # A forked child must not call into its parent's loop, nor wait for a lock that was held when it was forked.
        if self._pid != os.getpid():
            return
        on_hint = self._on_hint
        if on_hint is None:
            with self._keeping:
                self._received |= hint
            self._notify.set()
        else:
            on_hint(hint)

    def wait(self, seconds: float) -> Hint:
        self._notify.wait(seconds)
        return self._take()

    def close(self) -> None:
        """Stop calling, and end every wait."""
        self._on_hint = None
        self._notify.set()

    def _take(self) -> Hint:
        self._notify.clear()
        with self._keeping:
            received, self._received = self._received, NOTHING
        return received


_listeners: dict[str, weakref.WeakSet[LocalListener]] = {}
_listeners_lock = ForkLock()
# A child drops its parent's listeners: they get no hints there, and a thread of the parent may have held a lock.
os.register_at_fork(after_in_child=_listeners.clear)


def listen_here(*labels: str) -> LocalListener:
    """A listener for hints that this process sends to the stores with these labels."""
    listener = LocalListener()
    with _listeners_lock:
        for label in labels:
            _listeners.setdefault(label, weakref.WeakSet()).add(listener)
    return listener


def groups_label(label: str) -> str:
    """The label for waits for groups: their hints must not wake the workers."""
    return f"{label} groups"


def tenants_label(label: str) -> str:
    """The label for workers that serve the tenants of a store."""
    return f"{label} tenants"


def notify_here(label: str, hint: Hint = Hint.WORK) -> None:
    with _listeners_lock:
        listeners = list(_listeners.get(label, ()))
    for listener in listeners:
        listener.receive(hint)


class LocalWakeups:
    """Hints from this process alone, without a connection or a thread. Polling finds what other processes do."""

    listens = False

    def __init__(self, label: str) -> None:
        self._listener = listen_here(label)

    def wait(self, seconds: float) -> Hint:
        return self._listener.wait(seconds)

    def subscribe(self, on_hint: Callable[[Hint], None]) -> bool:
        self._listener.subscribe(on_hint)
        return True

    def expect_more(self) -> None: ...

    def close(self) -> None:
        self._listener.close()


class NotifyThrottle:
    """Notifies at once after a quiet time, otherwise once more when NOTIFY_GAP is over: many callers, few
    notifications. A caller shortly before that time notifies for all; a thread does so only if no caller comes."""

    def __init__(self, notify: Callable[[], None]) -> None:
        self._notify = notify
        self._forget()

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._last = float("-inf")
        self._deferred = False
        self._watched = False
        self._never = threading.Event()
        """Never set: waiting for it sleeps, even if a program or a test has replaced time.sleep."""
        self._pid = os.getpid()

    def __call__(self) -> None:
        if self.take_turn():
            self._try()
        else:
            self.defer()

    def take_turn(self) -> bool:
        """Whether to notify at once. If so, the caller must notify in its own way, also for deferred callers.
        A caller that then has nothing to send should call `defer`."""
        if self._pid != os.getpid():
            self._forget()
        with self._lock:
            now = time.monotonic()
            if now < self._last + NOTIFY_SILENCE:
                return False
            self._last = now
            self._deferred = False
        return True

    def defer(self) -> None:
        """Notify once more when NOTIFY_GAP is over."""
        with self._lock:
            self._deferred = True
            if self._watched:
                return
            self._watched = True
        try:
            threading.Thread(target=self._flush_later, name="leasehold notify", daemon=True).start()
        except RuntimeError:  # no more threads, or the interpreter is ending: the next caller notifies
            self._watched = False

    def flush(self) -> None:
        """Send a deferred notification now: the process may end before the thread sends it."""
        if self._pid != os.getpid():
            return  # the parent sends it, and its lock may have been held when this child was forked
        with self._lock:
            deferred, self._deferred = self._deferred, False
        if deferred:
            self._try()

    def _flush_later(self) -> None:
        """Notify for deferred callers, unless another caller does it first."""
        while True:
            with self._lock:
                if not self._deferred:
                    self._watched = False
                    return
                now = time.monotonic()
                wait = self._last + NOTIFY_GAP - now
                if wait <= 0:
                    self._last = now
                    self._deferred = False
            if wait > 0:
                self._never.wait(wait)
            else:
                self._try()

    def _try(self) -> None:
        try:
            self._notify()
        except Exception as error:
            # A lost hint only delays a worker until its next poll, at most a second.
            logger.debug("wake-up not sent: %s", error)

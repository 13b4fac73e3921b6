"""Wake-ups: hints of what may have changed, their way inside a process, and a bell that does not ring too often."""

from __future__ import annotations

import enum
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import Protocol

from leasehold.stores.database.forks import ForkLock

logger = logging.getLogger("leasehold.wakeups")

NOTIFY_GAP = 0.01
"""Seconds after which a ring that is owed is paid. Rings to other processes are few, for every NOTIFY commit takes a
lock of the whole PostgreSQL instance."""
NOTIFY_SILENCE = 0.8 * NOTIFY_GAP
"""Seconds after which the next who stores something rings himself: in a stream of jobs the ring then
needs no statement of its own."""


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
        """Block until something may have changed, at most `seconds`. The hint, or NOTHING."""

    def call(self, on_hint: Callable[[Hint], None]) -> bool:
        """Call this function with each hint as it comes, from the thread that receives it; `wait` then returns no
        hints. False: hints come only to a thread that calls `wait`."""

    def stir(self) -> None:
        """There was work: more may follow soon."""

    @property
    def listens(self) -> bool:
        """Hints arrive, from other processes too. False: until they do, only polling finds changes."""

    def close(self) -> None: ...


class LocalListener:
    """Keeps what it hears until somebody waits for it; or, once it has somebody to call, it calls instead."""

    def __init__(self) -> None:
        self._received = NOTHING
        self._keeping = threading.Lock()
        self._notify = threading.Event()
        self._on_hint: Callable[[Hint], None] | None = None
        self._pid = os.getpid()

    def call(self, on_hint: Callable[[Hint], None]) -> None:
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
        """Nobody is called any more, and who waits is let go."""
        self._on_hint = None
        self._notify.set()

    def _take(self) -> Hint:
        self._notify.clear()
        with self._keeping:
            received, self._received = self._received, NOTHING
        return received


_ears: dict[str, weakref.WeakSet[LocalListener]] = {}
_ears_lock = ForkLock()
# The parent's ears hear nothing here, and a thread of the parent may have held one of them.
os.register_at_fork(after_in_child=_ears.clear)


def listen_here(*labels: str) -> LocalListener:
    """Hears when somebody in this process wakes the store of one of these labels."""
    listener = LocalListener()
    with _ears_lock:
        for label in labels:
            _ears.setdefault(label, weakref.WeakSet()).add(listener)
    return listener


def groups_of(label: str) -> str:
    """The label for those who wait for groups: what they want to hear of must not wake the workers."""
    return f"{label} groups"


def tenants_of(label: str) -> str:
    """The label for those who serve the tenants of a store."""
    return f"{label} tenants"


def notify_here(label: str, hint: Hint = Hint.WORK) -> None:
    with _ears_lock:
        ears = list(_ears.get(label, ()))
    for listener in ears:
        listener.receive(hint)


class NearWakeups:
    """Hints from this process alone: no connection and no thread. What other processes do is found by looking."""

    listens = False

    def __init__(self, label: str) -> None:
        self._listener = listen_here(label)

    def wait(self, seconds: float) -> Hint:
        return self._listener.wait(seconds)

    def call(self, on_hint: Callable[[Hint], None]) -> bool:
        self._listener.call(on_hint)
        return True

    def stir(self) -> None: ...

    def close(self) -> None:
        self._listener.close()


class NotifyThrottle:
    """Rings at once if it has been silent for a while, else once more when NOTIFY_GAP is over: many callers, few rings.
    Whoever comes by shortly before that rings for all; only if nobody does, a thread has to."""

    def __init__(self, notify: Callable[[], None]) -> None:
        self._notify = notify
        self._forget()

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._last = float("-inf")
        self._deferred = False
        self._watched = False
        self._never = threading.Event()
        """Never set: to wait for it is to sleep, whatever a program or a test has made of time.sleep."""
        self._pid = os.getpid()

    def __call__(self) -> None:
        if self.due():
            self._try()
        else:
            self.defer()

    def due(self) -> bool:
        """Whether it would ring at once; if so, the caller has taken the turn and rings in his own way, also for those
        who are owed a ring. One who then has nothing to tell should `defer` it."""
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
        """Ring once more when NOTIFY_GAP is over."""
        with self._lock:
            self._deferred = True
            if self._watched:
                return
            self._watched = True
        try:
            threading.Thread(target=self._flush_later, name="leasehold bell", daemon=True).start()
        except RuntimeError:  # no more threads, or the interpreter is ending: then whoever comes next rings
            self._watched = False

    def flush(self) -> None:
        """Ring now if a ring is owed: the process may end before the thread that owes it."""
        if self._pid != os.getpid():
            return  # the debt is the parent's, and its lock may have been held when this child was forked
        with self._lock:
            deferred, self._deferred = self._deferred, False
        if deferred:
            self._try()

    def _flush_later(self) -> None:
        """As long as rings are owed, and by then nobody else has rung."""
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
            # A hint that is lost costs a worker the rest of its second, nothing more.
            logger.debug("wake-up not sent: %s", error)

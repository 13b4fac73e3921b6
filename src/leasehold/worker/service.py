"""The threads of a worker: the background loop of a role, written once, the pools for handlers and for the store, and
the thread of a hook."""

from __future__ import annotations

import contextlib
import logging
import queue
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, Protocol, TypeVar

from leasehold.domain.errors import StoreError
from leasehold.domain.hooks import HookDelivery
from leasehold.threads import ForkMark, end_copy, start_threads, unanswered

logger = logging.getLogger("leasehold.worker")

SLOWEST = 30.0
ENDS_WITHIN = 5.0
"""Seconds that a stop waits for the beat under way."""


class Role(Protocol):
    """Something that runs beside the event loop as long as the worker lives."""

    def start(self) -> None: ...

    def stop(self) -> None: ...


class Service:
    """Calls `beat` in its own thread until it is stopped. `beat` returns the seconds until the next call."""

    def __init__(
        self, name: str, beat: Callable[[], float], *, first: float = 0.0, slowest: float = SLOWEST
    ) -> None:
        self.name = name
        self._one_beat = beat
        self._first = first
        self._slowest = slowest
        """Longest pause, in seconds, between two tries while the database fails."""
        self._nudge = threading.Event()
        self._fork_mark = ForkMark()
        self._stopping = False
        self._troubles = 0
        self._thread = threading.Thread(target=self._run, name=f"leasehold-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def unanswered_since(self) -> float | None:
        """When its beat sent a statement that the database has not answered yet."""
        return unanswered.get(self._thread.ident or 0)

    def nudge(self) -> None:
        """Beat now."""
        self._nudge.set()

    def stop(self) -> None:
        self._stopping = True
        self._nudge.set()
        self._thread.join(ENDS_WITHIN)

    def _run(self) -> None:
        self._nudge.wait(self._first)
        while True:
            # Clear it before the beat: a stop or a nudge that comes later ends the wait below.
            self._nudge.clear()
            if self._stopping:
                return
            self._nudge.wait(self._beat_safely())

    def _beat_safely(self) -> float:
        """Wait out database trouble, and log it once; log a bug every time. Neither ends the loop."""
        try:
            try:
                pause = self._one_beat()
            finally:
                if self._fork_mark.is_copy:
                    end_copy()
        except StoreError as error:
            self._troubles += 1
            if self._troubles == 1:
                logger.warning("%s: %s; trying again", self.name, error)
            return min(self._slowest, 0.2 * 2.0 ** min(self._troubles, 10)) * random.uniform(0.5, 1.0)
        except Exception:
            logger.exception("%s: unexpected error; continuing", self.name)
            return 5.0
        if self._troubles:
            logger.info("%s: the database is back", self.name)
            self._troubles = 0
        return pause


# -- pools -------------------------------------------------------------------------------------------------------------

P = ParamSpec("P")
T = TypeVar("T")

STORE_THREADS = 2
"""Threads that claim and settle at the same time: a third only slows the others down."""
THIRD_THREAD_AFTER = 0.1
"""Seconds after which a third starts nevertheless: batches of endings that wait for a lock must not keep a worker from
its claims."""


class HandlerThreads:
    """At most `size` threads, the first one at once, others as needed. They are daemons: a thread that hangs must not
    keep the process from ending."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._started = 0
        self._busy = 0
        self._lock = threading.Lock()
        self._fork_mark = ForkMark()
        if size:
            self._start()

    def submit(self, call: Callable[[], None]) -> None:
        """Run the call in a thread; more than `size` calls wait for a free one."""
        with self._lock:
            self._busy += 1
            if self._busy > self._started and self._started < self._size:
                # The machine may have no room for another thread, or the interpreter is ending.
                with contextlib.suppress(RuntimeError):
                    self._start()
        self._calls.put(call)

    def _start(self) -> None:
        name = f"leasehold-handler-{self._started + 1}"
        threading.Thread(target=self._work, name=name, daemon=True).start()
        self._started += 1

    def close(self) -> None:
        for _ in range(self._started):
            self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                call()
            finally:
                if self._fork_mark.is_copy:
                    end_copy()
                with self._lock:
                    self._busy -= 1


class StoreThreads(ThreadPoolExecutor):
    def __init__(self) -> None:
        super().__init__(STORE_THREADS + 1, thread_name_prefix="leasehold-store")
        start_threads(super().submit, STORE_THREADS + 1)
        self._places = threading.Semaphore(STORE_THREADS)

    def submit(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        return super().submit(self._in_turn, call, *args, **kwargs)

    def _in_turn(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        has_place = self._places.acquire(timeout=THIRD_THREAD_AFTER)
        try:
            return call(*args, **kwargs)
        finally:
            if has_place:
                self._places.release()


# -- a thread for each hook --------------------------------------------------------------------------------------------

_hooks_logger = logging.getLogger("leasehold.hooks")

IDLE_SECONDS = 10.0
"""Seconds for which the thread of a hook waits for more events before it ends."""


class HookThread:
    """Calls one hook, one event after another. Each hook has a thread of its own, so that one that blocks holds up no
    other; the thread is a daemon, so that it does not keep the process from ending."""

    def __init__(
        self,
        name: str,
        turn: threading.Condition,
        deliver: Callable[[HookDelivery], None],
        give_back: Callable[[Sequence[HookDelivery]], None],
        on_done: Callable[[HookThread], None],
    ) -> None:
        self.name = name
        self.calls = 0
        """How many calls have ended."""
        self.expects_more = False
        """More of its events may be due: the dispatcher has looked only for those of other hooks since, or took as many
        as it takes at once."""
        self._turn = turn
        self._deliver = deliver
        self._give_back = give_back
        self._on_done = on_done
        self._events: deque[HookDelivery] = deque()
        self._until = 0.0
        """When the first half of the events' lease is over, on the monotonic clock."""
        self._began_at: float | None = None
        self._is_stuck = False
        self._lives = self._closed = False

    @property
    def has_room(self) -> bool:
        return self._began_at is None and not self._events

    @property
    def stuck_for(self) -> float | None:
        """Seconds that the call under way has taken, if that is too long."""
        with self._turn:
            began_at = self._began_at if self._is_stuck else None
            return None if began_at is None else time.monotonic() - began_at

    def give(self, events: Sequence[HookDelivery], until: float, *, more: bool) -> None:
        with self._turn:
            if not self._lives:
                threading.Thread(target=self._run, name=f"leasehold-hook-{self.name}", daemon=True).start()
                self._lives = True
            self._events.extend(events)
            self._until = until
            self.expects_more = more
            self._turn.notify_all()

    def take_turn(self) -> bool:
        """Return whether the hook has room; if not, the dispatcher looks again when it has."""
        with self._turn:
            self.expects_more = not self.has_room
            return not self.expects_more

    def find_stuck(self, longest: float) -> bool:
        """Return True if the call under way has just become longer than that many seconds."""
        with self._turn:
            if self._is_stuck or self._began_at is None or time.monotonic() - self._began_at <= longest:
                return False
            self._is_stuck = True
            return True

    def withdraw(self) -> list[HookDelivery]:
        """Take back the events whose calls have not begun."""
        with self._turn:
            events = list(self._events)
            self._events.clear()
            return events

    def close(self) -> float | None:
        """End the thread when its call is over; returns the seconds that the call has taken so far, or None."""
        with self._turn:
            self._closed = True
            self._turn.notify_all()
            return None if self._began_at is None else time.monotonic() - self._began_at

    def _run(self) -> None:
        while (delivery := self._next()) is not None:
            if time.monotonic() < self._until:
                self._deliver(delivery)
            else:
                self.expects_more = True
                self._give_back([delivery, *self.withdraw()])

    def _next(self) -> HookDelivery | None:
        with self._turn:
            if self._began_at is not None:
                self.calls += 1
                if self._is_stuck:
                    seconds = time.monotonic() - self._began_at
                    _hooks_logger.info("hook %s has returned after %.0f s", self.name, seconds)
                self._began_at, self._is_stuck = None, False
                self._turn.notify_all()
                if not self._events:
                    self._on_done(self)
            self._turn.wait_for(lambda: self._events or self._closed, IDLE_SECONDS)
            if not self._events:
                self._lives = False
                return None
            self._began_at = time.monotonic()
            return self._events.popleft()

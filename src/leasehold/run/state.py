"""One running attempt, as every part of a worker sees it: its grant, its stop request, its updates."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from leasehold.domain.errors import DatabaseUnreachable, InvalidInput
from leasehold.domain.job import Grant
from leasehold.domain.signals import StopRequested
from leasehold.domain.stream import LOG
from leasehold.run.stream_buffer import RunStream, StreamWriter

T = TypeVar("T")


class RunState:
    """A stop may be requested from another thread. What most runs never change is an attribute of the class: a worker
    makes thousands of these a second. For the same reason `Attempt` has the only constructor, which sets what this
    class and `HandlerState` declare."""

    grant: Grant
    writer: StreamWriter | None = None
    """None outside of a worker: updates are checked, and dropped."""
    stream: RunStream | None = None
    """Only if the attempt has emitted something."""
    reported_at = 0.0
    """On the monotonic clock: the last sign of life, for `stall_after`."""
    completed = False
    """The handler has settled its job itself; what it does from then on changes nothing."""
    in_doubt = False
    """The handler has sent its success, and it is unknown whether it arrived."""
    holds_slots = False
    """It has acquired units while it ran: its end may let other jobs start."""
    waits_for: tuple[str, ...] = ()
    """What the attempt is waiting for, in words, for `why`."""
    stop_requested = False
    _event: threading.Event | None = None
    """Made only for a wait: most attempts never wait."""

    # -- stop ------------------------------------------------------------------------------------------------------
    def request_stop(self) -> None:
        # First the flag, then the look for an event; `wait` does it the other way round, so neither misses the other.
        self.stop_requested = True
        if self._event is not None:
            self._event.set()

    def wait(self, seconds: float) -> bool:
        """Sleep, but not longer than until a stop is requested; whether one is."""
        event = self._event
        if event is None:
            event = self._event = threading.Event()
        if self.stop_requested:
            event.set()
        return event.wait(seconds)

    def raise_if_stopped(self) -> None:
        if self.stop_requested:
            raise StopRequested

    def exited(self, error: BaseException) -> None:
        """A task of its handler has called `sys.exit`, or raised KeyboardInterrupt."""
        self.request_stop()

    @contextmanager
    def waiting_for(self, what: str) -> Iterator[None]:
        self.waits_for = (*self.waits_for, what)
        try:
            yield
        finally:
            left = list(self.waits_for)  # an async handler may wait for several things
            left.remove(what)
            self.waits_for = tuple(left)

    # -- trouble ---------------------------------------------------------------------------------------------------
    def patiently(self, ask: Callable[[], T]) -> T:
        """While the database is away the run waits, as long as its lease is good: a result that was computed is not
        thrown away. Only for what may be repeated."""
        pause = 0.1
        while True:
            try:
                return ask()
            except DatabaseUnreachable as error:
                if self.stop_requested:
                    raise StopRequested from error
            self.wait(pause * random.uniform(0.5, 1.0))
            pause = min(pause * 2, 2.0)

    def refuse_after_completion(self, verb: str) -> None:
        if self.completed:
            raise InvalidInput(
                verb, "comes after ctx.complete", "let ctx.complete be the last thing that the handler does"
            )

    # -- signs of life ---------------------------------------------------------------------------------------------
    def show_life(self) -> None:
        """For `stall_after`: an attempt that goes on to a step, or emits something, is not stalled."""
        self.reported_at = time.monotonic()

    def emit(self, kind: str, data: str | None = None, key: str | None = None, text: str = "") -> bool:
        """False: too much waits for the database already, and this was dropped."""
        self.show_life()
        if self.writer is None:
            return True
        return self.writer.put(self.stream or self.writer.stream_of(self), kind, data, key, text)

    def log_line(self, line: str, read_to: str | None = None) -> None:
        # A log takes everything: what no store can keep is replaced, not refused.
        clean = line.replace("\x00", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode("utf-8")
        self.emit(LOG, read_to, text=clean + "\n")


current_run: ContextVar[RunState | None] = ContextVar("leasehold_run", default=None)
"""The run that this code belongs to. New tasks and asyncio.to_thread inherit it; threads of a handler do not."""

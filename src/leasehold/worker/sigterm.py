"""Listens to SIGTERM in a program that is not the worker's own, such as a web server, without taking it over."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any


class _SharedHandler:
    """The handler that all workers of this process share. They may end in any order: the last one restores the handler
    before theirs. With one handler each, a worker would restore that of a worker which is gone."""

    def __init__(self, before: Any) -> None:
        self.before = before
        self.members: list[tuple[Callable[[], object], Callable[[], object] | None]] = []

    def __call__(self, number: int, frame: FrameType | None) -> None:
        handled = callable(self.before)
        for receive, take in list(self.members):
            (receive if handled or take is None else take)()
        if handled:
            self.before(number, frame)


@contextlib.contextmanager
def catching_sigterm(
    receive: Callable[[], object], take: Callable[[], object] | None = None
) -> Iterator[None]:
    """Until the block ends, SIGTERM calls `receive`, and then the previous handler.

    Without a previous handler it calls `take` instead; without `take`, the signal ends the process as before. Only the
    main thread may set handlers, so elsewhere nothing is called. A handler that is set later replaces this one: then
    only that handler is called.
    """
    now: Any = signal.getsignal(signal.SIGTERM)
    taken = take is not None and now is signal.SIG_DFL
    if threading.current_thread() is not threading.main_thread() or not (taken or callable(now)):
        yield
        return
    shared: _SharedHandler = now if isinstance(now, _SharedHandler) else _SharedHandler(now)
    shared.members.append((receive, take))
    if shared is not now:
        signal.signal(signal.SIGTERM, shared)
    try:
        yield
    finally:
        shared.members.remove((receive, take))
        found: Any = signal.getsignal(signal.SIGTERM)
        if not shared.members and found is shared:
            signal.signal(signal.SIGTERM, shared.before)

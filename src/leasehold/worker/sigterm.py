"""SIGTERM in a program that is not the worker's own, such as a web server: heard as well, never taken over."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType


@contextlib.contextmanager
def hearing_sigterm(call: Callable[[], object]) -> Iterator[None]:
    """Until the block ends, SIGTERM calls this first, and then whoever has handled it until now.

    Where nobody handles it the signal ends the process, and that stays so. Only the main thread may set handlers, so
    elsewhere nothing is heard. A handler that is set later takes the place of this one: then it is theirs alone.
    """
    before = signal.getsignal(signal.SIGTERM)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return

    def both(number: int, frame: FrameType | None) -> None:
        call()
        before(number, frame)

    signal.signal(signal.SIGTERM, both)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGTERM) is both:
            signal.signal(signal.SIGTERM, before)

"""Threads for the blocking calls of async verbs; and what a fork does to locks, signals and workers.

asyncio's own threads belong to the program. They are few: if the program's blocking calls used them all, no job could
be cancelled, and our calls must not take them from the program either.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import inspect
import os
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import CoroutineType
from typing import Any, Concatenate, NoReturn, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Threads:
    """A pool with at most this many threads per process, made at the first call or by `start`."""

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._executor: ThreadPoolExecutor | None = None
        os.register_at_fork(after_in_child=self._forget)

    async def call(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function in a thread, like `asyncio.to_thread`: it sees its caller's context, and runs to its end even
        if the caller is cancelled."""
        call = functools.partial(contextvars.copy_context().run, function, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._executor or self._make(), call)

    def start(self) -> None:
        """Start all threads, for what must still be done when the interpreter is ending."""
        if self._executor is None:
            start_threads(self._make().submit, self._most)

    def _make(self) -> ThreadPoolExecutor:
        self._executor = ThreadPoolExecutor(self._most, thread_name_prefix=f"leasehold-{self._name}")
        return self._executor

    def _forget(self) -> None:
        """Drop the executor: a forked child has none of its threads."""
        self._executor = None


def start_threads(submit: Callable[[Callable[[], object]], object], number: int) -> None:
    """Start this many threads of a pool. When the interpreter has begun to end, Python 3.12.0 to 3.12.2 starts none any
    more."""
    together = threading.Barrier(number)
    try:
        for _ in range(number):
            submit(together.wait)
    except RuntimeError:  # there is no room for so many
        together.abort()


async def until_done(
    future: asyncio.Future[Any], on_cancel: Callable[[], object]
) -> asyncio.CancelledError | None:
    """Wait until the future is done, even if the caller is cancelled repeatedly. Each cancellation calls `on_cancel`;
    the last one is returned, for the caller to raise."""
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancelled = error
            on_cancel()
    return cancelled


to_thread = Threads(32, "call").call
"""Run a function that waits for the database, or for a connection to it."""

# -- async names -------------------------------------------------------------------------------------------------------

S = TypeVar("S")


def aio(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], CoroutineType[Any, Any, T]]:
    """Return an async method that makes the same call in one of our threads. It looks the method up by name, so that a
    subclass that overrides `cancel` has the right `acancel` too. A method that waits for long, or yields, needs an
    async method of its own."""
    name = method.__name__
    if (
        inspect.isgeneratorfunction(method)
        or inspect.iscoroutinefunction(method)
        or inspect.isasyncgenfunction(method)
    ):
        raise TypeError(f"{name} cannot run in a thread as one call: write a{name} by hand")

    @functools.wraps(method)
    async def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await to_thread(functools.partial(getattr(self, name), *args, **kwargs))

    call.__name__ = f"a{name}"
    call.__qualname__ = f"{method.__qualname__.rpartition('.')[0]}.a{name}"
    return call  # type: ignore[return-value] # mypy reads `async def` as Coroutine, pyright as CoroutineType


# -- locks that are free in a forked child -----------------------------------------------------------------------------


class ForkLock:
    """A lock that is free after a fork: the child does not have the parent's thread that may have held it."""

    def __init__(self) -> None:
        self.renew()
        _all.add(self)

    def renew(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def _renew_all() -> None:
    for lock in list(_all):
        lock.renew()


_all: weakref.WeakSet[ForkLock] = weakref.WeakSet()
os.register_at_fork(after_in_child=_renew_all)

unanswered: dict[int, float] = {}
"""The threads of this process, by their ident, that wait for a database's answer, and since when (monotonic)."""
os.register_at_fork(after_in_child=unanswered.clear)

after_fork = ForkLock()
"""One lock for all stores: a child process takes it once in its life."""


# -- a worker that is forked -------------------------------------------------------------------------------------------
# A handler may fork; multiprocessing does. The child is a copy of the whole worker, with the forking thread alone. It
# must not pass its signals on to its parent's event loop, and a child that comes back from the handler must not go on
# as a second worker with the same leases.


class ForkMark:
    """Held by a part of a worker: `is_copy` is true in a forked child, but false in parts that the child makes."""

    def __init__(self) -> None:
        self.is_copy = False
        _marks.add(self)


class SignalHandler:
    """A handler of ours; `before` is the one that it has replaced, which a forked child gets back."""

    before: Any = signal.SIG_DFL


class _Loop:
    """A loop that runs a worker or a server, and its thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None) -> None:
        self.loop = loop
        self.thread = threading.get_ident()


_marks: weakref.WeakSet[ForkMark] = weakref.WeakSet()
_loops: set[_Loop] = set()
_masks = threading.local()
"""The signals that a forking thread had blocked before."""
_DEFAULTS = {signal.SIGTERM: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}
COPY_EXIT = 1
"""The exit code of a child that a handler has forked and let come back."""


@contextlib.contextmanager
def apart_from_forks(loop: asyncio.AbstractEventLoop | None = None) -> Iterator[None]:
    """Until the block ends, a forked child handles its own signals, and a child that goes on with this loop ends."""
    one = _Loop(loop)
    _loops.add(one)
    try:
        yield
    finally:
        _loops.discard(one)


def end_copy() -> NoReturn:
    """End this process, a forked child that came back from a handler: with the code of its `sys.exit`, else with a line
    about it."""
    error = sys.exception()
    if isinstance(error, SystemExit):
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(COPY_EXIT if isinstance(error.code, str) else int(error.code or 0) & 0xFF)
    raised = "" if error is None else f" (it raised {type(error).__name__}: {error})"
    text = f"process {os.getpid()}: a handler forked it, and it came back from there{raised}; end it with os._exit"
    with contextlib.suppress(OSError):
        # Not by logging: a thread of the parent may have held its locks.
        os.write(2, f"leasehold: {' '.join(text.split())}\n".encode(errors="replace"))
    os._exit(COPY_EXIT)


def _hold_signals() -> None:
    """Let no signal come to the child before it has its own handlers."""
    if _loops:
        _masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())


def _let_signals_in() -> None:
    mask, _masks.before = getattr(_masks, "before", None), None
    if mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _begin_child() -> None:
    for mark in list(_marks):
        mark.is_copy = True
    if _loops:
        with contextlib.suppress(ValueError):  # forked in a subinterpreter
            # What catches a signal writes to the loop of the parent, which takes it for a signal of its own.
            signal.set_wakeup_fd(-1)
            for number, default in _DEFAULTS.items():
                _restore(number, default)
    _let_signals_in()
    for one in _loops:
        if one.loop is not None and one.thread == threading.get_ident() and not one.loop.is_closed():
            # The first thing that the loop does in the child, before it takes what is meant for its parent.
            one.loop.call_soon(end_copy)
    _loops.clear()


def _restore(number: signal.Signals, default: Any) -> None:
    found: Any = signal.getsignal(number)
    before = found
    while isinstance(before, SignalHandler):
        before = before.before
    function = before.func if isinstance(before, functools.partial) else before
    if str(getattr(function, "__module__", "")).partition(".")[0] in ("asyncio", "uvloop"):
        # It only exists to write to the loop.
        before = default
    if before is not found:
        signal.signal(number, before)


os.register_at_fork(before=_hold_signals, after_in_parent=_let_signals_in, after_in_child=_begin_child)

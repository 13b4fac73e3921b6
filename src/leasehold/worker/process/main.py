"""The child process: runs one job as a worker would; its store sends each call to the worker."""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import os
import resource
import signal
import socket
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

from leasehold.domain.errors import InvalidInput
from leasehold.domain.outcome import Failure, Outcome, Stopped
from leasehold.domain.signals import StopRequested
from leasehold.run.attempt import Attempt, run_here
from leasehold.run.exceptions import ExitGuard, describe
from leasehold.run.journal import Journal
from leasehold.threads import SignalHandler, apart_from_forks
from leasehold.worker.logs import LogCapture, LogFields
from leasehold.worker.process.job_message import (
    JobMessage,
    TaskMessage,
    ending,
    load_definition,
    read_message,
    stopped,
)
from leasehold.worker.process.rpc import CUT_OFF, Channel, Link, RemoteStore, RemoteWriter
from leasehold.worker.service import HandlerThreads
from leasehold.worker.writers import BatchWriter

if TYPE_CHECKING:
    from leasehold.stores.store import JobStore

THREADS = 8
"""Threads for the verbs and plain steps of an async handler."""
OVERTIME = 5
"""Seconds of CPU time from the signal to the kill, for a handler that handles the signal itself."""
STOPPED = Stopped("stopped by the worker")


def run_job(channel: int, stack: int) -> None:
    """Run the job, and return when its ending is sent to the worker."""
    interrupt = Interrupt()
    end = Channel(socket.socket(fileno=channel), interrupt)
    first = end.receive()
    if first is None:
        return  # the worker is already gone
    message = read_message(first)
    faulthandler.enable(open(stack, "wb", buffering=0), all_threads=False)  # noqa: SIM115 — as long as we live
    _limit(message.task)
    link = Link(end)
    link.open()
    attempt: ChildAttempt | None = None
    try:
        definition = load_definition(message.task)
        attempt = ChildAttempt(message, definition, link, interrupt)
        link.on_stop(attempt.stop_from_outside)
        with _logging(message.task, attempt), apart_from_forks():
            end_message = attempt.to_its_end()
    except BaseException as error:
        end_message = ending(Failure(describe(error)))
    finally:
        interrupt.armed = False
    try:
        link.send(end_message)
    except OSError:
        os._exit(CUT_OFF)


def _limit(task: TaskMessage) -> None:
    if task.memory is not None:
        # Not the address space: threads and libraries reserve far more of it than they use.
        _lower(resource.RLIMIT_DATA, task.memory, task.memory)
    if task.cpu_time is not None:
        _lower(resource.RLIMIT_CPU, task.cpu_time, task.cpu_time + OVERTIME)


def _lower(which: int, soft: int, hard: int) -> None:
    _, most = resource.getrlimit(which)
    if most != resource.RLIM_INFINITY:
        soft, hard = min(soft, most), min(hard, most)
    resource.setrlimit(which, (soft, hard))


@contextlib.contextmanager
def _logging(task: TaskMessage, attempt: ChildAttempt) -> Any:
    fields = LogFields()
    fields.start()
    capture = LogCapture(attempt.remote_writer) if task.capture_logs else None
    if capture is not None:
        capture.start()
    try:
        yield
    finally:
        if capture is not None:
            capture.stop()
        fields.stop()


class Interrupt(SignalHandler):
    """Stops a handler without a context: raises StopRequested in the handler, as Python raises KeyboardInterrupt.
    During a send it waits for the end of the send."""

    def __init__(self) -> None:
        self.armed = False
        self._reported = False
        self._sends = 0
        self._late = False
        # A function, not SIG_IGN: processes that the handler starts would inherit SIG_IGN.
        signal.signal(signal.SIGTERM, self)

    def emit(self) -> None:
        """Interrupt the handler, from any thread. The signal also ends a wait of the main thread in the kernel."""
        self._reported = True
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)

    def __call__(self, *_: object) -> None:
        # A signal that the worker has not sent does nothing: stopping a service sends it to all its processes, and the
        # worker may let its jobs end.
        if not (self.armed and self._reported):
            return
        if self._sends:
            self._late = True
        else:
            self._raise()

    def _raise(self) -> None:
        self.armed = False  # once: the handler's clean-up must not be interrupted too
        raise StopRequested

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            self._sends += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if threading.current_thread() is threading.main_thread():
            self._sends -= 1
            if self._late and self.armed and not self._sends:
                self._raise()


class ChildAttempt(Attempt):
    """The attempt in the child process. Its writes, reports and ending go to the worker, and only the worker knows why
    it is stopped."""

    def __init__(self, message: JobMessage, definition: Any, link: Link, interrupt: Interrupt) -> None:
        self._link = link
        self._interrupt = interrupt
        self._message: dict[str, Any] = {}
        self.remote_writer = RemoteWriter(link)
        threads = HandlerThreads(THREADS)
        # The part of a store that attempts use: `ctx` reaches nothing else.
        store = cast("JobStore", RemoteStore(link, message.has_folder))
        journal = Journal(store, "", threads, BatchWriter(), lambda *_: self.stop("requested"))
        now = time.monotonic()
        super().__init__(message.grant, definition, now, now, journal, self.remote_writer)

    @property
    def resources(self) -> Any:
        raise InvalidInput(
            "resources", "are of the worker's own process", "open what the task needs in the task itself"
        )

    @resources.setter
    def resources(self, value: Any) -> None:
        """Ignored: a child has no resources."""

    # -- its life --------------------------------------------------------------------------------------------------
    def to_its_end(self) -> dict[str, Any]:
        """Return the message with its ending."""
        if self.definition.runs_on_loop:
            asyncio.run(self._run_on_loop())
        else:
            run_here(self.run(self._ended))
        return self._message

    async def _run_on_loop(self) -> None:
        loop = asyncio.get_running_loop()
        guard = ExitGuard(loop)
        guard.start()
        self._loop = loop
        self.task = asyncio.create_task(self.run(self._ended))
        if self.must_stop:
            self.task.cancel()
        with apart_from_forks(loop):
            await asyncio.wait([self.task])
        guard.stop()

    def stop_from_outside(self) -> None:
        """Stop the attempt, as the worker requests. Runs in the link's thread."""
        self.stop("requested")
        if not self.definition.runs_on_loop:
            if self._interrupt.armed:
                self._interrupt.emit()
        elif (task := self.task) is not None:
            with contextlib.suppress(RuntimeError):  # the loop has just ended
                task.get_loop().call_soon_threadsafe(task.cancel)

    def call(self, arguments: dict[str, Any]) -> Any:
        # A handler with a context checks its context for a stop, as in a thread of a worker.
        self._interrupt.armed = not self.definition.runs_on_loop and self.definition.context_parameter is None
        try:
            self.raise_if_stopped()
            return super().call(arguments)
        finally:
            self._interrupt.armed = False

    def _ended(self, attempt: Attempt, outcome: Outcome | None) -> None:
        if outcome is None or outcome is STOPPED:
            over = self.over_budget()
            self._message = stopped(None if over is None else str(over))
        else:
            self._message = ending(outcome)

    def outcome_when_stopped(self) -> Outcome | None:
        return super().outcome_when_stopped() if self.cause == "exited" else STOPPED

    # -- what goes to the worker -----------------------------------------------------------------------------------
    def show_life(self) -> None:
        self._link.send({"alive": True})

    def emit(self, kind: str, data: str | None = None, key: str | None = None, text: str = "") -> bool:
        return self.remote_writer.put(self.remote_writer.stream_of(self), kind, data, key, text)

    def leaves_row(self, text: str | None) -> bool:
        """Return False: the worker stores the result."""
        return False

"""The worker's side of an attempt in its own process: the child process, its calls and its end."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from typing import Any

from leasehold.domain.outcome import AttemptTimedOut, Crashed, HandedBack, Outcome, Success
from leasehold.domain.signals import StopRequested
from leasehold.run.attempt import Attempt
from leasehold.run.exceptions import OURS, signal_name
from leasehold.tasks.definition import TaskDefinition, margin
from leasehold.worker.process.job_message import (
    STOPPED,
    JobMessage,
    TaskMessage,
    outcome_from,
    task_message,
    write_message,
)
from leasehold.worker.process.rpc import CUT_OFF, STOP_REQUEST, Channel, RpcServer, write_answer, write_error

# -- the child ---------------------------------------------------------------------------------------------------------

EXIT_AFTER_CLOSE = 2.0
"""Seconds that a child may live on after its channel was closed, before it is killed."""
LINGER = 5.0
"""Seconds that a child has to exit after it reported its ending: its libraries may need them."""
LONGEST_STACK = 8 * 1024

_BOOT = "import sys; sys.path[:] = {path!r}; from leasehold.worker.process.guard import main; main({ends})"


class Child:
    def __init__(self, attempt: Attempt, message: JobMessage) -> None:
        """Raises OSError if the machine has no room for another process."""
        self.message: dict[str, Any] | None = None
        """The ending that the child reported."""
        self.code: int | None = None
        """The child's exit code, negative for a signal; None: unknown."""
        self.garbled = False
        """The child closed its channel while it lived on, or sent an invalid frame."""
        self.expired = False
        """The child was killed because its lease ran out."""
        self._attempt = attempt
        self._job_message = message
        self._server = RpcServer(attempt)
        self._pid = 0
        self._guard_lives = True
        self._received = b""
        self._end_by = float("inf")
        self._stack = tempfile.TemporaryFile()  # noqa: SIM115 — closed with the child
        self._control, guards = socket.socketpair()
        ours, childs = socket.socketpair()
        self._channel = Channel(ours)
        ends = (guards.fileno(), childs.fileno(), self._stack.fileno())
        boot = _BOOT.format(path=sys.path, ends=", ".join(map(str, (*ends, os.getpid()))))
        try:
            # Its own session: Ctrl-C in the worker's terminal is for the worker.
            self._guard = subprocess.Popen(
                [sys.executable, "-c", boot, attempt.grant.task, attempt.grant.id],
                stdin=subprocess.DEVNULL,
                pass_fds=ends,
                start_new_session=True,
            )
        except BaseException:
            self._let_go()
            raise
        finally:
            guards.close()
            childs.close()

    def stop(self, grace: float) -> None:
        """Send the child's group SIGTERM, and SIGKILL after the grace. Callable from any thread, returns at once."""
        self._send_to_guard(f"stop {grace:.3f}")

    def extend(self, until: float) -> None:
        """Let the child live until then, by the monotonic clock. Callable from any thread."""
        self._send_to_guard(f"lease {until:.3f}")

    def _send_to_guard(self, line: str) -> None:
        with contextlib.suppress(OSError):  # the guard has ended
            self._control.send(line.encode() + b"\n", socket.MSG_DONTWAIT)

    def serve(self) -> None:
        """Serve the child's calls until none of its processes is alive."""
        with contextlib.suppress(OSError):  # the child died before it could begin
            self._channel.send(write_message(self._job_message))
        with selectors.DefaultSelector() as selector:
            selector.register(self._control, selectors.EVENT_READ, self._read_guard)
            selector.register(self._channel, selectors.EVENT_READ, self._read_child)
            while self._guard_lives:
                left = None if self._end_by == float("inf") else max(0.0, self._end_by - time.monotonic())
                for key, _ in selector.select(left):
                    if not key.data():
                        selector.unregister(key.fileobj)
                if time.monotonic() >= self._end_by:
                    self.garbled |= self.message is None
                    self._end_by = float("inf")
                    self.stop(0.0)
            # The child may have ended right after its last message.
            while self._channel in selector.get_map() and selector.select(0) and self._read_child():
                pass
        self._guard.wait()

    def close(self) -> None:
        """Close both sockets: if the child still lives, its guard sees that and kills it."""
        self._let_go()
        self._guard.wait()

    def _let_go(self) -> None:
        self._control.close()
        self._channel.close()
        self._stack.close()

    @property
    def stack(self) -> str:
        """Python's traceback of the crash; "" if there is none."""
        text = os.pread(self._stack.fileno(), LONGEST_STACK, 0).decode(errors="replace")
        lines = [line for line in text.splitlines() if OURS not in line and '"<string>"' not in line]
        return "\n".join(lines).strip()

    # -- incoming messages -----------------------------------------------------------------------------------------
    def _read_guard(self) -> bool:
        try:
            received = self._control.recv(4096)
        except ConnectionResetError:
            received = b""  # it ended without reading all our lines, as after the end of its lease
        if not received:
            self._guard_lives = False
            if self.code is None and self._pid:
                # The guard was killed, and the child with it; processes that the child started may live.
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._pid, signal.SIGKILL)
            return False
        *lines, self._received = (self._received + received).split(b"\n")
        for line in lines:
            word, _, number = line.decode().partition(" ")
            if word == "started":
                self._pid = int(number)
            elif word == "stopping":
                self._answer(STOP_REQUEST)
            elif word == "expired":
                self.expired = True
            elif word == "ended":
                self.code = int(number)
        return True

    def _read_child(self) -> bool:
        frame = self._channel.receive()
        try:
            if frame is not None:
                self._act(json.loads(frame))
                return True
        except (ValueError, KeyError, TypeError):
            self.garbled = True
        self._end_by = min(self._end_by, time.monotonic() + (0.0 if self.garbled else EXIT_AFTER_CLOSE))
        return False

    def _act(self, message: dict[str, Any]) -> None:
        if "ask" in message:
            self._serve(message["ask"], message["verb"], message["args"])
        elif "emit" in message:
            self._server.emit(*message["emit"])
        elif "alive" in message:
            self._attempt.show_life()
        else:
            self.message = {"end": message["end"], **message}
            self._end_by = time.monotonic() + LINGER

    def _serve(self, number: int, verb: str, args: list[Any]) -> None:
        try:
            frame = write_answer(number, verb, self._server.call(verb, args))
        except (Exception, StopRequested) as error:
            frame = write_error(number, error)
        self._answer(frame)

    def _answer(self, frame: bytes) -> None:
        with contextlib.suppress(OSError):  # the child is gone
            self._channel.send(frame)


# -- attempt -----------------------------------------------------------------------------------------------------------

KILL_TIME = 5.0
"""Seconds that a killed child may take to end. A slower child hangs in the kernel, and its thread with it."""
NO_ROOM_DELAY = 10.0
"""Seconds until the next try of a job whose process could not be started."""


class EndedAs(BaseException):
    """How a child's attempt ended, if not with success."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome


class Processes:
    """Settings and task messages that the child processes of one worker share."""

    def __init__(self, tasks: Iterable[TaskDefinition], stop_grace: float, capture_logs: bool) -> None:
        """Raises InvalidTask for a task that no other process could import: now, not when it is claimed."""
        self.stop_grace = stop_grace
        self._capture_logs = capture_logs
        self._task_messages: dict[TaskDefinition, TaskMessage] = {}
        for task in tasks:
            if task.in_child_process:
                self.message_of(task)

    def message_of(self, task: TaskDefinition) -> TaskMessage:
        if task not in self._task_messages:
            self._task_messages[task] = task_message(task, self._capture_logs)
        return self._task_messages[task]


class ProcessAttempt(Attempt):
    _child: Child | None = None
    _over: str | None = None
    processes: Processes
    """Set before the attempt runs."""

    def call(self, arguments: dict[str, Any]) -> Success:
        """Run the handler in a child. The arguments were checked; the child decodes them again, from the grant."""
        journal = self.needed_journal()
        message = JobMessage(self.processes.message_of(self.definition), self.grant, journal.has_folder)
        try:
            child = Child(self, message)
        except OSError as error:
            raise EndedAs(
                HandedBack(f"its worker could not start a process: {error}", NO_ROOM_DELAY)
            ) from error
        try:
            self._child = child
            child.extend(self._expires_at)
            if self.must_stop:  # since before the child could be notified
                child.stop(self._grace())
            child.serve()
            return self._judged(child)
        finally:
            self._child = None
            child.close()

    @property
    def _expires_at(self) -> float:
        """When another worker may get the job, by the monotonic clock."""
        return self.usable_until + margin(self.grant.lease_seconds)

    def renewed(self, sent_at: float) -> None:
        super().renewed(sent_at)
        if (child := self._child) is not None:
            child.extend(self._expires_at)

    def request_stop(self) -> None:
        super().request_stop()
        if (child := self._child) is not None:
            child.stop(self._grace())

    def stop_timeout(self, stop_grace: float) -> float:
        return stop_grace + KILL_TIME

    def _grace(self) -> float:
        """Return the seconds that the child gets to end; 0 if the lease is lost, because the next attempt may run
        already. The guard ends the child with the lease at the latest."""
        return 0.0 if self.cause == "lost" else self.processes.stop_grace

    # -- how it ended ----------------------------------------------------------------------------------------------
    def _judged(self, child: Child) -> Success:
        if child.message is not None:
            return self._as_reported(child.message)
        if self.must_stop:
            raise StopRequested
        if child.expired:
            raise EndedAs(HandedBack("its lease could not be renewed"))
        if child.garbled:
            raise ChildProcessError("its process spoiled its connection to the worker, and was killed")
        if child.code is None:
            raise EndedAs(Crashed("its process, and the one that guards it, were killed"))
        if child.code < 0:
            raise EndedAs(self._killed(-child.code, child.stack))
        if child.code == CUT_OFF:
            raise ChildProcessError("its process cut its connection to the worker")
        raise ChildProcessError(f"its process ended with exit code {child.code} before the task had returned")

    def _as_reported(self, message: dict[str, Any]) -> Success:
        if message["end"] == STOPPED:
            self._over = message.get("over")
            raise StopRequested
        outcome = outcome_from(message)
        if isinstance(outcome, Success):
            return outcome
        raise EndedAs(outcome)

    def _killed(self, number: int, stack: str) -> Outcome:
        if number == signal.SIGXCPU and self.definition.settings.cpu_time is not None:
            return AttemptTimedOut(
                f"it computed for longer than cpu_time={self.definition.settings.cpu_time!r}"
            )
        text = f"its process was killed by {signal_name(number)}"
        if number == signal.SIGKILL:
            text += "; the kernel does that where memory runs out"
        return Crashed(f"{text}\n\n{stack}" if stack else text)

    def judge(self, value: object) -> Success:
        """Return the value, which is the success that the child has made."""
        assert isinstance(value, Success)
        return value

    def judge_error(self, error: BaseException) -> Outcome | None:
        if isinstance(error, EndedAs) and self.cause != "lost":
            return error.outcome
        return super().judge_error(error)

    def over_budget(self) -> object:
        return self._over

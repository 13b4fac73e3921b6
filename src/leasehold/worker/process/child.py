"""A child as its worker sees it: started, served, stopped, and how it ended."""

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
from typing import Any

from leasehold.domain.signals import StopRequested
from leasehold.run.attempt import Attempt
from leasehold.run.error_text import OURS
from leasehold.worker.process.answers import STOP, write_answer, write_error
from leasehold.worker.process.channel import Channel
from leasehold.worker.process.served import Served
from leasehold.worker.process.sheet import JobSheet, write_sheet

LAST_BREATH = 2.0
"""Seconds from the end of the channel to the end of the child, before it is helped along."""
LINGER = 5.0
"""Seconds that a child has to end when it has told how its run ended: for what its libraries do at exit."""
LONGEST_STACK = 8 * 1024

_BOOT = "import sys; sys.path[:] = {path!r}; from leasehold.worker.process.guard import main; main({ends})"


class Child:
    def __init__(self, run: Attempt, sheet: JobSheet) -> None:
        """Raises OSError when the machine has no room for another process."""
        self.message: dict[str, Any] | None = None
        """How it said that its run ended."""
        self.code: int | None = None
        """Its exit code, negative for a signal; None: nobody has seen it."""
        self.garbled = False
        """It has closed its channel while it lived on, or sent what is not ours."""
        self.expired = False
        """It was killed because its lease ran out."""
        self._run = run
        self._sheet = sheet
        self._served = Served(run)
        self._pid = 0
        self._guard_lives = True
        self._heard = b""
        self._end_by = float("inf")
        self._stack = tempfile.TemporaryFile()  # noqa: SIM115 — closed with the child
        self._control, guards = socket.socketpair()
        ours, childs = socket.socketpair()
        self._channel = Channel(ours)
        ends = (guards.fileno(), childs.fileno(), self._stack.fileno())
        boot = _BOOT.format(path=sys.path, ends=", ".join(map(str, (*ends, os.getpid()))))
        try:
            # A session of its own: Ctrl-C in the worker's terminal is for the worker.
            self._guard = subprocess.Popen(
                [sys.executable, "-c", boot, run.grant.kind, run.grant.id],
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
        """From any thread, and at once: SIGTERM for it and all in its group, SIGKILL after the grace."""
        self._tell_guard(f"stop {grace:.3f}")

    def extend(self, until: float) -> None:
        """From any thread: it may live until then, on the monotonic clock."""
        self._tell_guard(f"lease {until:.3f}")

    def _tell_guard(self, line: str) -> None:
        with contextlib.suppress(OSError):  # it has ended
            self._control.send(line.encode() + b"\n", socket.MSG_DONTWAIT)

    def serve(self) -> None:
        """Until nothing of it is alive any more."""
        with contextlib.suppress(OSError):  # it died before it could begin
            self._channel.send(write_sheet(self._sheet))
        with selectors.DefaultSelector() as selector:
            selector.register(self._control, selectors.EVENT_READ, self._hear_guard)
            selector.register(self._channel, selectors.EVENT_READ, self._hear_child)
            while self._guard_lives:
                left = None if self._end_by == float("inf") else max(0.0, self._end_by - time.monotonic())
                for key, _ in selector.select(left):
                    if not key.data():
                        selector.unregister(key.fileobj)
                if time.monotonic() >= self._end_by:
                    self.garbled |= self.message is None
                    self._end_by = float("inf")
                    self.stop(0.0)
            # It may have ended right after its last words.
            while self._channel in selector.get_map() and selector.select(0) and self._hear_child():
                pass
        self._guard.wait()

    def close(self) -> None:
        """Should it still live, it is killed by its guard, which sees the end of the socket."""
        self._let_go()
        self._guard.wait()

    def _let_go(self) -> None:
        self._control.close()
        self._channel.close()
        self._stack.close()

    @property
    def stack(self) -> str:
        """Where its code stood when it crashed, as Python tells it; "" if it could not."""
        told = os.pread(self._stack.fileno(), LONGEST_STACK, 0).decode(errors="replace")
        lines = [line for line in told.splitlines() if OURS not in line and '"<string>"' not in line]
        return "\n".join(lines).strip()

    # -- what is heard ---------------------------------------------------------------------------------------------
    def _hear_guard(self) -> bool:
        try:
            heard = self._control.recv(4096)
        except ConnectionResetError:
            heard = b""  # it has ended without having read all that we said, as one does whose lease was over
        if not heard:
            self._guard_lives = False
            if self.code is None and self._pid:
                # The guard was killed, and the child with it; what it had started may live.
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._pid, signal.SIGKILL)
            return False
        *lines, self._heard = (self._heard + heard).split(b"\n")
        for line in lines:
            word, _, number = line.decode().partition(" ")
            if word == "started":
                self._pid = int(number)
            elif word == "stopping":
                self._answer(STOP)
            elif word == "expired":
                self.expired = True
            elif word == "ended":
                self.code = int(number)
        return True

    def _hear_child(self) -> bool:
        frame = self._channel.receive()
        try:
            if frame is not None:
                self._act(json.loads(frame))
                return True
        except (ValueError, KeyError, TypeError):
            self.garbled = True
        self._end_by = min(self._end_by, time.monotonic() + (0.0 if self.garbled else LAST_BREATH))
        return False

    def _act(self, message: dict[str, Any]) -> None:
        if "ask" in message:
            self._serve(message["ask"], message["verb"], message["args"])
        elif "tell" in message:
            self._served.tell(*message["tell"])
        elif "alive" in message:
            self._run.show_life()
        else:
            self.message = {"end": message["end"], **message}
            self._end_by = time.monotonic() + LINGER

    def _serve(self, number: int, verb: str, args: list[Any]) -> None:
        try:
            frame = write_answer(number, verb, self._served.call(verb, args))
        except (Exception, StopRequested) as error:
            frame = write_error(number, error)
        self._answer(frame)

    def _answer(self, frame: bytes) -> None:
        with contextlib.suppress(OSError):  # it has gone
            self._channel.send(frame)

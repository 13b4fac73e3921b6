"""The guard: a small process between a worker and a child process; it runs none of the user's code.

It ends the child and all processes that the child has started: on request, when the child has ended, when the lease
runs out because the worker is frozen, and when the worker is gone for any reason. The worker could not do the last two,
and cannot see processes that left the child's process group; on Linux the guard can, because it is a subreaper, which
inherits all orphans among its descendants.

It reads lines: "stop GRACE", the seconds until the child is killed, and "lease TIME", by the machine's monotonic clock.
It writes "started PID", "stopping", "expired", and at last "ended CODE", negative for a signal, when none of the
processes is alive.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import time
from typing import NoReturn

from leasehold.runners.shim import PR_SET_CHILD_SUBREAPER, PR_SET_PDEATHSIG, kill_children, prctl

NEVER = float("inf")
KILL_AGAIN = 1.0
"""Seconds between two kills. A process that survives the first hangs in the kernel: the guard can only wait for it."""


def main(control: int, channel: int, stack: int, worker: int) -> None:
    """Fork the child that runs the job, and watch it until it has ended; never returns."""
    # Before anything else is imported, so that the fork has one thread and the guard stays small.
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    guard = os.getpid()
    child = os.fork()
    if not child:
        _begin_child(guard, control)
        from leasehold.worker.process.main import run_job  # imported only in the child

        run_job(channel, stack)
        raise SystemExit
    os.close(channel)
    os.close(stack)
    Guard(socket.socket(fileno=control), child, worker).watch()


def _begin_child(guard: int, control: int) -> None:
    os.setpgid(0, 0)
    os.close(control)
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != guard:  # killed before it could ask for its death signal
        os._exit(1)


class Guard:
    def __init__(self, control: socket.socket, child: int, worker: int) -> None:
        self._control = control
        self._child = child
        self._worker = worker
        self._kill_at = NEVER
        self._lease_until = NEVER
        self._stopping = False
        self._reaped = False
        self._received = b""

    def watch(self) -> NoReturn:
        with contextlib.suppress(OSError):  # the child does it too: a signal to the group must reach it
            os.setpgid(self._child, self._child)
        selector = selectors.DefaultSelector()
        selector.register(self._catch_signals(), selectors.EVENT_READ, None)
        selector.register(self._control, selectors.EVENT_READ, self._control)
        # The socket's end shows that the worker is gone, unless a fork of the worker has kept it open.
        prctl(PR_SET_PDEATHSIG, signal.SIGHUP)
        if os.getppid() != self._worker:
            self._leave()
        self._write(f"started {self._child}")
        while True:
            for key, _ in selector.select(self._pause()):
                if key.data is None:
                    os.read(key.fd, 4096)
                else:
                    self._receive()
            code = self._ended()
            if code is not None:
                self._end_what_is_left()
                self._write(f"ended {code}")
                os._exit(0)
            now = time.monotonic()
            if now >= self._lease_until:
                self._write("expired")
                self._kill_at, self._lease_until = now, NEVER
            if now >= self._kill_at:
                self._signal(signal.SIGKILL)
                self._kill_at = now + KILL_AGAIN

    def _pause(self) -> float | None:
        next_at = min(self._kill_at, self._lease_until)
        return None if next_at == NEVER else max(0.0, next_at - time.monotonic())

    def _catch_signals(self) -> int:
        """Return a pipe that becomes readable whenever a signal arrives. A SIGTERM to all processes of a service is for
        the worker to handle, which may let its jobs end first."""
        read, write = os.pipe()
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)
        signal.signal(signal.SIGHUP, lambda *_: self._look_for_worker())
        return read

    def _look_for_worker(self) -> None:
        if os.getppid() != self._worker:
            self._leave()

    def _receive(self) -> None:
        try:
            received = self._control.recv(4096)
        except OSError:
            received = b""
        if not received:
            self._leave()
        *lines, self._received = (self._received + received).split(b"\n")
        for line in lines:
            word, _, number = line.partition(b" ")
            if word == b"lease":
                self._lease_until = float(number)
            else:
                self._stop(float(number))

    def _stop(self, grace: float) -> None:
        self._kill_at = min(self._kill_at, time.monotonic() + grace)
        if not self._stopping:
            self._stopping = True
            self._signal(signal.SIGTERM)
            self._write("stopping")

    def _leave(self) -> NoReturn:
        """The worker is gone: end everything that ran for it, and exit."""
        self._signal(signal.SIGKILL)
        self._end_what_is_left()
        os._exit(0)

    def _ended(self) -> int | None:
        """Return the child's exit code; also reaps orphans that ended meanwhile."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return None
            if pid == self._child:
                self._reaped = True
                return os.waitstatus_to_exitcode(status)
            if not pid:
                return None

    def _end_what_is_left(self) -> None:
        self._signal(signal.SIGKILL)
        kill_children()

    def _signal(self, number: int) -> None:
        """Signal the child's group, or, if the child has left it, the child."""
        try:
            os.killpg(self._child, number)
        except (ProcessLookupError, PermissionError):
            if not self._reaped:  # otherwise its PID may belong to another process
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(self._child, number)

    def _write(self, line: str) -> None:
        with contextlib.suppress(OSError):
            self._control.sendall(line.encode() + b"\n")

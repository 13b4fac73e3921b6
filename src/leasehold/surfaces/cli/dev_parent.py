"""The half of `leasehold dev` that never has the app in it: it watches the files, and starts the other half anew."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from leasehold.surfaces.cli.dev_child import (
    GRACE,
    LAST_ANSWERS,
    LAST_WORDS,
    STOP_GRACE,
    DevSettings,
    Message,
)
from leasehold.surfaces.cli.dev_files import WatchedFiles
from leasehold.surfaces.cli.problems import Exit

LOOK_EVERY = 0.5
TICK = 0.1
PATIENCE = GRACE + STOP_GRACE + LAST_ANSWERS + LAST_WORDS + 5
"""Seconds until a child that was told to end is killed. Its leases run out, and its jobs are taken over."""
OURS = "leasehold.surfaces.cli.dev_child"


class Child:
    def __init__(self, settings: DevSettings) -> None:
        self._line, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", OURS, settings.as_text(), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C is ours to hear: it would drain twice
            )
        self._line.settimeout(TICK)
        self._rest = b""
        self.broken: Message | None = None

    @property
    def code(self) -> int | None:
        """None while it lives; as a shell would say it, if a signal has ended it."""
        found = self._process.poll()
        return 128 - found if found is not None and found < 0 else found

    def messages(self) -> Iterator[Message]:
        """What it has said meanwhile; waits a moment for it."""
        while data := self._receive():
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                message: Message = json.loads(line)
                if "broken" in message:
                    self.broken = message
                yield message

    def _receive(self) -> bytes:
        with contextlib.suppress(TimeoutError, ConnectionError):
            if data := self._line.recv(65536):
                return data
            time.sleep(TICK)  # it is leaving
        return b""

    def ask_to_end(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        """With all that it has started, as far as that has not gone its own way."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._line.close()


class Supervisor:
    def __init__(self, settings: DevSettings, folder: Path, on_ready: Callable[[Message], None]) -> None:
        """`on_ready`: called when it first listens."""
        self._settings = settings
        self._folder = folder
        self._files = WatchedFiles(folder)
        self._on_ready = on_ready
        self._was_ready = False
        self._signals = 0
        self._look_at = 0.0

    def run(self) -> int:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._hear)
        first = True
        while True:
            child = Child(self._settings)
            try:
                changed = self._attend(child)
                if self._told_to_stop():
                    self._end(child)
                    return Exit.OK
                if not changed:
                    if child.broken is None or (first and not child.broken["raised"]):
                        return Exit.OK if child.code is None else child.code
                    changed = self._wait_for_change()
                    if self._told_to_stop():
                        return Exit.OK
                self._say(f"{self._named(changed)}: restarting")
                self._files.settle()
                self._end(child)
                if self._told_to_stop():
                    return Exit.OK
                first = False
            finally:
                child.kill()

    def _attend(self, child: Child) -> list[str]:
        """Until it has ended, or is to end because of these files or of a signal."""
        while not self._told_to_stop():
            ended = child.code is not None
            for message in child.messages():
                self._take(message)
            if ended:
                return []
            if changed := self._look():
                return changed
        return []

    def _take(self, message: Message) -> None:
        if "files" in message:
            self._files.learn(message["files"])
        if "broken" in message and message["raised"]:
            self._say("the app cannot be imported: waiting for a change (Ctrl-C to stop)")
        if "ready" in message:
            if self._was_ready:
                self._say("ready again")
            else:
                self._on_ready(message)
            self._was_ready = True

    def _look(self) -> list[str]:
        if time.monotonic() < self._look_at:
            return []
        self._look_at = time.monotonic() + LOOK_EVERY
        return self._files.changed()

    def _wait_for_change(self) -> list[str]:
        while not self._told_to_stop():
            if changed := self._look():
                return changed
            time.sleep(TICK)
        return []

    def _end(self, child: Child) -> None:
        """Its jobs get their grace; a second Ctrl-C does not wait for them."""
        child.ask_to_end()
        deadline = time.monotonic() + PATIENCE
        while child.code is None and time.monotonic() < deadline and self._signals < 2:
            for message in child.messages():
                if "files" in message:
                    self._files.learn(message["files"])

    def _hear(self, number: int, frame: object) -> None:
        self._signals += 1

    def _told_to_stop(self) -> bool:
        return self._signals > 0

    def _named(self, changed: list[str]) -> str:
        paths = [os.path.relpath(file, self._folder) for file in changed]
        more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
        return f"{', '.join(paths[:3])}{more} changed"

    def _say(self, text: str) -> None:
        print(f"dev: {text}", flush=True)

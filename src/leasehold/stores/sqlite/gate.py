"""The way in to a SQLite file, shut while the process forks.

SQLite keeps a table of its locks for each process, and a fork copies it: a child that inherits an open file believes
that it holds locks which it does not, and the parent's last close unlinks the log under it. Jobs that were acknowledged
are lost that way, and jobs that succeeded run again. Only a child of a process that has no connection open is safe. So
every use of a connection enters this gate; before a fork it is shut, the uses under way are awaited, and everything
is closed; on both sides the next use opens the file again.

A hook cannot refuse a fork. Where a use goes on (of the forking thread itself, a handler's long transaction) the
parent goes on unharmed, and the child refuses the file.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from typing import Protocol

FORK_SECONDS = 5.0
"""How long a fork waits for what is under way."""

Identity = tuple[int, int]
"""Device and inode of a file."""


class OpenFile(Protocol):
    """The connections of one store to one file."""

    @property
    def identity(self) -> Identity | None:
        """Of the file as it was last known."""

    @property
    def is_open(self) -> bool: ...

    def close_before_fork(self) -> None: ...

    def begin_child(self, refused: bool) -> None: ...


class Gate:
    """One for the process: the locks that a fork copies belong to the process, whichever store took them."""

    def __init__(self) -> None:
        self._files: weakref.WeakSet[OpenFile] = weakref.WeakSet()
        self._refused: set[Identity | None] = set()
        self._begin()
        os.register_at_fork(
            before=self._before, after_in_parent=self._after_in_parent, after_in_child=self._after_in_child
        )

    def _begin(self) -> None:
        # Reentrant: the garbage collector may close a forgotten store while its thread stands in the gate.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._inside: dict[int, list[OpenFile]] = {}
        """By thread: a thread inside may enter once more, because keeping it out would block the fork for ever."""
        self._forking: int | None = None
        """The thread that forks."""
        self._emptied = False
        """From here until the fork is over no thread enters."""
        self._in_use: set[Identity | None] = set()
        """What could not be closed before it."""

    def add(self, file: OpenFile) -> None:
        with self._lock:
            self._files.add(file)

    def refuses(self, identity: Identity) -> bool:
        """Whether the file was open here at the moment of a fork; then no connection of this process is safe."""
        return identity in self._refused

    def enter(self, file: OpenFile) -> int:
        """What to `leave` with."""
        me = threading.get_ident()
        with self._lock:
            while self._keeps_out(me):
                self._changed.wait()
            self._inside.setdefault(me, []).append(file)
        return me

    def leave(self, thread: int, file: OpenFile) -> None:
        with self._lock:
            inside = self._inside.get(thread, [])
            if file in inside:  # else it came in before the fork that made this process
                inside.remove(file)
            if not inside:
                self._inside.pop(thread, None)
                if self._forking is not None:
                    self._changed.notify_all()

    def _keeps_out(self, thread: int) -> bool:
        if self._forking is None or self._forking == thread:
            return False
        return self._emptied or thread not in self._inside

    # -- around a fork ---------------------------------------------------------------------------------------------
    def _before(self) -> None:
        me = threading.get_ident()
        with self._lock:
            while self._forking is not None:
                self._changed.wait()
            self._forking = me
            deadline = time.monotonic() + FORK_SECONDS
            while self._inside.keys() - {me} and (left := deadline - time.monotonic()) > 0:
                self._changed.wait(left)
            self._in_use = {file.identity for files in self._inside.values() for file in files}
            self._emptied = True
            files = list(self._files)
        for file in files:
            if file.identity not in self._in_use:
                try:
                    file.close_before_fork()
                except Exception:  # a disk in trouble: the parent may go on, the child must not
                    self._in_use.add(file.identity)

    def _after_in_parent(self) -> None:
        with self._lock:
            self._forking = None
            self._emptied = False
            self._changed.notify_all()

    def _after_in_child(self) -> None:
        """Its locks may have been held by threads that are not here."""
        files = list(self._files)
        # Nothing was closed if the fork did not come through Python.
        left = self._in_use if self._emptied else {file.identity for file in files if file.is_open}
        self._begin()
        self._refused |= left
        for file in files:
            file.begin_child(refused=file.identity in left)


gate = Gate()

"""The open connections of one store to its SQLite file: a writer, readers, kept connections, and the gate around forks.

Each connection's file is known by device and inode: a file that is deleted or replaced under a running process lives on
for the processes that have it open, and what they write is lost with it.
"""

from __future__ import annotations

import os
import random
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Protocol, TypeVar
from urllib.parse import quote

from leasehold.domain.errors import DatabaseDamaged, DatabaseUnreachable

C = TypeVar("C", bound=sqlite3.Connection)

BUSY_SECONDS = 5.0
WAITS_BY_ITSELF = "PRAGMA busy_timeout = 0"
"""For connections that poll for the file's lock themselves: SQLite polls less and less often, ten times a second in the
end, and would hardly ever meet the moment in which a busy writer frees the lock."""

_PRAGMAS = (
    # Readers do not block the writer, and the writer does not block readers.
    "PRAGMA journal_mode = WAL",
    # An acknowledged enqueue survives a power cut.
    "PRAGMA synchronous = FULL",
    "PRAGMA wal_autocheckpoint = 10000",
    "PRAGMA cache_size = -64000",
    "PRAGMA temp_store = MEMORY",
)

DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})

# The pragmas need a lock only in a file that is not ours yet.
_NEW_FILE = "; in a new file, call app.upgrade() before your first transaction"


def primary_code(error: sqlite3.Error) -> int:
    """SQLite's primary code; 0 for an error that the driver itself has raised."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


SET_UP_WITHIN = 1.0
"""Seconds for which a refused set-up is tried again."""


def _set_up(connection: sqlite3.Connection) -> None:
    """Several processes may switch a new file to its log at once: SQLite refuses all but one without waiting."""
    until = time.monotonic() + SET_UP_WITHIN
    while True:
        try:
            for pragma in _PRAGMAS:
                connection.execute(pragma)
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= until:
                raise
            time.sleep(random.uniform(0.001, 0.01))


class Connections:
    """A store's connections. Closing one while another thread uses it crashes the process: the writer is closed under
    its lock, and a reader only by the thread that has taken it out of `_idle`. Every use is inside the gate."""

    def __init__(self, path: str, label: str, on_replaced: Sequence[Callable[[], None]]) -> None:
        # A program may change its working folder later.
        self.path = os.path.abspath(path)
        self.label = label
        self._on_replaced = on_replaced
        self.closed = False
        self.identity: Identity | None = None
        """The file that connections must have open. None: the file that the next connection finds."""
        self._begin()
        gate.add(self)

    def _begin(self) -> None:
        self.writing = threading.Lock()
        self._changing = threading.Lock()
        self._open: dict[sqlite3.Connection, Identity] = {}
        self._idle: list[sqlite3.Connection] = []
        self._writer: sqlite3.Connection | None = None
        self._pid = os.getpid()

    def inside(self) -> Inside:
        return Inside(self)

    # -- open ------------------------------------------------------------------------------------------------------
    def writer(self) -> sqlite3.Connection:
        """The writer; the caller holds `writing`."""
        self.check_open()
        writer = self._writer
        if writer is not None:
            if self.is_current(writer):
                return writer
            self.close(writer)
        self._writer = writer = self.open(sqlite3.Connection)
        writer.execute(WAITS_BY_ITSELF)
        return writer

    def take(self) -> sqlite3.Connection:
        """A reader; `give_back` it."""
        self.check_open()
        try:
            return self._idle.pop()
        except IndexError:
            return self.open(sqlite3.Connection)

    def give_back(self, connection: sqlite3.Connection) -> None:
        with self._changing:
            if not self.closed and self.is_current(connection):
                self._idle.append(connection)
                return
        self.close(connection)

    def open(self, connect: Callable[..., C]) -> C:
        """Open a connection, which the caller must close."""
        identity = self._identity()
        if identity is None:
            self._raise_moved()
        if gate.refuses(identity):
            self._refuse()
        try:
            connection = connect(
                f"file://{quote(self.path)}?mode=rw",  # never makes an empty file in place of one that is gone
                uri=True,
                timeout=BUSY_SECONDS,
                isolation_level=None,
                check_same_thread=False,
            )
        except sqlite3.Error as error:
            raise DatabaseUnreachable(self.label, str(error)) from error
        try:
            _set_up(connection)
        except sqlite3.Error as error:
            connection.close()
            raise self.unreachable(error, also=_NEW_FILE) from error
        with self._changing:
            if self.identity is None:
                self.identity = identity
            self._open[connection] = identity
        try:
            if not self.is_current(connection):
                self._raise_moved()
            self.check(connection)
        except BaseException:
            self.close(connection)
            raise
        return connection

    def unreachable(self, error: sqlite3.Error, *, also: str = "") -> DatabaseUnreachable:
        """For a lock, the error also names the processes that may hold it."""
        code = primary_code(error)
        if code in DAMAGE:
            return DatabaseDamaged(self.label, str(error))
        if code == sqlite3.SQLITE_BUSY:
            path = os.path.realpath(self.path)
            holders = "" if also else lock_of_this_process(path)
            return DatabaseUnreachable(
                self.label, str(error), holders or f"{processes_that_opened(path)}{also}"
            )
        return DatabaseUnreachable(self.label, str(error))

    def create(self) -> None:
        """Create an empty file, unless there is one. Called only when a store is opened."""
        try:
            Path(self.path).parent.mkdir(parents=True, exist_ok=True)
            # Never open an existing file: closing it would drop the locks that this process has on it.
            with suppress(FileExistsError):
                os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644))
        except OSError as error:
            raise DatabaseUnreachable(self.label, str(error)) from error

    # -- is it still the file, and still ours? ---------------------------------------------------------------------
    def check(self, connection: sqlite3.Connection) -> None:
        """Raise DatabaseUnreachable unless the connection's file is the one at the path. Call this before anything is
        acknowledged."""
        try:
            found = os.stat(self.path)
        except OSError:
            self._raise_moved()
        if self._open.get(connection) != (found.st_dev, found.st_ino):
            self._raise_moved()

    def is_current(self, connection: sqlite3.Connection) -> bool:
        return self.identity is not None and self._open.get(connection) == self.identity

    def owns(self, connection: sqlite3.Connection) -> bool:
        """False in a forked child, which must not even close an inherited connection."""
        return connection in self._open

    def check_ours(self, connection: sqlite3.Connection) -> None:
        """Called before a commit: a child forked inside a transaction must not end it for the parent."""
        if connection not in self._open:
            self._refuse()

    def check_open(self) -> None:
        """Raises if the store is closed: a late thread must not open a connection that would never be closed."""
        if self.closed:
            raise DatabaseUnreachable(self.label, "this store was closed")
        if self._pid != os.getpid() and self._open:
            # Forked by a library, past Python's own hooks.
            self._refuse()

    def _identity(self) -> Identity | None:
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise DatabaseUnreachable(self.label, str(error)) from error
        return found.st_dev, found.st_ino

    def _raise_moved(self) -> NoReturn:
        """Close idle connections, so that the next call opens the file that is there then, and raise."""
        there = os.path.exists(self.path)
        with self._changing:
            self.identity = None
            idle, self._idle = self._idle, []
        for connection in idle:
            self.close(connection)
        for call in self._on_replaced:
            call()
        if there:
            raise DatabaseUnreachable(
                self.label,
                "the file was replaced under this process; what it wrote last is not in the new one",
                "repeat the call: it uses the file that is there now",
            )
        raise DatabaseUnreachable(
            self.label,
            "the file was deleted under this process; what it wrote last is gone with it",
            "put the file back, or start the process again to begin with an empty one",
        )

    def _refuse(self) -> NoReturn:
        raise DatabaseUnreachable(
            self.label,
            "this process was forked while the file was in use, and SQLite's locks do not survive that",
            "fork outside of its transactions, open the app after the fork, or use the 'spawn' start method",
        )

    # -- the end ---------------------------------------------------------------------------------------------------
    def close(self, connection: sqlite3.Connection) -> None:
        """Close a connection. A second call, or a call in a forked child, does nothing."""
        if self._open.pop(connection, None) is not None:
            connection.close()

    def close_all(self) -> None:
        """Does not wait: a thread that is using a connection finishes its call and closes it."""
        with self._changing:
            self.closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            self.close(connection)
        self.close_writer()

    def close_writer(self) -> None:
        """Close the writer. A thread that is writing closes it afterwards, when it sees that the store is closed."""
        if self._writer is not None and self.writing.acquire(blocking=False):
            try:
                self.close(self._writer)
            finally:
                self.writing.release()

    def forget(self) -> None:
        """Called when the store is collected unclosed, or the process ends, perhaps with a daemon thread at work."""
        self.closed = True
        if self._pid != os.getpid():
            return
        with suppress(IndexError):
            while True:
                self.close(self._idle.pop())
        if self._writer is not None and self.writing.acquire(timeout=BUSY_SECONDS):
            try:
                self.close(self._writer)
            finally:
                self.writing.release()

    # -- around a fork ---------------------------------------------------------------------------------------------
    @property
    def is_open(self) -> bool:
        return bool(self._open)

    def close_before_fork(self) -> None:
        """Close every connection; none is in use now."""
        self._idle.clear()
        self._writer = None
        for connection in list(self._open):
            self.close(connection)

    def begin_child(self, refused: bool) -> None:
        if refused:
            import ctypes

            for connection in self._open:
                # For ever: closing it, even when the interpreter ends, would undo what the parent is writing.
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
        self._begin()


class Inside:
    """A use of connections: a fork waits for its end."""

    __slots__ = ("_file", "_thread")

    def __init__(self, file: Connections) -> None:
        self._file = file

    def __enter__(self) -> None:
        self._thread = gate.enter(self._file)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        gate.leave(self._thread, self._file)


class KeptConnection:
    """A connection kept to compare its replies over time. `openings` counts how often it was opened."""

    def __init__(self, file: Connections) -> None:
        self._file = file
        self._connection: sqlite3.Connection | None = None
        self.openings = 0

    def read_pragma(self, text: str) -> Any:
        file = self._file
        with file.inside():
            file.check_open()
            connection = self._connection
            if connection is None or not file.is_current(connection):
                if connection is not None:
                    file.close(connection)
                self._connection = connection = file.open(sqlite3.Connection)
                self.openings += 1
            file.check(connection)
            try:
                return connection.execute(text).fetchone()[0]
            except sqlite3.DatabaseError as error:
                raise file.unreachable(error) from error

    def close(self) -> None:
        with self._file.inside():
            if self._connection is not None:
                self._file.close(self._connection)


# -- the gate ----------------------------------------------------------------------------------------------------------
# SQLite keeps a table of its locks for each process, and a fork copies it: a child that inherits an open file believes
# that it holds locks that it does not hold, and the parent's last close unlinks the log under it. Acknowledged jobs are
# lost that way, and jobs that succeeded run again. Only a child of a process that has no connection open is safe. So
# every use of a connection enters this gate. Before a fork the gate shuts, waits for the uses under way and closes all
# connections; in parent and child the next use opens the file again.
#
# A hook cannot refuse a fork. If a use goes on (the forking thread's own, a handler's long transaction), the parent is
# unharmed, and the child refuses the file.

FORK_SECONDS = 5.0
"""Seconds for which a fork waits for uses under way."""

Identity = tuple[int, int]
"""Device and inode of a file."""


class OpenFile(Protocol):
    """The connections of one store to one file."""

    @property
    def identity(self) -> Identity | None:
        """The file as it was last known."""

    @property
    def is_open(self) -> bool: ...

    def close_before_fork(self) -> None: ...

    def begin_child(self, refused: bool) -> None: ...


class Gate:
    """The one gate of the process: the locks that a fork copies belong to the process, whichever store took them."""

    def __init__(self) -> None:
        self._files: weakref.WeakSet[OpenFile] = weakref.WeakSet()
        self._refused: set[Identity | None] = set()
        self._begin()
        os.register_at_fork(
            before=self._before, after_in_parent=self._after_in_parent, after_in_child=self._after_in_child
        )

    def _begin(self) -> None:
        # Reentrant: the garbage collector may close a forgotten store in a thread that holds this lock.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._inside: dict[int, list[OpenFile]] = {}
        """The uses by thread: a thread inside may enter once more, because keeping it out would block the fork."""
        self._forking: int | None = None
        """The thread that forks."""
        self._emptied = False
        """While this is set, until the fork is over, no thread enters."""
        self._in_use: set[Identity | None] = set()
        """The files that could not be closed before the fork."""

    def add(self, file: OpenFile) -> None:
        with self._lock:
            self._files.add(file)

    def refuses(self, identity: Identity) -> bool:
        """Whether the file was open when this process was forked: then none of its connections is safe."""
        return identity in self._refused

    def enter(self, file: OpenFile) -> int:
        """Returns the thread to `leave` with."""
        me = threading.get_ident()
        with self._lock:
            while self._keeps_out(me):
                self._changed.wait()
            self._inside.setdefault(me, []).append(file)
        return me

    def leave(self, thread: int, file: OpenFile) -> None:
        with self._lock:
            inside = self._inside.get(thread, [])
            if file in inside:  # else it entered before the fork that made this process
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
                except Exception:  # a failing disk: the parent may go on, the child must not
                    self._in_use.add(file.identity)

    def _after_in_parent(self) -> None:
        with self._lock:
            self._forking = None
            self._emptied = False
            self._changed.notify_all()

    def _after_in_child(self) -> None:
        """Begins anew: threads that the child does not have may have held the gate's locks."""
        files = list(self._files)
        # Nothing was closed if the fork did not go through Python.
        left = self._in_use if self._emptied else {file.identity for file in files if file.is_open}
        self._begin()
        self._refused |= left
        for file in files:
            file.begin_child(refused=file.identity in left)


gate = Gate()

# -- who has the file open ---------------------------------------------------------------------------------------------

MOST_HOLDERS = 5
LONGEST_COMMAND = 80
"""Characters of a command."""


WRITE_LOCK = 120
"""The byte of the shared-memory file that a writer has locked, in SQLite's format of the write-ahead log."""


def lock_of_this_process(path: str) -> str:
    """Text for an error if this process itself has locked the file; "" if another one has, or may have."""
    # Without /proc/locks it is only sure if no other process has the file open.
    if (_writers(f"{path}-shm") or set(_holders(_files_of(path)))) != {os.getpid()}:
        return ""
    return (
        "this process itself has locked it: inside your own transaction enqueue with task.using(tx=connection), or "
        "commit it first"
    )


def _writers(shared_memory: str) -> set[int]:
    """The processes that have locked the file for writing, as Linux knows. Nothing is opened: closing a file drops the
    locks that this process has on it."""
    try:
        inode, lines = os.stat(shared_memory).st_ino, Path("/proc/locks").read_text().splitlines()
    except OSError:
        return set()
    found = set()
    for line in lines:
        # "7: POSIX  ADVISORY  WRITE 18699 fe:00:3114794 120 120"; a process that waits has "->" in second place.
        match line.split():
            case [_, "POSIX", _, "WRITE", pid, place, first, last] if place.endswith(f":{inode}"):
                if int(first) <= WRITE_LOCK <= float(last.replace("EOF", "inf")):
                    found.add(int(pid))
    return found


def processes_that_opened(path: str) -> str:
    """Text for an error. On Linux it names processes of the same user; elsewhere it says how to find out."""
    if not Path("/proc/self/fd").exists():
        return f"to see which processes have it open: lsof {path}"
    found = sorted(_holders(_files_of(path)))
    if not found:
        return f"no process of this user has it open; as another user: sudo lsof {path}"
    named = ", ".join(_named(pid) for pid in found[:MOST_HOLDERS])
    more = f" and {len(found) - MOST_HOLDERS} more" if len(found) > MOST_HOLDERS else ""
    return f"it is open in process {named}{more}; one of them may hold a transaction open"


def _files_of(path: str) -> set[str]:
    return {path, f"{path}-wal", f"{path}-shm"}


def _holders(paths: set[str]) -> Iterator[int]:
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or it is another user's
            if any(_leads_to(fd, paths) for fd in (process / "fd").iterdir()):
                yield int(process.name)


def _leads_to(fd: Path, paths: set[str]) -> bool:
    with suppress(OSError):
        return os.readlink(fd) in paths
    return False


def _named(pid: int) -> str:
    if pid == os.getpid():
        return f"{pid} (this one)"
    with suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        command = " ".join(filter(None, words))
        return f"{pid} ({command[:LONGEST_COMMAND]})"
    return str(pid)

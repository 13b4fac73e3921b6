"""Runs commands on this machine, each under a shim (`shim.py`, which lists its files) that outlives the worker.

Linux keeps every promise of the contract. Other POSIX systems have no subreaper and no /proc: there a grandchild that
leaves its process group (setsid) is not ended with its execution, and `stop` does not find one that a killed shim has
left. The folder must be on a local file system, because a lock over a network may be lost while its holder lives.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path

from leasehold.domain.errors import InvalidInput
from leasehold.domain.frozen import frozen
from leasehold.runners.contract import (
    Collected,
    ExecutionState,
    NothingToCollect,
    Output,
    Phase,
    Runner,
    Start,
    Stream,
)
from leasehold.runners.execution_folder import (
    RESULT_LIMIT,
    RESULT_VARIABLE,
    check_result,
    delete_all_but_the_tombstone,
    execution_folder,
    highest_token,
    make_execution_folder,
    names_in,
    open_site,
    sweep_tombstones,
    write_durably,
)

SHIM = Path(__file__).with_name("shim.py")
TAIL = 64 * 1024
"""Bytes of stdout and of stderr that `collect` returns."""
START_TIMEOUT = 30.0
LIBRARIES_VARIABLE = "LD_LIBRARY_PATH"
"""Passed on to the Python that watches a command, which may need it to start; the command itself gets it only through
`pass_env`."""
NOT_STARTED = 75
"""Exit code of a shim that was not allowed to start."""

_OVER = (Phase.ABSENT, Phase.VANISHED, Phase.TOMBSTONE)
"""Phases in which a folder shows nothing that lives."""

STREAMS: tuple[Stream, Stream] = ("stdout", "stderr")

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@frozen
class Command:
    """A command to run. There is no shell: the program gets `argv` unchanged.

    The program sees the variables of `env`, those of the worker that `pass_env` names, and LEASEHOLD_RESULT, the path
    of a file that it may write its result to. It gets no others. `env` is not written to disk.
    """

    argv: Sequence[str]
    """The program and its arguments. There is no shell."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables that the program gets. They are not written to disk."""
    pass_env: Sequence[str] = ("PATH", "HOME", "LANG", "TZ")
    """Names of the worker's own variables that the program gets too."""
    cwd: str | None = None
    """The working directory. None: an empty folder, deleted with the execution."""
    output_limit: int = 8 * 1024 * 1024
    """Bytes of stdout, and as many of stderr, that are kept on disk. The oldest are dropped, never the newest."""

    @classmethod
    def of(cls, said: object) -> Command:
        """Convert the return value of a task's function."""
        if isinstance(said, Command):
            return said
        if isinstance(said, Sequence) and not isinstance(said, str) and all(isinstance(x, str) for x in said):
            return cls(list(said))
        raise InvalidInput(
            "argv", f"{said!r:.80} is not a list of texts", 'return ["program", "argument"], or a Command'
        )

    def __post_init__(self) -> None:
        if isinstance(self.argv, str) or not self.argv:
            raise InvalidInput("argv", "is not a list of arguments", 'write ["program", "argument"]')
        if isinstance(self.pass_env, str):
            raise InvalidInput("pass_env", "is not a list of names", 'write ["PATH", "HOME"]')
        for text in (*self.argv, *self.env.values()):
            if "\0" in text:
                raise InvalidInput("argv, env", f"{text!r:.80} has a NUL in it", "take it out")
        for name in (*self.env, *self.pass_env):
            if _VARIABLE.fullmatch(name) is None:
                raise InvalidInput(
                    "env, pass_env", f"{name!r:.80} cannot name a variable", "use letters, digits and _"
                )
        if self.output_limit < 2:
            raise InvalidInput("output_limit", f"is {self.output_limit}", "give at least 2 bytes")


class SubprocessRunner(Runner[Command]):
    """The executions of one folder. It keeps nothing in memory: any workers on the machine may share the folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._folder_id = open_site(folder)
        self._site = f"{socket.gethostname()}:{self._folder_id}"

    @property
    def site(self) -> str:
        return self._site

    def ensure_started(self, name: str, token: int, spec: Command) -> Start:
        folder = make_execution_folder(self.folder, self._folder_id, name)
        (folder / f"token.{token}").touch()  # raise the fence before probing
        deadline = time.monotonic() + START_TIMEOUT
        while True:
            phase = self.probe(name).phase
            if phase is Phase.TOMBSTONE or highest_token(folder) > token:
                return Start.FENCED
            if phase is not Phase.CREATED or (token > 1 and _lives_without_lock(folder)):
                return Start.FOUND
            if _launch(folder, token, spec):
                return Start.STARTED
            if time.monotonic() > deadline:
                raise TimeoutError(f"another start of the execution {name} does not come to an end")
            time.sleep(0.01)

    def probe(self, name: str) -> ExecutionState:
        folder = self._folder_of(name)
        state = _look(folder)
        if state.phase in _OVER:
            # Look again: the shim may have made its folder again before we looked for the shim.
            state = ExecutionState(Phase.RUNNING) if _lives_without_lock(folder) else _look(folder)
        return state

    def probe_many(self, names: Sequence[str]) -> dict[str, ExecutionState]:
        return {name: self.probe(name) for name in names}

    def read_output(self, name: str, stream: Stream, offset: int, limit: int) -> tuple[bytes, int]:
        return _read_stream(self._folder_of(name), stream, offset, limit)

    def stop(self, name: str, grace: float) -> None:
        folder = make_execution_folder(self.folder, self._folder_id, name)
        write_durably(folder / "stop", max(grace, 0.0))
        if (folder / "started").exists() and _is_held(folder / "lock") and not _is_held(folder / "shim"):
            # The shim was killed, and nothing else would end the processes it left. Repeat: a process may have forked.
            for _ in range(10):
                _kill_holders(folder / "lock")
                if not _is_held(folder / "lock"):
                    break
                time.sleep(0.01)

    def tombstone(self, name: str) -> ExecutionState:
        folder = make_execution_folder(self.folder, self._folder_id, name)
        write_durably(folder / "tombstone", None)
        return self.probe(name)

    def collect(self, name: str) -> Collected:
        folder = self._folder_of(name)
        try:
            ending = json.loads((folder / "exit").read_text())
            stdout, stderr = (_output(folder, stream, ending[stream]) for stream in STREAMS)
            was_stopped = (folder / "stop").exists()
            return Collected(ending["code"], stdout, stderr, _result(folder / "result"), was_stopped)
        except FileNotFoundError:
            raise NothingToCollect(name, self.probe(name)) from None

    def remove(self, name: str) -> bool:
        folder, phase = self._folder_of(name), self.probe(name).phase
        if phase is Phase.RUNNING:
            return False
        try:
            if self.tombstone(name).phase is Phase.RUNNING:
                return False
        except OSError:
            # The disk may be full, and what is deleted here makes room.
            if phase is not Phase.EXITED:
                raise
            os.utime(folder / "exit")
            (folder / "exit").rename(folder / "tombstone")
        # Delete the exit record first: a half-deleted execution must not be collected.
        delete_all_but_the_tombstone(folder, first="exit")
        return True

    def names(self) -> list[str]:
        return names_in(self.folder)

    def sweep(self, age: float) -> int:
        return sweep_tombstones(self.folder, age, keep_if=("started", "exit"))

    def _folder_of(self, name: str) -> Path:
        return execution_folder(self.folder, name)


def _launch(folder: Path, token: int, spec: Command) -> bool:
    """True: this call has started the command. False: it may not start, or another worker started it first."""
    passed = {name: os.environ[name] for name in spec.pass_env if name in os.environ}
    message = {
        "argv": list(spec.argv),
        "env": passed | dict(spec.env) | {RESULT_VARIABLE: str(folder / "result")},
        "cwd": spec.cwd,
        "output_limit": spec.output_limit,
    }
    # -I: this folder is not on its path, where our own subprocess.py would hide Python's. Its environment is empty
    # except for what Python itself may need, because the command can read it.
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-X", "utf8", str(SHIM), str(folder), str(token)],
        input=json.dumps(message).encode(),
        env={name: os.environ[name] for name in (LIBRARIES_VARIABLE,) if name in os.environ},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
        check=False,
    )
    if done.returncode not in (0, NOT_STARTED):
        reported = done.stderr.decode(errors="replace")[-2000:]
        raise OSError(f"the shim of the execution {folder.name} ended with {done.returncode}: {reported}")
    return done.returncode == 0


def _look(folder: Path) -> ExecutionState:
    """Return what the folder shows."""
    if not folder.is_dir():
        return ExecutionState(Phase.ABSENT)
    alive = _is_held(folder / "lock")  # before the files: the exit record comes before the lock's release
    if (ending := _read(folder / "exit")) is not None:
        return ExecutionState(Phase.EXITED, ending["code"])
    started, stopped, has_tombstone = ((folder / mark).exists() for mark in ("started", "stop", "tombstone"))
    if alive:
        # A shim that has not written `started` yet may have checked before the stop came: it may still start.
        return ExecutionState(Phase.RUNNING if started or stopped or has_tombstone else Phase.CREATED)
    if has_tombstone:
        return ExecutionState(Phase.TOMBSTONE)
    if started:
        return ExecutionState(Phase.VANISHED)
    return ExecutionState(Phase.TOMBSTONE if stopped else Phase.CREATED)


def _lives_without_lock(folder: Path) -> bool:
    """Whether the execution's shim lives although its lock is not in the folder: the folder was deleted, and the shim
    has yet to make it again. Until then nothing there shows that the command runs, or has ended and must not run
    again."""
    if sys.platform != "linux":
        return False
    for pid in _processes():
        with contextlib.suppress(OSError):  # the process has ended meanwhile, or belongs to another user
            argv = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            # A shim that has yet to take its lock obeys what it finds in the folder.
            if argv[-3:-2] == [os.fsencode(folder)] and _has_lock(pid):
                return not (folder / "lock").exists() or not _holds(pid, folder / "lock")
    return False


def _has_lock(pid: int) -> bool:
    links = (os.readlink(f"/proc/{pid}/fd/{descriptor}") for descriptor in os.listdir(f"/proc/{pid}/fd"))
    return any(link.removesuffix(" (deleted)").endswith("/lock") for link in links)


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _is_held(path: Path) -> bool:
    """Return whether a shim, or a process that it started, holds this lock. Probe with a shared lock, so that probers
    are not mistaken for shims."""
    try:
        descriptor = os.open(path, os.O_RDONLY)  # never for writing: see _holds
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        # Unlock explicitly: a process that another thread has just forked may hold the descriptor too.
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _kill_holders(lock: Path) -> None:
    """Send SIGKILL to every process of the execution. By pidfd: the PID may belong to another process by now."""
    if sys.platform != "linux":
        return
    for pid in _processes():
        with contextlib.suppress(OSError):  # the process has ended meanwhile, or belongs to another user
            process = os.pidfd_open(pid)
            try:
                if _holds(pid, lock):
                    signal.pidfd_send_signal(process, signal.SIGKILL)
            finally:
                os.close(process)


def _holds(pid: int, lock: Path) -> bool:
    """Whether the process has inherited the lock. Only shims open it for writing, so probing workers do not count."""
    wanted = lock.stat()
    for descriptor in os.listdir(f"/proc/{pid}/fd"):
        path = f"/proc/{pid}/fd/{descriptor}"
        with contextlib.suppress(OSError):
            if os.lstat(path).st_mode & 0o200 and os.path.samestat(os.stat(path), wanted):
                return True
    return False


def _read(path: Path) -> dict[str, int] | None:
    try:
        found: dict[str, int] = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    return found


def _output(folder: Path, stream: Stream, size: int) -> Output:
    kept, offset = b"", max(size - TAIL, 0)
    while True:
        data, offset = _read_stream(folder, stream, offset, TAIL)
        if not data:
            return Output(kept.decode(errors="replace"), size, is_cut=len(kept) < size)
        kept += data


def _read_stream(folder: Path, stream: Stream, offset: int, limit: int) -> tuple[bytes, int]:
    """Read from one piece, so it may return less than there is. An empty read means that there is no more."""
    while True:
        try:
            pieces = sorted(
                int(entry[len(stream) + 1 :])
                for entry in os.listdir(folder)
                if entry.startswith(f"{stream}.")
            )
            for begin in pieces:  # all but the last are complete
                with (folder / f"{stream}.{begin}").open("rb") as file:
                    at = max(offset, begin)
                    file.seek(at - begin)
                    if data := file.read(limit):
                        return data, at + len(data)
            return b"", offset
        except FileNotFoundError:
            if not folder.is_dir():
                return b"", offset
            # a newer piece has replaced the oldest, or the execution is just being removed: try again


def _result(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return check_result(file.read(RESULT_LIMIT + 1))
    except FileNotFoundError:
        return None

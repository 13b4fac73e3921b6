"""python -I -S -X utf8 shim.py RUN_DIR TOKEN < spec: runs one command, once, and records how it ended.

The shim outlives the worker that started it, and a newer version of Leasehold may watch its execution: it imports
nothing of ours, and shares only the files in RUN_DIR with `subprocess.py`.

    lock        flock, held by the shim and inherited by its children: while it is held, a process of them is alive
    shim        flock, held by the shim alone
    token.N     a lease with this token exists; a shim with a smaller token does not start
    tombstone   nothing may start
    stop        a stop was requested; the content is the grace in seconds
    started     written before the command runs; a shim that finds it never runs the command
    stdout.N, stderr.N   output from byte N of the stream on; the last two pieces are kept
    result, work/
    room        the room of the exit record, on the disk before the command runs: a disk that is full when the command
                ends must not cost its end
    exit        how the execution ended, written over `room` when none of its processes is alive

A shim whose folder is deleted makes it again at the same path, and goes on there.

Exits with 0 once the command runs, with 75 if it may not start, with another code if it could not.
"""

import contextlib
import fcntl
import json
import os
import selectors
import signal
import sys
import time
from typing import Any

NOT_STARTED = 75
STARTED = b"s"
CHECK_STOP_EVERY = 0.25
"""Seconds between two checks for a stop. The end of the command wakes the shim at once."""
LOCK_WITHIN = 5.0
"""Seconds to wait for a lock that a prober holds for an instant."""
CHUNK = 65536
ROOM = 4096
"""Bytes of the exit record, which is padded."""
RETRY_RECORD_EVERY = 1.0
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def main(run: str, token: int) -> None:
    spec = json.load(sys.stdin)
    read, write = os.pipe()
    if os.fork():
        # The starter waits for this process, not for the execution. The answer is STARTED, nothing if the command is
        # not allowed to start, or why it could not.
        os.close(write)
        answer = os.read(read, CHUNK)
        if answer in (b"", STARTED):
            os._exit(0 if answer else NOT_STARTED)
        os.write(2, answer)
        os._exit(1)
    os.close(read)
    os.setsid()
    try:
        os.chdir(run)
        _leave_the_starters_files()
        lock = _lock_out_older(token)
        if lock is None:
            os._exit(NOT_STARTED)
        os.set_inheritable(lock, True)
        execution = Run(run, lock, spec)
        execution.prepare()
    except OSError as error:
        os.write(write, str(error).encode(errors="replace"))
        os._exit(1)
    execution.run(write)
    os._exit(0)  # the process releases the locks when it ends, after the exit record


def _leave_the_starters_files() -> None:
    null = os.open(os.devnull, os.O_RDWR)
    log = os.open("shim.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for target, source in ((0, null), (1, null), (2, log)):
        os.dup2(source, target)


def _lock_out_older(token: int) -> int | None:
    """Return the lock if this shim may run the command. It checks for a fence after it takes the lock: a process that
    raises the fence and then probes the lock sees this shim, or this shim sees the fence."""
    lock = os.open("lock", os.O_RDWR | os.O_CREAT, 0o600)
    deadline = time.monotonic() + LOCK_WITHIN
    while not _lock(lock):
        if os.path.exists("started") or time.monotonic() > deadline:
            return None
        time.sleep(0.005)
    if not _lock(os.open("shim", os.O_RDWR | os.O_CREAT, 0o600)):  # open and locked until this process ends
        return None
    names = os.listdir(".")
    if {"started", "exit", "stop", "tombstone"} & set(names):
        return None
    if any(int(name[6:]) > token for name in names if name.startswith("token.")):
        return None
    return lock


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


class Run:
    def __init__(self, folder: str, lock: int, spec: dict[str, Any]) -> None:
        self.folder = folder
        self.lock = lock
        self.spec = spec
        self.site = ""
        """The id of the folder above, to restore it too."""
        self.outputs = {name: Capped(name, spec["output_limit"]) for name in ("stdout", "stderr")}
        self.selector = selectors.DefaultSelector()
        self.child = 0
        self.stop_began: float | None = None
        self.stop_requested = False

    def prepare(self) -> None:
        """Write what must be on the disk before the command runs. Raises OSError; then a later try may start it."""
        self.signals = self._catch_signals()
        self.pipes = {name: os.pipe() for name in self.outputs}
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        with contextlib.suppress(FileNotFoundError), open("../.site") as file:
            self.site = file.read()
        os.makedirs("work", exist_ok=True)
        make_room(self.folder)
        write_durably(f"{self.folder}/started", {"shim": os.getpid(), "at": time.time()})

    def run(self, started: int) -> None:
        shim, pipes = os.getpid(), self.pipes
        self.child = os.fork()
        if not self.child:
            self._become_the_command(shim, pipes["stdout"][1], pipes["stderr"][1])
        with contextlib.suppress(OSError):  # the child does it too: a signal to the group must reach it
            os.setpgid(self.child, self.child)
        with contextlib.suppress(BrokenPipeError):  # the waiting starter was killed; the execution goes on
            os.write(started, STARTED)
        os.close(started)
        for name, (read, write) in pipes.items():
            os.close(write)
            os.set_blocking(read, False)
            self.selector.register(read, selectors.EVENT_READ, self.outputs[name])
        self.selector.register(self.signals, selectors.EVENT_READ, None)
        code = self._wait()
        self._end_what_is_left()
        self._read_outputs(self.selector.select(0))
        for output in self.outputs.values():
            output.close()
        sizes = {name: output.size for name, output in self.outputs.items()}
        self._record({"code": code, "at": time.time(), **sizes})

    def _record(self, ending: dict[str, Any]) -> None:
        """Write the exit record, however long that takes. Until then the lock is held and the execution counts as
        running: without the record, the command would be run again."""
        while True:
            try:
                self._restore_folder()
                with contextlib.suppress(FileNotFoundError):
                    sync("result")
                write_over_room(ending)
                return
            except OSError:  # no line in shim.log: it is on the same disk
                time.sleep(RETRY_RECORD_EVERY)

    def _restore_folder(self) -> None:
        """If our files are gone from our path, where the workers look, make them again. Raises OSError. Until the lock
        is there, workers find this process in /proc, by the lock that is gone."""
        if self._has_lock() and os.path.samestat(os.stat(self.folder), os.stat(".")):
            return
        os.umask(0o077)
        os.makedirs(self.folder, exist_ok=True)
        restore_site(os.path.dirname(self.folder), self.site)
        if not self._has_lock():
            # The lock that is lost stays open: processes of the command have it too.
            self.lock = open_locked(f"{self.folder}/lock")
            open_locked(f"{self.folder}/shim")
        os.makedirs(f"{self.folder}/work", exist_ok=True)
        make_room(self.folder)
        write_durably(f"{self.folder}/started", {"shim": os.getpid(), "at": time.time()})
        for output in self.outputs.values():
            output.forget_pieces()
        os.chdir(self.folder)

    def _has_lock(self) -> bool:
        try:
            return os.path.samestat(os.stat(f"{self.folder}/lock"), os.fstat(self.lock))
        except FileNotFoundError:
            return False

    def _become_the_command(self, shim: int, stdout: int, stderr: int) -> None:
        """Replace this process by the command; never returns. Restore the default handlers before: Python ignores
        SIGPIPE, and the command would inherit that."""
        code = 126
        try:
            os.setpgid(0, 0)
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != shim:  # the shim was killed before this process could ask for its death signal
                os._exit(code)
            signal.set_wakeup_fd(-1)
            for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
                with contextlib.suppress(OSError, ValueError):
                    signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            os.dup2(stdout, 1)
            os.dup2(stderr, 2)
            os.chdir(self.spec["cwd"] or "work")
            os.execvpe(self.spec["argv"][0], self.spec["argv"], self.spec["env"])
        except OSError as error:
            code = 127 if isinstance(error, FileNotFoundError) else 126
            os.write(2, f"{self.spec['argv'][0]}: {error.strerror}\n".encode(errors="replace"))
        finally:
            os._exit(code)

    def _catch_signals(self) -> int:
        """Return a pipe that becomes readable whenever a signal arrives."""
        read, write = os.pipe()
        os.set_blocking(read, False)
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._catch_sigterm)
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        return read

    def _catch_sigterm(self, *_: object) -> None:
        self.stop_requested = True  # the machine shuts down

    def _wait(self) -> int:
        """Wait until the command ends, and return its exit code."""
        while True:
            self._read_outputs(self.selector.select(CHECK_STOP_EVERY))
            while True:
                try:
                    pid, status = os.waitpid(-1, os.WNOHANG)
                except ChildProcessError:
                    break
                if pid == self.child:
                    return os.waitstatus_to_exitcode(status)
                if not pid:
                    break
            with contextlib.suppress(OSError):  # the next turn tries again
                self._restore_folder()
            self._look_for_a_stop()

    def _look_for_a_stop(self) -> None:
        grace = self._grace()
        if grace is None:
            return
        now = time.monotonic()
        if self.stop_began is None:
            self.stop_began = now
            self._signal(signal.SIGTERM)
        if now >= self.stop_began + grace:
            self._signal(signal.SIGKILL)

    def _grace(self) -> float | None:
        try:
            with open("stop") as file:
                return float(json.load(file))
        except FileNotFoundError:
            return 10.0 if self.stop_requested else None

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.child, number)

    def _end_what_is_left(self) -> None:
        """Kill the command's group, and everything that left the group: on Linux we are the subreaper, so its orphans
        are now our children."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.child, signal.SIGKILL)
        kill_children()

    def _read_outputs(self, ready: list[tuple[selectors.SelectorKey, int]]) -> None:
        """Read all that is in the pipes, but not endlessly from a command that never pauses: a stop must be noticed
        too."""
        for key, _ in ready:
            for _ in range(64):
                try:
                    data = os.read(key.fd, CHUNK)
                except BlockingIOError:
                    break
                if not data:
                    self.selector.unregister(key.fd)
                    break
                if key.data is not None:
                    key.data.write(data)


class Capped:
    """Keeps the last part of a stream: a piece holds half of the limit, and the last two pieces stay."""

    def __init__(self, name: str, limit: int) -> None:
        self.name = name
        self.half = max(limit // 2, 1)
        self.size = 0
        self.pieces: list[int] = []
        self.file = -1

    def write(self, data: bytes) -> None:
        while data:
            try:
                if self.file < 0 or self.size >= self.pieces[-1] + self.half:
                    self._begin_a_piece()
                written = os.write(self.file, data[: self.pieces[-1] + self.half - self.size])
            except OSError:  # the disk is full: losing output is better than losing the execution
                self.size += len(data)
                self.close()
                return
            self.size += written
            data = data[written:]

    def close(self) -> None:
        if self.file >= 0:
            with contextlib.suppress(OSError):
                os.fsync(self.file)
            os.close(self.file)
            self.file = -1

    def forget_pieces(self) -> None:
        """Begin a new piece with the next output: the earlier ones are gone."""
        self.close()
        self.pieces.clear()

    def _begin_a_piece(self) -> None:
        self.close()
        name = f"{self.name}.{self.size}"
        self.file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.pieces.append(self.size)
        while len(self.pieces) > 2:
            os.unlink(f"{self.name}.{self.pieces.pop(0)}")


def open_locked(path: str) -> int:
    """Open a lock file, made if needed. A new one is locked before it appears at its path."""
    unfinished = f"{path}.{os.getpid()}"
    descriptor = os.open(unfinished, os.O_RDWR | os.O_CREAT, 0o600)
    _lock(descriptor)
    try:
        os.link(unfinished, path)
        return descriptor
    except FileExistsError:
        os.close(descriptor)
    finally:
        os.unlink(unfinished)
    descriptor = os.open(path, os.O_RDWR)
    deadline = time.monotonic() + LOCK_WITHIN
    while not _lock(descriptor) and time.monotonic() < deadline:  # a prober holds it for an instant
        time.sleep(0.005)
    return descriptor


def children() -> list[int]:
    """Return the child processes of this process; none where there is no /proc."""
    me, found = str(os.getpid()), []
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir("/proc"):
            if name.isdigit():
                with contextlib.suppress(OSError), open(f"/proc/{name}/stat", errors="replace") as file:
                    # "pid (name) state parent …"; the name may contain anything, also ")".
                    if file.read().rpartition(")")[2].split()[1] == me:
                        found.append(int(name))
    return found


def kill_children() -> None:
    """Kill the children of this process, and their orphans, until there is none."""
    while True:
        for pid in children():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            time.sleep(0.002)


def prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def make_room(folder: str) -> None:
    with open(f"{folder}/room", "wb") as file:
        file.write(bytes(ROOM))
        file.flush()
        os.fsync(file.fileno())


def write_over_room(ending: object) -> None:
    """Write the exit record in place: that takes no more of the disk."""
    with open(os.open("room", os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
        file.write(json.dumps(ending).encode().ljust(ROOM))
        file.flush()
        os.fsync(file.fileno())
    os.rename("room", "exit")
    sync(".")


def restore_site(folder: str, site: str) -> None:
    path = f"{folder}/.site"
    if site and not os.path.exists(path):
        unfinished = f"{path}.{os.getpid()}"
        with open(unfinished, "w") as file:
            file.write(site)
        with contextlib.suppress(FileExistsError):
            os.link(unfinished, path)
        os.unlink(unfinished)


def write_durably(path: str, content: object) -> None:
    with open(f"{path}.tmp", "w") as file:
        json.dump(content, file)
        file.flush()
        os.fsync(file.fileno())
    os.rename(f"{path}.tmp", path)
    sync(os.path.dirname(path))


def sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))

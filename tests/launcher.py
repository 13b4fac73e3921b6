"""Python programs that are there at once: forked from a process that has everything imported.

    process = launch([sys.executable, "-m", "leasehold", "jobs"], cwd=folder, stdout=subprocess.PIPE, text=True)

A program that is launched is a real process with its own id, environment, folder, streams and exit code; it can be
killed and frozen like any other. It only saves the half second of CPU that Python needs to import the package. A test
of the start itself (which modules are imported, what happens without one) uses `subprocess` instead.

Each test process has one launcher. It ends, and everything that it has started is killed, when the test process ends.
Programs that are not the test process itself, such as a shell, start others through `commands_in`.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import leasehold

ROOT = Path(__file__).resolve().parents[1]
PRELOADED = (
    "asyncio",
    "sqlite3",
    "psycopg",
    "fastapi",
    "uvicorn",
    "uvicorn.lifespan.on",
    "uvicorn.loops.auto",
    "uvicorn.protocols.http.auto",
    "uvicorn.protocols.websockets.auto",
    "jinja2",
    "tests.faults.tasks",
)
"""Imported before the first fork, with all of the package but NOT_PRELOADED."""
NOT_PRELOADED = (
    "leasehold.__main__",
    "leasehold.contrib",
    "leasehold.pytest_plugin",
    "leasehold.demo",
)
"""What is run as a program, does something when it is imported, or needs more than the package."""
FIXED_AT_START = ("PYTHON", "LC_", "LANG", "COVERAGE_")
"""Variables that Python itself reads when it starts. A fork cannot change them."""
HARMLESS = {"PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "PYTHONPATH"}
"""What a fork can do by itself, or need not."""

_HEADER = struct.Struct("!I")
_STATUS = struct.Struct("!i")


def launch(arguments: Sequence[Any], **options: Any) -> subprocess.Popen[Any]:
    """Like `subprocess.Popen`, for Python programs: `[sys.executable, "-m", module, …]`."""
    environment = options.get("env") or os.environ
    if _fixed(environment) != _fixed(os.environ) or any(name.startswith("COVERAGE_") for name in environment):
        return subprocess.Popen(arguments, **options)
    return Launched(arguments, **options)


def _fixed(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(FIXED_AT_START) and name not in HARMLESS
    }


class Launched(subprocess.Popen[Any]):
    """A process of the launcher: a `Popen` whose fork happens elsewhere and whose exit code comes over a pipe."""

    _waitpid_lock: threading.Lock
    _handle_exitstatus: Callable[[int], None]
    _close_pipe_fds: Callable[..., None]

    # The one place where Popen makes a process; the names and their order are Popen's.
    def _execute_child(
        self, args: Sequence[Any], executable: Any, preexec_fn: Any, close_fds: bool, pass_fds: Any, cwd: Any,
        env: Mapping[str, str] | None, startupinfo: Any, creationflags: int, shell: bool,
        p2cread: int, p2cwrite: int, c2pread: int, c2pwrite: int, errread: int, errwrite: int,
        restore_signals: bool, gid: Any, gids: Any, uid: Any, umask: int, start_new_session: bool, *_: Any,
    ) -> None:  # fmt: skip
        program, *arguments = [os.fspath(argument) for argument in args]
        assert program == sys.executable, f"the launcher starts Python alone, not {program}"
        self._status, status = os.pipe()
        request = {
            "arguments": arguments,
            "cwd": os.fspath(cwd or os.getcwd()),
            "env": {**(os.environ if env is None else env), ADDRESS: _launcher().address},
            "new_session": start_new_session,
        }
        streams = [own if fd == -1 else fd for own, fd in enumerate((p2cread, c2pwrite, errwrite))]
        try:
            self.pid = _launcher().start(request, [*streams, status])
        finally:
            os.close(status)
            self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)
        self._child_created = True

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        timeout = 0.0 if wait_flags & os.WNOHANG else None
        if not select.select([self._status], [], [], timeout)[0]:
            return 0, 0
        reported = os.read(self._status, _STATUS.size)
        os.close(self._status)
        # A launcher that has died has taken its programs with it.
        return self.pid, _STATUS.unpack(reported)[0] if reported else int(signal.SIGKILL)

    def _internal_poll(self, _deadstate: int | None = None, *_: Any) -> int | None:
        if self.returncode is None and self._waitpid_lock.acquire(False):
            try:
                pid, status = self._try_wait(os.WNOHANG) if self.returncode is None else (0, 0)
                if pid:
                    self._handle_exitstatus(status)
            finally:
                self._waitpid_lock.release()
        return self.returncode


class _Launcher:
    """The test process's end of its launcher."""

    def __init__(self) -> None:
        self.process_id = os.getpid()
        self._lock = threading.Lock()
        self._folder = tempfile.TemporaryDirectory(prefix="launcher-")
        self.address = f"{self._folder.name}/socket"
        self._control, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.launcher", str(theirs.fileno()), self.address],
                cwd=ROOT,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # a Ctrl-C in the terminal is for the tests
            )
        atexit.register(self.close)

    def start(self, request: dict[str, Any], fds: list[int]) -> int:
        body = json.dumps(request).encode()
        with self._lock:
            socket.send_fds(self._control, [_HEADER.pack(len(body))], fds)
            self._control.sendall(body)
            answer = self._control.recv(_HEADER.size, socket.MSG_WAITALL)
        assert answer, "the launcher has ended"
        return int(_HEADER.unpack(answer)[0])

    def close(self) -> None:
        if self.process_id == os.getpid():
            self._control.close()
            self._process.wait(30)
            self._folder.cleanup()


_the_launcher: _Launcher | None = None
_starting = threading.Lock()


def _launcher() -> _Launcher:
    global _the_launcher
    with _starting:
        if _the_launcher is None or _the_launcher.process_id != os.getpid():
            _the_launcher = _Launcher()
        return _the_launcher


# --- commands -------------------------------------------------------------------------------------------------------

ADDRESS = "TESTS_LAUNCHER"
"""The variable that tells a launched program where its launcher is."""

_COMMAND = """\
#!{python} -IS
import json, os, signal, socket, struct, sys

if {name!r} == "python" and sys.argv[1:2] in ([], ["-m"]):
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
launcher = socket.socket(socket.AF_UNIX)
launcher.connect(os.environ[{address!r}])
status, end = os.pipe()
arguments = ["leasehold"] * ({name!r} == "leasehold") + sys.argv[1:]
request = dict(arguments=arguments, cwd=os.getcwd(), env=dict(os.environ), new_session=False)
body = json.dumps(request).encode()
socket.send_fds(launcher, [struct.pack("!I", len(body))], [0, 1, 2, end])
launcher.sendall(body)
os.close(end)
(pid,) = struct.unpack("!I", launcher.recv(4, socket.MSG_WAITALL))
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda number, _: os.kill(pid, number))
code = os.waitstatus_to_exitcode(struct.unpack("!i", os.read(status, 4))[0])
if code < 0:
    signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
    os.kill(os.getpid(), -code)
sys.exit(code)
"""


def commands_in(folder: Path) -> None:
    """Put `leasehold` and `python` into a folder for PATH. They launch what they are called with, pass signals on, and
    end as it ends. Killed, they take it with them. `python -m` starts a Python of its own, such as pytest."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("leasehold", "python"):
        path = folder / name
        path.write_text(_COMMAND.format(python=sys.executable, name=name, address=ADDRESS))
        path.chmod(0o755)


# --- the launcher itself --------------------------------------------------------------------------------------------


def serve(control: socket.socket, listener: socket.socket) -> dict[str, Any]:
    """Fork whenever a request comes. Returns in the child, with its request."""
    woken, notify_workers = os.pipe()
    os.set_blocking(notify_workers, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(notify_workers, warn_on_full_buffer=False)
    running: dict[int, tuple[int, socket.socket]] = {}
    """Where to report the end of a process, and the connection that it must not outlive."""
    connections = [control]
    while True:
        ready = select.select([*connections, listener, woken], [], [])[0]
        if woken in ready:
            os.read(woken, 4096)
            _report_ends(running)
        if listener in ready:
            connections.append(listener.accept()[0])
        for connection in [one for one in connections if one in ready]:
            header, fds, _, _ = socket.recv_fds(connection, _HEADER.size, 4)
            if not header:
                for pid, (_, owner) in running.items():
                    if owner is connection or connection is control:
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGKILL)
                connections.remove(connection)
                connection.close()
                if connection is control:
                    sys.exit(0)
                continue
            request = json.loads(connection.recv(_HEADER.unpack(header)[0], socket.MSG_WAITALL))
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for number, fd in enumerate(fds[:3]):
                    os.dup2(fd, number)
                for one in (*connections, listener):
                    one.detach()  # its number may soon be another file's
                os.closerange(3, 1024)
                return request
            running[pid] = (fds.pop(), connection)
            for fd in fds:
                os.close(fd)
            connection.sendall(_HEADER.pack(pid))


def _report_ends(running: dict[int, tuple[int, socket.socket]]) -> None:
    for pid in list(running):
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            reader, _ = running.pop(pid)
            with contextlib.suppress(BrokenPipeError):
                os.write(reader, _STATUS.pack(status))
            os.close(reader)


def become(request: dict[str, Any]) -> None:
    """Be the program that was asked for, as if Python had just started."""
    if request["new_session"]:
        os.setsid()
    os.chdir(request["cwd"])
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ.clear()
    os.environ.update(request["env"])
    others = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    sys.path[1:] = [*others, *(path for path in sys.path[1:] if path not in paths)]
    time.tzset()
    at_once = 1 if os.environ.get("PYTHONUNBUFFERED") or os.isatty(1) else -1
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - these three are open until the process ends
    sys.stdout = open(1, "w", at_once, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    first, *arguments = request["arguments"]
    if first == "-m":
        name, *arguments = arguments
        sys.path[0] = os.getcwd()
        sys.argv = [name, *arguments]
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    elif first == "-c":
        code, *arguments = arguments
        sys.path[0] = ""
        sys.argv = ["-c", *arguments]
        sys.modules["__main__"] = ModuleType("__main__")
        exec(compile(code, "<string>", "exec"), vars(sys.modules["__main__"]))
    elif first == "leasehold":  # as it is installed
        from leasehold.__main__ import main

        sys.path[0] = str(Path(sys.executable).parent)
        sys.argv = [first, *arguments]
        sys.exit(main())
    else:
        sys.path[0] = str(Path(first).resolve().parent)
        sys.argv = [first, *arguments]
        runpy.run_path(str(Path(first).resolve()), run_name="__main__")


def _import_all(package: ModuleType) -> None:
    for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        if not found.name.startswith(NOT_PRELOADED):
            module = importlib.import_module(found.name)
            if found.ispkg:
                _import_all(module)


def main() -> None:
    for name in PRELOADED:
        importlib.import_module(name)
    _import_all(leasehold)
    gc.collect()
    gc.freeze()  # a collection in a child would otherwise copy every page
    with socket.socket(fileno=int(sys.argv[1])) as control, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(sys.argv[2])
        listener.listen()
        request = serve(control, listener)
    become(request)


if __name__ == "__main__":
    main()

"""The child process of `leasehold dev`, which runs the app's server and worker; and the watched files.

The child ends when its parent ends.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from leasehold.domain.errors import InvalidInput, LeaseholdError
from leasehold.domain.frozen import frozen
from leasehold.surfaces.cli.options import HOST, load_app
from leasehold.surfaces.cli.problems import Exit, complain, notify

if TYPE_CHECKING:
    from leasehold.app import Leasehold
    from leasehold.types import Worker

# -- watched files -----------------------------------------------------------------------------------------------------

MOST_FILES = 1_000
MOST_ENTRIES = 10_000
"""Folder entries to look at. A folder may hold data, too: beyond this limit, only imported files are watched."""
WALK_EVERY = 2.0
SETTLED_FOR = 0.1
"""Seconds without another change before a restart: an editor, or git, may be writing several files."""
SETTLE_PATIENCE = 2.0

_NOT_OURS = frozenset({"__pycache__", "node_modules", "site-packages"})

Stamp = tuple[int, int]


class WatchedFiles:
    """The .py files below a folder, and the files of modules that the app has imported from there. Found by polling."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._loaded: set[str] = set()
        self._below: set[str] = set()
        self._walked_at = 0.0
        self._stamps: dict[str, Stamp | None] = {}
        self.changed()

    def learn(self, files: Iterable[str]) -> None:
        """Watch these files too: the app has imported them."""
        for file in set(files) - self._loaded:
            self._loaded.add(file)
            self._stamps.setdefault(file, _stamp(file))

    def changed(self) -> list[str]:
        """The files that were written, added or removed since the last call."""
        if time.monotonic() - self._walked_at > WALK_EVERY or not self._walked_at:
            self._below = set(_python_files(self._folder))
            self._walked_at = time.monotonic()
        now = {file: _stamp(file) for file in self._below | self._loaded | self._stamps.keys()}
        found = [file for file, stamp in now.items() if stamp != self._stamps.get(file)]
        self._stamps = now
        return sorted(found)

    def settle(self) -> None:
        """Wait until the files stop changing, at most SETTLE_PATIENCE seconds."""
        deadline = time.monotonic() + SETTLE_PATIENCE
        while time.monotonic() < deadline:
            time.sleep(SETTLED_FOR)
            if not self.changed():
                return


def loaded_below(folder: Path) -> list[str]:
    """The files of this process's modules below the folder, without installed packages."""
    files = (getattr(module, "__file__", None) for module in tuple(sys.modules.values()))
    return sorted({file for file in files if isinstance(file, str) and _is_ours(file, folder)})


def _is_ours(file: str, folder: Path) -> bool:
    path = Path(file)
    if path.suffix != ".py" or not path.is_relative_to(folder):
        return False
    return not any(map(_is_foreign, path.relative_to(folder).parts[:-1]))


def _is_foreign(folder: str) -> bool:
    return folder.startswith(".") or folder in _NOT_OURS


def _python_files(folder: Path) -> Iterator[str]:
    files = entries = 0
    for place, folders, names in os.walk(folder):
        entries += len(folders) + len(names)
        if "pyvenv.cfg" in names:  # a virtual environment
            folders.clear()
            continue
        folders[:] = sorted(name for name in folders if not _is_foreign(name))
        for name in sorted(names):
            if name.endswith(".py"):
                yield os.path.join(place, name)
                files += 1
        if files >= MOST_FILES or entries >= MOST_ENTRIES:
            return


def _stamp(file: str) -> Stamp | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


# -- dev child ---------------------------------------------------------------------------------------------------------

GRACE = 5.0
"""Seconds for running jobs when the code has changed; then they are handed back."""
STOP_GRACE = 2.0
LAST_ANSWERS = 1
"""Seconds for open requests at shutdown: pages reconnect by themselves."""
EXIT_GRACE = 1.0
"""Seconds that hanging threads get at the end, before the process exits without them."""
CHECK_MODULES_EVERY = 1.0

Message = dict[str, Any]
Notify = Callable[[Message], None]


@frozen(kw_only=True)
class DevSettings:
    app: str
    port: int
    queues: str | None
    """None: the queues of the app's tasks."""
    concurrency: int
    mcp: bool
    log_level: str

    def as_text(self) -> str:
        return json.dumps(asdict(self))


def run(settings: DevSettings, report: Notify) -> int:
    """Run the server and the worker until SIGTERM or Ctrl-C."""
    import asyncio
    import logging

    from leasehold.surfaces.cli.logs import set_up_logging

    set_up_logging(settings.log_level, as_json=False)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)  # its lines would repeat with every restart
    with load_app(settings.app) as app:
        cards = app.__internals__.tasks.cards()
        queues = settings.queues or ",".join(sorted({card.queue for card in cards})) or "default"
        worker = app.worker(
            queues=queues,
            concurrency=settings.concurrency,
            shutdown_grace=GRACE,
            stop_grace=STOP_GRACE,
            drain_on_sigterm=False,
        )
        ready = {"ready": True, "store": app.__internals__.store.label, "queues": worker.settings.queues}
        asyncio.run(_serve(app, settings, worker, lambda: report(ready)))
    return Exit.GAVE_UP if worker.gave_up else Exit.OK


async def _serve(app: Leasehold, settings: DevSettings, worker: Worker, ready: Callable[[], None]) -> None:
    import asyncio

    from leasehold.surfaces import serve as serving

    listening = asyncio.create_task(_when_it_listens(settings.port, ready))
    try:
        given = serving.ServeSettings(
            host=HOST, port=settings.port, mcp=settings.mcp, last_answers=LAST_ANSWERS
        )
        await serving.serve(app, given, worker)
    finally:
        listening.cancel()
    # A thread of a handler may hang, and asyncio would wait for it.
    _leave_after(EXIT_GRACE, Exit.GAVE_UP if worker.gave_up else Exit.OK)


async def _when_it_listens(port: int, ready: Callable[[], None]) -> None:
    import asyncio

    while True:
        try:
            _, writer = await asyncio.open_connection(HOST, port)
        except OSError:
            await asyncio.sleep(0.05)
        else:
            writer.close()
            ready()
            return


def _leave_after(seconds: float, code: int) -> None:
    def leave() -> None:
        sys.stdout.flush()
        os._exit(code)

    timer = threading.Timer(seconds, leave)
    timer.daemon = True
    timer.start()


class Line:
    """The socket to the parent process. When the parent ends for any reason, this process ends too."""

    def __init__(self, end: socket.socket, folder: Path) -> None:
        end.set_inheritable(False)
        self._end = end
        self._folder = folder
        self._lock = threading.Lock()
        self._reported: set[str] = set()
        threading.Thread(target=self._listen, name="leasehold dev", daemon=True).start()

    def notify(self, message: Message) -> None:
        with self._lock, contextlib.suppress(OSError):
            self._end.sendall(json.dumps(message).encode() + b"\n")

    def send_files(self, *more: str) -> None:
        """Report files that the app has imported since the last call; handlers may import modules late."""

        new = {*loaded_below(self._folder), *more} - self._reported
        if new:
            self._reported |= new
            self.notify({"files": sorted(new)})

    def _listen(self) -> None:
        self._end.settimeout(CHECK_MODULES_EVERY)
        while True:
            try:
                if not self._end.recv(1):
                    break
            except TimeoutError:
                self.send_files()
            except OSError:
                break
        _leave_after(GRACE + STOP_GRACE + LAST_ANSWERS + EXIT_GRACE, 1)
        os.kill(os.getpid(), signal.SIGTERM)


def main(arguments: list[str]) -> int:
    settings = DevSettings(**json.loads(arguments[0]))
    folder = Path.cwd()
    line = Line(socket.socket(fileno=int(arguments[1])), folder)
    # Python's cache of compiled files does not notice a second save within a second, if the size stays the same.
    sys.dont_write_bytecode = True
    try:
        load_app(settings.app)
    except InvalidInput as error:
        _report_broken(error, line)
        return Exit.USAGE
    line.send_files()
    try:
        return run(settings, line.notify)
    except LeaseholdError as error:
        return notify(error, as_json=False)


def _report_broken(error: InvalidInput, line: Line) -> None:
    """Print the error with its place in the user's code, and report the files to watch: a change may repair them."""
    import traceback

    cause = error.__cause__
    if cause is None:
        complain(str(error))
    else:
        files = [frame.filename for frame in traceback.extract_tb(cause.__traceback__)]
        line.send_files(*(file for file in files if os.path.isfile(file)))
        lines = traceback.format_exception(type(cause), cause, _from_the_app_on(cause.__traceback__))
        sys.stderr.write("".join(lines))
    line.notify({"broken": True, "raised": cause is not None})


def _from_the_app_on(trace: TracebackType | None) -> TracebackType | None:
    """The traceback without the frames of the import itself."""
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if file not in (load_app.__code__.co_filename, importlib.__file__) and not file.startswith("<frozen"):
            break
        trace = trace.tb_next
    return trace


if __name__ == "__main__":
    from leasehold.surfaces.cli.render import survive_any_terminal

    survive_any_terminal()
    sys.exit(main(sys.argv[1:]))

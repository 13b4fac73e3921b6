"""The child process of `leasehold dev`, with the app: server and worker. It ends when its parent ends."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from leasehold.domain.errors import InvalidInput, LeaseholdError
from leasehold.domain.frozen import frozen
from leasehold.surfaces.cli.listening import HOST
from leasehold.surfaces.cli.load import load_app
from leasehold.surfaces.cli.problems import Exit, complain, notify

if TYPE_CHECKING:
    from leasehold.app import Leasehold
    from leasehold.types import Worker

GRACE = 5.0
"""Seconds for running jobs when the code has changed; then they are handed back."""
STOP_GRACE = 2.0
LAST_ANSWERS = 1
"""Seconds for open requests at shutdown: pages reconnect by themselves."""
LAST_WORDS = 1.0
"""Seconds that hanging threads get at the end, before the process exits without them."""
LOOK_EVERY = 1.0

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
    """Server and worker until SIGTERM or Ctrl-C."""
    import asyncio
    import logging

    from leasehold.surfaces.cli.logs import set_up_logging

    set_up_logging(settings.log_level, as_json=False)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)  # its lines would repeat with every restart
    with load_app(settings.app) as app:
        queues = settings.queues or ",".join(sorted({card.queue for card in app.tasks.list()})) or "default"
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
    _leave_after(LAST_WORDS, Exit.GAVE_UP if worker.gave_up else Exit.OK)


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
    """The socket to the parent process. When the parent ends, however it ends, this process ends too."""

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
        from leasehold.surfaces.cli.dev_files import loaded_below

        new = {*loaded_below(self._folder), *more} - self._reported
        if new:
            self._reported |= new
            self.notify({"files": sorted(new)})

    def _listen(self) -> None:
        self._end.settimeout(LOOK_EVERY)
        while True:
            try:
                if not self._end.recv(1):
                    break
            except TimeoutError:
                self.send_files()
            except OSError:
                break
        _leave_after(GRACE + STOP_GRACE + LAST_ANSWERS + LAST_WORDS, 1)
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

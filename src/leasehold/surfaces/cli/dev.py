"""`dev`: worker, API and dashboard in one command, which restarts them when the code changes; `demo`: sample work.

This process never imports the app: it watches the files, and restarts the child process (`dev_child.py`).
"""

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
from typing import Annotated

import typer

from leasehold.domain.errors import InvalidInput, need_extra
from leasehold.surfaces.cli import options
from leasehold.surfaces.cli.dev_child import (
    EXIT_GRACE,
    GRACE,
    LAST_ANSWERS,
    STOP_GRACE,
    DevSettings,
    Message,
    WatchedFiles,
    run,
)
from leasehold.surfaces.cli.options import HOST, SERVER, Port, choose_port, dashboard_url
from leasehold.surfaces.cli.problems import Exit

CHECK_FILES_EVERY = 0.5
READ_CHILD_EVERY = 0.1
KILL_AFTER = GRACE + STOP_GRACE + LAST_ANSWERS + EXIT_GRACE + 5
"""Seconds after SIGTERM until a child is killed. Then its leases expire, and its jobs are taken over."""
CHILD_MODULE = "leasehold.surfaces.cli.dev_child"


def dev(
    app: options.AppName,
    port: Port = None,
    queues: Annotated[
        str | None,
        typer.Option(
            help="Queues to serve. Default: those of the app's tasks.", metavar="A,B", show_default=False
        ),
    ] = None,
    concurrency: Annotated[int, typer.Option(help="Async jobs at once.", metavar="NUMBER")] = 20,
    no_reload: Annotated[
        bool, typer.Option("--no-reload", help="Do not watch files; run in one process, for a debugger.")
    ] = False,
    with_mcp: Annotated[bool, typer.Option("--mcp", help="Also serve MCP at /mcp.")] = False,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the dashboard in a browser.")] = False,
    log_level: options.LogLevel = "info",
) -> int:
    """Run a worker, the API and the dashboard for development. Only on this machine, until Ctrl-C. Restarts when a
    .py file changes: running jobs get 5 seconds, then they are handed back."""
    import threading

    need_extra(*SERVER)
    if with_mcp:
        need_extra("mcp", "mcp")
    settings = DevSettings(
        app=app,
        port=choose_port(port),
        queues=queues,
        concurrency=concurrency,
        mcp=with_mcp,
        log_level=log_level,
    )

    def ready(message: Message) -> None:
        _welcome(settings, message, reloads=not no_reload)
        if open_browser:
            threading.Thread(target=_show, args=(settings.port,), daemon=True).start()

    if no_reload:
        return run(settings, ready)
    return Supervisor(settings, Path.cwd(), ready).run()


def _welcome(settings: DevSettings, message: Message, reloads: bool) -> None:
    base = f"http://{HOST}:{settings.port}"
    rows = {
        "dashboard": dashboard_url(settings.port),
        "API": f"{base}/v1",
        "MCP": f"{base}/mcp" if settings.mcp else "",
        "store": message["store"],
        "queues": ", ".join(message["queues"]),
        "reload": "when a .py file here changes" if reloads else "off",
        "stop": "Ctrl-C",
    }
    lines = [f"  {name:<11}{text}" for name, text in rows.items() if text]
    print("\n".join(["", f"Leasehold: {settings.app}", *lines, ""]), flush=True)


def _show(port: int) -> None:
    import webbrowser

    if not webbrowser.open(dashboard_url(port)):
        print(f"no browser was found: open {dashboard_url(port)}", file=sys.stderr)


class Child:
    def __init__(self, settings: DevSettings) -> None:
        self._line, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", CHILD_MODULE, settings.as_text(), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C must not reach the child as well: it would drain twice
            )
        self._line.settimeout(READ_CHILD_EVERY)
        self._rest = b""
        self.broken: Message | None = None

    @property
    def code(self) -> int | None:
        """The exit code, for a signal as in a shell (128 + number). None: the child is alive."""
        found = self._process.poll()
        return 128 - found if found is not None and found < 0 else found

    def messages(self) -> Iterator[Message]:
        """The messages that the child has sent; waits up to READ_CHILD_EVERY for the first."""
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
            time.sleep(READ_CHILD_EVERY)  # the child is ending
        return b""

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        """Kill the child and its process group."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._line.close()


class Supervisor:
    def __init__(self, settings: DevSettings, folder: Path, on_ready: Callable[[Message], None]) -> None:
        """`on_ready`: called when the server first listens."""
        self._settings = settings
        self._folder = folder
        self._files = WatchedFiles(folder)
        self._on_ready = on_ready
        self._was_ready = False
        self._signals = 0
        self._look_at = 0.0

    def run(self) -> int:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._receive)
        first = True
        while True:
            child = Child(self._settings)
            try:
                changed = self._attend(child)
                if self._stop_requested():
                    self._end(child)
                    return Exit.OK
                if not changed:
                    if child.broken is None or (first and not child.broken["raised"]):
                        return Exit.OK if child.code is None else child.code
                    changed = self._wait_for_change()
                    if self._stop_requested():
                        return Exit.OK
                self._say(f"{self._named(changed)}: restarting")
                self._files.settle()
                self._end(child)
                if self._stop_requested():
                    return Exit.OK
                first = False
            finally:
                child.kill()

    def _attend(self, child: Child) -> list[str]:
        """Wait until the child has ended, files change or a signal arrives. Returns the changed files."""
        while not self._stop_requested():
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
        self._look_at = time.monotonic() + CHECK_FILES_EVERY
        return self._files.changed()

    def _wait_for_change(self) -> list[str]:
        while not self._stop_requested():
            if changed := self._look():
                return changed
            time.sleep(READ_CHILD_EVERY)
        return []

    def _end(self, child: Child) -> None:
        """End the child. Its jobs get their grace period, unless a second Ctrl-C comes."""
        child.terminate()
        deadline = time.monotonic() + KILL_AFTER
        while child.code is None and time.monotonic() < deadline and self._signals < 2:
            for message in child.messages():
                if "files" in message:
                    self._files.learn(message["files"])

    def _receive(self, number: int, frame: object) -> None:
        self._signals += 1

    def _stop_requested(self) -> bool:
        return self._signals > 0

    def _named(self, changed: list[str]) -> str:
        paths = [os.path.relpath(file, self._folder) for file in changed]
        more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
        return f"{', '.join(paths[:3])}{more} changed"

    def _say(self, text: str) -> None:
        print(f"dev: {text}", flush=True)


# -- `demo` ------------------------------------------------------------------------------------------------------------


def demo(
    dashboard: Annotated[
        bool,
        typer.Option("--dashboard", help="Run sample work to look at in a browser instead, until Ctrl-C."),
    ] = False,
    port: Port = None,
) -> int:
    """Watch a demo: retries, a halted lane, a killed worker. Takes half a minute, needs nothing, leaves nothing."""
    if dashboard:
        from leasehold.demo.dashboard import show_dashboard

        return show_dashboard(port)
    if port is not None:
        raise InvalidInput("--port", "is for the dashboard", "add --dashboard")
    from leasehold.demo.play import play

    return play()

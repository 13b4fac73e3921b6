"""`leasehold demo --dashboard`: a server, two workers and a producer on a temporary database, until Ctrl-C."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from leasehold.domain.errors import need_extra
from leasehold.surfaces.cli.options import HOST, SERVER, choose_port, dashboard_url
from leasehold.surfaces.cli.problems import Exit

if TYPE_CHECKING:
    from leasehold.app import Leasehold

TASKS = "leasehold.demo.dashboard_tasks:app"
START_WITHIN = 60.0
"""Seconds until the server must answer."""
POLL_EVERY = 0.1
FIRST_KILL, KILL_EVERY = 20.0, 60.0
STOP_WITHIN = 8.0
STEP_EVERY = 0.5
"""Seconds between two steps of the producer."""


class Crew:
    """The demo's processes. Each writes its output to a file; if a process dies by itself, the end of its file is
    shown."""

    def __init__(self, folder: Path, port: int) -> None:
        self._folder = folder
        self._serve = ["serve", TASKS, "--port", str(port)]
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> int:
        from leasehold.demo.dashboard_tasks import PARENT, QUEUES

        work = ["worker", TASKS, "--queues", ",".join(QUEUES), "--tenants", "all"]
        quick = ["--concurrency", "10", "--sweep", "0.5", "--shutdown-grace", "1", "--stop-grace", "1"]
        command = self._serve if name == "server" else [*work, *quick]
        with self._log_of(name).open("ab") as log:
            self._running[name] = subprocess.Popen(
                [sys.executable, "-m", "leasehold", *command, "--log-level", "warning"],
                env={**os.environ, PARENT: str(os.getpid())},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Only this process gets Ctrl-C; it stops the others.
                start_new_session=True,
            )
        return self._running[name].pid

    def kill(self, name: str) -> int:
        """Send SIGKILL: the process cannot clean up."""
        process = self._running.pop(name)
        process.kill()
        process.wait()
        return process.pid

    def crashed(self) -> str | None:
        """Return which process died by itself, and its last lines."""
        for name, process in self._running.items():
            if process.poll() is not None:
                last = self._log_of(name).read_text(errors="replace").splitlines()[-15:]
                return "\n".join([f"the {name} has ended with exit code {process.returncode}:", *last])
        return None

    def dismiss(self) -> None:
        for process in self._running.values():
            process.terminate()
        deadline = time.monotonic() + STOP_WITHIN
        for process in self._running.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, deadline - time.monotonic()))
            process.kill()
            process.wait()

    def _log_of(self, name: str) -> Path:
        return self._folder / f"{name.replace(' ', '-')}.log"


def show_dashboard(port: int | None) -> int:
    import tempfile

    need_extra(*SERVER)
    chosen = choose_port(port)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="leasehold-demo-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        os.environ["LEASEHOLD_URL"] = f"sqlite:///{folder}/demo.db"
        from leasehold.demo.dashboard_tasks import app

        crew = Crew(folder, chosen)
        with app:
            try:
                return _play(crew, chosen)
            except KeyboardInterrupt:
                return Exit.OK
            finally:
                _stop(app, crew)


def _play(crew: Crew, port: int) -> int:
    from leasehold.demo.producer import Producer

    producer = Producer()
    producer.prepare()
    for name in ("server", "worker 1", "worker 2"):
        crew.start(name)
    if not _answers(crew, port):
        return _broken(crew)
    _say(f"\nThe dashboard, with made-up work on it: {dashboard_url(port)}")
    _say(
        "One of the two workers is killed every minute, and its jobs are taken over. Ctrl-C ends everything.\n"
    )
    kill_at = time.monotonic() + FIRST_KILL
    while crew.crashed() is None:
        producer.step()
        if time.monotonic() > kill_at:
            kill_at = time.monotonic() + KILL_EVERY
            killed, new = crew.kill("worker 2"), crew.start("worker 2")
            _say(f"{time.strftime('%H:%M:%S')}  worker {killed} was killed; {new} has come in its place")
        time.sleep(STEP_EVERY)
    return _broken(crew)


def _answers(crew: Crew, port: int) -> bool:
    import urllib.request

    deadline = time.monotonic() + START_WITHIN
    while crew.crashed() is None and time.monotonic() < deadline:
        with (
            contextlib.suppress(OSError),
            urllib.request.urlopen(f"http://{HOST}:{port}/livez", timeout=5),
        ):
            return True
        time.sleep(POLL_EVERY)
    return False


def _broken(crew: Crew) -> int:
    print(crew.crashed() or "the server does not answer", file=sys.stderr)
    return Exit.JOB_FAILED


def _stop(app: Leasehold, crew: Crew) -> None:
    """Stop all processes; a second Ctrl-C must not interrupt this."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _say("ending …")
    try:
        _end_commands(app, crew)
    finally:
        crew.dismiss()


def _end_commands(app: Leasehold, crew: Crew) -> None:
    """Cancel commands, which outlive their workers, while a worker is still there to stop them."""
    app.queues.pause("media", reason="the demo ends", actor="demo")
    app.bulk.cancel(task="render_video", reason="the demo ends", actor="demo")
    deadline = time.monotonic() + STOP_WITHIN
    while app.executions() and crew.crashed() is None and time.monotonic() < deadline:
        time.sleep(POLL_EVERY)


def _say(text: str) -> None:
    print(text, flush=True)

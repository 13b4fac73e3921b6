"""What it costs a worker to watch 50 commands, and 50 containers. Figures go to docs/measured/watching.md."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from bench.places import ROOT
from leasehold import Leasehold
from tests.runners.docker.engine import IMAGE, PrivateEngine, why_no_engine

MANY = 50
SECONDS = 30.0
BAR = 5.0
REPORT = ROOT / "docs" / "measured" / "watching.md"
TASKS = """
import os
from pathlib import Path
from leasehold import Leasehold
from leasehold.runners.docker.runner import DockerRunner
app = Leasehold()
def engine():
    return DockerRunner(Path("containers"), os.environ["BENCH_DOCKER"])
@app.command()
def command() -> list[str]:
    return ["sleep", "600"]
if os.environ.get("BENCH_DOCKER"):
    @app.container(image=os.environ["BENCH_IMAGE"], runner=engine)
    def container() -> list[str]:
        return ["/bin/sleep", "600"]
"""


def run() -> None:
    lines = [
        "# Watching executions, measured",
        "",
        f"`python -m bench executions` on {datetime.now(UTC):%Y-%m-%d %H:%M} UTC: the CPU of one worker process on",
        f"SQLite that watches {MANY}, over {SECONDS:g} s; load average {os.getloadavg()[0]:.1f}.",
        "",
        "| what | % of a core | bar | |",
        "|---|--:|--:|---|",
        _row(f"{MANY} commands", _watch("command", {})),
    ]
    if (reason := why_no_engine()) is not None:
        lines.append(f"| {MANY} containers | not measured: {reason} | | |")
    else:
        engine = PrivateEngine().start()
        try:
            engine.import_image()
            reported = {"BENCH_DOCKER": engine.host, "BENCH_IMAGE": IMAGE}
            lines.append(_row(f"{MANY} containers", _watch("container", reported)))
        finally:
            engine.close()
    print("\n".join(lines))
    REPORT.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _row(what: str, percent: float) -> str:
    return f"| {what} | {percent:.1f} | ≤ {BAR:g} | {'met' if percent <= BAR else '**missed**'} |"


def _watch(task: str, reported: dict[str, str]) -> float:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "bench_tasks.py").write_text(TASKS)
        url = f"sqlite:///{folder}/jobs.db"
        environment = {**os.environ, **reported, "LEASEHOLD_URL": url}
        command = [sys.executable, "-m", "leasehold", "worker", "bench_tasks:app"]
        worker = subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.DEVNULL)
        with Leasehold(url) as app:
            try:
                # By name: this process has no use for the task's code.
                subprocess.run(
                    [
                        sys.executable,
                        "-c",
                        f"from bench_tasks import *; {task}.enqueue_many([{{}}] * {MANY})",
                    ],
                    cwd=folder,
                    env=environment,
                    check=True,
                )
                deadline = time.monotonic() + 300
                while sum(row.started_at is not None for row in app.executions()) < MANY:
                    assert time.monotonic() < deadline, "they did not start"
                    time.sleep(0.5)
                time.sleep(5)
                before = _cpu(worker.pid)
                time.sleep(SECONDS)
                used = _cpu(worker.pid) - before
            finally:
                app.stop(tasks=[task], mode="immediate")
                while app.executions():
                    time.sleep(0.5)
                worker.terminate()
                worker.wait(60)
        return 100 * used / SECONDS


def _cpu(pid: int) -> float:
    """Seconds, of the process without its children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

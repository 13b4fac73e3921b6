"""`python -m examples.tool_runner`: the API and, if there is a queue, a worker beside it, on SQLite.

`setup`, `api` and `worker` are the parts, for process managers: setup once, then as many of the others as you like.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from typing import NoReturn

from examples.tool_runner.engine import has_image
from examples.tool_runner.settings import Settings


def choose_runner() -> str:
    """Decided once, and told to all processes: a run lives with the runner that began it."""
    if "RUNNER" not in os.environ:
        found = has_image(Settings.from_environment().image)
        os.environ["RUNNER"] = "docker" if found else "subprocess"
    return os.environ["RUNNER"]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.tool_runner")
    parser.add_argument("part", nargs="?", choices=["all", "setup", "api", "worker"], default="all")
    parser.add_argument("--port", type=int, default=8800)
    requested = parser.parse_args()
    runner = choose_runner()
    if requested.part == "worker":
        work()
    if requested.part != "api":
        from examples.tool_runner.schema import make_schema

        make_schema()
    if requested.part == "setup":
        return 0
    if requested.part == "api":
        return serve(requested.port)
    settings = Settings.from_environment()
    mode = (
        "a queue and a worker" if settings.queue_enabled else f"no queue, {settings.max_concurrency} at once"
    )
    print(f"tools run by {runner}, with {mode}: http://127.0.0.1:{requested.port}/docs", flush=True)
    if not settings.queue_enabled:
        return serve(requested.port)
    worker = subprocess.Popen([sys.executable, "-m", "examples.tool_runner", "worker"])
    try:
        return serve(requested.port)
    finally:
        worker.send_signal(signal.SIGTERM)  # it lets go of its containers: the next worker adopts them
        worker.wait()


def serve(port: int) -> int:
    import uvicorn

    from examples.tool_runner.api import api
    from examples.tool_runner.app import app

    with app:
        uvicorn.run(api, host="127.0.0.1", port=port, log_level="warning")
    return 0


def work() -> NoReturn:
    """Becomes Leasehold's own worker, which adopts, claims, reaps, and hands its runs over at SIGTERM."""
    settings = Settings.from_environment()
    sweep = min(5.0, settings.lease_ttl / 2)  # how often it reaps
    command = [
        sys.executable, "-m", "leasehold", "worker", "examples.tool_runner.app:app",
        "--queues", os.environ.get("RUNNER_QUEUES", "default"),
        "--max-executions", str(settings.worker_runs), "--sweep", str(sweep),
    ]  # fmt: skip
    os.execv(sys.executable, command)


if __name__ == "__main__":
    sys.exit(main())

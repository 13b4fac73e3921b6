"""A worker process for the benchmarks: `python -m bench.worker_main '{"url": …}'`.

It serves no-ops until it has settled as many jobs as it was told, then says on one line of JSON when its first handler
began, when the last settle was acknowledged, what it used, and ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from leasehold import Leasehold
from leasehold.worker.worker import tune_process

BEGAN: list[float] = []
"""When the first handler began; and when each one of a latency probe did."""


async def blocked(sent: float = 0.0) -> None:
    raise AssertionError("it was behind a closed gate")


def make_app(url: str, tasks: Sequence[str] = ()) -> Leasehold:
    """`tasks`: of jobs that are there and cannot run. Without knowing them, a worker would not look at their gates."""
    app = Leasehold(url)
    for task in tasks:
        app.task(name=task)(blocked)

    @app.task(name="work")
    async def work(sent: float = 0.0) -> None:
        if sent or not BEGAN:
            BEGAN.append(time.time())

    @app.task(name="plain")
    def plain(sent: float = 0.0) -> None:
        if not BEGAN:
            BEGAN.append(time.time())

    @app.task(name="sleeper", lease=30)
    async def sleeper(seconds: float) -> None:
        BEGAN.append(time.time())
        await asyncio.sleep(seconds)

    return app


async def serve(options: dict[str, Any]) -> dict[str, Any]:
    app = make_app(options["url"], options.get("tasks", ()))
    worker = app.worker(
        concurrency=options.get("concurrency", 1000), threads=options.get("threads", 8), retention=None
    )
    tune_process()  # as Worker.run does, which is what users run
    async with worker:
        if options.get("ready"):
            Path(options["ready"]).touch()
        most = 0
        while worker.attempts.ended < options["jobs"]:
            most = max(most, len(worker.attempts.unfinished())) if options.get("watch") else 0
            await asyncio.sleep(0.002)
        done_at = time.time()
        used = resource.getrusage(resource.RUSAGE_SELF)
        beats, keeper_cpu = worker.keeper.beats, _thread_cpu("leasehold-lease keeper")
    app.close()
    return {
        "began": BEGAN if options.get("all") else BEGAN[:1],
        "done": done_at,
        "cpu": used.ru_utime + used.ru_stime,
        "rss": int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20,
        "most": most,
        "lost": worker.attempts.fenced + worker.attempts.lost,
        "beats": beats,
        "keeper_cpu": keeper_cpu,
    }


def _thread_cpu(name: str) -> float:
    """Seconds of processor time that a thread of this process has used."""
    (thread,) = [one for one in threading.enumerate() if one.name == name]
    fields = Path(f"/proc/self/task/{thread.native_id}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    print(json.dumps(asyncio.run(serve(json.loads(sys.argv[1])))))

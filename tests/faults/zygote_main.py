"""Workers that are there at once: a process that has everything imported and forks one whenever it is told to.

`python -m tests.faults.zygote_main '{"url": …}'` reads `start` and `reap PID` from its standard input and answers
with a process id. It ends with its standard input, and its workers with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import psycopg  # noqa: F401 imported before the fork, so that the workers need not

from leasehold import Leasehold
from tests.faults.worker_main import work


def main() -> None:
    config: dict[str, Any] = json.loads(sys.argv[1])
    importlib.import_module(config["tasks"])
    children: set[int] = set()
    try:
        while line := sys.stdin.readline():
            verb, *rest = line.split()
            if verb == "start":
                pid = os.fork()
                if pid == 0:
                    serve(config)
                children.add(pid)
            else:
                pid = int(rest[0])
                os.waitpid(pid, 0)
                children.discard(pid)
            print(pid, flush=True)
    finally:
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def serve(config: dict[str, Any]) -> None:
    try:
        app = Leasehold(config["url"], schema=config["schema"])
        importlib.import_module(config["tasks"]).register(app, Path(config["folder"]), config["lease"])
        asyncio.run(work(app, config["settings"]))
    finally:
        os._exit(0)


if __name__ == "__main__":
    main()

"""`python -m examples.model_runs`: API, deliver process and a worker of RQ, on SQLite and a Valkey of its own.

LEASEHOLD_URL points it at PostgreSQL, REDIS_URL at a Redis that is there."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

from .processes import Processes


def main() -> None:
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    folder = Path("model_runs.data").absolute()
    folder.mkdir(exist_ok=True)
    settings = {name: os.environ[name] for name in ("LEASEHOLD_URL", "REDIS_URL") if name in os.environ}
    settings.setdefault("LEASEHOLD_URL", f"sqlite:///{folder}/model_runs.db")
    with Processes(folder, **settings) as processes:
        if "REDIS_URL" not in settings:
            processes.start_redis()
        url = processes.start_api()
        processes.start_deliver()
        processes.start_worker("worker-1")
        print(
            f"""API {url}, data and logs in {folder.name}/. In another shell:
    curl -s {url}/runs -H 'Content-Type: application/json' -d '{{"model": "mock", "seconds": 5}}'
    curl -s {url}/runs/ID""",
            flush=True,
        )
        stop.wait()


if __name__ == "__main__":
    main()

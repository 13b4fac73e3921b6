"""A worker process of the fault tests: `python -m tests.faults.worker_main '{"url": …}'`.

As `leasehold worker`, but every setting can be given. It ends when its standard input does, so that no worker
outlives the test that started it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from leasehold import Leasehold
from leasehold.stores.database.wakeups import NOTHING, Hint
from tests.faults.tasks import register

REPLACE_ME = 75


def main(register: Callable[[Leasehold, Path, float], object] = register) -> None:
    config: dict[str, Any] = json.loads(sys.argv[1])
    threading.Thread(target=end_with_the_test, daemon=True).start()
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.INFO)
    app = Leasehold(config["url"], schema=config["schema"], listen_url=config.get("listen_url"))
    register(app, Path(config["folder"]), config["lease"])
    if config.get("deaf"):
        real = app.__internals__.store.wakeups
        app.__internals__.store.wakeups = lambda listen_url=None: Deaf(real(listen_url))
    gave_up = asyncio.run(work(app, config["settings"]))
    logging.getLogger("leasehold.worker").info("bye")
    sys.exit(REPLACE_ME if gave_up else 0)


async def work(app: Leasehold, settings: dict[str, Any]) -> bool:
    worker = app.worker(**settings)
    loop = asyncio.get_running_loop()
    async with worker:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, worker.request_drain)
        logging.getLogger("leasehold.worker").info("ready")
        await worker._finished.wait()
    return worker.gave_up


class Deaf:
    """Wake-ups of which none is heard."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def wait(self, seconds: float) -> Hint:
        time.sleep(seconds)
        return NOTHING

    def call(self, on_hint: Any) -> bool:
        return True


def end_with_the_test() -> None:
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    main()

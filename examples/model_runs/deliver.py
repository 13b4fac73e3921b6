"""`python -m examples.model_runs.deliver`: the one named process that polls, reaps and delivers.

RQ is at most a hint: a message may be lost with Redis, or with the worker that took it. This process publishes again
what has lost its message, takes over what has lost its worker, and moves delayed messages to the queue when they are
due. Workers of RQ go on without it; only what was lost or put off waits for it."""

from __future__ import annotations

import logging
import os
import signal
import threading

from . import tasks  # noqa: F401 - the kinds that are swept
from .app import delivery


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s deliver %(message)s")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    delivery.run(every=float(os.environ.get("POLL_SECONDS", "1")), stop=stop)


if __name__ == "__main__":
    main()

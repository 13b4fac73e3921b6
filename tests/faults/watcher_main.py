"""A watcher process of the fault tests: `python -m tests.faults.watcher_main '{"url": …, "job": …, "since": 0}'`.

It appends a line for every event to a file. What ends with a line break was seen; one that is killed may leave half
a line.
"""

from __future__ import annotations

import json
import os
import sys
import threading

from leasehold import Leasehold
from tests.faults.worker_main import end_with_the_test


def main() -> None:
    config = json.loads(sys.argv[1])
    threading.Thread(target=end_with_the_test, daemon=True).start()
    file = os.open(config["file"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    with Leasehold(config["url"], schema=config["schema"]) as app:
        for event in app.get(config["job"]).watch(since=config["since"], timeout=90):
            line = {"seq": event.seq, "task": event.kind, "data": event.data}
            os.write(file, json.dumps(line).encode() + b"\n")


if __name__ == "__main__":
    main()

"""A process that waits for a group: `python -m tests.faults.group_waiter_main '{"url": …, "group": …}'`.

For each change it writes a line: the version it saw, and when, by the clock that all processes of the machine share.
"""

from __future__ import annotations

import json
import sys
import threading
import time

from leasehold import Leasehold
from tests.faults.worker_main import end_with_the_test


def main() -> None:
    config = json.loads(sys.argv[1])
    threading.Thread(target=end_with_the_test, daemon=True).start()
    with Leasehold(config["url"], schema=config["schema"]) as app:
        group, since = app.group(config["group"]), config["since"]
        print(json.dumps({"version": since, "at": 0}), flush=True)
        while True:
            status = group.status(wait=30, since=since)
            if status.changed:
                since = status.version
                print(json.dumps({"version": since, "at": time.monotonic()}), flush=True)


if __name__ == "__main__":
    main()

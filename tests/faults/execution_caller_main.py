"""A process that runs an execution now, with one place for it, and then waits to be killed. Started as worker_main."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from leasehold import Leasehold
from tests.faults import execution_tasks
from tests.faults.worker_main import end_with_the_test


def main() -> None:
    config: dict[str, Any] = json.loads(sys.argv[1])
    app = Leasehold(config["url"], schema=config["schema"])
    tasks = execution_tasks.register(app, Path(config["folder"]), config["lease"])
    app.run_now(tasks.capped, "first", gate="go")
    print("ready", file=sys.stderr, flush=True)
    end_with_the_test()


if __name__ == "__main__":
    main()

"""A worker process with the tasks of limit_tasks."""

from __future__ import annotations

from tests.faults.limit_tasks import register
from tests.faults.worker_main import main

if __name__ == "__main__":
    main(register)

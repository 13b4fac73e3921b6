"""As worker_main, with the tasks of the tests of executions."""

from __future__ import annotations

from tests.faults import execution_tasks, worker_main

if __name__ == "__main__":
    worker_main.main(execution_tasks.register)

"""As worker_main, with the tasks of the tests of budgets and questions."""

from __future__ import annotations

from tests.faults import spending_tasks, worker_main

if __name__ == "__main__":
    worker_main.main(spending_tasks.register)

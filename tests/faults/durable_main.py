"""As worker_main, with the tasks of the tests of steps and of `ctx.complete`."""

from __future__ import annotations

from tests.faults import durable_tasks, worker_main

if __name__ == "__main__":
    worker_main.main(durable_tasks.register)

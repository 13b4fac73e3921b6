"""A process that is killed between the insert and the commit leaves neither its own row nor the job."""

from __future__ import annotations

import os
import subprocess
import sys

from leasehold import Leasehold
from tests.backends import Backend
from tests.connections import ORDERS
from tests.faults.harness import PATIENCE, ROOT, wait_for
from tests.launcher import launch


def test_a_kill_between_insert_and_commit_leaves_neither_row_nor_job(backend: Backend):
    backend.query("drop table if exists orders")
    backend.query(ORDERS)
    process = launch(
        [sys.executable, "-m", "tests.faults.enlist_main", backend.url, backend.schema],
        cwd=ROOT,
        env=os.environ,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "inserted\n"
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE)

    def left() -> list[int]:
        tables = (
            "orders",
            "leasehold.job",
            "leasehold.lane_place",
            "leasehold.unique_key",
            "leasehold.job_group",
        )
        return [backend.query(f"select count(*) from {table}")[0][0] for table in tables]

    assert left() == [0, 0, 0, 0, 0]
    with Leasehold(backend.url, schema=backend.schema) as app:

        @app.task(name="never-enqueued-before", unique="k", lane="l")
        def ship() -> None: ...

        # The server lets go of the key when it finds its client gone.
        wait_for(lambda: ship.using(group="g").enqueue().created, "a job with the same key")
    assert left() == [0, 1, 1, 1, 1]

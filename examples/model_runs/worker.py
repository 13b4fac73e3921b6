"""`execute_run(run_id)`: the entrypoint that RQ calls, in a process that it forks for every message.

    rq worker -c examples.model_runs.rq_settings -S rq.serializers.JSONSerializer

`acquire_lease`, `renew_lease` and the `HeartbeatThread` of the document are inside `delivery.execute`: it claims this
run by compare-and-swap, renews the lease from a thread of its own, and returns when the database has the ending. So the
work horse may leave at once afterwards."""

from __future__ import annotations

import logging
import os

from leasehold.types import NotRun

from . import tasks  # noqa: F401 - registers what is run
from .app import delivery

logger = logging.getLogger("model_runs")


def execute_run(run_id: str) -> None:
    # Without WORKER_ID the owner is made of hostname, pid and chance. No two rq workers may have the same one.
    answer = delivery.execute(run_id, worker=os.environ.get("WORKER_ID"))
    if isinstance(answer, NotRun):
        # Another worker has it, or it has ended. The message is acknowledged by returning; where it is worth coming
        # back (an owner that may be dead), `execute` has published the id again.
        logger.warning("Lease acquisition failed: run %s: %s", run_id, answer.why)
    else:
        logger.info("run %s is %s", run_id, answer.job.state.value)

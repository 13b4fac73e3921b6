"""The one task: what `execute_run` runs once it holds the lease."""

from __future__ import annotations

from leasehold import Retry, SyncContext

from .app import LEASE_SECONDS, MAX_ATTEMPTS, QUEUE, RETRY_SECONDS, app
from .models import MODELS, Retriable, Stats


@app.task(
    queue=QUEUE,
    lease=LEASE_SECONDS,
    heartbeat=LEASE_SECONDS / 3,
    retry=Retry(max_attempts=MAX_ATTEMPTS, backoff=RETRY_SECONDS, on=(Retriable,)),
    on_lost="retry",  # an expired lease is stolen …
    count_lost=True,  # … MAX_ATTEMPTS times at most
    result="file",  # a JSON file, whose name holds the job and the token of its lease
)
def model_run(ctx: SyncContext, model: str, seconds: float = 1.0) -> Stats:
    """A plain function: it may block. The lease is renewed by a thread of the engine meanwhile."""
    print(f"run {ctx.job_id} attempt {ctx.attempt} token {ctx.lease_token}", flush=True)
    return MODELS[model].run(seconds, ctx.attempt, ctx.wait)

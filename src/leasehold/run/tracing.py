"""Runs an attempt inside the tracing span of `app.instrument`, so that its handler has that context."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager

from leasehold.domain.outcome import Outcome, Success
from leasehold.domain.tracing import TracedEnding, TracedRun, Tracing, attempt_outcome
from leasehold.run.attempt import Attempt, Ended

logger = logging.getLogger("leasehold.worker")


async def run_traced(tracing: Tracing, run: Attempt, ended: Ended) -> None:
    """Like `run.run(ended)`, for async, plain and external tasks. Tracing errors are logged, and do not affect the
    job."""
    outcome: Outcome | None = None
    raised: list[BaseException] = []

    def receive(_: Attempt, found: Outcome | None) -> None:
        nonlocal outcome
        outcome = found

    grant = run.grant
    span = _Span(
        tracing.running, TracedRun(grant.id, grant.task, grant.queue, grant.attempt, trace=grant.trace)
    )
    run.on_error = raised.append
    try:
        await run.run(receive)
    finally:
        # Otherwise the exception would refer to itself through its frames.
        run.on_error = None
        span.end(_ending(run, outcome, raised))
        raised.clear()
    ended(run, outcome)


def _ending(run: Attempt, outcome: Outcome | None, raised: list[BaseException]) -> TracedEnding:
    if run.completed:
        outcome = Success()  # what came after `ctx.complete` changes nothing
    word = attempt_outcome(outcome, run.flag)
    error = getattr(outcome, "error", None)
    exception = raised[-1] if raised and not run.policy.sensitive else None
    if word != "failed" or not isinstance(exception, Exception):
        exception = None
    return TracedEnding(word, error, exception)


class _Span:
    def __init__(
        self,
        running: Callable[[TracedRun], AbstractContextManager[Callable[[TracedEnding], None]]],
        run: TracedRun,
    ) -> None:
        self._notify: Callable[[TracedEnding], None] | None = None
        try:
            self._span = running(run)
            self._notify = self._span.__enter__()
        except Exception:
            logger.exception("job %s is not traced", run.job_id)

    def end(self, ending: TracedEnding) -> None:
        if self._notify is None:
            return
        try:
            self._notify(ending)
            self._span.__exit__(None, None, None)
        except Exception:
            logger.exception("could not end the trace of a run")

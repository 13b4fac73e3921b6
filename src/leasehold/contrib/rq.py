"""RQ: `from leasehold.contrib.rq import Delivery`. Redis or Valkey delivers ids; the database decides which process
runs a job. Needs the extra: `pip install 'leasehold[redis]'`.

delivery = Delivery(app, "runs.execute_run", queue="runs")

def execute_run(run_id: str) -> None:       # called by `rq worker runs -S rq.serializers.JSONSerializer`
    delivery.execute(run_id)

delivery.publish(simulate.enqueue("mock"))  # where jobs are made
delivery.run()                              # in one process beside the rq workers
"""

from __future__ import annotations

import logging
import os
import secrets
import threading
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from leasehold import Job, Leasehold, State
from leasehold.errors import DriverMissing, InvalidInput, LeaseholdError
from leasehold.types import Duration, Notification, NotRun, RunResult, Summary

try:
    import redis
    import rq
    from rq.scheduler import RQScheduler
    from rq.serializers import JSONSerializer
except ModuleNotFoundError as error:  # pragma: no cover
    if error.name not in ("redis", "rq"):
        raise
    raise DriverMissing(error.name, "redis") from None

__all__ = ["Delivery"]

logger = logging.getLogger(__name__)

_REDIS_VARIABLE = "REDIS_URL"
"""Redis or Valkey, for a `leasehold.contrib.rq.Delivery` without a connection; by default `redis://127.0.0.1:6379`."""
_PAGE = 200
_NOT_FETCHED = 10.0
"""Seconds after which a delayed message counts as lost: no scheduler moves it to the queue."""
_FAILURE_KEPT = 24 * 3600
_TROUBLE = (redis.RedisError, LeaseholdError)


class Delivery:
    """Delivers the jobs of some of the app's queues by RQ.

    `function` is the dotted name of your function that RQ calls with a job's id; it calls `execute`. `queue` is the
    queue of RQ. `serves` names Leasehold's queues whose jobs are delivered; by default the queue of the same name. No
    worker of Leasehold should serve these queues, unless it is to share the work. `connection` is a client or a URL;
    left out, it is REDIS_URL, else redis://127.0.0.1:6379. It connects at its first use, and works after a fork.

    A message carries only the id, so it may be lost, come twice or come late: `run` publishes the ids of lost messages
    again, and the lease admits one of two deliveries."""

    def __init__(
        self,
        app: Leasehold,
        function: str,
        *,
        queue: str = "default",
        serves: str | Iterable[str] = (),
        connection: redis.Redis | str | None = None,
    ) -> None:
        if "." not in function:
            raise InvalidInput(
                "function", f"{function!r} has no module", "give the name to import it by: 'runs.execute_run'"
            )
        self._app = app
        self._function = function
        self._serves = (serves,) if isinstance(serves, str) else tuple(serves) or (queue,)
        if connection is None:
            connection = os.environ.get(_REDIS_VARIABLE) or "redis://127.0.0.1:6379"
        self._redis = redis.Redis.from_url(connection) if isinstance(connection, str) else connection
        self._queue = rq.Queue(queue, connection=self._redis, serializer=JSONSerializer)
        self._scheduler: RQScheduler | None = None
        self._missing: frozenset[str] = frozenset()
        """Ids that had no message at the last poll. If they have none at the next poll either, one is sent."""
        app.on("requeued", name=f"leasehold.contrib.rq:{queue}")(self._requeued)

    # -- send ----------------------------------------------------------------------------------------------------------
    def publish(self, job: Job[Any] | str, *, delay: float = 0.0) -> bool:
        """Send the job's id; call it after the enqueue was committed. False: Redis could not be reached. The job is not
        lost: it is in the database, and the next poll publishes it."""
        job_id = job if isinstance(job, str) else job.id
        try:
            self._send(job_id, delay)
        except redis.RedisError as trouble:
            logger.warning("job %s could not be published (%s); the poll will publish it", job_id, trouble)
            return False
        return True

    def _send(self, job_id: str, delay: float) -> None:
        call = {
            "args": (job_id,),
            # The id in front lets a poll find the job's message; the suffix makes each message unique. With the same
            # name for both, RQ would delete a repeated message when the earlier one is done.
            "job_id": f"{job_id}-{secrets.token_hex(6)}",
            "job_timeout": -1,  # the lease and the task's time-out limit it
            "result_ttl": 0,
            "failure_ttl": _FAILURE_KEPT,
        }
        if delay > 0:
            self._queue.enqueue_in(timedelta(seconds=delay), self._function, **call)
        else:
            self._queue.enqueue(self._function, **call)

    def _requeued(self, event: Notification) -> None:
        """Publish a job that a retry, a lost lease, a resume or an answer queued again: its first message is gone."""
        if event.tenant is None and event.queue in self._serves:
            due = datetime.fromisoformat(event.data["available_at"])
            self.publish(event.job_id, delay=(due - _now()).total_seconds())

    # -- receive -------------------------------------------------------------------------------------------------------
    def execute(self, job_id: str, *, worker: str | None = None, wait: Duration = 0) -> RunResult | NotRun:
        """Run this job here, by `app.run_by_id`. When it returns, the job's end is stored, so RQ's work horse may exit.
        If it cannot run now but may later, its id is published again for that time.

        Taking over the lease of a dead worker needs two checks, a third of the lease apart. A work horse exits after
        one message, so `run`, in its own process, makes both checks. If no process calls `run`, pass a `wait` longer
        than a third of the lease: then this call makes both."""
        answer = self._app.run_by_id(job_id, worker=worker, wait=wait)
        if isinstance(answer, NotRun) and answer.retry_in is not None:
            self.publish(job_id, delay=max(answer.retry_in, 1.0))
        return answer  # a job that ran and is queued again was published by the hook

    # -- supervise -----------------------------------------------------------------------------------------------------
    def run(self, *, every: float = 2.0, stop: threading.Event | None = None) -> None:
        """Call `poll` every `every` seconds, until `stop` is set. One process of a fleet does this; a second one is
        harmless. While Redis or the database is unreachable, it logs that and goes on."""
        stop = stop or threading.Event()
        try:
            while not stop.is_set():
                try:
                    self.poll()
                except _TROUBLE as trouble:
                    logger.warning("the poll of %s has failed: %s", self._queue.name, trouble)
                stop.wait(every)
        finally:
            self.close()

    def poll(self) -> list[str]:
        """Poll once: move due messages to the queue, take over jobs whose lease was lost, and publish every job that is
        due and has had no message since the last poll. Returns the ids that were published."""
        self._move_due()
        found = [job.id for job in self._app.sweep(wait=0) if self._is_ours(job.queue, job.state)]
        with_message = self._messages()
        missing = frozenset(job.id for job in self._due() if job.id not in with_message)
        found += sorted((missing & self._missing).difference(found))
        self._missing = missing.difference(found)
        for job_id in found:
            self._send(job_id, 0.0)
        if found:
            logger.info("published %d jobs of %s that had no message", len(found), self._queue.name)
        return found

    def _is_ours(self, queue: str, state: State) -> bool:
        return queue in self._serves and state is State.QUEUED

    def _messages(self) -> set[str]:
        """Return jobs with a message in RQ. A taken message does not count: its worker claims at once, or is dead."""
        put_off = self._queue.scheduled_job_registry
        late = _now().timestamp() - _NOT_FETCHED
        names = [*self._queue.get_job_ids(), *self._redis.zrangebyscore(put_off.key, late, "+inf")]
        return {_text(name).rpartition("-")[0] for name in names}

    def _due(self) -> Iterable[Summary]:
        for queue in self._serves:
            before: str | None = None
            while True:
                page = self._app.jobs(state=State.QUEUED, queue=queue, limit=_PAGE, cursor=before)
                yield from (job for job in page.jobs if job.available_at <= _now())
                if (before := page.next) is None:
                    break

    def _move_due(self) -> None:
        """Do what `rq worker --with-scheduler` does in a separate process. Only one process holds the lock."""
        if self._scheduler is None:
            self._scheduler = RQScheduler(
                [self._queue.name],
                self._redis,
                logging_level=logging.getLogger("rq.scheduler").level,
                serializer=JSONSerializer,
            )
        if self._scheduler.acquire_locks():  # type: ignore[no-untyped-call] # rq has no types
            self._scheduler.enqueue_scheduled_jobs()  # type: ignore[no-untyped-call] # rq has no types

    def close(self) -> None:
        """Release RQ's lock and close the connections. The next use of the object opens them again."""
        scheduler, self._scheduler = self._scheduler, None
        if scheduler is not None:
            try:
                scheduler.release_locks()  # type: ignore[no-untyped-call] # rq has no types
            except redis.RedisError as trouble:
                logger.warning(
                    "could not release RQ's lock on %s, which will expire: %s", self._queue.name, trouble
                )
            scheduler.connection.connection_pool.disconnect()
        self._redis.connection_pool.disconnect()


def _now() -> datetime:
    return datetime.now(UTC)


def _text(name: bytes | str) -> str:
    return name.decode() if isinstance(name, bytes) else name

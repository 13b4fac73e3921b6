"""The database has done what it was asked, and the answer never came. User code is not run again because of that."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tests.faults import durable_tasks
from tests.faults.conftest import MakePlace
from tests.faults.harness import Fleet, Place, check
from tests.faults.proxy import Proxy
from tests.servers import PostgresServer

CLAIM = b"attempt + 1 AS attempt"
SUCCESS = (
    b".outcome (job, token, finished_at, started_at, attempt, worker, state, special, result, result_ref)"
)
DECIDED = b"COMMIT"


@pytest.fixture
def proxy(postgres_server: PostgresServer) -> Iterator[Proxy]:
    with Proxy(postgres_server.port) as proxy:
        yield proxy


@pytest.fixture
def place(make_place: MakePlace) -> Place:
    return make_place("postgres", lease=6.0)


def through(proxy: Proxy) -> dict[str, str]:
    """Nothing is prepared in pooler mode, so that the proxy sees every statement's text."""
    url = f"postgresql://postgres@127.0.0.1:{proxy.port}/leasehold_tests?sslmode=disable&pooler=transaction"
    return {"url": url, "listen_url": "postgresql://127.0.0.1:1/nowhere"}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("task", ["brief", "brief_in_thread"])
def test_a_job_whose_claim_was_never_answered_is_found_and_run_once(
    place: Place, proxy: Proxy, task: str
) -> None:
    with contextlib.closing(Fleet(place)) as fleet:
        worker = fleet.start(**through(proxy))
        proxy.drop_reply(CLAIM, with_rows=True)
        job = getattr(place.tasks, task).enqueue(0.01)
        assert proxy.dropped.wait(20)
        done = place.wait_for_state(job.id, "succeeded")
        assert (done.attempt, done.crashes) == (1, 0)
        assert worker.said("were granted, but the database's answer was lost")
        figures = check(place, [job.id], fleet)
        assert (figures.grants, figures.runs, figures.lost) == (1, 1, 0)


@pytest.mark.timeout(60)
def test_a_result_whose_settling_was_never_answered_counts_and_is_not_called_refused(
    place: Place, proxy: Proxy
) -> None:
    with contextlib.closing(Fleet(place)) as fleet:
        worker = fleet.start(**through(proxy))
        proxy.drop_reply(SUCCESS)
        job = place.tasks.brief.enqueue(0.01)
        assert proxy.dropped.wait(20)
        assert place.wait_for_state(job.id, "succeeded").attempt == 1
        worker.wait_until_it_says("the database is back; 1 result(s) taken")
        # It works on, and holds nothing any more.
        after = place.tasks.brief.enqueue(0.01)
        place.wait_for_state(after.id, "succeeded")
        figures = check(place, [job.id, after.id], fleet)
        assert (figures.grants, figures.runs, figures.lost) == (2, 2, 0)
        assert not worker.said("refused, lease")
        assert not worker.said("is lost")


@pytest.mark.timeout(60)
def test_a_hand_back_whose_commit_was_never_answered_is_done_once(place: Place, proxy: Proxy) -> None:
    with contextlib.closing(Fleet(place)) as fleet:
        worker = fleet.start(shutdown_grace=0.0, **through(proxy))
        job = place.tasks.wait_on_loop.enqueue("never")
        place.wait_for_start(job.id)
        proxy.drop_reply(DECIDED)
        worker.terminate()
        assert worker.wait(40) == 0
        assert proxy.dropped.is_set()
        row = place.row(job.id)
        assert (row.state, row.attempt, row.failures, row.crashes) == ("queued", 1, 0, 0)
        assert not worker.said("refused, lease")
        events = [entry.event for entry in place.app.get(job.id).history()]
        assert events == ["handed_back"]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("statement", [b"BEGIN", b"COMMIT"])
def test_a_session_that_ends_in_the_middle_of_an_answer_costs_no_result(
    place: Place, proxy: Proxy, statement: bytes
) -> None:
    with contextlib.closing(Fleet(place)) as fleet:
        worker = fleet.start(
            shutdown_grace=0.0, sweep=60.0, **through(proxy)
        )  # the reaper has transactions of its own
        job = place.tasks.wait_on_loop.enqueue("never")
        place.wait_for_start(job.id)
        proxy.drop_reply(statement, shutdown=True)
        worker.terminate()
        assert worker.wait(40) == 0
        assert proxy.dropped.is_set()
        row = place.row(job.id)
        assert (row.state, row.attempt, row.failures, row.crashes) == ("queued", 1, 0, 0)
        assert [entry.event for entry in place.app.get(job.id).history()] == ["handed_back"]
        assert not worker.said("refused, lease")
        assert fleet.unexpected() == []


@pytest.mark.timeout(60)
@pytest.mark.parametrize("task", ["complete_on_loop", "complete_in_thread"])
def test_a_completion_whose_commit_was_never_answered_counts_and_is_not_run_again(
    place: Place, proxy: Proxy, task: str
) -> None:
    durable_tasks.make_table(place)
    tasks = durable_tasks.register(place.app, place.folder, place.lease)
    with contextlib.closing(Fleet(place)) as fleet:
        worker = fleet.start(module="tests.faults.durable_main", sweep=60.0, **through(proxy))
        proxy.drop_reply(DECIDED)
        job = getattr(tasks, task).enqueue()
        assert proxy.dropped.wait(20)
        done = place.wait_for_state(job.id, "succeeded")
        assert (done.attempt, done.failures, done.crashes) == (1, 0, 0)
        # It works on, and holds nothing any more.
        after = getattr(tasks, task).enqueue()
        place.wait_for_state(after.id, "succeeded")
        assert sorted(place.query("SELECT job FROM leasehold.effect")) == sorted([(job.id,), (after.id,)])
        assert not worker.said("refused, lease")
        assert not worker.said("is lost")
        assert fleet.unexpected() == []


@pytest.mark.timeout(60)
def test_a_step_whose_commit_was_never_answered_is_not_run_again(place: Place, proxy: Proxy) -> None:
    durable_tasks.make_table(place)
    tasks = durable_tasks.register(place.app, place.folder, place.lease)
    with contextlib.closing(Fleet(place)) as fleet:
        fleet.start(module="tests.faults.durable_main", sweep=60.0, **through(proxy))
        proxy.drop_reply(DECIDED)
        job = tasks.many_steps.enqueue(steps=3, shift=None)
        assert proxy.dropped.wait(20)
        done = place.wait_for_state(job.id, "succeeded")
        assert (done.attempt, done.failures, done.crashes) == (1, 0, 0)
        assert job.result(timeout=0) == durable_tasks.expected(3)
        assert sorted(place.query("SELECT step FROM leasehold.effect")) == [(0,), (1,), (2,)]
        assert fleet.unexpected() == []


@pytest.mark.timeout(60)
def test_events_whose_commit_was_never_answered_are_stored_once(place: Place, proxy: Proxy) -> None:
    with contextlib.closing(Fleet(place)) as fleet:
        worker = fleet.start(sweep=60.0, retention=None, **through(proxy))
        job = place.tasks.tell_at_the_gate.enqueue("go", 40)
        place.wait_for_start(job.id)
        proxy.drop_reply(DECIDED)
        place.open_gate("go-1")
        assert proxy.dropped.wait(20)
        place.wait_for_state(job.id, "succeeded")
        stored = place.query("SELECT seq FROM leasehold.job_update")
        assert len(stored) == 40, "the first try had arrived"
        found = [event for event in place.app.get(job.id).watch(timeout=0) if event.kind == "item"]
        assert [(event.seq, event.data) for event in found] == [(n + 1, n) for n in range(40)]
        lines = [line.split(" ", 2)[2] for line in place.app.get(job.id).log().text.splitlines()]
        assert lines == [f"line {n}" for n in range(40)]
        assert worker.said("trying again") or worker.said("are kept until the database takes them")
        check(place, [job.id], fleet)
        assert fleet.unexpected() == []

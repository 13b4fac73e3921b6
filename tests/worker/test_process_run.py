"""`run_in="process"`: both colours run in a child as they do in a worker."""

from __future__ import annotations

import os

import pytest

from leasehold import Leasehold, Retry, State, StopRequested
from leasehold.errors import (
    AcquireTimedOut,
    DatabaseUnreachable,
    InvalidInput,
    JobNotFound,
    LeaseLost,
    OverBudget,
    StoreError,
)
from leasehold.worker.process.rpc import read_answer, write_error
from tests.worker import process_tasks as tasks
from tests.workers import burst

pytestmark = [pytest.mark.slow(3), pytest.mark.one_store("postgres")]


def in_process(app, function, **settings):
    return app.task(run_in="process", **settings)(function)


@pytest.mark.parametrize("function", [tasks.where, tasks.where_async])
def test_a_job_runs_in_a_process_of_its_own(app, function):
    job = in_process(app, function).enqueue(4)
    burst(app)
    reported = job.result(timeout=0)
    assert reported["x"] == 4
    assert len({reported["pid"], reported["parent"], os.getpid()}) == 3, "a guard stands between the two"
    assert reported["group"] == reported["pid"]
    for pid in (reported["pid"], reported["parent"]):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_arguments_and_results_are_checked_and_typed_as_in_a_worker(app):
    task = in_process(app, tasks.moved)
    job = task.enqueue(point=tasks.Point(x=1), by=2)
    burst(app)
    assert job.result(timeout=0) == tasks.Point(x=3)


@pytest.mark.parametrize(
    ("what", "state", "failures", "text"),
    [
        ("known", State.FAILED, 2, "Known: as expected"),
        ("value", State.FAILED, 1, "ValueError: no good"),
        ("fail", State.FAILED, 1, "never again"),
        ("exit", State.FAILED, 1, "SystemExit: 3"),
        ("not serializable", State.FAILED, 1, "the result is not serializable"),
        ("group", State.FAILED, 1, "ExceptionGroup: two (2 sub-exceptions): "),
        ("snooze", State.QUEUED, 0, ""),
        ("retry in", State.QUEUED, 0, "later"),
    ],
)  # fmt: skip
def test_what_a_handler_raises_means_the_same_in_a_child(app, what, state, failures, text):
    retry = Retry(max_attempts=2, backoff=0, on=(tasks.Known, RuntimeError))
    child = in_process(app, tasks.raises, name="child", retry=retry).enqueue(what)
    burst(app)
    thread = app.task(name="thread", retry=retry)(tasks.raises).enqueue(what)
    burst(app)
    for job in (child, thread):
        assert (job.refresh().state, job.__row__.failures) == (state, failures)
        assert text in (job.error or "")
    assert _places(child) == _places(thread), "the same frames are shown"


def _places(job):
    return [line for line in (job.error or "").splitlines() if line.startswith("  File")]


@pytest.mark.parametrize("function", [tasks.all_verbs, tasks.all_verbs_async])
def test_the_verbs_of_the_context_work_in_a_child(app, tmp_path, function):
    app.slots.set("browser", 2)
    task = in_process(app, function, budget={"tokens": 100}, retry=Retry(max_attempts=2, backoff=0))
    job = task.using(group="g").enqueue(str(tmp_path))
    burst(app)
    reported = job.result(timeout=0)
    assert (reported["seven"], reported["cheap"]) == (7, [0, 1, 4])
    assert (tmp_path / "calls").read_text() == "x", "the step of the first run is not run again"
    assert (reported["saved"], reported["left"], reported["spent"]) == ({"at": "first"}, 85, 15)
    assert reported["facts"] == [function.__name__, "default", 2, 2, "g"]
    follower = app.get(reported["follower"])
    assert (follower.task, follower.__row__.group) == ("follow", "g")
    progress = job.progress()
    assert (progress.done, progress.note) == (1, "half")
    assert [event.data for event in job.watch() if event.kind == "page"] == [{"n": 1}]
    log = job.log().text
    assert "a line" in log
    assert "WARNING tests: a record" in log
    assert sum(line.amount for line in job.spending()) == 15


@pytest.mark.parametrize("function", [tasks.asks, tasks.asks_async])
def test_a_child_asks_and_a_later_one_gets_the_answer(app, function):
    job = in_process(app, function).enqueue()
    burst(app)
    assert job.refresh().state == State.WAITING
    job.answer("name", "Ada")
    burst(app)
    assert job.result(timeout=0) == "hello Ada"


def test_a_child_reads_what_its_parents_have_returned(app):
    parent = app.task(name="parent")(tasks.follow.__wrapped__).enqueue(3)  # type: ignore[attr-defined]
    job = in_process(app, tasks.reads_its_parents).using(after=[parent]).enqueue()
    burst(app)
    assert job.result(timeout=0) == [[3], [["parent", "succeeded"]]]


def test_an_error_of_a_verb_is_raised_in_the_child_as_what_it_is(app):
    app.slots.set("scarce", 0)
    retry = Retry(max_attempts=2, backoff=0, on=(AcquireTimedOut,))
    job = in_process(app, tasks.waits_for_a_slot, retry=retry).enqueue()
    burst(app)
    assert (job.refresh().state, job.__row__.failures) == (State.FAILED, 2)
    assert "AcquireTimedOut" in job.error


@pytest.mark.parametrize(
    "error",
    [
        LeaseLost("j", 3), JobNotFound("j"), DatabaseUnreachable("sqlite:///x", "gone"), StopRequested(),
        InvalidInput("units", "are too many", "take fewer"), OverBudget("j", "job", "", "tokens", 10, 11),
    ],
)  # fmt: skip
def test_our_errors_come_through_the_channel_as_they_were(error):
    number, _, back = read_answer(write_error(7, error))
    assert (number, type(back), str(back), vars(back)) == (7, type(error), str(error), vars(error))


def test_another_error_comes_through_as_the_stores():
    _, _, back = read_answer(write_error(7, ZeroDivisionError("oh")))
    assert isinstance(back, StoreError)
    assert str(back) == "ZeroDivisionError: oh"


@pytest.mark.parametrize(
    ("function", "text"),
    [(tasks.completes, "ctx.complete and steps with tx=True"), (tasks.wants_resources, "resources: are of the worker")],
)  # fmt: skip
def test_what_needs_the_workers_own_process_is_refused_with_the_reason(app, function, text):
    job = in_process(app, function).enqueue()
    burst(app)
    assert (job.refresh().state, job.__row__.failures) == (State.FAILED, 1)
    assert text in job.error


def test_a_child_over_its_budget_is_a_breach(app):
    job = in_process(app, tasks.spends, budget={"tokens": 10}).enqueue()
    burst(app)
    assert job.refresh().state == State.FAILED
    assert "tokens" in job.error
    assert [line.amount for line in job.spending()] == [11]


def test_a_result_that_no_row_takes_becomes_a_file(backend, tmp_path):
    with Leasehold(backend.url, schema=backend.schema, results=str(tmp_path / "results")) as app:
        job = in_process(app, tasks.large).enqueue(3 * 2**20)
        burst(app)
        assert len(job.result(timeout=0)) == 3 * 2**20
        assert job.__row__.result_ref is not None


def test_middleware_is_around_the_function_in_its_process(app):
    app.middleware(tasks.around)
    job = in_process(app, tasks.free).enqueue(2)
    burst(app)
    said = job.result(timeout=0)
    assert said["around"] == said["inner"]["pid"] != os.getpid()
    assert said["job"] == job.id


def test_what_is_sensitive_stays_hidden_in_what_a_child_says(app):
    job = in_process(app, tasks.tells_its_secret, sensitive=("secret",)).enqueue("xyzzy-7")
    burst(app)
    reported = job.refresh().error + job.log().text
    assert "RuntimeError: the secret is" in reported
    assert "logged" in reported
    assert "xyzzy-7" not in reported

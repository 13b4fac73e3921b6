"""The job in a user's hands."""

from __future__ import annotations

import asyncio
import threading

import pytest
from pydantic import BaseModel

from leasehold import Job, Retry, State, SyncContext
from leasehold.domain.outcome import Failure, Stopped, Success
from leasehold.errors import InvalidArguments, InvalidState, JobNotFound, JobNotSucceeded, WaitTimedOut
from leasehold.stores.results import Ending
from tests.backends import new_id
from tests.workers import burst


class Report(BaseModel):
    title: str


@pytest.fixture
def work(app):
    @app.task(lane="{target}", queue="q")
    def work(target: str) -> Report: ...

    return work


def end(app, outcome):
    """Run the next job as a worker would."""
    (grant,) = app.__internals__.store.claim("worker", ["q"], 1)
    app.__internals__.store.settle([Ending(grant.id, grant.token, outcome)])


def test_a_result_comes_back_through_the_return_annotation(app, work):
    job = work.enqueue("t")
    end(app, Success('{"title": "found"}'))
    assert job.result(timeout=5) == Report(title="found")
    assert asyncio.run(job.aresult(timeout=5)) == Report(title="found")
    assert job.state is State.SUCCEEDED


def test_waiting_for_a_result_sees_it_when_it_comes(app, work):
    job = work.enqueue("t")
    thread = threading.Thread(target=end, args=(app, Success('{"title": "late"}')))
    thread.start()
    assert job.result(timeout=30).title == "late"
    thread.join()


def test_a_job_that_ends_otherwise_says_so(app, work):
    job = work.enqueue("t")
    end(app, Failure("boom", final=True))
    with pytest.raises(JobNotSucceeded, match="failed: boom"):
        job.result(timeout=5)


def test_waiting_in_vain_times_out(work):
    with pytest.raises(WaitTimedOut, match="still queued"):
        work.enqueue("t").result(timeout=0.05)


def test_the_verbs_move_the_job_and_tell_its_new_state(app, work):
    job = work.enqueue("t")
    assert job.pause("deploy", actor="ann").state is State.PAUSED
    assert job.reason == "deploy"
    assert job.resume().state is State.QUEUED
    assert job.cancel("enough").state is State.CANCELLED
    again = job.retry()
    assert (again.state, again.__row__.retry_of) == (State.QUEUED, job.id)
    assert [entry.event for entry in job.history()] == ["paused", "resumed", "cancelled", "retried"]
    assert job.history()[0].actor == "ann"


def test_a_running_job_tells_who_holds_it_until_when_and_what_it_was_asked(app, work):
    job = work.enqueue("t")
    assert (job.worker, job.lease_expires_at, job.stop_requested) == (None, None, None)
    (grant,) = app.__internals__.store.claim("worker", ["q"], 1)
    assert job.refresh().worker == "worker"
    assert job.lease_expires_at > job.updated_at
    assert job.stop_requested is None
    assert job.pause().stop_requested == "pause"
    assert job.cancel().stop_requested == "cancel", "the stronger one"
    app.__internals__.store.settle([Ending(grant.id, grant.token, Stopped())])
    job.refresh()
    assert (job.worker, job.lease_expires_at, job.stop_requested) == (None, None, None)


def test_a_verb_that_does_not_apply_is_refused_with_the_state(work):
    job = work.enqueue("t").cancel()
    with pytest.raises(InvalidState, match="it was cancelled") as caught:
        job.pause()
    assert (caught.value.verb, caught.value.state) == ("pause", "cancelled")


def test_a_held_job_is_released(work):
    assert work.using(hold=True).enqueue("t").release().state is State.QUEUED


def test_a_failed_job_halts_its_lane_until_it_is_resolved_or_resumed(app, work):
    first, second = work.enqueue("t"), work.enqueue("t")
    end(app, Failure("boom", final=True))
    assert app.__internals__.store.claim("worker", ["q"], 1) == []
    first.refresh().skip()
    assert [grant.id for grant in app.__internals__.store.claim("worker", ["q"], 1)] == [second.id]


def test_a_lane_is_resumed_by_its_name(app, work):
    job = work.enqueue("t")
    end(app, Failure("boom", final=True))
    assert app.lanes.resume("t") == job
    assert app.lanes.resume("t") is None


def test_resume_may_bring_other_arguments_and_they_are_checked(app, work):
    job = work.enqueue("t").pause()
    assert job.resume(args={"target": "u"}).args == {"target": "u"}
    job.pause()
    with pytest.raises(InvalidArguments):
        job.resume(args={"goal": "u"})
    assert job.refresh().state is State.PAUSED


def test_the_async_verbs_do_the_same(work):
    async def steer():
        job = await work.aenqueue("t")
        await job.apause()
        await job.aresume()
        await job.acancel()
        return (await job.arefresh()).state

    assert asyncio.run(steer()) is State.CANCELLED


def test_queues_and_kinds_are_paused_with_who_and_why(app, work):
    work.enqueue("t")
    app.queues.pause("q", reason="deploy", actor="ann", for_="1h")
    assert [(p.name, p.reason, p.paused_by) for p in app.queues.paused()] == [("q", "deploy", "ann")]
    assert app.__internals__.store.claim("worker", ["q"], 1) == []
    assert app.queues.resume("q")
    app.tasks.pause("work")
    assert app.__internals__.store.claim("worker", ["q"], 1) == []
    assert app.tasks.resume("work")
    assert not app.tasks.resume("work")
    assert len(app.__internals__.store.claim("worker", ["q"], 1)) == 1


def test_pages_follow_each_other_without_gap_or_repeat(app, work):
    made = [job.id for job in work.using(tags=("x",)).enqueue_many([{"target": str(n)} for n in range(7)])]
    seen: list[str] = []
    page = app.jobs(tag="x", limit=3)
    while True:
        seen += [job.id for job in page.jobs]
        if page.next is None:
            break
        page = app.jobs(tag="x", limit=3, cursor=page.next)
    assert seen == made[::-1]


def test_pruning_takes_only_what_is_at_rest_and_old_enough(app, work, clock):
    done, live = work.enqueue("t"), work.enqueue("u")
    end(app, Success())
    clock.advance(3600)
    assert app.prune("2h").jobs == 0
    clock.advance(3601)
    assert app.prune("2h").jobs == 1
    assert [job.id for job in app.jobs().jobs] == [live.id]
    assert done.id not in {job.id for job in app.jobs().jobs}


def test_a_job_explains_why_it_is_not_running(app, work):
    app.queues.pause("q", reason="deploy", actor="ann")
    reported = work.using(delay="1h").enqueue("t").explain()
    assert [hold.cause for hold in reported][:2] == ["not_due", "queue_paused"]
    assert str(reported).startswith("1. ")
    assert "deploy" in str(reported)
    assert asyncio.run(app.enqueue("work", {"target": "u"}).aexplain())[0].cause == "queue_paused"


def test_a_job_in_hand_outlives_a_close_of_its_app(app, work):
    job = work.enqueue("t")
    app.close()
    assert job.refresh().state is State.QUEUED
    assert job.cancel().state is State.CANCELLED


def test_a_job_tells_its_attempts_and_its_steps(app):
    @app.task(retry=Retry(max_attempts=2, backoff=0))
    def work(ctx: SyncContext) -> int:
        found = ctx.step("look", lambda: {"pages": [1, 2]})
        if ctx.attempt == 1:
            raise ConnectionError("down")
        return len(found["pages"])

    job = work.enqueue()
    burst(app)
    assert job.refresh().error is None
    assert [(one.attempt, one.outcome) for one in job.attempts()] == [(1, "failed"), (2, "succeeded")]
    assert (job.attempts()[0].error or "").startswith("ConnectionError: down")
    assert [(one.name, one.attempt, one.result) for one in job.steps()] == [("look", 1, {"pages": [1, 2]})]
    assert asyncio.run(job.aattempts()) == job.attempts()
    assert asyncio.run(job.asteps()) == job.steps()


def test_attempts_and_steps_of_no_job_are_not_found(app):
    job = Job(new_id(), app.__internals__.operations, app.__internals__.find_task)
    for ask in (job.attempts, job.steps):
        with pytest.raises(JobNotFound):
            ask()

"""What an operator does, by the Python API and by the client of the HTTP API: the same verbs, the same answers. Every
test runs with each of them, on both stores."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from leasehold import Leasehold, State
from leasehold.domain.budgets import Spend
from leasehold.domain.outcome import Detached, Failure, Success
from leasehold.domain.policy import Policy
from leasehold.domain.questions import QuestionAsked
from leasehold.domain.stream import Note, RunNotes
from leasehold.errors import (
    DuplicateJob,
    GroupOnHold,
    InvalidAnswer,
    InvalidArguments,
    InvalidInput,
    InvalidState,
    JobNotFound,
    JobNotSucceeded,
    NotSerializable,
    ScheduleNotFound,
    UnknownTask,
    WaitTimedOut,
)
from leasehold.stores.results import Ending
from leasehold.types import AuditPage, BudgetPage, BulkReport
from tests.backends import new_id
from tests.contract.lives import end, run, run_external
from tests.remote.conftest import QUEUES, Handle, claim, settle
from tests.workers import burst


# -- enqueue -------------------------------------------------------------------------------------------------------
def test_a_job_is_made_as_the_call_says(app: Leasehold, api: Handle):
    at = (datetime.now(UTC) + timedelta(hours=1)).replace(microsecond=0)
    job = api.enqueue("add", {"a": 1}, at=at, priority=7, group="g", tags=("x", "y"), unique="k")
    assert (job.created, job.state, job.task, job.args) == (True, State.QUEUED, "add", {"a": 1})
    assert job.available_at == at
    row = app.get(job.id).__row__
    assert (row.priority, row.group, row.tags, row.unique_key) == (7, "g", ("x", "y"), "k")
    again = api.enqueue("add", {"a": 5}, unique="k")
    assert (again, again.created) == (job, False)
    assert api.enqueue("add", {"a": 1}, delay="10m").available_at > datetime.now(UTC) + timedelta(minutes=9)


def test_a_wrong_call_is_refused_with_the_field(api: Handle):
    with pytest.raises(InvalidArguments) as wrong:
        api.enqueue("add", {"a": "x"})
    assert (wrong.value.task, list(wrong.value.problems), wrong.value.field) == ("add", ["a"], "a")
    with pytest.raises(UnknownTask) as unknown:
        api.enqueue("nothing")
    assert (unknown.value.name, unknown.value.known) == ("nothing", ["add", "flaky", "greet", "work"])
    with pytest.raises(InvalidInput) as soon:
        api.enqueue("add", {"a": 1}, delay="soon")
    assert soon.value.field == "delay"
    with pytest.raises(NotSerializable):
        api.enqueue("work", {"target": "a\0b"})
    assert api.jobs().jobs == []


# -- one job -------------------------------------------------------------------------------------------------------
def test_the_verbs_move_the_job_and_tell_its_new_state(app: Leasehold, api: Handle):
    job = api.enqueue("work", {"target": "t"})
    assert job.pause("deploy").state is State.PAUSED
    assert job.reason == "deploy"
    assert job.resume().state is State.QUEUED
    assert job.cancel("enough").state is State.CANCELLED
    again = job.retry()
    assert (again.state, again.created, app.get(again.id).__row__.retry_of) == (State.QUEUED, True, job.id)
    assert [entry.event for entry in job.history()] == ["paused", "resumed", "cancelled", "retried"]
    assert (job.history()[0].from_state, job.history()[0].detail) == ("queued", "deploy")


def test_an_interrupt_pauses_what_runs_and_cancels_what_does_not(app: Leasehold, api: Handle):
    job = api.enqueue("add", {"a": 1})
    claim(app)
    job.interrupt("look")
    assert api.jobs(state="running").jobs[0].stop_requested == "pause"
    assert api.enqueue("add", {"a": 1}).interrupt().state is State.CANCELLED


def test_a_verb_that_does_not_apply_is_refused_with_the_state(api: Handle):
    job = api.enqueue("add", {"a": 1}).cancel()
    with pytest.raises(InvalidState, match="it was cancelled") as caught:
        job.pause()
    assert (caught.value.job_id, caught.value.verb, caught.value.state) == (job.id, "pause", "cancelled")


def test_a_job_that_is_not_there_is_not_found(api: Handle):
    for job_id in (new_id(), "nothing", "a/b", "..", "batch"):
        with pytest.raises(JobNotFound) as caught:
            api.get(job_id)
        assert caught.value.job_id == job_id


def test_a_snooze_sets_when_a_job_is_due(app: Leasehold, api: Handle):
    noon = datetime(2100, 1, 1, 12, tzinfo=UTC)
    job, other = api.enqueue("add", {"a": 1}), api.enqueue("add", {"a": 2})
    assert job.snooze(noon, "closed") is job
    assert (job.state, job.available_at) == (State.QUEUED, noon)
    assert job.history()[-1].detail == "until 2100-01-01T12:00:00+00:00: closed"
    later = noon + timedelta(days=1)
    assert asyncio.run(job.asnooze(later, reason="still closed")).available_at == later
    assert api.bulk.snooze(task="add", dry_run=True).matched == 2
    report = api.bulk.snooze(task="add", until=noon, reason="closed")
    assert (report.verb, report.matched, report.changed) == ("snooze", 2, 2)
    assert asyncio.run(api.bulk.asnooze(task="add", until=later)).changed == 2
    assert (job.refresh().available_at, other.refresh().available_at) == (later, later)
    with pytest.raises(InvalidInput) as caught:
        api.bulk.snooze(task="add")
    assert caught.value.field == "until"
    assert job.snooze(datetime(2000, 1, 1, tzinfo=UTC)).available_at < noon


def test_a_job_that_runs_or_has_ended_is_not_snoozed(app: Leasehold, api: Handle):
    noon = datetime(2100, 1, 1, 12, tzinfo=UTC)
    job = api.enqueue("add", {"a": 1})
    claim(app)
    with pytest.raises(InvalidState) as caught:
        job.snooze(noon)
    assert (caught.value.job_id, caught.value.verb, caught.value.state) == (job.id, "snooze", "running")
    (refusal,) = api.bulk.snooze(task="add", state="running", until=noon).refused
    assert (refusal.error, refusal.state, refusal.sample) == ("InvalidState", "running", (job.id,))
    ended = api.enqueue("work", {"target": "t"}).cancel()
    with pytest.raises(InvalidState) as caught:
        asyncio.run(ended.asnooze(noon))
    assert caught.value.state == "cancelled"
    (refusal,) = asyncio.run(api.bulk.asnooze(task="work", state="cancelled", until=noon)).refused
    assert (refusal.state, refusal.jobs) == ("cancelled", 1)


def test_a_held_job_is_released(app: Leasehold, api: Handle):
    held = app.__internals__.named_task("add", {"hold": True}).enqueue(a=1)
    job = api.get(held.id)
    assert job.state is State.PENDING
    assert job.release().state is State.QUEUED


def test_resume_may_bring_other_arguments_and_they_are_checked(api: Handle):
    job = api.enqueue("work", {"target": "t"}).pause()
    assert job.resume(args={"target": "u"}, fresh=True).args == {"target": "u"}
    job.pause()
    with pytest.raises(InvalidArguments):
        job.resume(args={"goal": "u"})
    assert job.refresh().state is State.PAUSED


def test_a_failed_job_halts_its_lane_until_it_is_resolved(app: Leasehold, api: Handle):
    first, second = (api.enqueue("work", {"target": "a/b"}) for _ in range(2))
    settle(app, Failure("boom", final=True))
    (lane,) = api.lanes.list()
    assert (lane.lane, lane.job_id, lane.state, lane.error) == ("a/b", first.id, State.FAILED, "boom")
    first.refresh().skip("known")
    assert claim(app).id == second.id


def test_a_lane_is_resumed_by_its_name(app: Leasehold, api: Handle):
    job = api.enqueue("work", {"target": "a/b"})
    settle(app, Failure("boom", final=True))
    assert api.lanes.resume("a/b") == job
    assert api.lanes.resume("a/b") is None


def test_a_job_explains_why_it_is_not_running(api: Handle):
    api.queues.pause("q", reason="deploy")
    reported = api.enqueue("work", {"target": "t"}, delay="1h").explain()
    assert [hold.cause for hold in reported][:2] == ["not_due", "queue_paused"]
    assert str(reported).startswith("1. ")
    assert "deploy" in str(reported)


def test_a_job_tells_its_attempts_and_its_log(app: Leasehold, api: Handle):
    job = api.enqueue("flaky")
    burst(app, queues=["flaky"])
    assert (job.refresh().error, job.attempt) == (None, 2)
    assert [(one.attempt, one.outcome) for one in job.attempts()] == [(1, "failed"), (2, "succeeded")]
    assert (job.attempts()[0].error or "").startswith("ConnectionError: down")
    assert "looking" in job.log(1).text
    assert job.log().attempt == 2


def test_a_job_tells_its_steps_and_those_it_is_tied_to(app: Leasehold, api: Handle):
    first = app.enqueue("add", {"a": 1})
    second = app.enqueue("add", {"a": 2}, after=[first])
    grant = claim(app)
    app.__internals__.store.save_steps(grant.id, grant.token, {"look": '{"n": 1}'})
    job = api.get(first.id)
    assert [(one.name, one.attempt, one.result) for one in job.steps()] == [("look", 1, {"n": 1})]
    (tied,) = job.relatives()
    assert (tied.relation, tied.id, tied.task, tied.queue) == ("awaited_by", second.id, "add", "default")
    assert (tied.state, tied.on_failure, tied.met) == (State.PENDING, "cancel", False)
    assert asyncio.run(api.get(second.id).arelatives())[0].relation == "waits_for"
    assert asyncio.run(job.asteps()) == job.steps()


def test_jobs_are_counted_by_state(app: Leasehold, api: Handle):
    app.enqueue("add", {"a": 1})
    app.enqueue("add", {"a": 2})
    settle(app, Success("2"))
    counts = api.count()
    assert counts.keys() == set(State)
    assert (counts[State.QUEUED], counts[State.SUCCEEDED], counts[State.FAILED]) == (1, 1, 0)
    assert asyncio.run(api.acount()) == counts


# -- results -------------------------------------------------------------------------------------------------------
def test_a_result_is_seen_when_it_comes(app: Leasehold, api: Handle):
    job = api.enqueue("add", {"a": 1})
    thread = threading.Thread(target=settle, args=(app, Success("2")))
    thread.start()
    assert job.result(timeout=30) == 2
    thread.join()
    assert job.state is State.SUCCEEDED
    assert asyncio.run(job.aresult(timeout=30)) == 2


def test_a_job_that_ends_otherwise_says_so(app: Leasehold, api: Handle):
    job = api.enqueue("add", {"a": 1})
    settle(app, Failure("boom", final=True))
    with pytest.raises(JobNotSucceeded, match="failed: boom") as caught:
        job.result(timeout=5)
    assert (caught.value.state, caught.value.error, job.state) == ("failed", "boom", State.FAILED)


def test_waiting_in_vain_times_out(api: Handle):
    job = api.enqueue("add", {"a": 1})
    with pytest.raises(WaitTimedOut, match=r"still queued after 0\.05 s"):
        job.result(timeout=0.05)
    with pytest.raises(WaitTimedOut, match="still queued"):
        list(job.watch(timeout=0.2))


def test_a_watcher_sees_everything_in_order(app: Leasehold, api: Handle):
    job = api.enqueue("add", {"a": 1})
    grant = claim(app)
    notes = (
        Note(1, "progress", '{"done": 1, "total": 2, "note": "half"}'),
        Note(2, "word", '"hello"', key="k"),
    )
    app.__internals__.store.write_updates([RunNotes(grant.id, grant.token, grant.attempt, notes)])
    assert str(job.progress()) == "1 of 2: half"
    app.__internals__.store.settle([Ending(grant.id, grant.token, Success("2"))])
    events = list(job.watch(timeout=30))
    assert [(one.kind, one.key, one.attempt) for one in events] == [
        ("progress", None, 1), ("word", "k", 1), ("state", None, 1),
    ]  # fmt: skip
    assert (events[1].data, events[2].data) == ("hello", {"state": "succeeded", "attempt": 1})
    assert next(iter(job.watch(since=events[0].seq))).data == "hello"


# -- questions -----------------------------------------------------------------------------------------------------
def test_a_question_is_listed_and_answered(app: Leasehold, api: Handle):
    job = api.enqueue("greet", {"name": "x"}, group="g")
    settle(app, QuestionAsked("go", "May I?", schema='{"type":"boolean"}'))
    (requested,) = api.questions.list(task="greet", group="g")
    assert (requested.job_id, requested.key, requested.group) == (job.id, "go", "g")
    assert json.loads(requested.schema or "") == {"type": "boolean"}
    with pytest.raises(InvalidAnswer) as caught:
        job.answer("go", "yes")
    assert (caught.value.key, caught.value.path) == ("go", "$")
    assert api.questions.answer(job.id, "go", True).state is State.QUEUED
    (closed,) = job.questions()
    assert (closed.status, closed.answer) == ("answered", "true")
    assert api.questions.list() == []


def test_a_job_that_asks_goes_on_with_the_answer(app: Leasehold, api: Handle):
    job = api.enqueue("greet", {"name": "ann"})
    burst(app, queues=["asking"])
    assert job.refresh().state is State.WAITING
    job.answer("go", True)
    burst(app, queues=["asking"])
    assert job.result(timeout=30) == "ann True"


# -- groups and stops ----------------------------------------------------------------------------------------------
def test_a_group_is_followed(app: Leasehold, api: Handle):
    jobs = [api.enqueue("add", {"a": n}, group="task/42") for n in range(3)]
    group = api.group("task/42")
    before = group.status()
    assert (before.total, before.live, before.succeeded, before.state) == (3, 3, 0, "active")
    waiting = group.status(wait=0.1, since=before.version)
    assert (waiting.changed, waiting.version) == (False, before.version)
    settle(app, Success("7"))
    after = group.status(wait=30, since=before.version, tasks="add", partial=True)
    assert (after.changed, after.succeeded, after.counts) == (
        True, 1, {"add": {State.QUEUED: 2, State.SUCCEEDED: 1}},
    )  # fmt: skip
    assert [(one.id, one.result) for one in after.results] == [(jobs[0].id, 7)]
    assert [one.id for one in group.jobs(state=State.QUEUED).jobs] == [jobs[2].id, jobs[1].id]
    assert api.group("nobody").status(wait=30).version == 0


def test_a_group_is_stopped_held_and_released(app: Leasehold, api: Handle):
    api.enqueue("add", {"a": 1}, group="g")
    api.enqueue("work", {"target": "t"}, group="g")
    group = api.group("g")
    assert group.stop("add", dry_run=True).cancelled_counts == {"add": {State.QUEUED: 1}}
    report = group.stop(mode="immediate", reason="done", hold=True)
    assert (report.cancelled, report.held, report.mode, str(report)) == (
        2, True, "immediate", "2 cancelled, 0 requested to stop",
    )  # fmt: skip
    assert (group.status().state, group.status().reason) == ("held", "done")
    with pytest.raises(GroupOnHold) as caught:
        api.enqueue("add", {"a": 1}, group="g")
    assert (caught.value.group, caught.value.reason) == ("g", "done")
    assert group.release() is True
    assert group.release() is False


def test_a_graceful_stop_waits_for_what_runs(app: Leasehold, api: Handle):
    job = api.enqueue("add", {"a": 1}, group="g", tags=("x",))
    grant = claim(app)
    assert list(api.stop(tags="x", wait=0.1).still_running) == [job.id]
    app.__internals__.store.settle([Ending(grant.id, grant.token, Success("2"))])
    assert list(api.stop(group="g", wait=30).still_running) == []


def test_a_stop_needs_a_scope(api: Handle):
    job = api.enqueue("add", {"a": 1}, tags=("x",))
    with pytest.raises(InvalidInput, match="has no scope"):
        api.stop()
    with pytest.raises(InvalidInput, match="no task is named"):
        api.stop(tasks="nothing")
    assert api.stop(tags=["x"], mode="immediate").cancelled == 1
    assert job.refresh().state is State.CANCELLED


# -- bulk ----------------------------------------------------------------------------------------------------------
def test_many_jobs_are_counted_first_and_then_changed(app: Leasehold, api: Handle):
    jobs = [api.enqueue("add", {"a": n}, group="g", tags=("x",)) for n in range(3)]
    other = api.enqueue("work", {"target": "t"}, tags=("x",))
    dry = api.bulk.cancel(task="add", tag="x", state="queued", dry_run=True)
    assert (dry.verb, dry.dry_run, dry.matched, dry.changed, dry.next) == ("cancel", True, 3, 0, None)
    assert dry.sample == tuple(job.id for job in reversed(jobs))
    assert {job.refresh().state for job in jobs} == {State.QUEUED}
    done = api.bulk.cancel(group="g", limit=2, reason="enough")
    assert (done.matched, done.changed, done.sample) == (2, 2, (jobs[2].id, jobs[1].id))
    rest = api.bulk.cancel(group="g", limit=2, cursor=done.next)
    assert (rest.matched, rest.changed, rest.next) == (1, 1, None)
    assert [job.refresh().reason for job in jobs] == [None, "enough", "enough"]
    assert {job.state for job in jobs} == {State.CANCELLED}
    assert other.refresh().state is State.QUEUED
    assert api.bulk.cancel(everything=True).sample == (other.id,)


def test_each_bulk_verb_does_what_it_does_to_one_job(app: Leasehold, api: Handle):
    waiting = api.enqueue("add", {"a": 1})
    running = api.enqueue("work", {"target": "t"})
    grant = app.__internals__.store.claim("worker", ["q"], 1)[0]
    assert api.bulk.pause(queue="default", reason="deploy").changed == 1
    assert (waiting.refresh().state, waiting.reason) == (State.PAUSED, "deploy")
    assert api.bulk.interrupt(everything=True, reason="look").changed == 2
    assert (waiting.refresh().state, waiting.reason) == (State.CANCELLED, "look")
    assert api.get(running.id).state is State.RUNNING
    assert api.jobs(state="running").jobs[0].stop_requested == "pause"
    end(app.__internals__.store, grant, Failure("boom", final=True))
    assert api.bulk.skip(lane="t", reason="known").changed == 1
    assert api.lanes.list() == []
    assert api.bulk.retry(task="work").changed == 1
    (again,) = api.jobs(task="work", state="queued").jobs
    assert app.get(again.id).__row__.retry_of == running.id
    assert api.bulk.resume(task="work", fresh=True).changed == 1
    resumed, _, resolved = api.audit(target=running.id, limit=3).entries
    assert (resumed.detail, resolved.detail) == ({"fresh": True}, {"reason": "known"})
    held = app.__internals__.named_task("add", {"hold": True}).enqueue(a=1)
    assert api.bulk.release(task="add").sample == (held.id,)
    assert held.refresh().state is State.QUEUED


def test_jobs_that_refuse_hold_up_none_of_the_others(app: Leasehold, api: Handle):
    for n in range(2):
        api.enqueue("add", {"a": n}, group="g").pause()
    free = api.enqueue("add", {"a": 2}).pause()
    app.__internals__.store.stop_group("g", True)
    report = api.bulk.resume(task="add")
    assert (report.matched, report.changed) == (3, 1)
    (refusal,) = report.refused
    assert (refusal.error, refusal.state, refusal.jobs, len(refusal.sample)) == ("GroupOnHold", None, 2, 2)
    assert free.refresh().state is State.QUEUED
    (refusal,) = api.bulk.pause(state=[State.PAUSED, "cancelled"]).refused
    assert (refusal.error, refusal.state, refusal.jobs) == ("InvalidState", "paused", 2)


@pytest.mark.parametrize(
    ("requested", "field"),
    [
        ({}, "filter"),
        ({"task": "add", "limit": 0}, "limit"),
        ({"task": "add", "cursor": "nothing"}, "cursor"),
        ({"state": "lost"}, "state"),
        ({"task": "add", "reason": "a\0b"}, "reason"),
    ],
)
def test_a_bulk_verb_that_is_not_meant_is_refused(api: Handle, requested: dict[str, Any], field: str):
    job = api.enqueue("add", {"a": 1})
    with pytest.raises(InvalidInput) as caught:
        api.bulk.cancel(**requested)
    assert caught.value.field == field
    assert job.refresh().state is State.QUEUED


# -- lists ---------------------------------------------------------------------------------------------------------
def test_groups_are_listed_a_page_at_a_time_by_state(api: Handle):
    for name in ("a", "b/c", "d"):
        api.enqueue("add", {"a": 1}, group=name)
    api.group("b/c").stop(hold=True, reason="enough", mode="immediate")
    first = api.groups(limit=2)
    assert [(one.name, one.live, one.total) for one in first.groups] == [("a", 1, 1), ("b/c", 0, 1)]
    rest = api.groups(limit=2, cursor=first.next)
    assert ([one.name for one in rest.groups], rest.next) == (["d"], None)
    (held,) = api.groups(state="held").groups
    assert (held.name, held.held, held.reason) == ("b/c", True, "enough")
    assert held.last_stop is not None
    assert held.last_stop.mode == "immediate"
    for wrong in ({"state": "asleep"}, {"cursor": "nonsense"}, {"limit": 0}):
        with pytest.raises(InvalidInput) as caught:
            api.groups(**wrong)
        assert caught.value.field in wrong


def test_a_job_that_is_over_its_budget_is_topped_up_and_resumed(app: Leasehold, api: Handle):
    store = app.__internals__.store
    grant = run(store, task="add", policy=Policy(budget={"tokens": 10}, on_breach="pause"), group="g")
    store.spend(grant.id, grant.token, 1, [Spend("a", "tokens", 15)])
    job, group = api.get(grant.id), api.group("g")
    assert [(one.unit, one.limit, one.left) for one in group.budget(tokens=100, pages=7)] == [
        ("pages", 7, 7), ("tokens", 100, 85),
    ]  # fmt: skip
    assert [(one.unit, one.limit) for one in group.budget(pages=None)] == [("pages", None), ("tokens", 100)]
    assert [(one.scope, one.unit, one.spent, one.exhausted) for one in job.budget()] == [
        ("job", "tokens", 15, True), ("group", "pages", 0, False), ("group", "tokens", 15, False),
    ]  # fmt: skip
    assert job.top_up(tokens=50)[0].left == 45
    assert group.budget()[-1].left == 85
    for amounts, field in (({}, "top_up"), ({"tokens": -1}, "tokens"), ({"pages": 1}, "pages")):
        with pytest.raises(InvalidInput) as caught:
            job.top_up(**amounts)
        assert caught.value.field == field
    with pytest.raises(InvalidInput) as caught:
        group.budget(tokens=0.5)
    assert caught.value.field == "tokens"
    end(store, grant, Success("1"))
    with pytest.raises(InvalidState):
        job.top_up(tokens=1)


def test_budgets_are_listed_a_page_at_a_time_by_whose_they_are(app: Leasehold, api: Handle):
    store = app.__internals__.store
    grant = run(store, task="add", policy=Policy(budget={"tokens": 10}, on_breach="pause"))
    store.spend(grant.id, grant.token, 1, [Spend("a", "tokens", 15)])
    api.group("g").budget(tokens=100)
    first = api.budgets(limit=1)
    assert [(one.scope, one.name, one.left) for one in first.budgets] == [("group", "g", 100)]
    (of_job,) = api.budgets(cursor=first.next).budgets
    assert (of_job.name, of_job.exhausted, of_job.on_breach, of_job.task) == (grant.id, True, "pause", "add")
    assert api.budgets(scope="job") == BudgetPage([of_job], None)
    with pytest.raises(InvalidInput) as caught:
        api.budgets(scope="queue")
    assert caught.value.field == "scope"


def test_leases_tell_who_holds_what(app: Leasehold, api: Handle):
    store = app.__internals__.store
    one, two = run(store, "host:1", task="add", group="g"), run(store, "host:2", task="add")
    first = api.leases(limit=1)
    (lease,) = first.leases
    assert (lease.job_id, lease.worker, lease.group, lease.attempt) == (one.id, "host:1", "g", 1)
    assert 0 < lease.expires_in <= 30
    rest = api.leases(cursor=first.next)
    assert ([row.job_id for row in rest.leases], rest.next) == ([two.id], None)
    assert [row.job_id for row in api.leases(worker="host:2").leases] == [two.id]


def test_an_orphan_is_listed_and_given_up(app: Leasehold, api: Handle):
    store = app.__internals__.store
    adopt = Policy(on_lost="adopt")
    grant, other = (run_external(store, "host:1", task="add", policy=adopt) for _ in range(2))
    job = api.get(grant.id)
    assert [(one.job_id, one.worker, one.site) for one in api.executions(limit=1)] == [
        (grant.id, "host:1", "machine-1")
    ]
    with pytest.raises(InvalidState):
        job.abandon()
    end(store, grant, Detached("drained"))
    assert {one.job_id: one.worker for one in api.executions()} == {grant.id: None, other.id: "host:1"}
    assert job.abandon("burnt down").state is State.QUEUED
    assert job.history()[-1].event == "abandoned"
    assert (job.history()[-1].detail or "").endswith("given up: burnt down")
    assert [one.job_id for one in api.executions()] == [other.id]


def test_the_audit_tells_what_was_done_and_refused(api: Handle):
    job = api.enqueue("add", {"a": 1}).cancel("enough")
    with pytest.raises(InvalidState):
        job.cancel()
    for limit in range(3):
        api.slots.set("gpu", limit)
    refused, done = api.audit(target=job.id).entries
    assert (refused.verb, refused.outcome, refused.error) == ("job.cancel", "refused", "InvalidState")
    assert (done.outcome, done.error, done.detail) == ("done", None, {"reason": "enough"})
    first = api.audit(verb="slot.set", limit=2)
    assert [entry.detail for entry in first.entries] == [{"limit": 2}, {"limit": 1}]
    rest = api.audit(verb="slot.set", limit=2, cursor=first.next)
    assert ([entry.detail for entry in rest.entries], rest.next) == ([{"limit": 0}], None)
    assert api.audit(actor="nobody") == AuditPage([], None)
    with pytest.raises(InvalidInput) as caught:
        api.audit(cursor="x")
    assert caught.value.field == "cursor"


# -- queues, limits, schedules -------------------------------------------------------------------------------------
def test_queues_and_kinds_are_paused_with_a_reason(app: Leasehold, api: Handle):
    store = app.__internals__.store
    api.enqueue("work", {"target": "t"})
    made = api.queues.pause("q", reason="deploy", for_="1h")
    assert (made.scope, made.name, made.until - made.paused_at) == ("queue", "q", timedelta(hours=1))
    assert [(one.name, one.reason) for one in api.queues.paused()] == [("q", "deploy")]
    assert store.claim("worker", QUEUES, 1) == []
    assert api.queues.resume("q") is True
    api.tasks.pause("work")
    assert [one.name for one in api.tasks.paused()] == ["work"]
    assert store.claim("worker", QUEUES, 1) == []
    assert (api.tasks.resume("work"), api.tasks.resume("work")) == (True, False)
    assert len(store.claim("worker", QUEUES, 1)) == 1
    with pytest.raises(InvalidInput) as caught:
        api.queues.pause("q", for_="1h", until=datetime.now(UTC))
    assert caught.value.field == "until"


def test_pages_follow_each_other_without_gap_or_repeat(api: Handle):
    made = [api.enqueue("add", {"a": n}, tags=("x",)).id for n in range(7)]
    seen: list[str] = []
    page = api.jobs(tag="x", limit=3, state=["queued", State.RUNNING])
    while True:
        seen += [job.id for job in page.jobs]
        if page.next is None:
            break
        page = api.jobs(tag="x", limit=3, cursor=page.next)
    assert seen == made[::-1]
    assert api.jobs(task="greet").jobs == api.jobs(state="failed").jobs == []
    with pytest.raises(InvalidInput):
        api.jobs(state="lost")


def test_slots_and_rates_are_set_and_closed(api: Handle):
    api.slots.set("browser", 4)
    assert [(one.name, one.limit, one.used, one.holders) for one in api.slots.list()] == [
        ("browser", 4, 0, [])
    ]
    api.rates.set("open/ai", "60/min", burst=2)
    api.rates.close("open/ai", for_="2m", reason="429")
    (rate,) = api.rates.list()
    assert (rate.key, rate.limit, rate.burst, rate.closed, rate.closed_reason) == (
        "open/ai", "60/min", 2, True, "429",
    )  # fmt: skip
    assert (api.rates.open("open/ai"), api.rates.open("open/ai")) == (True, False)
    with pytest.raises(InvalidInput):
        api.rates.set("openai", "often")


def test_a_schedule_is_seen_paused_resumed_and_run(app: Leasehold, api: Handle):
    app.schedules.set("nightly/1", "add", {"a": 1}, every="24h")
    (row,) = api.schedules.list()
    assert (row.name, row.task, json.loads(row.args), row.every) == ("nightly/1", "add", {"a": 1}, 86_400)
    assert api.schedules.pause("nightly/1", "deploy").reason == "deploy"
    assert api.schedules.get("nightly/1").paused is True
    assert (api.schedules.resume("nightly/1"), api.schedules.resume("nightly/1")) == (True, False)
    assert api.schedules.run("nightly/1").task == "add"
    with pytest.raises(ScheduleNotFound) as caught:
        api.schedules.get("nothing")
    assert caught.value.name == "nothing"


# -- async ---------------------------------------------------------------------------------------------------------
def test_the_async_verbs_do_the_same(app: Leasehold, api: Handle):
    async def steer() -> list[object]:
        job = await api.aenqueue("add", {"a": 1}, group="g")
        await job.apause("look")
        seen: list[object] = [(await api.aget(job.id)).reason, (await job.aexplain())[0].cause]
        await job.aresume()
        seen.append((await api.group("g").astatus(wait=30, since=0)).live)
        seen.append((await api.group("g").astop(mode="immediate")).cancelled)
        seen.append([one.event for one in await job.ahistory()])
        await api.queues.apause("q")
        seen.append([one.name for one in await api.queues.apaused()])
        seen.append([event.data["state"] async for event in job.awatch(timeout=30)])
        with pytest.raises(InvalidState):
            await job.apause()
        return [*seen, (await job.arefresh()).state]

    assert asyncio.run(steer()) == [
        "look", "resting", 1, 1, ["paused", "resumed", "cancelled"], ["q"], ["cancelled"], State.CANCELLED,
    ]  # fmt: skip


def test_the_async_lists_tell_the_same(app: Leasehold, api: Handle):
    store = app.__internals__.store
    for n in range(2):
        grant = run_external(store, f"host:{n}", task="add", group=f"g{n}")
        store.spend(grant.id, grant.token, 1, [Spend("a", "tokens", 15)])
    api.group("g0").budget(tokens=100)
    store.stop_group("g1", True)
    app.slots.set("gpu", 1, actor="ann")
    lists: list[tuple[Callable[..., Any], Callable[..., Any], str, str, list[dict[str, str]]]] = [
        (api.groups, api.agroups, "groups", "name", [{"state": "held"}]),
        (api.budgets, api.abudgets, "budgets", "name", [{"scope": "job"}]),
        (api.leases, api.aleases, "leases", "job_id", [{"worker": "host:1"}]),
        (api.audit, api.aaudit, "entries", "seq", [{"actor": "ann"}, {"verb": "slot.set"}, {"target": "g0"}]),
    ]

    async def look() -> None:
        for near, far, rows, key, criteria in lists:
            whole = near()
            page = near(limit=1)
            for requested in ({"limit": 1}, {"cursor": page.next}, *criteria):
                one, two = near(**requested), await far(**requested)
                reported = [[getattr(row, key) for row in getattr(one, rows)] for one in (one, two, whole)]
                assert (reported[0], one.next) == (reported[1], two.next), (rows, requested)
                assert 0 < len(reported[1]) < len(reported[2]), "what is asked makes a difference"
        assert await api.aexecutions(1) == api.executions(1) == api.executions()[:1]
        assert await api.aexecutions() == api.executions() != api.executions(1)

    asyncio.run(look())


def test_the_async_verbs_of_budgets_and_orphans_do_the_same(app: Leasehold, api: Handle):
    store = app.__internals__.store
    grant = run_external(store, task="add", policy=Policy(budget={"tokens": 10}, on_lost="adopt"), group="g")
    job, group = api.get(grant.id), api.group("g")

    async def steer() -> None:
        assert [one.limit for one in await group.abudget(tokens=100)] == [100]
        assert await group.abudget() == group.budget()
        assert [one.limit for one in await job.atop_up(tokens=5)] == [15, 100]
        assert await job.abudget() == job.budget()
        end(store, grant, Detached("drained"))
        assert (await job.aabandon("burnt down")).state is State.QUEUED

    asyncio.run(steer())
    assert api.audit(limit=1).entries[0].detail == {"reason": "burnt down"}


def test_the_async_bulk_verbs_do_the_same(app: Leasehold, api: Handle):
    job = api.enqueue("add", {"a": 1}, group="g")
    held = app.__internals__.named_task("add", {"hold": True}).enqueue(a=1)

    async def steer() -> list[BulkReport]:
        return [
            await api.bulk.apause(group="g", reason="lunch"),
            await api.bulk.aresume(state="paused", fresh=True),
            await api.bulk.ainterrupt(group="g", reason="look"),
            await api.bulk.aretry(group="g", state="cancelled"),
            await api.bulk.acancel(group="g", reason="enough"),
            await api.bulk.askip(group="g", state="cancelled", reason="known", limit=1),
            await api.bulk.arelease(task="add"),
        ]

    reports = asyncio.run(steer())
    assert [(one.verb, one.matched, one.changed) for one in reports] == [
        ("pause", 1, 1), ("resume", 1, 1), ("interrupt", 1, 1), ("retry", 1, 1), ("cancel", 1, 1),
        ("skip", 1, 0), ("release", 1, 1),
    ]  # fmt: skip
    assert (reports[0].sample, reports[-1].sample) == ((job.id,), (held.id,))
    done = [entry for entry in reversed(api.audit(limit=7).entries) if entry.verb != "job.retry"]
    assert [(entry.verb, entry.detail) for entry in done] == [
        ("job.pause", {"reason": "lunch"}), ("job.resume", {"fresh": True}), ("job.interrupt", {"reason": "look"}),
        ("job.cancel", {"reason": "enough"}), ("job.skip", {"reason": "known"}), ("job.release", {}),
    ]  # fmt: skip


def test_a_unique_key_that_another_job_holds_names_it(app: Leasehold, api: Handle):
    job = api.enqueue("add", {"a": 1}, unique="k")
    settle(app, Failure("boom", final=True))
    holder = api.enqueue("add", {"a": 2}, unique="k")
    with pytest.raises(DuplicateJob) as caught:
        job.resume()
    assert (caught.value.job_id, caught.value.task, caught.value.unique_key) == (holder.id, "add", "k")

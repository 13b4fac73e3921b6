"""`why`: each cause is named, on both stores, with what would change it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from leasehold.domain.budgets import Spend
from leasehold.domain.errors import JobNotFound
from leasehold.domain.job import Grant, Job
from leasehold.domain.outcome import Breached, Detached, Failure, Stopped, Success
from leasehold.domain.policy import Policy
from leasehold.domain.questions import QuestionAsked
from leasehold.domain.records import Hold, WorkerCard, WorkerProblem
from leasehold.operations.doctor import examine
from leasehold.operations.explain import explain
from leasehold.stores.results import Ending
from leasehold.stores.store import JobStore
from leasehold.testing import ManualClock
from tests.backends import new_id, put

OWNER = "host:1:aa"


@pytest.fixture
def store(store: JobStore) -> JobStore:
    """Workers of other tests are forgotten; this one has a live worker that knows `work`."""
    for card in store.list_workers(1e9):
        store.forget_worker(card.name)
    store.report_worker(WorkerCard("host:9:cc", ("default",), ("work",), concurrency=4))
    return store


def causes(store: JobStore, job: Job) -> list[str]:
    return [hold.cause for hold in explain(store, job.id)]


def only(store: JobStore, job: Job) -> Hold:
    (hold,) = explain(store, job.id)
    return hold


def claim(store: JobStore, job: Job) -> Grant:
    grant = store.claim_by_id(job.id, OWNER)
    assert isinstance(grant, Grant), grant
    return grant


def end(store: JobStore, grant: Grant, outcome: object) -> None:
    assert store.settle([Ending(grant.id, grant.token, outcome)]).accepted == [grant.id]


def test_a_due_job_with_a_live_worker_is_held_by_nothing(store: JobStore):
    hold = only(store, put(store))
    assert hold.cause == "nothing"
    assert "a free worker will take it at once" in hold.detail


def test_a_job_that_is_not_there_is_not_explained(store: JobStore):
    with pytest.raises(JobNotFound):
        explain(store, new_id())


def test_a_delayed_job_says_until_when(store: JobStore, clock: ManualClock):
    hold = only(store, put(store, delay=3600.0))
    assert hold.cause == "not_due"
    assert "2026-01-01T01:00:00" in hold.detail
    assert "delayed" in hold.detail
    clock.advance(3601)


def test_a_snoozed_job_says_by_whom_and_until_when(store: JobStore, clock: ManualClock):
    job = put(store)
    store.snooze(job.id, clock.now() + timedelta(hours=1), "ann", "the vendor is closed")
    hold = only(store, job)
    assert hold.cause == "not_due"
    assert "it was snoozed by ann until 2026-01-01T01:00:00+00:00: the vendor is closed" in hold.detail
    assert "snooze" in hold.remedy


def test_a_snooze_explains_no_later_backoff(store: JobStore, clock: ManualClock):
    job = put(store)
    store.snooze(job.id, clock.now(), "ann")
    end(store, claim(store, job), Failure("503"))
    hold = only(store, job)
    assert "snoozed" not in hold.detail
    assert "attempt 1 ended without success: 503" in hold.detail


def test_a_job_snoozed_past_its_time_limit_says_that_it_will_end_before(store: JobStore, clock: ManualClock):
    hour = clock.now() + timedelta(hours=1)
    late, unstarted = put(store, deadline=60.0), put(store, start_by=60.0, deadline=120.0)
    for job in (late, unstarted):
        assert "before that" not in only(store, job).detail
        store.snooze(job.id, hour)
    assert "It will time out before that, at 2026-01-01T00:01:00" in only(store, late).detail
    assert "It will be cancelled before that, at 2026-01-01T00:01:00" in only(store, unstarted).detail


def test_a_paused_job_that_was_snoozed_says_when_it_is_due_after_a_resume(
    store: JobStore, clock: ManualClock
):
    job = put(store, deadline=60.0)
    store.pause(job.id)
    assert causes(store, job) == ["resting"]
    store.snooze(job.id, clock.now() + timedelta(hours=1), "ann")
    assert causes(store, job) == ["resting", "not_due"]
    assert "snoozed by ann" in explain(store, job.id)[1].detail


def test_a_lane_that_waits_for_a_snoozed_job_says_until_when(store: JobStore, clock: ManualClock):
    first, second = put(store, lane="t1"), put(store, lane="t1")
    store.snooze(first.id, clock.now() + timedelta(hours=1))
    hold = only(store, second)
    assert hold.cause == "lane_order"
    assert first.id in hold.detail
    assert "which is not due for 60 m, until 2026-01-01T01:00:00" in hold.detail


def test_a_job_in_backoff_says_which_attempt_failed_and_how(store: JobStore):
    job = put(store)
    end(store, claim(store, job), Failure("503 from example.org\n\ntraceback"))
    hold = only(store, job)
    assert hold.cause == "not_due"
    assert "attempt 1" in hold.detail
    assert "503 from example.org" in hold.detail
    assert "traceback" not in hold.detail


def test_a_paused_queue_says_by_whom_why_and_until_when(store: JobStore):
    store.pause_scope("queue", "default", "ann", "deploy", 60.0)
    hold = only(store, put(store))
    assert hold.cause == "queue_paused"
    assert all(word in hold.detail for word in ("'default'", "ann", "deploy", "2026-01-01T00:01:00"))
    assert "resume the queue" in hold.remedy


def test_a_pause_that_is_over_holds_nothing(store: JobStore, clock: ManualClock):
    store.pause_scope("queue", "default", "ann", "deploy", 5.0)
    job = put(store)
    clock.advance(6)
    assert causes(store, job) == ["nothing"]


def test_a_paused_kind_is_told_from_a_paused_queue(store: JobStore):
    store.pause_scope("task", "work")
    assert only(store, put(store)).cause == "task_paused"


def test_a_lane_halted_by_a_failure_names_the_job_and_its_error(store: JobStore):
    first, second = put(store, lane="t1"), put(store, lane="t1")
    end(store, claim(store, first), Failure("login expired", final=True))
    hold = only(store, second)
    assert hold.cause == "lane_blocked"
    assert first.id in hold.detail
    assert "login expired" in hold.detail
    assert "skip" in hold.remedy


def test_a_job_that_runs_in_the_lane_is_named(store: JobStore):
    first, second = put(store, lane="t1"), put(store, lane="t1")
    claim(store, first)
    hold = only(store, second)
    assert hold.cause == "lane_blocked"
    assert f"{first.id} (work) runs" in hold.detail


def test_the_job_before_it_in_the_lane_is_named(store: JobStore, clock: ManualClock):
    first = put(store, lane="t1")
    clock.advance(1)
    second = put(store, lane="t1")
    hold = only(store, second)
    assert hold.cause == "lane_order"
    assert first.id in hold.detail
    assert causes(store, first) == ["nothing"]


def test_a_queue_that_nobody_serves_says_so(store: JobStore):
    hold = only(store, put(store, queue="lonely"))
    assert hold.cause == "no_worker"
    assert "1 live worker(s) serve other queues" in hold.detail
    assert "--queues lonely" in hold.remedy


def test_a_worker_that_drains_or_has_fallen_silent_does_not_count(store: JobStore, clock: ManualClock):
    job = put(store)
    clock.advance(60)
    assert causes(store, job) == ["no_worker"]
    store.report_worker(WorkerCard("host:8:dd", ("default",), ("work",), draining=True))
    assert causes(store, job) == ["no_worker"]


def test_a_kind_that_no_worker_of_the_queue_knows_says_so(store: JobStore):
    store.report_worker(WorkerCard("host:8:dd", ("other",), ("exotic",)))
    hold = only(store, put(store, task="exotic"))
    assert hold.cause == "no_handler"
    assert "'exotic'" in hold.detail


def test_a_running_job_names_its_holder_and_its_lease(store: JobStore, clock: ManualClock):
    job = put(store)
    claim(store, job)
    clock.advance(10)
    hold = only(store, job)
    assert hold.cause == "running"
    assert OWNER in hold.detail
    assert "for 10 s" in hold.detail
    assert "its lease has 20 s left" in hold.detail


def test_a_lease_that_has_run_out_says_who_takes_over(store: JobStore, clock: ManualClock):
    job = put(store)
    claim(store, job)
    clock.advance(45)
    hold = only(store, job)
    assert hold.cause == "running"
    assert "ran out 15 s ago" in hold.detail
    assert "takes it over" in hold.remedy


def test_a_stop_that_was_asked_of_a_running_job_is_told(store: JobStore):
    job = put(store)
    claim(store, job)
    store.cancel(job.id)
    assert "cancel was requested" in only(store, job).detail


def test_an_orphan_is_told_from_a_running_job(store: JobStore):
    job = put(store)
    grant = claim(store, job)
    assert store.record_site(grant.id, grant.token, "machine-1", "run-1")
    end(store, grant, Detached())
    hold, _ = explain(store, job.id)
    assert hold.cause == "awaiting_adoption"
    assert "machine-1" in hold.detail


def test_a_held_job_says_release(store: JobStore):
    hold = only(store, put(store, hold=True))
    assert (hold.cause, hold.remedy) == ("pending", "release it")


def test_a_waiting_job_says_what_it_asks(store: JobStore):
    job = put(store)
    end(store, claim(store, job), QuestionAsked("auth", "Log in to example.org"))
    hold = only(store, job)
    assert hold.cause == "waiting"
    assert "Log in to example.org" in hold.detail
    assert "'auth'" in hold.remedy


def test_a_job_at_rest_says_how_it_ended_and_what_brings_it_back(store: JobStore, clock: ManualClock):
    done, failed, halting, cancelled, paused = (
        put(store, lane=lane) for lane in (None, None, "t1", None, None)
    )
    end(store, claim(store, done), Success("1"))
    end(store, claim(store, failed), Failure("boom", final=True))
    end(store, claim(store, halting), Failure("boom", final=True))
    store.cancel(cancelled.id, reason="no longer needed")
    store.pause(paused.id, reason="lunch")
    clock.advance(5)
    assert all(causes(store, job) == ["resting"] for job in (done, failed, halting, cancelled, paused))
    assert "succeeded 5.0 s ago" in only(store, done).detail
    assert "failed 5.0 s ago: boom" in only(store, failed).detail
    assert "skip" in only(store, halting).remedy
    assert "no longer needed" in only(store, cancelled).detail
    assert "lunch" in only(store, paused).detail


def test_every_cause_is_listed_in_order(store: JobStore):
    first = put(store, lane="t1", queue="far")
    claim(store, first)
    job = put(store, lane="t1", queue="far", delay=60.0)
    store.pause_scope("queue", "far")
    store.pause_scope("task", "work")
    found = causes(store, job)
    assert found[0] == "not_due"
    assert set(found[1:3]) == {"queue_paused", "task_paused"}
    assert found[3:] == ["lane_blocked", "no_worker"]


def test_a_paused_job_says_who_paused_it_and_why(store: JobStore):
    job = put(store)
    store.pause(job.id, "ann", "too dear")
    assert "paused by ann: too dear" in only(store, job).detail
    running = put(store)
    grant = claim(store, running)
    store.pause(running.id, "bob", "deploy")
    end(store, grant, Stopped())
    assert "paused by bob: deploy" in only(store, running).detail


def test_a_cancelled_job_says_who_cancelled_it(store: JobStore):
    job = put(store)
    store.cancel(job.id, "ann", "not needed")
    assert "by ann: not needed" in only(store, job).detail


def test_a_full_slot_is_named_with_its_limit_and_its_holders(store: JobStore):
    store.set_slot("browser", 2)
    holders = [put(store, slots=(("browser", 1),)) for _ in range(2)]
    for holder in holders:
        claim(store, holder)
    hold = only(store, put(store, slots=(("browser", 1),)))
    assert hold.cause == "slot_full"
    assert "slot 'browser': 2 of 2 are in use" in hold.detail
    assert all(holder.id in hold.detail for holder in holders)
    assert "app.slots.set('browser'" in hold.remedy


def test_a_slot_that_has_become_too_small_is_told_from_a_full_one(store: JobStore):
    store.set_slot("browser", 2)
    job = put(store, slots=(("browser", 2),))
    store.set_slot("browser", 1)
    hold = only(store, job)
    assert hold.cause == "slot_full"
    assert "which has 1: it cannot start" in hold.detail
    assert "app.slots.set('browser', 2)" in hold.remedy


def test_a_spent_rate_says_when_it_refills(store: JobStore):
    store.set_rate("openai", "6/min", 10.0, 1)
    claim(store, put(store, rate="openai"))
    hold = only(store, put(store, rate="openai"))
    assert hold.cause == "rate_spent"
    assert "rate 'openai' (6/min) lets the next job start in 10 s" in hold.detail


def test_a_closed_key_says_by_whom_why_and_until_when(store: JobStore):
    store.set_rate("openai", "6/min", 10.0, 1)
    job = put(store, rate="openai")
    store.close_rate("openai", "ann", "429", for_=120.0)
    hold = only(store, job)
    assert hold.cause == "rate_closed"
    assert "is closed until 2026-01-01T00:02:00+00:00 by ann: 429" in hold.detail
    assert "app.rates.open('openai')" in hold.remedy


def test_a_breached_job_says_what_was_spent_and_what_would_let_it_on(store: JobStore):
    job = put(store, policy=Policy(budget={"tokens": 100}, on_breach="pause"))
    grant = claim(store, job)
    store.spend(job.id, grant.token, grant.attempt, [Spend("a", "tokens", 120)])
    end(store, grant, Breached("over budget"))
    budget, resting = explain(store, job.id)
    assert (budget.cause, resting.cause) == ("budget", "resting"), "resume is refused until there is more"
    assert "120 of its 100 tokens are spent" in budget.detail
    assert "job.top_up(tokens=…)" in budget.remedy
    store.top_up(job.id, {"tokens": 50})
    assert causes(store, job) == ["resting"]


def test_a_group_on_hold_is_named_with_who_holds_it(store: JobStore):
    job = put(store, group="task-42")
    store.pause(job.id)
    store.stop_group("task-42", True, "ann", "done")
    group, resting = explain(store, job.id)
    assert (group.cause, resting.cause) == ("group_held", "resting")
    assert "group 'task-42' is on hold by ann: done" in group.detail
    store.release_group("task-42")
    assert causes(store, job) == ["resting"]


def test_an_orphan_whose_site_nobody_serves_says_so(store: JobStore):
    job = put(store)
    grant = claim(store, job)
    store.record_site(job.id, grant.token, "docker:a", "run-1")
    end(store, grant, Detached())
    assert causes(store, job) == ["awaiting_adoption", "no_site"]
    store.report_worker(WorkerCard("host:8:dd", ("default",), ("work",), ("docker:a",)))
    assert causes(store, job) == ["awaiting_adoption"]


def test_a_job_names_the_problems_of_workers_that_could_take_it_or_run_it(store: JobStore):
    job, other = put(store), put(store, task="exotic")
    problems = (WorkerProblem(None, "no claims: locked"), WorkerProblem("beta", "damaged"))
    store.report_worker(WorkerCard("host:9:cc", ("default",), ("work",), problems=problems))
    store.report_worker(WorkerCard("host:9:dd", ("default",), ("work",), problems=problems[:1]))
    hold = only(store, job)
    assert hold.cause == "worker_trouble"
    assert hold.detail == "worker host:9:cc and 1 more are in trouble: no claims: locked"
    assert causes(store, other) == ["no_handler"]
    claim(store, job)
    assert causes(store, job) == ["running"], "another worker runs it"
    store.report_worker(WorkerCard(OWNER, (), (), problems=problems[:1]))
    assert causes(store, job) == ["running", "worker_trouble"]


def test_the_doctor_has_a_line_for_each_tenant_in_trouble(store: JobStore):
    for worker in ("host:9:cc", "host:9:dd"):
        problems = (WorkerProblem("beta", f"no answer for {len(worker)} s"), WorkerProblem(None, "no claims"))
        store.report_worker(WorkerCard(worker, ("default",), ("work",), tenants=("all",), problems=problems))
    found = {one.check: one for one in examine(store) if one.check in ("tenants", "workers")}
    assert found["tenants"].detail.startswith(
        "beta is in trouble; worker host:9:cc: no answer for 9 s (and 1 more"
    )
    assert found["workers"].detail.startswith("worker host:9:cc: no claims (and 1 more")
    assert {one.verdict for one in found.values()} == {"bad"}


def test_the_readers_of_a_tenant_see_its_own_problems_alone(store: JobStore):
    problems = tuple(WorkerProblem(name, "damaged") for name in ("acme", "beta", None))
    store.report_worker(WorkerCard("host:9:cc", ("default",), ("work",), tenants=("all",), problems=problems))
    (card,) = store.list_workers(tenant="beta")
    assert [one.tenant for one in card.problems] == ["beta", None]
    assert [card.problems for card in store.list_workers()] == [problems]


def test_a_job_says_how_many_are_before_it(store: JobStore, clock: ManualClock):
    for _ in range(3):
        put(store)
    put(store, priority=5)
    put(store, delay=60.0)
    put(store, queue="other")
    job = put(store)
    hold = only(store, job)
    assert hold.cause == "position"
    assert "4 due jobs are ahead of it in queue 'default'" in hold.detail
    store.pause_scope("task", "work")
    other = put(store, task="other")
    store.report_worker(WorkerCard("host:7:ee", ("default",), ("other",), concurrency=4))
    assert only(store, other).cause == "nothing", "jobs of a paused kind are in nobody's way"


def test_a_job_that_is_next_while_every_place_is_taken_says_so(store: JobStore):
    store.report_worker(WorkerCard("host:9:cc", ("default",), ("work",), concurrency=4, running=4))
    hold = only(store, put(store))
    assert hold.cause == "busy"
    assert "4 of the 4 places of its 1 worker(s) are taken" in hold.detail


def test_a_jobs_place_in_its_lane_is_told(store: JobStore):
    put(store, lane="t1", delay=0.0)
    put(store, lane="t1")
    third = put(store, lane="t1")
    (hold,) = explain(store, third.id)
    assert hold.cause == "lane_order"
    assert "2 jobs are ahead of it in lane 't1'" in hold.detail


def test_a_question_that_runs_out_says_when(store: JobStore):
    job = put(store)
    end(store, claim(store, job), QuestionAsked("auth", "Log in, please", timeout=3600.0))
    assert "it goes on without one in 60 m" in only(store, job).detail


def test_a_failure_of_a_task_without_a_queue_does_not_ask_to_be_resumed(store: JobStore):
    job = put(store, policy=Policy(queueing=False, max_attempts=1))
    end(store, claim(store, job), Failure("boom"))
    assert "app.run_now" in only(store, job).remedy


def test_limits_stand_beside_the_other_causes_in_order(store: JobStore):
    store.set_slot("browser", 0)
    store.set_rate("openai", "6/min", 10.0, 1)
    job = put(store, task="unknown", delay=60.0, slots=(("browser", 1),), rate="openai")
    store.close_rate("openai")
    store.pause_scope("queue", "default")
    assert causes(store, job) == ["not_due", "queue_paused", "slot_full", "rate_closed", "no_handler"]

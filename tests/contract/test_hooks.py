"""Hooks: what happens to jobs is written for those who listen, in the same transaction, whoever did it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

import pytest

from leasehold.domain.budgets import Spend
from leasehold.domain.hooks import EVENTS, HookDelivery, Listener, PendingNotification
from leasehold.domain.job import PLAIN, TIED
from leasehold.domain.outcome import Breached, DeadlinePassed, Failure, Snoozed, Stopped, Success
from leasehold.domain.policy import Policy
from leasehold.domain.questions import QuestionAsked
from leasehold.domain.states import State
from leasehold.domain.stop import StopScope
from leasehold.stores.results import Ending
from leasehold.stores.store import JobStore
from leasehold.testing import ManualClock
from tests.backends import Backend, new_id, new_job, put
from tests.contract.lives import OWNER, SITE, claim_one, end, lose, orphan, run
from tests.plans.traced import Traced

ME = "tests.me"


def listen(store: JobStore, *events: str, name: str = ME, task: str = "") -> None:
    store.register_listeners([Listener(name, event, task) for event in events or EVENTS])


def received(store: JobStore, name: str = ME) -> list[HookDelivery]:
    """All that waits, and it is done with."""
    taken = store.take_events([name], 100, 60.0)
    store.drop_events([one.event.id for one in taken])
    return taken


def names(store: JobStore) -> list[str]:
    return sorted(one.event.name for one in received(store))


def test_a_snooze_tells_when_a_queued_job_is_due(store: JobStore, clock: ManualClock):
    queued, held, paused = put(store), put(store, hold=True), put(store)
    store.pause(paused.id)
    listen(store, "requeued")
    until = clock.now() + timedelta(hours=1)
    for job in (queued, held, paused):
        store.snooze(job.id, until, "ann")
    (one,) = received(store)
    assert (one.event.name, one.event.job_id) == ("requeued", queued.id)
    assert (one.event.data["why"], one.event.data["actor"]) == ("snoozed", "ann")
    assert one.event.data["available_at"] == until.isoformat()
    store.snooze(queued.id, until)
    assert received(store) == [], "it is due at the same time"


def settle_hot(store: JobStore, listened: bool = True, **fields: object) -> str:
    """A success as a worker sends it: as tied, if it knows of a listener."""
    put(store, **fields)
    grant = claim_one(store)
    special = max(grant.special, TIED if listened else PLAIN)
    store.settle([Ending(grant.id, grant.token, Success("1"), grant.seq, special)])
    return grant.id


Deed = Callable[[JobStore, ManualClock], object]


def _requeue_by_answer(store: JobStore, _: ManualClock) -> None:
    grant = run(store)
    end(store, grant, QuestionAsked("q", "May I?"))
    store.answer(grant.id, "q", "1")


def _resume(store: JobStore, _: ManualClock) -> None:
    grant = run(store)
    end(store, grant, Failure("x", final=True))
    store.resume(grant.id)


def _expire(store: JobStore, clock: ManualClock) -> None:
    put(store, deadline=5.0)
    clock.advance(10)
    assert store.expire()


def _claim_too_late(store: JobStore, clock: ManualClock) -> None:
    put(store, start_by=5.0)
    clock.advance(10)
    assert store.claim(OWNER, ["default"], 1) == []


def _fail_a_parent(store: JobStore, _: ManualClock) -> None:
    grant = run(store)
    put(store, after=(grant.id,))
    end(store, grant, Failure("x", final=True))


def _stop(store: JobStore, _: ManualClock) -> None:
    store.stop_jobs([put(store).id], StopScope(queue="default"), "immediate")


def _replace_a_holder(store: JobStore, _: ManualClock) -> None:
    for _n in range(2):
        put(store, unique_key="k", on_duplicate="replace")


def _adopt(store: JobStore, clock: ManualClock) -> None:
    orphan(store, clock)
    assert store.adopt("worker-2", [SITE])


def _complete(store: JobStore, _: ManualClock) -> None:
    grant = run(store)
    with store.transaction(grant.id, grant.token, 10.0) as tx:
        tx.succeed(Success("1"))


def _cancel(store: JobStore, _: ManualClock) -> None:
    store.cancel(put(store).id)


DEEDS: dict[str, tuple[Deed, list[str]]] = {
    "a failure": (lambda s, _: end(s, run(s), Failure("x", final=True)), ["failed"]),
    "a failure that is tried again": (lambda s, _: end(s, run(s), Failure("x")), ["requeued"]),
    "a snooze": (lambda s, _: end(s, run(s), Snoozed(5.0)), ["requeued"]),
    "a time-out": (lambda s, _: end(s, run(s), DeadlinePassed("late")), ["timed_out"]),
    "a pause": (lambda s, _: s.pause(put(s).id), ["paused"]),
    "a run that is paused": (lambda s, _: end(s, run(s), Stopped(pause=True)), ["paused"]),
    "a cancel": (_cancel, ["cancelled"]),
    "a stop": (_stop, ["cancelled"]),
    "a sweep": (_expire, ["timed_out"]),
    "a claim that comes too late": (_claim_too_late, ["cancelled"]),
    "the end of a parent": (_fail_a_parent, ["cancelled", "failed"]),
    "a job that gives way": (_replace_a_holder, ["cancelled"]),
    "a lost lease": (lambda s, c: lose(s, c, run(s)), ["lost", "requeued"]),
    "an adoption": (_adopt, ["adopted"]),
    "a question": (lambda s, _: end(s, run(s), QuestionAsked("q", "May I?")), ["question"]),
    "an answer": (_requeue_by_answer, ["question", "requeued"]),
    "a resume": (_resume, ["failed", "requeued"]),
    "a failure in a lane": (
        lambda s, _: end(s, run(s, lane="l"), Failure("x", final=True)),
        ["failed", "lane_halted"],
    ),
    "a success that was settled with care": (_complete, ["succeeded"]),
    "a success by the hot way": (lambda s, _: settle_hot(s), ["succeeded"]),
    "a success in a lane": (lambda s, _: settle_hot(s, lane="l", unique_key="k"), ["succeeded"]),
    "the last success of a group": (lambda s, _: settle_hot(s, group="g"), ["group_done", "succeeded"]),
    "the last failure of a group": (
        lambda s, _: end(s, run(s, group="g"), Failure("x", final=True)),
        ["failed", "group_done"],
    ),
    "a breach": (lambda s, _: end(s, run(s), Breached("too much")), ["failed"]),
}


@pytest.mark.parametrize("deed", DEEDS)
def test_what_happens_is_told_to_who_listens(store: JobStore, clock: ManualClock, deed: str):
    act, reported = DEEDS[deed]
    listen(store)
    act(store, clock)
    assert names(store) == reported


@pytest.mark.parametrize("deed", DEEDS)
def test_nothing_is_written_where_nobody_listens(
    store: JobStore, clock: ManualClock, backend: Backend, deed: str
):
    listen(store, "stalled")
    DEEDS[deed][0](store, clock)
    assert backend.query("SELECT count(*) FROM leasehold.outbox") == [(0,)]


def test_a_plain_job_runs_the_same_statements_with_listeners_for_other_jobs(store: JobStore):
    def statements() -> list[str]:
        with Traced(store) as calls:
            settle_hot(store, listened=False)
        return [call.statement for call in calls]

    settle_hot(store, listened=False)  # its gate and its owner are made once
    alone = statements()
    listen(store, *(event for event in EVENTS if event != "succeeded"))
    assert statements() == alone
    assert not {"read_listeners", "insert_outbox"} & set(alone)
    assert received(store) == []


def test_a_listener_for_one_kind_hears_nothing_of_others(store: JobStore):
    listen(store, "succeeded", "failed", task="report")
    settle_hot(store, task="other")
    end(store, run(store, task="other"), Failure("x", final=True))
    succeeded, failed = settle_hot(store, task="report"), run(store, task="report")
    end(store, failed, Failure("x", final=True))
    assert [(one.event.name, one.event.job_id) for one in received(store)] == [
        ("succeeded", succeeded),
        ("failed", failed.id),
    ]


def test_an_event_says_what_has_happened_to_whom(store: JobStore, clock: ManualClock):
    listen(store, "failed", "requeued", "cancelled")
    grant = run(store, group="g", lane="l")
    end(store, grant, Failure("broken"))
    (requeued,) = received(store)
    event = requeued.event
    assert (event.job_id, event.task, event.queue, event.attempt) == (grant.id, "work", "default", 1)
    assert (event.group, event.detail, event.at) == ("g", "broken", clock.now())
    facts = {
        "from": "running",
        "state": "queued",
        "why": "failed",
        "actor": OWNER,
        "lane": "l",
        "error": "broken",
    }
    due = store.get(grant.id).available_at.isoformat()
    assert event.data == facts | {"available_at": due}
    store.cancel(put(store).id, "ann", "no need")
    (cancelled,) = received(store)
    assert (cancelled.event.detail, cancelled.event.data["actor"]) == ("no need", "ann")


def test_each_listener_gets_its_own_and_each_event_an_id(store: JobStore):
    listen(store, "failed", name="a")
    listen(store, "failed", name="b")
    for _ in range(2):
        end(store, run(store), Failure("x", final=True))
    ids = [one.event.id for name in "ab" for one in received(store, name)]
    assert len(set(ids)) == len(ids) == 4


def test_a_group_is_done_when_its_last_job_is_and_again_when_it_is_reopened(store: JobStore):
    listen(store, "group_done")
    first, second = run(store, group="g"), run(store, group="g")
    end(store, first, Success("1"))
    assert received(store) == []
    end(store, second, Failure("x", final=True))
    (done,) = received(store)
    assert (done.event.group, done.event.job_id) == ("g", "")
    store.resume(second.id)
    store.cancel(second.id)
    (again,) = received(store)
    assert again.event.data["version"] > done.event.data["version"]
    assert again.event.id != done.event.id


@pytest.mark.parametrize("hot", [False, True])
def test_of_many_successes_of_a_group_that_are_settled_at_once_it_is_told_once(store: JobStore, hot: bool):
    listen(store, "group_done")
    ids = [put(store, group="g").id for _ in range(5)]
    grants = store.claim(OWNER, ["default"], 5)
    store.settle([Ending(g.id, g.token, Success("1"), g.seq if hot else None, g.special) for g in grants])
    assert sorted(grant.id for grant in grants) == sorted(ids)
    assert [one.event.group for one in received(store)] == ["g"]


def test_a_budget_is_told_of_when_it_is_passed_and_after_a_top_up_again(store: JobStore):
    listen(store, "budget_exhausted")
    grant = run(store, group="g", policy=Policy(budget={"tokens": 10}))
    store.set_group_budget("g", {"tokens": 15})
    reported = []
    for number, amount in enumerate((10, 1, 3, 5)):
        store.spend(grant.id, grant.token, 1, [Spend(str(number), "tokens", amount)])
        reported.append([(e.event.data["scope"], e.event.data["version"]) for e in received(store)])
    assert reported == [[], [("job", 11)], [], [("group", 19)]]
    store.top_up(grant.id, {"tokens": 20})
    store.spend(grant.id, grant.token, 1, [Spend("again", "tokens", 12)])
    (again,) = received(store)
    assert again.event.job_id == grant.id
    assert again.event.data == {
        "scope": "job", "name": grant.id, "unit": "tokens", "limit": 30, "spent": 31, "version": 31,
    }  # fmt: skip
    store.set_group_budget("g", {"tokens": 100})
    store.set_group_budget("g", {"tokens": 5})
    (lowered,) = received(store)
    assert (lowered.event.group, lowered.event.data["limit"]) == ("g", 5)


def test_what_a_worker_tells_reaches_who_listens(store: JobStore):
    listen(store, "stalled")
    store.notify_listeners(
        [PendingNotification("stalled", new_id(), "work", "default", 1, None, "silent", {"seconds": 3})]
    )
    assert [one.event.data for one in received(store)] == [{"seconds": 3}]


# -- delivery ----------------------------------------------------------------------------------------------------------


def failures(store: JobStore, number: int = 1) -> None:
    listen(store, "failed")
    for _ in range(number):
        end(store, run(store), Failure("x", final=True))


def ids(taken: Sequence[HookDelivery]) -> list[str]:
    return [one.event.id for one in taken]


def test_what_was_taken_and_not_dropped_comes_again_with_the_same_id(store: JobStore, clock: ManualClock):
    failures(store)
    (first,) = store.take_events([ME], 10, 60.0)
    assert store.take_events([ME], 10, 60.0) == []
    clock.advance(61)
    (again,) = store.take_events([ME], 10, 60.0)
    assert (again.event, first.tries, again.tries) == (first.event, 1, 2)


def test_what_could_not_be_delivered_comes_later_or_is_given_up(store: JobStore, clock: ManualClock):
    failures(store)
    (first,) = store.take_events([ME], 10, 60.0)
    store.retry_event(first.event.id, 5.0, "boom")
    clock.advance(4.9)
    assert store.take_events([ME], 10, 60.0) == []
    clock.advance(0.2)
    (again,) = store.take_events([ME], 10, 60.0)
    store.retry_event(again.event.id, None, "boom at last")
    clock.advance(10_000)
    assert store.take_events([ME], 10, 60.0) == []
    (row,) = store.list_listeners()
    assert (row.waiting, row.given_up, row.last_error) == (0, 1, "boom at last")


def test_what_is_given_back_has_not_been_tried(store: JobStore):
    failures(store, 3)
    taken = store.take_events([ME], 2, 60.0)
    assert len(taken) == 2
    store.give_back_events(ids(taken))
    again = store.take_events([ME], 10, 60.0)
    assert sorted(one.tries for one in again) == [1, 1, 1]


def test_events_become_jobs_and_are_gone(store: JobStore, backend: Backend):
    failures(store, 3)
    store.enqueue_events([ME], lambda one: new_job(task="deliver", args=f'{{"id": "{one.event.id}"}}'))
    assert backend.query("SELECT count(*) FROM leasehold.outbox") == [(0,)]
    assert len(store.claim(OWNER, ["default"], 10, ["deliver"])) == 3


# -- listeners ---------------------------------------------------------------------------------------------------------


def test_a_listener_whose_code_is_gone_hears_nothing_after_a_day_and_is_forgotten(
    store: JobStore, clock: ManualClock, backend: Backend
):
    listen(store, "failed", "succeeded", name="old")
    store.register_listeners([Listener("by_hand", "failed")], kept=True)
    listen(store, "failed", "succeeded")
    end(store, run(store), Failure("x", final=True))
    clock.advance(80_000)
    store.touch_listeners([ME])
    clock.advance(10_000)
    end(store, run(store), Failure("x", final=True))
    settle_hot(store)
    assert [len(received(store, name)) for name in ("old", "by_hand", ME)] == [1, 2, 3]
    listen(store, "failed", name="old")
    end(store, run(store), Failure("x", final=True))
    clock.advance(90_000)
    store.touch_listeners([ME])
    store.forget_listeners()
    assert {row.name for row in store.list_listeners()} == {ME, "by_hand"}
    assert backend.query("SELECT count(*) FROM leasehold.outbox WHERE listener = 'old'") == [(0,)]


def test_what_nobody_could_deliver_is_forgotten_after_a_week(store: JobStore, clock: ManualClock):
    store.register_listeners([Listener(ME, "failed")], kept=True)
    end(store, run(store), Failure("x", final=True))
    clock.advance(7 * 86_400 + 1)
    store.forget_listeners()
    assert received(store) == []


def test_a_listener_that_registers_again_listens_to_what_it_says_now(store: JobStore):
    listen(store, "failed", "paused")
    listen(store, "paused", "cancelled")
    assert sorted(listener.event for listener in store.find_listeners()) == ["cancelled", "paused"]


def test_a_listener_that_is_removed_leaves_nothing_behind(store: JobStore, backend: Backend):
    failures(store)
    assert store.remove_listener(ME)
    assert not store.remove_listener(ME)
    assert backend.query("SELECT count(*) FROM leasehold.outbox") == [(0,)]
    assert store.list_listeners() == []


def test_a_move_that_is_rolled_back_is_not_told(store: JobStore):
    listen(store)
    grant = run(store)

    def fall_over() -> None:
        with store.transaction(grant.id, grant.token, 10.0) as tx:
            tx.succeed(Success("1"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fall_over()
    assert store.get(grant.id).state is State.RUNNING
    assert received(store) == []

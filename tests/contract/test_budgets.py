"""The ledger: recorded always, once per key, with totals that move with it; and who may go on."""

from __future__ import annotations

import threading

import pytest

from leasehold.domain.budgets import BudgetLine, Spend
from leasehold.domain.errors import InvalidInput, InvalidState, JobNotFound
from leasehold.domain.outcome import Breached, HandedBack, Stopped, Success
from leasehold.domain.policy import Policy
from leasehold.domain.states import State
from leasehold.stores.store import JobStore
from tests.backends import new_id, put
from tests.contract.lives import OWNER, SITE, end, granted, in_state, lose, orphan, run

TOKENS = Policy(budget={"tokens": 100})


def lines(store: JobStore, job_id: str) -> dict[tuple[str, str], tuple[int | None, int]]:
    return {(line.scope, line.unit): (line.limit, line.spent) for line in store.budget(job_id)}


def test_the_same_key_and_unit_count_once_whoever_brings_them(store, clock):
    grant = run(store, policy=TOKENS)
    spends = [Spend("a", "tokens", 10), Spend("a", "pages", 1), Spend("b", "tokens", 5)]
    for _ in range(2):
        reported = store.spend(grant.id, grant.token, 1, spends)
        assert reported == [
            BudgetLine("job", grant.id, "pages", None, 1),
            BudgetLine("job", grant.id, "tokens", 100, 15),
        ]
    clock.advance(1)
    store.spend(grant.id, 7, 3, [Spend("a", "tokens", 99), Spend("c", "tokens", 1)])
    assert [(s.key, s.unit, s.amount, s.token, s.attempt) for s in store.spending(grant.id)] == [
        ("a", "pages", 1, 1, 1),
        ("a", "tokens", 10, 1, 1),
        ("b", "tokens", 5, 1, 1),
        ("c", "tokens", 1, 7, 3),
    ]
    assert lines(store, grant.id) == {("job", "pages"): (None, 1), ("job", "tokens"): (100, 16)}


def test_a_key_that_stands_twice_in_one_call_counts_once(store):
    grant = run(store)
    store.spend(grant.id, 1, 1, [Spend("a", "tokens", 10), Spend("a", "tokens", 10)])
    assert lines(store, grant.id) == {("job", "tokens"): (None, 10)}


def test_a_lost_lease_does_not_keep_its_holder_from_paying(store, clock):
    grant = run(store, policy=TOKENS)
    lose(store, clock, grant)
    store.spend(grant.id, grant.token, grant.attempt, [Spend("a", "tokens", 10)])
    assert [s.token for s in store.spending(grant.id)] == [grant.token]
    assert lines(store, grant.id) == {("job", "tokens"): (100, 10)}


@pytest.mark.parametrize("state", State)
def test_a_spend_is_taken_in_every_state(store, clock, state):
    job = in_state(store, clock, state)
    before = store.get(job.id)
    store.spend(job.id, 1, 1, [Spend("a", "tokens", 10)])
    assert lines(store, job.id) == {("job", "tokens"): (None, 10)}
    assert store.get(job.id) == before


def test_a_group_is_charged_with_its_jobs_and_keeps_its_limit(store):
    one, two, other = (run(store, group=name) for name in ("g", "g", "h"))
    assert store.set_group_budget("g", {"tokens": 50, "pages": 3}) == [
        BudgetLine("group", "g", "pages", 3, 0),
        BudgetLine("group", "g", "tokens", 50, 0),
    ]
    for grant in (one, two, other):
        store.spend(grant.id, 1, 1, [Spend("a", "tokens", 20)])
    assert lines(store, two.id) == {
        ("job", "tokens"): (None, 20),
        ("group", "tokens"): (50, 40),
        ("group", "pages"): (3, 0),
    }
    store.set_group_budget("g", {"pages": None})
    assert [(line.unit, line.limit, line.spent) for line in store.group_budget("g")] == [
        ("pages", None, 0),
        ("tokens", 50, 40),
    ]
    assert store.group_budget("nobody") == []


def test_a_step_and_what_it_spent_are_written_together_or_not_at_all(store, clock):
    grant = run(store, policy=TOKENS)
    spends = [Spend("a", "tokens", 10)]
    reported = store.save_spent_steps(grant.id, grant.token, 1, {"s": "1"}, spends)
    assert reported == [BudgetLine("job", grant.id, "tokens", 100, 10)]
    lose(store, clock, grant)
    assert store.save_spent_steps(grant.id, grant.token, 1, {"t": "1"}, [Spend("b", "tokens", 1)]) is None
    assert store.load_steps(grant.id) == {"s": "1"}
    assert [s.key for s in store.spending(grant.id)] == ["a"]


def test_a_handlers_transaction_takes_its_spends_with_it(store):
    grant = run(store)

    def spend_and_fail() -> None:
        with store.transaction(grant.id, grant.token, 5.0) as tx:
            tx.spend(1, [Spend("a", "tokens", 10)])
            raise KeyError

    with pytest.raises(KeyError):
        spend_and_fail()
    assert store.spending(grant.id) == []
    with store.transaction(grant.id, grant.token, 5.0) as tx:
        tx.spend(1, [Spend("a", "tokens", 10)])
        tx.succeed(Success())
    assert [s.key for s in store.spending(grant.id)] == ["a"]


@pytest.mark.parametrize(
    ("on_breach", "spent", "may"),
    [("fail", 100, True), ("fail", 101, False), ("pause", 101, False), ("allow", 101, True)],
)
@pytest.mark.parametrize("whose", ["job", "group"])
def test_a_job_over_its_budget_is_not_resumed(store, whose, on_breach, spent, may):
    if whose == "job":
        grant = run(store, policy=Policy(budget={"tokens": 100}, on_breach=on_breach))
    else:
        store.set_group_budget("g", {"tokens": 100})
        grant = run(store, policy=Policy(on_breach=on_breach), group="g")
    store.spend(grant.id, grant.token, 1, [Spend("a", "tokens", spent)])
    job = end(store, grant, Stopped(pause=True))
    if may:
        assert store.resume(job.id).state is State.QUEUED
        return
    with pytest.raises(InvalidState) as refused:
        store.resume(job.id)
    assert (refused.value.verb, refused.value.state) == ("resume", "paused")
    assert ("top_up" if whose == "job" else "group 'g'") in str(refused.value)
    assert store.get(job.id) == job
    if whose == "job":
        assert store.top_up(job.id, {"tokens": 1}, "ann")[0].limit == 101
    else:
        store.set_group_budget("g", {"tokens": 101})
    assert store.resume(job.id).state is State.QUEUED


def test_a_lane_is_not_resumed_over_a_budget_either(store):
    grant = run(store, policy=TOKENS, lane="l")
    store.spend(grant.id, grant.token, 1, [Spend("a", "tokens", 101)])
    assert end(store, grant, Breached("over")).state is State.FAILED
    with pytest.raises(InvalidState, match="top_up"):
        store.resume_lane("l")
    store.top_up(grant.id, {"tokens": 1})
    assert store.resume_lane("l").id == grant.id


def test_a_running_job_may_be_topped_up_and_a_pause_of_it_withdrawn(store):
    grant = run(store, policy=TOKENS)
    store.spend(grant.id, grant.token, 1, [Spend("a", "tokens", 101)])
    store.pause(grant.id)
    assert store.resume(grant.id).stop_requested is None
    assert store.top_up(grant.id, {"tokens": 400}) == [BudgetLine("job", grant.id, "tokens", 500, 101)]
    assert store.history(grant.id)[-1].detail == "tokens +400 to 500"


# --- a limit for each run -------------------------------------------------------------------------------------------

PER_ATTEMPT = Policy(budget={"tokens": 100}, budget_for="attempt", on_breach="pause")


def test_a_limit_for_each_run_counts_what_this_run_has_spent_and_the_ledger_keeps_all(store):
    grant = run(store, policy=PER_ATTEMPT)
    reported = store.spend(grant.id, grant.token, 1, [Spend("a", "tokens", 90), Spend("a", "pages", 1)])
    assert reported == [
        BudgetLine("attempt", grant.id, "pages", None, 1),
        BudgetLine("attempt", grant.id, "tokens", 100, 90),
    ]
    end(store, grant, HandedBack())
    again = granted(store.claim_by_id(grant.id, OWNER))
    assert lines(store, grant.id) == {("attempt", "tokens"): (100, 0), ("attempt", "pages"): (None, 0)}
    # A key counts once in the life of the job: what an earlier attempt has paid for is not this attempt's.
    store.spend(grant.id, again.token, 2, [Spend("a", "tokens", 90), Spend("b", "tokens", 60)])
    assert lines(store, grant.id)["attempt", "tokens"] == (100, 60)
    assert store.budget(grant.id, 1)[-1] == BudgetLine("attempt", grant.id, "tokens", 100, 90)
    # A run that has lost its lease pays for itself, not for its successor.
    store.spend(grant.id, grant.token, 1, [Spend("late", "tokens", 500)])
    assert lines(store, grant.id)["attempt", "tokens"] == (100, 60)
    assert sum(row.amount for row in store.spending(grant.id) if row.unit == "tokens") == 650


def test_a_breach_of_an_earlier_run_is_no_reason_not_to_resume(store):
    grant = run(store, policy=PER_ATTEMPT)
    store.spend(grant.id, grant.token, 1, [Spend("a", "tokens", 101)])
    job = end(store, grant, Breached("over"))
    assert job.state is State.PAUSED
    assert lines(store, job.id) == {("attempt", "tokens"): (100, 101)}
    assert store.resume(job.id).state is State.QUEUED
    again = granted(store.claim_by_id(job.id, OWNER))
    assert lines(store, job.id) == {("attempt", "tokens"): (100, 0)}
    assert again.attempt == 2


def test_the_budget_of_its_group_counts_all_runs_of_a_job_with_a_limit_for_each(store):
    store.set_group_budget("g", {"tokens": 150})
    grant = run(store, policy=PER_ATTEMPT, group="g")
    store.spend(grant.id, grant.token, 1, [Spend("a", "tokens", 151)])
    job = end(store, grant, Breached("over"))
    with pytest.raises(InvalidState, match="group 'g'"):
        store.resume(job.id)


def test_a_top_up_raises_the_limit_of_every_run_from_then_on(store):
    grant = run(store, policy=PER_ATTEMPT)
    store.spend(grant.id, grant.token, 1, [Spend("a", "tokens", 120)])
    assert store.top_up(grant.id, {"tokens": 50}) == [BudgetLine("attempt", grant.id, "tokens", 150, 120)]
    end(store, grant, HandedBack())
    granted(store.claim_by_id(grant.id, OWNER))
    assert lines(store, grant.id) == {("attempt", "tokens"): (150, 0)}


def test_an_adopted_run_counts_on(store, clock):
    job = orphan(store, clock, policy=PER_ATTEMPT)
    store.spend(job.id, 1, 1, [Spend("a", "tokens", 90)])
    (adopted,) = store.adopt("worker-2", [SITE])
    assert adopted.attempt == 1
    store.spend(job.id, adopted.token, adopted.attempt, [Spend("b", "tokens", 20)])
    assert lines(store, job.id) == {("attempt", "tokens"): (100, 110)}


def test_what_cannot_be_topped_up_changes_nothing(store, clock):
    job = put(store, policy=Policy(budget={"tokens": 1, "pages": 1}))
    with pytest.raises(InvalidInput, match="money"):
        store.top_up(job.id, {"tokens": 5, "money": 5})
    assert lines(store, job.id) == {("job", "tokens"): (1, 0), ("job", "pages"): (1, 0)}
    done = in_state(store, clock, State.SUCCEEDED, policy=TOKENS)
    with pytest.raises(InvalidState):
        store.top_up(done.id, {"tokens": 5})
    assert store.history(job.id) == store.history(done.id) == []


def test_a_job_that_is_not_there_has_no_budget(store):
    missing = new_id()
    for call in (
        lambda: store.budget(missing),
        lambda: store.top_up(missing, {"tokens": 1}),
        lambda: store.spend(missing, 1, 1, [Spend("a", "tokens", 1)]),
    ):
        with pytest.raises(JobNotFound):
            call()
    assert store.spending(missing) == []


def test_a_retried_job_begins_with_a_ledger_of_its_own(store, clock):
    grant = run(store, policy=TOKENS)
    store.spend(grant.id, grant.token, 1, [Spend("a", "tokens", 101)])
    end(store, grant, Breached("over"))
    again = store.retry(grant.id, new_id())
    assert lines(store, again.id) == {("job", "tokens"): (100, 0)}


def test_many_who_spend_at_once_lose_nothing_and_never_wait_for_each_other_in_a_circle(backend):
    """Jobs of one group, from threads with stores of their own, in several units, in any order."""
    setup = backend.open()
    grants = [run(setup, group="g") for _ in range(4)]
    errors: list[BaseException] = []

    def spend(number: int) -> None:
        store = backend.open()
        try:
            for n in range(25):
                units = ["a", "b", "c"] if (number + n) % 2 else ["c", "b", "a"]
                grant = grants[(number + n) % 4]
                spends = [Spend(f"{number}-{n}", unit, n + 1) for unit in units]
                store.spend(grant.id, grant.token, 1, spends)
                store.spend(grant.id, grant.token, 1, spends)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=spend, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    each = 4 * sum(range(1, 26))
    assert [(line.unit, line.spent) for line in setup.group_budget("g")] == [
        ("a", each),
        ("b", each),
        ("c", each),
    ]
    for grant in grants:
        rows = setup.spending(grant.id)
        for line in setup.budget(grant.id):
            if line.scope == "job":
                assert line.spent == sum(row.amount for row in rows if row.unit == line.unit)

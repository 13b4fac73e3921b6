"""Lists of groups, budgets and leases: a page at a time, every row once, in an order that stays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from leasehold.domain.budgets import Spend
from leasehold.domain.checks.payload import cursor_of
from leasehold.domain.errors import InvalidInput
from leasehold.domain.groups import GROUP_TOTAL_CAP
from leasehold.domain.outcome import Failure, Success
from leasehold.domain.policy import Policy
from leasehold.domain.stop import StopScope
from leasehold.stores.store import JobStore
from tests.backends import new_job, put
from tests.contract.lives import OWNER, end, run


def walk(look: Callable[..., Any], rows: str, **requested: Any) -> list[list[Any]]:
    """All pages of two."""
    pages, cursor = [], None
    while True:
        page = look(limit=2, cursor=cursor, **requested)
        pages.append(getattr(page, rows))
        cursor = page.next
        if cursor is None:
            return pages


def test_groups_are_listed_by_name_a_page_at_a_time(store: JobStore):
    names = ["a", "b", "b/c", "d é", "e"]
    store.enqueue([new_job(group=name) for name in reversed(names)])
    pages = walk(store.list_groups, "groups")
    assert [len(page) for page in pages] == [2, 2, 1]
    assert sorted(group.name for page in pages for group in page) == sorted(names)


def test_a_listed_group_tells_how_much_of_it_lives(store: JobStore):
    grant = run(store, group="g")
    store.enqueue([new_job(group="g") for _ in range(3)])
    (group,) = store.list_groups().groups
    assert (group.live, group.total, group.state, group.held, group.last_stop) == (
        4,
        4,
        "active",
        False,
        None,
    )
    end(store, grant, Success("1"))
    (group,) = store.list_groups().groups
    assert (group.live, group.total) == (3, 4)
    status = store.group_status("g")
    assert (group.live, group.total, group.version) == (status.live, status.total, status.version)


def test_jobs_of_a_listed_group_are_counted_up_to_a_cap(store: JobStore):
    store.enqueue([new_job(group="g") for _ in range(GROUP_TOTAL_CAP + 5)])
    (group,) = store.list_groups().groups
    assert (group.live, group.total) == (GROUP_TOTAL_CAP + 5, GROUP_TOTAL_CAP)


def test_groups_are_listed_by_their_state_with_who_stopped_them(store: JobStore):
    store.enqueue([new_job(group=name) for name in ("a", "b", "c", "d", "e")])
    for name in ("b", "d", "e"):
        store.stop_group(name, True, "ann", "enough")
    store.stop_group("c", False, "ben")
    store.stop_group("a", False, "cy", scope=StopScope(group="a", tasks=("work",)), mode="immediate")
    assert [[group.name for group in page] for page in walk(store.list_groups, "groups", state="held")] == [
        ["b", "d"],
        ["e"],
    ]
    (held, *_) = store.list_groups("held").groups
    assert (held.held, held.reason, held.changed_by) == (True, "enough", "ann")
    assert held.changed_at is not None
    assert held.last_stop is not None
    assert held.last_stop.actor == "ann"
    assert [group.name for group in store.list_groups("stopped").groups] == ["c"]
    (active,) = store.list_groups("active").groups
    assert active.last_stop is not None
    assert (active.name, active.last_stop.mode, active.last_stop.actor) == ("a", "immediate", "cy")


def test_leases_tell_who_holds_what_since_when_and_for_how_long(store: JobStore, clock):
    first = run(store, group="g")
    clock.advance(10)
    second = run(store, worker="worker-2")
    store.cancel(second.id)
    put(store)
    one, two = store.list_leases().leases
    assert (one.job_id, one.worker, one.group, one.attempt) == (first.id, OWNER, "g", 1)
    assert (one.task, one.queue, one.stop_requested) == ("work", "default", None)
    assert (two.job_id, two.worker, two.stop_requested) == (second.id, "worker-2", "cancel")
    assert (two.started_at - one.started_at).total_seconds() == pytest.approx(10, abs=1e-3)
    assert one.expires_in == pytest.approx(20, abs=1e-3)
    assert (one.expires_at - one.started_at).total_seconds() == pytest.approx(30, abs=1e-3)
    clock.advance(25)
    assert store.list_leases().leases[0].expires_in == pytest.approx(-5, abs=1e-3)
    assert [row.job_id for row in store.list_leases(OWNER).leases] == [first.id]
    assert store.list_leases("nobody").leases == []
    end(store, second, Success("1"))
    assert [row.job_id for row in store.list_leases().leases] == [first.id]


def test_leases_are_listed_a_page_at_a_time_in_the_order_of_arrival(store: JobStore):
    jobs = [put(store).id for _ in range(5)]
    assert len(store.claim(OWNER, ["default"], 5)) == 5
    pages = walk(store.list_leases, "leases")
    assert [[row.job_id for row in page] for page in pages] == [jobs[:2], jobs[2:4], jobs[4:]]
    assert walk(store.list_leases, "leases", worker=OWNER) == walk(store.list_leases, "leases")


def test_budgets_tell_what_may_be_spent_and_what_becomes_of_who_spends_more(store: JobStore):
    policy = Policy(budget={"tokens": 100, "pages": 5}, on_breach="pause")
    grant = run(store, policy=policy, group="g")
    store.set_group_budget("g", {"tokens": 1000})
    store.set_group_budget("quiet", {"tokens": 1})
    store.spend(grant.id, grant.token, 1, [Spend("a", "tokens", 101), Spend("a", "cents", 3)])
    rows = {(row.scope, row.name, row.unit): row for row in store.list_budgets().budgets}
    assert list(rows) == [
        ("group", "g", "cents"),
        ("group", "g", "tokens"),
        ("group", "quiet", "tokens"),
        ("job", grant.id, "cents"),
        ("job", grant.id, "tokens"),
    ]
    of_group = rows["group", "g", "tokens"]
    assert (of_group.limit, of_group.spent, of_group.left, of_group.exhausted) == (1000, 101, 899, False)
    assert (of_group.on_breach, of_group.task, of_group.queue) == (None, None, None)
    of_job = rows["job", grant.id, "tokens"]
    assert (of_job.limit, of_job.spent, of_job.left, of_job.exhausted) == (100, 101, 0, True)
    assert (of_job.on_breach, of_job.task, of_job.queue) == ("pause", "work", "default")
    assert (rows["job", grant.id, "cents"].limit, rows["job", grant.id, "cents"].left) == (None, None)
    store.top_up(grant.id, {"tokens": 50})
    (topped,) = (row for row in store.list_budgets("job").budgets if row.unit == "tokens")
    assert (topped.limit, topped.left, topped.exhausted) == (150, 49, False)
    assert {row.scope for row in store.list_budgets("group").budgets} == {"group"}


def test_budgets_are_listed_a_page_at_a_time(store: JobStore):
    for name in ("a", "b"):
        store.set_group_budget(name, {"tokens": 1, "pages": 2})
    grant = run(store)
    store.spend(grant.id, grant.token, 1, [Spend("a", unit, 1) for unit in ("x", "y", "z")])
    pages = walk(store.list_budgets, "budgets")
    assert [(row.name, row.unit) for page in pages for row in page] == [
        *(("a", "pages"), ("a", "tokens"), ("b", "pages"), ("b", "tokens")),
        *((grant.id, unit) for unit in ("x", "y", "z")),
    ]
    assert [len(page) for page in pages] == [2, 2, 2, 1]
    assert [len(page) for page in walk(store.list_budgets, "budgets", scope="group")] == [2, 2]
    assert [len(page) for page in walk(store.list_budgets, "budgets", scope="job")] == [2, 1]


def test_a_limit_for_each_run_is_listed_with_what_the_latest_has_spent(store: JobStore, clock):
    policy = Policy(budget={"tokens": 100}, budget_for="attempt", backoff=0.0)
    grant = run(store, policy=policy)
    store.spend(grant.id, grant.token, 1, [Spend("a", "tokens", 90)])
    end(store, grant, Failure("no"))
    clock.advance(600)
    (again,) = store.claim(OWNER, ["default"], 1)
    (row,) = store.list_budgets().budgets
    assert (row.scope, row.limit, row.spent) == ("attempt", 100, 0)
    store.spend(again.id, again.token, 2, [Spend("b", "tokens", 30)])
    (row,) = store.list_budgets().budgets
    assert (row.spent, row.left) == (30, 70)


@pytest.mark.parametrize(
    "cursor",
    [
        "nonsense!",
        "",
        "é",
        cursor_of("a", "b"),
        cursor_of(-1),
        cursor_of(2**63),
        cursor_of("\0"),
        "W10",
        "x" * 9999,
    ],
)
def test_a_cursor_that_was_made_up_is_refused_by_its_name(store: JobStore, cursor: str):
    for look in (store.list_groups, store.list_budgets, store.list_leases):
        with pytest.raises(InvalidInput) as refused:
            look(limit=2, cursor=cursor)
        assert refused.value.field == "cursor"


@pytest.mark.parametrize("limit", [0, 501, True, "5"])
def test_a_page_has_at_most_500_rows(store: JobStore, limit: Any):
    for look in (store.list_groups, store.list_budgets, store.list_leases):
        with pytest.raises(InvalidInput) as refused:
            look(limit=limit)
        assert refused.value.field == "limit"

"""`groups`, `budgets` and `leases`: a page, the next one, and all of them."""

from __future__ import annotations

from leasehold.domain.budgets import Spend
from leasehold.domain.checks.payload import cursor_of
from leasehold.domain.policy import Policy
from leasehold.surfaces.cli import render
from tests.contract.lives import run


def test_groups_are_listed_with_who_stopped_them(app, here):
    for name in ("a", "b", "c"):
        app.enqueue("work", group=name)
    app.group("b").stop(hold=True, reason="enough", actor="ann")
    shown = here("groups").out.splitlines()
    assert [line.split()[0] for line in shown] == ["group", "a", "b", "c"]
    assert "held: enough" in shown[2]
    assert "graceful by ann" in shown[2]
    assert [row["name"] for row in here("groups", "--state", "held", "--json").lines] == ["b"]
    assert here("groups", "--state", "asleep").code == 2


def test_a_list_goes_on_at_its_cursor_or_tells_everything(app, here, monkeypatch):
    for name in ("a", "b", "c", "d", "e"):
        app.enqueue("work", group=name)
    notes = []
    monkeypatch.setattr(render, "note", notes.append)
    assert [row["name"] for row in here("groups", "--limit", "2", "--json").lines] == ["a", "b"]
    assert notes == [f"there are more: --cursor {cursor_of('b')}, or --all"]
    rest = here("groups", "--limit", "3", "--cursor", cursor_of("b"), "--json").lines
    assert [row["name"] for row in rest] == ["c", "d", "e"]
    everything = here("groups", "--limit", "2", "--all", "--json").lines
    assert [row["name"] for row in everything] == ["a", "b", "c", "d", "e"]
    assert len(notes) == 1
    assert here("groups", "--cursor", "nonsense").code == 2


def test_budgets_tell_what_is_exhausted(app, here):
    store = app.__internals__.store
    grant = run(store, policy=Policy(budget={"tokens": 10}, on_breach="pause"))
    store.spend(grant.id, grant.token, 1, [Spend("a", "tokens", 15)])
    app.group("g").budget(tokens=100)
    of_group, of_job = here("limits", "budgets").out.splitlines()[1:]
    assert of_group.split() == ["group", "g", "tokens", "0", "100", "100"]
    assert of_job.split() == [grant.id, "work", "tokens", "15", "10", "exhausted", "pause"]
    (row,) = here("limits", "budgets", "--scope", "job", "--json").lines
    assert (row["name"], row["exhausted"], row["left"]) == (grant.id, True, 0)
    assert here("limits", "budgets", "--scope", "queue").code == 2


def test_leases_tell_who_runs_what(app, here):
    store = app.__internals__.store
    one, two = run(store, "host:1"), run(store, "host:2")
    app.get(two.id).cancel()
    first, second = here("workers", "leases").out.splitlines()[1:]
    assert first.split()[:5] == [one.id, "work", "default", "1", "host:1"]
    assert "host:2, cancel requested" in second
    assert [row["job_id"] for row in here("workers", "leases", "--worker", "host:2", "--json").lines] == [
        two.id
    ]
    assert here("workers", "leases", "--json").lines[0]["expires_in"] > 0

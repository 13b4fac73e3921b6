"""Pauses, slots, rates and budgets: seen by everybody, changed by those who may."""

from __future__ import annotations

import html
import re

import pytest

from leasehold import Leasehold
from leasehold.domain.budgets import Spend
from leasehold.domain.checks.texts import storable_name
from leasehold.domain.policy import Policy
from leasehold.operations import queues
from tests.contract.lives import run
from tests.surfaces.dashboard.conftest import Dashboard, Viewer

HOSTILE = "<script>alert(1)</script>\u202e\"'/&"
ODD = "a\x1b\r\n\x0b\u2028b"
"""What browsers and streams would change on its way through a form."""


def last_audit(app: Leasehold) -> tuple[str, str | None, str | None]:
    entry = app.audit(limit=1).entries[0]
    return entry.verb, entry.target, entry.actor


def hidden_fields(text: str, verb: str) -> dict[str, str]:
    """Of the first form of a verb, as a browser sends them."""
    form = text.partition(f'action="/do/{verb}"')[2].partition("</form>")[0]
    found = re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)">', form)
    return {html.unescape(name): html.unescape(value) for name, value in found}


def test_slots_are_shown_with_their_holders_and_set_by_an_admin(
    app: Leasehold, viewer: Viewer, operator: Viewer, admin: Viewer
):
    app.slots.set("browser", 2)
    job = run(app.__internals__.store, "host:1", task="add", slots=(("browser", 2),))
    text = viewer.page("/limits")
    assert "2 of 2" in text
    assert "full</span>" in text
    assert f"/jobs/{job.id}" in text.partition("Slots")[2]
    for one in (viewer, operator):
        assert "/do/slot.set" not in one.page("/limits")
        assert one.do("slot.set", name="browser", limit="4").status_code == 403
    assert admin.reported(admin.do("slot.set", name="browser", limit="1", back="/limits")).startswith(
        "The slot browser"
    )
    assert last_audit(app) == ("slot.set", "browser", "dashboard:token 2")
    assert "1 over</span>" in admin.page("/limits")
    assert "is not a whole number" in admin.reported(admin.do("slot.set", name="browser", limit="many"))
    admin.do("slot.set", new_name=" gpu ", limit="3")
    assert {slot.name: slot.limit for slot in app.slots.list()} == {"browser": 1, "gpu": 3}


def test_rates_are_closed_and_opened_by_an_operator_and_set_by_an_admin(
    app: Leasehold, viewer: Viewer, operator: Viewer, admin: Viewer
):
    app.rates.set("openai", "60/min")
    text = viewer.page("/limits")
    assert "60/min" in text
    assert "/do/rate" not in text
    for verb in ("rate.set", "rate.close", "rate.open"):
        assert viewer.do(verb, key="openai", limit="1/s").status_code == 403
    assert "/do/rate.close" in operator.page("/limits")
    assert "/do/rate.set" not in operator.page("/limits")
    operator.do("rate.close", key="openai", **{"for": "2m"}, reason="429")
    assert last_audit(app) == ("rate.close", "openai", "dashboard:token 1")
    text = operator.page("/limits")
    assert "closed</span>" in text
    assert "429" in text
    assert "/do/rate.open" in text
    assert "/do/rate.close" not in text
    assert operator.reported(operator.do("rate.open", key="openai")) == "The rate openai is open."
    assert operator.reported(operator.do("rate.open", key="openai")) == "The rate openai was not closed."
    assert operator.do("rate.set", key="openai", limit="1/s").status_code == 403
    admin.do("rate.set", key="openai", limit="5/s", burst="7")
    (rate,) = app.rates.list()
    assert (rate.limit, rate.burst) == ("5/s", 7)
    assert "is not a rate" in admin.reported(admin.do("rate.set", new_key="x", limit="often"))


@pytest.mark.parametrize(("scope", "name"), [("queue", "default"), ("task", "add")])
def test_queues_and_tasks_are_paused_and_resumed(
    app: Leasehold, viewer: Viewer, operator: Viewer, scope: str, name: str
):
    app.enqueue("add", {"a": 1})
    assert "Nothing is paused" in viewer.page("/limits")
    assert f"/do/{scope}.pause" not in viewer.page("/limits")
    assert viewer.do(f"{scope}.pause", name=name).status_code == 403
    answer = operator.do(f"{scope}.pause", new_name=f" {name}", **{"for": "1h"}, reason="deploy")
    assert "No job of the" in operator.reported(answer)
    assert last_audit(app) == (f"{scope}.pause", name, "dashboard:token 1")
    (pause,) = app.__internals__.operations.call(queues.list_pauses)
    assert (pause.scope, pause.name, pause.reason) == (scope, name, "deploy")
    assert pause.until is not None
    text = operator.page("/limits").partition("Paused queues and tasks")[2]
    assert "deploy" in text
    assert ">1</a>" in text, "one job waits for it"
    assert f"/do/{scope}.resume" in text
    assert f"/do/{scope}.resume" not in viewer.page("/limits")
    assert viewer.do(f"{scope}.resume", name=name).status_code == 403
    assert "is resumed" in operator.reported(operator.do(f"{scope}.resume", name=name))
    assert "was not paused" in operator.reported(operator.do(f"{scope}.resume", name=name))
    assert "is not a duration" in operator.reported(
        operator.do(f"{scope}.pause", name=name, **{"for": "soon"})
    )


def test_budgets_tell_what_is_over_and_are_topped_up(app: Leasehold, viewer: Viewer, operator: Viewer):
    store = app.__internals__.store
    grant = run(store, task="add", policy=Policy(budget={"tokens": 1000}, on_breach="pause"), group="g/1")
    store.spend(grant.id, grant.token, 1, [Spend("a", "tokens", 1500)])
    app.group("g/1").budget(tokens=2000)
    text = viewer.page("/limits")
    assert "1,500 of 1,000" in text
    assert "500 over</span>" in text
    assert "1,500 of 2,000" in text
    assert text.index("1,500 of 2,000") < text.index("1,500 of 1,000"), "groups first"
    assert "/do/budget" not in text
    assert viewer.do("budget.top_up", id=grant.id, unit="tokens", amount="1").status_code == 403
    reported = operator.reported(operator.do("budget.top_up", id=grant.id, unit="tokens", amount="600"))
    assert reported == "The job may spend 1,600 tokens now."
    assert last_audit(app) == ("budget.top_up", grant.id, "dashboard:token 1")
    assert viewer.do("budget.set", group="g/1", unit="tokens", limit="1").status_code == 403
    operator.do("budget.set", group="g/1", unit="tokens", limit="10")
    assert last_audit(app) == ("budget.set", "g/1", "dashboard:token 1")
    assert "1,490 over</span>" in operator.page("/limits", scope="group")
    assert grant.id not in operator.page("/limits", scope="group")
    assert "g/1" not in operator.page("/limits", scope="job")
    assert viewer.get("/limits", scope="nobody").status_code == 422


def test_names_are_shown_and_do_nothing(app: Leasehold, operator: Viewer):
    app.slots.set(HOSTILE, 1)
    app.rates.set(f"{HOSTILE}2", "1/s")
    app.rates.close(f"{HOSTILE}2", reason=HOSTILE)
    app.group(HOSTILE).budget(**{HOSTILE: 1})
    app.tasks.pause(HOSTILE, reason=HOSTILE)
    text = operator.page("/limits")
    assert "<script>alert" not in text
    assert text.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 8


@pytest.mark.parametrize("name", [HOSTILE, ODD, "n" * 500], ids=["hostile", "odd", "long"])
def test_any_name_comes_back_as_it_went(app: Leasehold, admin: Viewer, name: str):
    app.slots.set(name, 1)
    text = admin.page("/limits").partition('id="slots"')[2]
    row = text.partition("<tbody>")[2]
    admin.do("slot.set", **hidden_fields(row, "slot.set"), limit="7")
    assert [(slot.name, slot.limit) for slot in app.slots.list()] == [(storable_name(name, "name"), 7)]


def test_a_token_of_some_queues_sees_and_steers_those(app: Leasehold, dashboard: Dashboard):
    app.slots.set("browser", 2)
    app.rates.set("openai", "60/min")
    app.group("everybody").budget(tokens=1)
    app.queues.pause("default", reason="theirs")
    store = app.__internals__.store
    mine, others = (run(store, task="add", queue=queue) for queue in ("agents", "default"))
    for grant in (mine, others):
        store.spend(grant.id, grant.token, 1, [Spend("a", "tokens", 1)])
    one = dashboard.viewer("admin", queues=["agent*"])
    text = one.page("/limits")
    assert mine.id in text
    for hidden in (others.id, "browser", "openai", "everybody", "theirs", "/do/kind.pause"):
        assert hidden not in text, hidden
    assert one.do("queue.pause", name="agents").status_code == 303
    assert one.do("queue.pause", name="default").status_code == 403
    assert one.do("queue.resume", name="default").status_code == 403
    for verb, fields in (
        ("task.pause", {"name": "add"}),
        ("slot.set", {"name": "browser", "limit": "1"}),
        ("rate.set", {"key": "openai", "limit": "1/s"}),
        ("rate.close", {"key": "openai"}),
        ("rate.open", {"key": "openai"}),
    ):
        assert one.do(verb, **fields).status_code == 403, verb
    assert "no job" in one.reported(one.do("budget.top_up", id=others.id, unit="tokens", amount="1")).lower()

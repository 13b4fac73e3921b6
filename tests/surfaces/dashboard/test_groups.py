"""Groups: the list, one of them, its stop and its budget."""

from __future__ import annotations

import html
import re

from leasehold import Leasehold
from leasehold.domain.outcome import Failure, Success
from leasehold.operations import budgets, jobs
from tests.surfaces.dashboard.conftest import Dashboard, Viewer
from tests.surfaces.http.test_jobs import settle

HOSTILE = "<script>alert(1)</script>\"'/é"


def last_audit(app: Leasehold) -> tuple[str, str | None, str | None]:
    entry = app.audit(limit=1).entries[0]
    return entry.verb, entry.target, entry.actor


def seen(text: str) -> str:
    """Without markup."""
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]*>", " ", text.partition("<main")[2])))


def test_groups_are_listed_by_state_and_page(app: Leasehold, viewer: Viewer):
    for number in range(53):
        app.enqueue("add", {"a": 1}, group=f"g{number:02}")
    app.group("g07").stop(hold=True, mode="immediate", reason="the supplier is down", actor="ann")
    text = viewer.page("/groups")
    assert "held" in text
    assert "the supplier is down" in text
    assert ">ann<" in text
    assert ">g49<" in text
    assert ">g50<" not in text
    following = html.unescape(re.search(r'href="([^"]+)" rel="next"', text)[1])
    more = viewer.client.get(following).text
    assert ">g50<" in more
    assert ">g49<" not in more
    held = viewer.page("/groups", state="held")
    assert ">g07<" in held
    assert ">g08<" not in held
    assert viewer.get("/groups", state="odd").status_code == 422
    assert "No group is stopped" in viewer.page("/groups", state="stopped")


def test_one_group_tells_how_far_it_is(app: Leasehold, viewer: Viewer):
    for _ in range(4):
        app.enqueue("add", {"a": 1}, group="task/42")
    settle(app, Success('{"sum": 7}'), Failure("out of paper", final=True))
    app.enqueue("greet", {"name": "x"}, group="task/42")
    app.__internals__.store.claim("w", ["default"], 1)
    app.__internals__.operations.call(budgets.set_group_budget, "task/42", {"tokens": 500})
    app.group("task/42").stop(["greet"], mode="immediate", reason="no greetings", actor="ann")
    text = viewer.page("/groups", name="task/42")
    reported = seen(text)
    assert "1 of 5 jobs succeeded 2 unfinished" in reported
    assert '{"sum": 7}' in reported
    assert "out of paper" in reported
    assert "0 of 500" in reported
    assert "immediate" in reported
    assert "by ann , only greet : no greetings" in reported
    assert "/jobs?group=task%2F42&amp;task=add&amp;state=failed" in text
    assert "Running 1 job" in reported
    assert "/do/" not in text.partition("<main")[2]
    assert "no job has used this group yet" in viewer.page("/groups", name="nothing")


def test_a_stop_is_shown_before_it_is_done(app: Leasehold, operator: Viewer, viewer: Viewer):
    jobs = [app.enqueue("add", {"a": 1}, group="g") for _ in range(3)]
    other = app.enqueue("fail", {}, group="g")
    requested = {"name": "g", "dry": "1", "mode": "immediate", "tasks": "add", "reason": "<enough>"}
    text = operator.page("/groups", **requested)
    assert "Preview of the stop" in text
    assert "3 queued" in seen(text)
    assert 'id="live"' not in text, "a report stays as it is"
    assert all(app.get(job.id).state == "queued" for job in jobs)
    assert app.audit(verb="stop").entries == []
    assert "Preview of the stop" not in viewer.page("/groups", **requested)
    form = text.partition('action="/do/stop"')[2].partition("</form>")[0]
    fields = dict(re.findall(r'name="([^"]+)" value="([^"]*)"', form))
    fields = {name: html.unescape(value) for name, value in fields.items()}
    assert fields["tasks"] == '["add"]'
    answer = operator.do("stop", **fields)
    assert operator.reported(answer) == "3 waiting jobs cancelled."
    assert answer.headers["location"] == "/groups?name=g"
    assert last_audit(app) == ("stop", "g", "dashboard:token 0")
    assert {app.get(job.id).state for job in jobs} == {"cancelled"}
    assert app.get(other.id).state == "queued"
    assert app.group("g").status().last_stop.reason == "<enough>"


def test_running_jobs_are_not_waited_for(app: Leasehold, operator: Viewer):
    job = app.enqueue("add", {"a": 1}, group="g")
    app.__internals__.store.claim("w", ["default"], 1)
    reported = operator.reported(operator.do("stop", group="g", mode="full", hold="1"))
    assert reported == "0 waiting jobs cancelled, 1 running job will be stopped; the group is held."
    assert app.__internals__.operations.call(jobs.get, job.id).stop_requested == "cancel"
    wrong = operator.reported(operator.do("stop", group="g", mode="hard"))
    assert "is not known" in wrong
    partly = operator.reported(operator.do("stop", group="g", mode="full", tasks='["add"]', hold="1"))
    assert "only for whole groups" in partly


def test_a_group_is_released_and_its_budget_set(app: Leasehold, operator: Viewer):
    app.enqueue("add", {"a": 1}, group="g")
    app.group("g").stop(hold=True)
    assert 'action="/do/group.release"' in operator.page("/groups")
    back = "/groups?name=g"
    assert (
        operator.reported(operator.do("group.release", group="g", back=back))
        == "The group accepts jobs again."
    )
    assert last_audit(app) == ("group.release", "g", "dashboard:token 0")
    assert operator.reported(operator.do("group.release", group="g")) == "The group was not held."
    set_ = operator.do("budget.set", group="g", unit="tokens", limit="1,200", back=back)
    assert operator.reported(set_) == "The limit is 1,200 tokens now."
    assert last_audit(app) == ("budget.set", "g", "dashboard:token 0")
    assert "0 of 1,200" in operator.page("/groups", name="g")
    assert "is not a whole number" in operator.reported(
        operator.do("budget.set", group="g", unit="tokens", limit="many")
    )
    operator.do("budget.set", group="g", unit="tokens", limit="")
    assert [line.limit for line in app.__internals__.operations.call(budgets.group_budget, "g")] in (
        [],
        [None],
    )


def test_who_may_only_look_changes_nothing(app: Leasehold, viewer: Viewer, dashboard: Dashboard):
    app.enqueue("add", {"a": 1}, group="g")
    for verb in ("stop", "group.release", "budget.set"):
        assert viewer.do(verb, group="g", mode="full", unit="x").status_code == 403
    assert app.group("g").status().live == 1
    limited = dashboard.viewer("read", "operate", queues=["default"])
    for query in ({}, {"name": "g"}):
        assert limited.get("/groups", **query).status_code == 403
    assert limited.do("stop", group="g", mode="full").status_code == 403


def test_a_name_can_be_anything(app: Leasehold, operator: Viewer):
    app.enqueue("add", {"a": 1}, group=HOSTILE)
    settle(app, Failure(HOSTILE, final=True))
    for text in (
        operator.page("/groups"),
        operator.page("/groups", name=HOSTILE),
        operator.page("/groups", name=HOSTILE, dry="1", reason=HOSTILE),
    ):
        assert "<script>alert" not in text
        assert "&lt;script&gt;alert" in text

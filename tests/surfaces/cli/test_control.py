"""`questions`, `answer` and `top-up`, and what `show` tells of them."""

from __future__ import annotations

import io
import json

import pytest

from leasehold.domain.budgets import Spend
from leasehold.domain.outcome import Breached, Success
from leasehold.domain.questions import QuestionAsked
from leasehold.stores.results import Ending
from leasehold.surfaces.cli.options import acting
from tests.backends import new_id


@pytest.fixture
def ask(app):
    """A waiting job that asks, of the app's task."""

    def ask(key: str = "q", text: str = "Which one?", schema: dict | None = None, **more):
        job = app.enqueue("work", group="g")
        (grant,) = [g for g in app.__internals__.store.claim("host:1:aa", ["default"], 10) if g.id == job.id]
        requested = QuestionAsked(key, text, None if schema is None else json.dumps(schema), **more)
        assert app.__internals__.store.settle([Ending(grant.id, grant.token, requested)]).accepted
        return job

    return ask


def test_open_questions_are_listed_with_what_an_answer_must_look_like(app, here, ask):
    job = ask(schema={"type": "integer"}, timeout=3600.0)
    assert here("questions", "--group", "other", "--json").lines == []
    (line,) = here("questions", "--json").lines
    assert (line["job_id"], line["key"], line["text"]) == (job.id, "q", "Which one?")
    assert (line["task"], line["group"], line["schema"]) == ("work", "g", {"type": "integer"})
    assert line["expires_at"] > line["asked_at"]
    table = here("questions").out
    assert job.id in table
    assert "Which one?" in table


def test_an_answer_is_json_or_else_text(app, here, ask):
    one, other = ask(), ask()
    assert here("questions", "answer", one.id, "q", '{"n": 3}').out.split() == [one.id, "queued"]
    answered = here("questions", "answer", other.id, "q", "just words", "--json").json
    assert (answered["id"], answered["state"]) == (other.id, "queued")
    assert [job.questions()[0].answer for job in (one, other)] == ['{"n":3}', '"just words"']
    assert [e.actor for e in one.history() if e.event == "answered"] == [acting(None)]


def test_a_secret_is_read_from_standard_input_and_not_shown(app, here, ask, monkeypatch):
    job = ask(secret=True)
    monkeypatch.setattr("sys.stdin", io.StringIO("hunter2\n"))
    assert here("questions", "answer", job.id, "q", "-").code == 0
    assert app.__internals__.store.read_question(job.id, "q").answer == '"hunter2"'
    shown = [
        here("jobs", "show", job.id).out,
        here("jobs", "show", job.id, "--json").out,
        here("questions", "--json").out,
    ]
    assert not any("hunter2" in text for text in shown)
    assert "(secret)" in shown[0]


def test_a_wrong_answer_is_a_usage_error_that_names_the_place(app, here, ask):
    job = ask(schema={"properties": {"n": {"type": "integer"}}})
    answer = here("questions", "answer", job.id, "q", '{"n": "x"}')
    assert (answer.code, "$.n is not of type integer" in answer.err) == (2, True)
    reported = here("questions", "answer", job.id, "q", '{"n": "x"}', "--json").json["error"]
    assert (reported["type"], reported["path"], reported["key"]) == ("InvalidAnswer", "$.n", "q")


@pytest.mark.parametrize(("key", "code"), [("other", 4), ("q", 0)])
def test_an_answer_nobody_asked_for_is_refused(app, here, ask, key, code):
    assert here("questions", "answer", ask().id, key, "1").code == code


def test_a_job_that_is_not_there_is_not_found(app, here):
    assert here("questions", "answer", new_id(), "q", "1").code == 3
    assert here("limits", "top-up", new_id(), "tokens=1").code == 3


def test_a_breached_job_is_topped_up_and_resumed(app, here):
    job = app.enqueue("work", budget={"tokens": 1000})
    (grant,) = app.__internals__.store.claim("host:1:aa", ["default"], 1)
    app.__internals__.store.spend(job.id, grant.token, 1, [Spend("a", "tokens", 1500)])
    app.__internals__.store.settle([Ending(grant.id, grant.token, Breached("over budget"))])
    refused = here("jobs", "resume", job.id)
    assert (refused.code, "top_up" in refused.err) == (4, True)
    (line,) = here("limits", "top-up", job.id, "tokens=600", "--json").json
    assert (line["unit"], line["limit"], line["spent"]) == ("tokens", 1600, 1500)
    assert "1,600" in here("limits", "top-up", job.id, "tokens=0").out
    assert here("jobs", "resume", job.id).code == 0
    shown = here("jobs", "show", job.id).out
    assert "1,500" in shown.partition("budget")[2]
    assert "topped_up" in shown
    assert here("jobs", "show", job.id, "--json").json["budget"][0]["limit"] == 1600


@pytest.mark.parametrize("amount", ["tokens", "tokens=many", "pages=5", "tokens=-5"])
def test_an_amount_that_cannot_be_added_is_a_usage_error(app, here, amount):
    job = app.enqueue("work", budget={"tokens": 1000})
    assert here("limits", "top-up", job.id, amount).code == 2
    assert job.budget()[0].limit == 1000


def test_a_final_job_is_not_topped_up(app, here):
    job = app.enqueue("work", budget={"tokens": 1000})
    (grant,) = app.__internals__.store.claim("host:1:aa", ["default"], 1)
    app.__internals__.store.settle([Ending(grant.id, grant.token, Success())])
    assert here("limits", "top-up", job.id, "tokens=1").code == 4

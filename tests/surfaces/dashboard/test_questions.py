"""The inbox: what jobs ask, and the answers that a form gives."""

from __future__ import annotations

import html
import json
import re
from typing import Any

import pytest

from leasehold import Leasehold
from leasehold.domain.questions import QuestionAsked
from tests.backends import Backend
from tests.surfaces.dashboard.conftest import Dashboard, Viewer
from tests.surfaces.http.test_jobs import settle

HOSTILE = "<script>alert(1)</script>\"'/é"
SECRET = "hunter2-and-more"


def ask(app: Leasehold, key: str = "go", text: str = "May I?", schema: Any = None, **more: Any) -> str:
    job = app.enqueue("greet", {"name": f"{key} {text}"[:100]}, group=more.pop("group", None))
    settle(app, QuestionAsked(key, text, schema=None if schema is None else json.dumps(schema), **more))
    return job.id


def fields_of(text: str, job_id: str) -> dict[str, str]:
    """What the form for this job sends by itself."""
    form = text.partition(f'id="a-{job_id}-')[2].partition("</form>")[0]
    found = re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)">', form)
    return {html.unescape(name): html.unescape(value) for name, value in found}


def answer(operator: Viewer, job_id: str, **given: str) -> str:
    fields = fields_of(operator.page("/questions"), job_id)
    return operator.reported(operator.do("question.answer", **fields, **given))


def test_the_oldest_question_comes_first(app: Leasehold, viewer: Viewer):
    first = ask(app, "first", "Shall I\nbegin?", {"type": "boolean"}, group="task/42")
    second = ask(app, "second", "And then?", timeout=3600)
    text = viewer.page("/questions")
    assert text.index(first) < text.index(second)
    for part in ("Shall I\nbegin?", "task/42", "greet", "agents", "expires", "Your role is read-only"):
        assert part in text
    assert "/do/" not in text.partition("<main")[2]
    only = viewer.page("/questions", group="task/42")
    assert first in only
    assert second not in only
    assert "No matching questions" in viewer.page("/questions", task="add")


@pytest.mark.parametrize(
    ("schema", "given", "value"),
    [
        ({"type": "boolean"}, {"a": "1"}, False),
        ({"enum": ["x", 2]}, {"a": "1"}, 2),
        ({"type": "integer", "minimum": 1}, {"a": "12"}, 12),
        ({"type": "array", "items": {"enum": ["x", "y"]}}, {"a": '["y"]'}, ["y"]),
        ({"type": "object", "properties": {"n": {"type": "string"}}}, {"a.0": "z"}, {"n": "z"}),
        ({"type": "object"}, {"a": '{"k": 1}'}, {"k": 1}),
        (None, {"a": "[1]"}, "[1]"),
        (None, {"a": "[1]", "a.json": "1"}, [1]),
    ],
)
def test_an_answer_is_the_value_that_the_form_means(
    app: Leasehold, operator: Viewer, schema: Any, given: dict[str, str], value: Any
):
    job_id = ask(app, schema=schema)
    assert answer(operator, job_id, **given) == "Answered. The job greet continues."
    (question,) = app.get(job_id).questions()
    assert json.loads(question.answer) == value
    entry = app.audit(limit=1).entries[0]
    assert (entry.verb, entry.target, entry.actor) == ("question.answer", job_id, "dashboard:token 0")
    assert "No open questions" in operator.page("/questions")


def test_a_wrong_answer_is_refused_with_its_field(app: Leasehold, operator: Viewer):
    schema = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 3}}, "required": ["n"]}
    job_id = ask(app, schema=schema)
    assert answer(operator, job_id, **{"a.0": "many"}) == "N: is not a whole number; write it in digits"
    assert "$.n is more than 3" in answer(operator, job_id, **{"a.0": "4"})
    assert app.get(job_id).state == "waiting"
    fields = fields_of(operator.page("/questions"), job_id)
    changed = operator.reported(operator.do("question.answer", **fields | {"stamp": "old", "a.0": "1"}))
    assert "has changed meanwhile" in changed
    operator.do("question.answer", **fields, **{"a.0": "1"})
    again = operator.reported(operator.do("question.answer", **fields, **{"a.0": "1"}))
    assert "is not open any more" in again


def test_a_paused_job_keeps_the_answer(app: Leasehold, operator: Viewer):
    job_id = ask(app, schema={"type": "boolean"})
    app.get(job_id).pause()
    assert "It gets the answer when it is resumed" in operator.page("/questions")
    assert "is paused and gets the answer" in answer(operator, job_id, a="0")


def test_a_secret_answer_is_nowhere(app: Leasehold, operator: Viewer, admin: Viewer, backend: Backend):
    job_id = ask(app, schema={"type": "string", "maxLength": 9}, secret=True)
    text = operator.page("/questions")
    assert re.search(r'<input [^>]*type="password"[^>]*>', text)
    assert "Secret" in text
    refused = operator.do("question.answer", **fields_of(text, job_id), a=SECRET)
    assert SECRET not in str(refused.headers) + refused.text
    assert "is longer than 9" in operator.reported(refused)
    done = operator.do("question.answer", **fields_of(text, job_id), a=SECRET[:7])
    assert operator.reported(done) == "Answered. The job greet continues."
    pages = [operator.page(path) for path in ("/questions", f"/jobs/{job_id}")] + [admin.page("/system")]
    assert not any(SECRET[:7] in page for page in pages)


def test_who_may_not_answers_nothing(app: Leasehold, viewer: Viewer, operator: Viewer, dashboard: Dashboard):
    job_id = ask(app, schema={"type": "boolean"})
    fields = fields_of(operator.page("/questions"), job_id)
    assert viewer.do("question.answer", **fields, a="0").status_code == 403
    limited = dashboard.viewer("read", "operate", queues=["default"])
    assert job_id not in limited.page("/questions")
    assert "no job has the id" in limited.reported(limited.do("question.answer", **fields, a="0"))
    assert app.get(job_id).state == "waiting"


def test_words_of_others_are_escaped(app: Leasehold, operator: Viewer):
    schema = {"enum": [HOSTILE, "b"], "title": HOSTILE, "description": HOSTILE}
    job_id = ask(app, HOSTILE, HOSTILE, schema, group=HOSTILE)
    text = operator.page("/questions")
    assert "<script>alert" not in text
    assert text.count("&lt;script&gt;alert") >= 5
    assert "continues" in answer(operator, job_id, a="0")
    assert json.loads(app.get(job_id).questions()[0].answer) == HOSTILE

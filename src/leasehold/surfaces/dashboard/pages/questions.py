"""Questions: the open questions of jobs, each with a form made from its schema."""

from __future__ import annotations

import hashlib
from typing import Any

from leasehold.domain.errors import InvalidInput
from leasehold.domain.frozen import frozen
from leasehold.domain.job import Question
from leasehold.domain.records import OpenQuestion
from leasehold.domain.states import State
from leasehold.operations import questions
from leasehold.surfaces.dashboard.action import Done, of
from leasehold.surfaces.dashboard.forms import Form
from leasehold.surfaces.dashboard.page import Page
from leasehold.surfaces.dashboard.page_request import PageRequest
from leasehold.surfaces.dashboard.schema_form import Field, form_of, value_of

ROWS = 50
CRITERIA = ("task", "queue", "group")


@frozen
class ShownQuestion:
    question: OpenQuestion
    form: Field
    id: str
    """The id of the form on the page; a question's key can be any text."""
    stamp: str


def read(page_request: PageRequest) -> dict[str, Any]:
    query = page_request.request.query_params
    requested = {name: query.get(name, "").strip() for name in CRITERIA}
    wanted = {name: value or None for name, value in requested.items()}
    found = page_request.operations.open_questions(**wanted, limit=ROWS + 1)
    rows = page_request.caller.visible_rows(found[:ROWS])
    return {
        "questions": [_shown(row) for row in rows],
        "more": len(found) > ROWS,
        "requested": requested,
        "is_for_all": not any(requested.values()),
    }


def _shown(row: OpenQuestion) -> ShownQuestion:
    key = hashlib.sha256(row.key.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return ShownQuestion(row, form_of(row.schema, secret=row.secret), f"{row.job_id}-{key}", _stamp(row))


def _stamp(question: OpenQuestion | Question) -> str:
    """A digest of the question that the user read: the job may have asked again with the same key and another form."""
    text = f"{question.text}\0{question.schema}\0{question.secret}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _answer(page_request: PageRequest, form: Form) -> Done:
    job, key = page_request.caller.job(form.text("job")), form.text("key")
    question = next((one for one in job.questions() if one.key == key and one.status == "open"), None)
    if question is None:
        raise InvalidInput("question", "is not open any more", "it was answered, or it has expired")
    if form.maybe("stamp") != _stamp(question):
        raise InvalidInput("question", "has changed meanwhile", "read it again, then answer it")
    value = value_of(form_of(question.schema, secret=question.secret), form.fields)
    after = job.answer(key, value, actor=page_request.caller.actor)
    match after.state:
        case State.PAUSED:
            return Done(f"Answered. The job {after.task} is paused and gets the answer when it is resumed.")
        case State.WAITING:
            return Done(f"Answered. The job {after.task} still waits for other answers.")
    return Done(f"Answered. The job {after.task} continues.")


PAGE = Page("questions", "questions", "questions.html", read)
ACTIONS = (of(questions.answer, _answer),)

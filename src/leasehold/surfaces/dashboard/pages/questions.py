"""Questions: the inbox of what jobs ask, each with a form made from its schema."""

from __future__ import annotations

import hashlib
from typing import Any

from leasehold.domain.errors import InvalidInput
from leasehold.domain.frozen import frozen
from leasehold.domain.job import Question
from leasehold.domain.states import State
from leasehold.domain.views import OpenQuestion
from leasehold.surfaces.dashboard.action import Action, Done
from leasehold.surfaces.dashboard.forms import Form
from leasehold.surfaces.dashboard.page import Page
from leasehold.surfaces.dashboard.schema_form import Field, form_of, value_of
from leasehold.surfaces.dashboard.visit import Visit

ROWS = 50
CRITERIA = ("kind", "queue", "group")


@frozen
class Asked:
    question: OpenQuestion
    form: Field
    id: str
    """Its own on the page; a key can be any text."""
    stamp: str


def read(visit: Visit) -> dict[str, Any]:
    query = visit.request.query_params
    asked = {name: query.get(name, "").strip() for name in CRITERIA}
    wanted = {name: value or None for name, value in asked.items()}
    found = visit.operations.open_questions(**wanted, limit=ROWS + 1)
    rows = visit.who.seen(found[:ROWS])
    return {
        "questions": [_asked(row) for row in rows],
        "more": len(found) > ROWS,
        "asked": asked,
        "is_for_all": not any(asked.values()),
    }


def _asked(row: OpenQuestion) -> Asked:
    key = hashlib.sha256(row.key.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return Asked(row, form_of(row.schema, secret=row.secret), f"{row.job_id}-{key}", _stamp(row))


def _stamp(question: OpenQuestion | Question) -> str:
    """What was read when the answer was given: a key can be asked anew, with another form."""
    text = f"{question.text}\0{question.schema}\0{question.secret}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _answer(visit: Visit, form: Form) -> Done:
    job, key = visit.who.job(form.text("job")), form.text("key")
    question = next((one for one in job.questions() if one.key == key and one.status == "open"), None)
    if question is None:
        raise InvalidInput("question", "is not open any more", "it was answered, or its time is over")
    if form.maybe("stamp") != _stamp(question):
        raise InvalidInput("question", "has changed meanwhile", "read it again, and answer it then")
    value = value_of(form_of(question.schema, secret=question.secret), form.fields)
    after = job.answer(key, value, actor=visit.who.actor)
    match after.state:
        case State.PAUSED:
            return Done(f"Answered. The job {after.kind} is paused and gets the answer when it is resumed.")
        case State.WAITING:
            return Done(f"Answered. The job {after.kind} still waits for other answers.")
    return Done(f"Answered. The job {after.kind} continues.")


PAGE = Page("questions", "questions", "questions.html", read)
ACTIONS = (Action("question.answer", "operate", _answer),)

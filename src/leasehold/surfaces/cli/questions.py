"""`questions list|answer`: the open questions of jobs, and their answers."""

from __future__ import annotations

from leasehold.operations import questions as verbs
from leasehold.surfaces.cli import render
from leasehold.surfaces.cli.command import noun
from leasehold.surfaces.cli.verbs import add

questions = noun("questions")

add(
    questions,
    verbs.open_questions,
    columns={
        "id": "job_id",
        "key": "key",
        "task": "task",
        "group": "group",
        "asked": lambda question: render.ago(question.asked_at),
        "expires": lambda question: render.ago(question.expires_at),
        "question": lambda question: render.cut(question.text, 80),
    },
    empty="no open questions; a job asks one with ctx.ask",
    ids=True,
)
add(questions, verbs.answer)

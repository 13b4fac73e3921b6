"""`questions list|answer`: what jobs ask people."""

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
        "asked": lambda requested: render.ago(requested.asked_at),
        "expires": lambda requested: render.ago(requested.expires_at),
        "question": lambda requested: render.cut(requested.text, 80),
    },
    empty="no open questions; a job asks one with ctx.ask",
    ids=True,
)
add(questions, verbs.answer)

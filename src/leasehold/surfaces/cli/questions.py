"""`questions list|answer`: what jobs ask people."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer

from leasehold.surfaces.cli import options, render
from leasehold.surfaces.cli.command import Call, command, noun

questions = noun("questions")


@command(questions, "list")
def list_questions(
    call: Call,
    queue: options.Queue = None,
    task: options.Task = None,
    group: options.Group = None,
    limit: options.Limit = 100,
) -> None:
    """List open questions, oldest first. With --json, include the schema of each answer."""
    found = call.app.questions.list(group=group, queue=queue, task=task, limit=limit)
    if call.as_json:
        with render.json_array() as add:
            for one in found:
                wanted = None if one.schema is None else json.loads(one.schema)
                add({**render.plain(one), "schema": wanted})
        return
    call.show(
        found,
        {
            "id": lambda requested: requested.job_id,
            "key": lambda requested: requested.key,
            "task": lambda requested: requested.task,
            "group": lambda requested: requested.group,
            "asked": lambda requested: render.ago(requested.asked_at),
            "expires": lambda requested: render.ago(requested.expires_at),
            "question": lambda requested: render.cut(requested.text, 80),
        },
        empty="no open questions; a job asks one with ctx.ask",
        ids=True,
    )


@command(questions, acts=True)
def answer(
    call: Call,
    job_id: options.JobId,
    key: Annotated[str, typer.Argument(metavar="KEY", help="Which of the job's questions.")],
    value: Annotated[
        str,
        typer.Argument(metavar="VALUE", help="JSON, or else text; '-' reads it from stdin, for secrets."),
    ],
) -> None:
    """Answer a question; a job that waits for it continues."""
    job = call.operations.answer(call.operations.find_id(job_id), key, _value(value), actor=call.actor)
    call.report({"id": job.id, "state": job.state}, f"{job.id} {job.state}")


def _value(text: str) -> Any:
    if text == "-":
        text = sys.stdin.read().removesuffix("\n")
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text

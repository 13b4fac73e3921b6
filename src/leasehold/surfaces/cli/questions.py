"""`questions` and `answer`: what jobs ask people."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer

from leasehold.surfaces.cli import options, render
from leasehold.surfaces.cli.load import open_app


def add_to(cli: typer.Typer) -> None:
    cli.command("questions")(list_questions)
    cli.command("answer")(answer)


def list_questions(
    queue: options.Queue = None,
    kind: options.Kind = None,
    group: options.Group = None,
    limit: Annotated[int, typer.Option(help="At most this many, up to 500.")] = 100,
    url: options.Url = None,
    schema: options.Schema = options.DEFAULT_SCHEMA,
    as_json: options.AsJson = False,
) -> None:
    """List open questions, oldest first. With --json, include the schema of each answer."""
    with open_app(url, schema) as app:
        found = app.questions.list(group=group, queue=queue, kind=kind, limit=limit)
        if as_json:
            with render.json_array() as add:
                for one in found:
                    wanted = None if one.schema is None else json.loads(one.schema)
                    add({**render.plain(one), "schema": wanted})
            return
        render.show(
            found,
            {
                "id": lambda asked: asked.job_id,
                "key": lambda asked: asked.key,
                "task": lambda asked: asked.kind,
                "group": lambda asked: asked.group_name,
                "asked": lambda asked: render.ago(asked.asked_at),
                "expires": lambda asked: render.ago(asked.expires_at),
                "question": lambda asked: render.cut(asked.text, 80),
            },
            empty="no open questions; a job asks one with ctx.ask",
            ids=app.__internals__.operations.short_ids,
        )


def answer(
    job_id: options.JobId,
    key: Annotated[str, typer.Argument(metavar="KEY", help="Which of the job's questions.")],
    value: Annotated[
        str,
        typer.Argument(metavar="VALUE", help="JSON, or else text; '-' reads it from stdin, for secrets."),
    ],
    actor: options.Actor = None,
    url: options.Url = None,
    schema: options.Schema = options.DEFAULT_SCHEMA,
    as_json: options.AsJson = False,
) -> None:
    """Answer a question; a job that waits for it continues."""
    with open_app(url, schema) as app:
        operations = app.__internals__.operations
        who = options.acting(actor)
        job = operations.answer(operations.find_id(job_id), key, _value(value), actor=who)
    if as_json:
        render.emit({"id": job.id, "state": job.state})
    else:
        print(f"{job.id} {job.state}")


def _value(text: str) -> Any:
    if text == "-":
        text = sys.stdin.read().removesuffix("\n")
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text

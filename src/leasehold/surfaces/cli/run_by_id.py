"""`run-by-id`: one job that somebody else has delivered the id of, run in this process."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from leasehold.domain.by_id import NotRun
from leasehold.domain.errors import InvalidInput
from leasehold.domain.states import State
from leasehold.surfaces.cli import options, render
from leasehold.surfaces.cli.load import APP_VARIABLE, load_app
from leasehold.surfaces.cli.logs import set_up_logging
from leasehold.surfaces.cli.problems import Exit, complain

if TYPE_CHECKING:
    from leasehold.types import Ran


def add_to(cli: typer.Typer) -> None:
    cli.command("run-by-id")(run_by_id)


def run_by_id(
    words: Annotated[
        list[str], typer.Argument(metavar="[MODULE:APP] ID", help="The app (or LEASEHOLD_APP), the job's id.")
    ],
    owner: Annotated[
        str | None, typer.Option(help="The owner of the lease; must be unique.", metavar="NAME")
    ] = None,
    wait: Annotated[
        str, typer.Option(help="How long to keep trying while it may become free.", metavar="DURATION")
    ] = "0s",
    as_json: options.AsJson = False,
) -> int:
    """Run one stored job in this process. Exits when the job has ended; Ctrl-C hands it back. Exit code 1: it ran and
    did not succeed; 3: no such job; 4: it cannot run now (with --json, retry_in says when to try again)."""
    set_up_logging("warning", as_json=False)
    app_name, job_id = _split(words)
    with load_app(app_name) as app:
        job_id = app.__internals__.operations.find_id(job_id)
        render.note(f"store: {app.__internals__.store.label}")
        answer = app.run_by_id(job_id, owner=owner, wait=wait)
        return _not_run(answer, as_json) if isinstance(answer, NotRun) else _ran(answer, as_json)


def _split(words: list[str]) -> tuple[str, str]:
    named = os.environ.get(APP_VARIABLE)
    if len(words) == 1 and named:
        return named, words[0]
    if len(words) != 2:
        raise InvalidInput("run-by-id", "needs MODULE:APP ID", "or set LEASEHOLD_APP, and give only the id")
    return words[0], words[1]


def _not_run(answer: NotRun, as_json: bool) -> int:
    later = "" if answer.retry_in is None else f"; try again in {answer.retry_in:.1f} s"
    if as_json:
        render.emit({"ran": False, **render.plain(answer)})
    else:
        complain(f"job {answer.job_id} was not run: {answer.why}{later}")
    return Exit.NOT_FOUND if answer.state is None else Exit.REFUSED


def _ran(answer: Ran, as_json: bool) -> int:
    job = answer.job
    if as_json:
        told = {"state": job.state, "attempt": job.attempt, "error": job.error, "retry_in": answer.retry_in}
        render.emit({"ran": True, "job_id": job.id, **told})
    else:
        print(f"{job.id} {job.state}")
    return Exit.OK if job.state is State.SUCCEEDED else Exit.JOB_FAILED

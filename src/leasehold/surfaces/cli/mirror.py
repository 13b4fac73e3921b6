"""`db mirror` and `db mirrors`: tables of the user's own, kept in step with the jobs of a task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, cast

import typer

from leasehold.domain.errors import InvalidInput
from leasehold.domain.mirror import FACTS, Mirror, Times, parse_words
from leasehold.surfaces.cli import options, render
from leasehold.surfaces.cli.load import open_app

if TYPE_CHECKING:
    from leasehold.app import Leasehold


def _column(what: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(help=f"Column for {what}.", metavar="COLUMN")
    return option


Column = str | None


def mirror(
    task: Annotated[str, typer.Argument(metavar="TASK", help="The task; it needs mirror=True.")],
    table: Annotated[str, typer.Option(help="Your table, or schema.table.", metavar="TABLE")],
    key: Annotated[Column, _column("the value by which a row is found")] = None,
    match: Annotated[
        str, typer.Option(help="Where that value comes from: argument:NAME or unique_key.", metavar="WHERE")
    ] = "unique_key",
    status: Annotated[Column, _column("the state")] = None,
    states: Annotated[
        str | None, typer.Option(help="Your word for each state.", metavar="STATE=WORD,…")
    ] = None,
    requested: Annotated[Column, _column("when it was enqueued")] = None,
    started: Annotated[Column, _column("when it first started")] = None,
    finished: Annotated[Column, _column("when it ended")] = None,
    updated: Annotated[Column, _column("when its state last changed")] = None,
    result: Annotated[Column, _column("the result, as JSON")] = None,
    result_ref: Annotated[Column, _column("the path of a result that is a file")] = None,
    exit_code: Annotated[Column, _column("the exit_code of a result that is an object")] = None,
    error: Annotated[Column, _column("the first line of the error")] = None,
    insert: Annotated[bool, typer.Option("--insert", help="Insert the row if there is none.")] = False,
    times: Annotated[
        str, typer.Option(help="How to write times on SQLite: iso, or unix seconds.", metavar="iso|unix")
    ] = "iso",
    apply: Annotated[bool, typer.Option("--apply", help="Run the SQL instead of printing it.")] = False,
    drop: Annotated[bool, typer.Option("--drop", help="Remove the mirror; your rows stay.")] = False,
    actor: options.Actor = None,
    url: options.Url = None,
    schema: options.Schema = options.DEFAULT_SCHEMA,
) -> None:
    """Print triggers that mirror a task's jobs in your table. With --apply, run them."""
    with open_app(url, schema) as app:
        operations = app.__internals__.operations
        if drop:
            wanted = operations.find_mirror(task, table)
            run, text = operations.remove_mirror, operations.unmirror_sql
        else:
            given = dict(
                zip(
                    FACTS,
                    (requested, started, finished, updated, result, result_ref, exit_code, error),
                    strict=True,
                )
            )
            wanted = Mirror(
                kind=task,
                table=table,
                key=_needed(key, "key"),
                argument=_argument(app, task, match),
                status=_needed(status, "status"),
                states=parse_words(_needed(states, "states")),
                columns={fact: column for fact, column in given.items() if column is not None},
                insert=insert,
                times=cast("Times", times),
            )
            run, text = operations.add_mirror, operations.mirror_sql
        if apply:
            run(wanted, actor=options.acting(actor))
            print(f"{app.__internals__.store.label}: {'dropped' if drop else 'created'} {wanted.name}")
        else:
            print(text(wanted))


def _needed(value: str | None, name: str) -> str:
    if value is None:
        raise InvalidInput(name, "is missing", f"give --{name}")
    return value


def _argument(app: Leasehold, task: str, match: str) -> str | None:
    """As it is stored. Without the app's code only the name itself is known."""
    if match == "unique_key":
        return None
    where, colon, name = match.partition(":")
    if where != "argument" or not colon:
        raise InvalidInput("match", f"{match!r} is not a source", "use argument:NAME or unique_key")
    tasks = app.__internals__.tasks
    return tasks.find(task).mirrored_argument(name) if tasks.definitions else name


def list_mirrors(
    url: options.Url = None,
    schema: options.Schema = options.DEFAULT_SCHEMA,
    as_json: options.AsJson = False,
) -> None:
    """List mirrors, and what is wrong with them."""
    with open_app(url, schema) as app:
        rows = app.__internals__.operations.list_mirrors()
    render.show(
        rows,
        {
            "task": lambda row: row.mirror.kind,
            "table": lambda row: row.mirror.table,
            "found by": lambda row: row.mirror.argument or "unique key",
            "state": lambda row: "; ".join(row.problems) or "ok",
        },
        as_json=as_json,
        empty="no mirrors; see leasehold db mirror --help",
    )

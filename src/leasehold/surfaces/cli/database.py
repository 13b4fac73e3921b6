"""`db upgrade|verify|sql|insert|mirror|mirrors` and `prune`: the database under the jobs."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from leasehold.domain.errors import InvalidInput
from leasehold.domain.retention import PruneChoice
from leasehold.surfaces.cli import mirror, options, render
from leasehold.surfaces.cli.load import APP_VARIABLE, load_app, open_app
from leasehold.surfaces.cli.problems import Exit
from leasehold.surfaces.cli.subcommands import command_group


def add_to(cli: typer.Typer) -> None:
    db = command_group("db", "Upgrade or check the schema, print SQL, manage mirrors.")
    db.command()(upgrade)
    db.command()(verify)
    db.command()(sql)
    db.command()(insert)
    db.command("mirror")(mirror.mirror)
    db.command("mirrors")(mirror.list_mirrors)
    cli.add_typer(db)
    cli.command()(prune)


def upgrade(
    actor: options.Actor = None,
    url: options.Url = None,
    schema: options.Schema = options.DEFAULT_SCHEMA,
    as_json: options.AsJson = False,
) -> None:
    """Create the schema, or bring it up to date. Safe to run from several places at once."""
    with open_app(url, schema, create=True) as app:
        applied = app.upgrade(actor=options.acting(actor))
        if as_json:
            render.emit({"store": app.__internals__.store.label, "applied": applied})
            return
        done = f"applied {', '.join(map(str, applied))}" if applied else "nothing to do"
        print(f"{app.__internals__.store.label}: {done}")


def verify(
    url: options.Url = None,
    schema: options.Schema = options.DEFAULT_SCHEMA,
    as_json: options.AsJson = False,
) -> int:
    """Check that the schema and mirrors are current and complete. Exit code 1: they are not."""
    with open_app(url, schema) as app:
        operations, tasks = app.__internals__.operations, app.__internals__.tasks.definitions
        lacking = operations.verify()
        wrong = [] if lacking else operations.verify_mirrors({n: d.settings.mirror for n, d in tasks.items()})
        label = app.__internals__.store.label
    if as_json:
        render.emit({"store": label, "missing": lacking, "mirrors": wrong})
    elif lacking:
        print(f"{label}: missing {', '.join(lacking)}")
    else:
        print(render.clean(f"{label}: " + ("; ".join(wrong) if wrong else "current and complete")))
    return Exit.JOB_FAILED if lacking or wrong else Exit.OK


def sql(
    after: Annotated[int, typer.Option(help="Only migrations after this version.", metavar="VERSION")] = 0,
    url: options.Url = None,
    schema: options.Schema = options.DEFAULT_SCHEMA,
) -> None:
    """Print the migrations as SQL, for someone who may run DDL. The schema need not exist yet."""
    with open_app(url, schema).__internals__.unchecked() as operations:
        print(operations.upgrade_sql(after))


def insert(
    words: Annotated[
        list[str],
        typer.Argument(metavar="[MODULE:APP] TASK", help="The app (or LEASEHOLD_APP) and the task's name."),
    ],
) -> None:
    """Print the SQL that enqueues a job of this task. For other languages and for psql. On PostgreSQL $1 is the id (a
    UUID that you choose; the same one again stores nothing) and $2 the arguments, a JSON object; on SQLite they are
    :id and :args. You may run it in your own transaction: its commit wakes the workers."""
    named = os.environ.get(APP_VARIABLE)
    if len(words) == 1 and named:
        words = [named, *words]
    if len(words) != 2:
        raise InvalidInput("insert", "needs an app and a task", "leasehold db insert MODULE:APP TASK")
    name, task = words
    with load_app(name) as app:
        print(app.__internals__.insert_sql(task))


def prune(
    older_than: Annotated[str, typer.Option(help="Ended longer ago than this.", metavar="DURATION")] = "7d",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what would be deleted.")] = False,
    override: Annotated[
        bool, typer.Option("--override", help="Ignore the retention that tasks set for their jobs.")
    ] = False,
    unique_for_ever: Annotated[
        bool,
        typer.Option("--unique-for-ever", help="Also jobs that hold a unique key for ever; frees the key."),
    ] = False,
    budgets: Annotated[
        bool, typer.Option("--budgets", help="Also groups without jobs that have a budget, with the budget.")
    ] = False,
    actor: options.Actor = None,
    url: options.Url = None,
    schema: options.Schema = options.DEFAULT_SCHEMA,
    as_json: options.AsJson = False,
) -> None:
    """Delete jobs that ended long ago. A task's own retention counts before --older-than. Jobs that halt a lane, that
    others wait for, or whose group is still live are kept."""
    choice = PruneChoice(dry_run, override, unique_for_ever, budgets)
    with open_app(url, schema) as app:
        operations = app.__internals__.operations
        for report in operations.prune_batches(older_than, choice, actor=options.acting(actor)):
            if sys.stderr.isatty():
                print(f"\r{report}", end="", file=sys.stderr, flush=True)
    if sys.stderr.isatty():
        print("\r\N{ESCAPE}[K", end="", file=sys.stderr)
    if as_json:
        render.emit(report)
        return
    print(report)
    if dry_run and report.counts:
        render.show(
            report.counts,
            {"task": lambda one: one.kind, "state": lambda one: one.state, "jobs": lambda one: one.jobs},
        )

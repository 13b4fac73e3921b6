"""`db upgrade|verify|sql` and `prune`: the database under the jobs."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from leasehold.surfaces.cli import options, render
from leasehold.surfaces.cli.load import open_app
from leasehold.surfaces.cli.problems import Exit


def add_to(cli: typer.Typer) -> None:
    db = typer.Typer(name="db", help="The schema.", rich_markup_mode=None)
    db.command()(upgrade)
    db.command()(verify)
    db.command()(sql)
    cli.add_typer(db)
    cli.command()(prune)


def upgrade(
    url: options.Url = None,
    schema: options.Schema = options.DEFAULT_SCHEMA,
    as_json: options.AsJson = False,
) -> None:
    """Bring the schema up to date. Safe to run from several places at once."""
    with open_app(url, schema, create=True) as app:
        applied = app.upgrade()
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
    """Check that the schema is current and complete. Exit code 1 when something is missing from it."""
    with open_app(url, schema) as app:
        lacking = app.__internals__.operations.verify()
        label = app.__internals__.store.label
    if as_json:
        render.emit({"store": label, "missing": lacking})
    else:
        print(f"{label}: " + (f"missing {', '.join(lacking)}" if lacking else "current and complete"))
    return Exit.JOB_FAILED if lacking else Exit.OK


def sql(
    after: Annotated[int, typer.Option(help="Only what follows this version.", metavar="VERSION")] = 0,
    url: options.Url = None,
    schema: options.Schema = options.DEFAULT_SCHEMA,
) -> None:
    """Print the migrations as a script, for whoever may run DDL. The schema need not be there yet."""
    with open_app(url, schema).__internals__.unchecked() as operations:
        print(operations.upgrade_sql(after))


def prune(
    older_than: Annotated[str, typer.Option(help="At rest for longer than this.", metavar="DURATION")] = "7d",
    url: options.Url = None,
    schema: options.Schema = options.DEFAULT_SCHEMA,
    as_json: options.AsJson = False,
) -> None:
    """Delete jobs that came to rest long ago; never what halts a lane or belongs to a group that lives."""
    deleted = 0
    with open_app(url, schema) as app:
        for went in app.__internals__.operations.prune_batches(older_than):
            deleted += went
            if sys.stderr.isatty():
                print(f"\r{deleted:,} deleted", end="", file=sys.stderr, flush=True)
    if sys.stderr.isatty():
        print("\r\N{ESCAPE}[K", end="", file=sys.stderr)
    if as_json:
        render.emit({"deleted": deleted})
    else:
        print(f"{deleted:,} deleted")

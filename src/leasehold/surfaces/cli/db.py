"""`db upgrade|verify|sql|insert|prune|sweep|mirror|mirrors` and `bench`: the database under the jobs, and its
speed."""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, cast

import typer

from leasehold.domain.errors import InvalidInput
from leasehold.domain.mirror import FACTS, Mirror, Times, parse_words
from leasehold.domain.retention import PruneChoice
from leasehold.operations import mirrors
from leasehold.surfaces.cli import render
from leasehold.surfaces.cli.command import CommandCall, command, noun
from leasehold.surfaces.cli.options import app_and_name
from leasehold.surfaces.cli.problems import Exit
from leasehold.threads import to_thread

if TYPE_CHECKING:
    from leasehold.app import Leasehold

db = noun("db")


@command(db, acts=True, tenant=False, create=True)
def upgrade(call: CommandCall) -> None:
    """Create the schema, or bring it up to date. Safe to run from several places at once."""
    applied = call.app.upgrade(actor=call.actor)
    done = f"applied {', '.join(map(str, applied))}" if applied else "nothing to do"
    call.report({"store": call.label, "applied": applied}, f"{call.label}: {done}")


@command(db)
def verify(call: CommandCall) -> int:
    """Check that the schema and mirrors are current and complete. Exit code 1: they are not."""
    tasks = call.app.__internals__.tasks.definitions
    lacking = call.operations.verify()
    mirrored = {name: task.settings.mirror for name, task in tasks.items()}
    wrong = [] if lacking else call.operations.call(mirrors.verify_mirrors, mirrored)
    found = f"missing {', '.join(lacking)}" if lacking else "; ".join(wrong) or "current and complete"
    facts = {"store": call.label, "missing": lacking, "mirrors": wrong}
    call.report(facts, render.clean(f"{call.label}: {found}"))
    return Exit.JOB_FAILED if lacking or wrong else Exit.OK


@command(db, tenant=False, json=False)
def sql(
    call: CommandCall,
    after: Annotated[int, typer.Option(help="Only migrations after this version.", metavar="VERSION")] = 0,
) -> None:
    """Print the migrations as SQL, for an administrator to run. The schema need not exist yet."""
    with call.app.__internals__.unchecked() as operations:
        print(operations.upgrade_sql(after))


@command(db, store=False, json=False)
def insert(
    call: CommandCall,
    words: Annotated[
        list[str],
        typer.Argument(metavar="[MODULE:APP] TASK", help="The app (or LEASEHOLD_APP) and the task's name."),
    ],
) -> None:
    """Print the SQL that enqueues a job of this task. It is for other languages and for psql. On PostgreSQL $1 is the
    id (a UUID that you choose; a second insert with the same id stores nothing) and $2 the arguments, a JSON object; on
    SQLite they are :id and :args. You may run it in your own transaction: its commit wakes the workers."""
    remedy = "leasehold db insert MODULE:APP TASK"
    name, task = app_and_name(words, InvalidInput("insert", "needs an app and a task", remedy))
    print(call.load(name).__internals__.insert_sql(task))


@command(db, acts=True)
def prune(
    call: CommandCall,
    older_than: Annotated[
        str, typer.Option(help="Delete jobs that ended longer ago than this.", metavar="DURATION")
    ] = "7d",
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
) -> None:
    """Delete jobs that ended long ago. A task's own retention takes precedence over --older-than. Jobs that halt a
    lane, that other jobs wait for, or whose group is still live are kept."""
    choice = PruneChoice(dry_run, override, unique_for_ever, budgets)
    for report in call.operations.prune_batches(older_than, choice, actor=call.actor):
        if sys.stderr.isatty():
            print(f"\r{report}", end="", file=sys.stderr, flush=True)
    if sys.stderr.isatty():
        print("\r\N{ESCAPE}[K", end="", file=sys.stderr)
    if call.as_json:
        render.emit(report)
        return
    print(report)
    if dry_run and report.counts:
        call.show(
            report.counts,
            {"task": lambda one: one.task, "state": lambda one: one.state, "jobs": lambda one: one.jobs},
        )


@command(db)
def sweep(
    call: CommandCall,
    wait: Annotated[
        str | None,
        typer.Option(
            help="How long to wait, at most, for the second look at missed leases.", metavar="DURATION"
        ),
    ] = None,
) -> None:
    """Take over jobs of lost workers, and end jobs past their deadline. Workers do this by themselves."""
    reaped = call.app.sweep(wait)
    if not call.as_json and not reaped:
        print("nothing was lost")
        return
    call.show(
        reaped,
        {
            "job": lambda lost: lost.id,
            "now": lambda lost: "running, no worker" if lost.orphan else lost.state.value,
            "lost by": lambda lost: lost.worker,
        },
    )


def _column(what: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(help=f"Column for {what}.", metavar="COLUMN")
    return option


Column = str | None


@command(db, acts=True, json=False)
def mirror(
    call: CommandCall,
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
    result_ref: Annotated[Column, _column("where a result is that is not in its row")] = None,
    exit_code: Annotated[Column, _column("the exit_code of a result that is an object")] = None,
    error: Annotated[Column, _column("the first line of the error")] = None,
    insert: Annotated[bool, typer.Option("--insert", help="Insert the row if there is none.")] = False,
    times: Annotated[
        str, typer.Option(help="How to write times on SQLite: iso, or unix seconds.", metavar="iso|unix")
    ] = "iso",
    apply: Annotated[bool, typer.Option("--apply", help="Run the SQL instead of printing it.")] = False,
    drop: Annotated[bool, typer.Option("--drop", help="Remove the mirror; your rows stay.")] = False,
) -> None:
    """Print triggers that mirror a task's jobs in your table. With --apply, run them."""
    operations = call.operations
    if drop:
        wanted = operations.call(mirrors.find_mirror, task, table)
        verb, text = mirrors.remove_mirror, operations.unmirror_sql
    else:
        given = dict(
            zip(
                FACTS,
                (requested, started, finished, updated, result, result_ref, exit_code, error),
                strict=True,
            )
        )
        wanted = Mirror(
            task=task,
            table=table,
            key=_needed(key, "key"),
            argument=_argument(call.app, task, match),
            status=_needed(status, "status"),
            states=parse_words(_needed(states, "states")),
            columns={fact: column for fact, column in given.items() if column is not None},
            insert=insert,
            times=cast("Times", times),
        )
        verb, text = mirrors.add_mirror, operations.mirror_sql
    if apply:
        operations.call(verb, wanted.task, wanted, actor=call.actor)
        print(f"{call.label}: {'dropped' if drop else 'created'} {wanted.name}")
    else:
        print(text(wanted))


def _needed(value: str | None, name: str) -> str:
    if value is None:
        raise InvalidInput(name, "is missing", f"give --{name}")
    return value


def _argument(app: Leasehold, task: str, match: str) -> str | None:
    """The argument's name as it is stored. Without the app's tasks, the name is taken as given."""
    if match == "unique_key":
        return None
    where, colon, name = match.partition(":")
    if where != "argument" or not colon:
        raise InvalidInput("match", f"{match!r} is not a source", "use argument:NAME or unique_key")
    tasks = app.__internals__.tasks
    return tasks.find(task).mirrored_argument(name) if tasks.definitions else name


@command(db, "mirrors")
def list_mirrors(call: CommandCall) -> None:
    """List mirrors, and their problems."""
    rows = call.operations.call(mirrors.list_mirrors)
    call.show(
        rows,
        {
            "task": lambda row: row.mirror.task,
            "table": lambda row: row.mirror.table,
            "found by": lambda row: row.mirror.argument or "unique key",
            "state": lambda row: "; ".join(row.problems) or "ok",
        },
        empty="no mirrors; see leasehold db mirror --help",
    )


# -- `bench` -----------------------------------------------------------------------------------------------------------

ONE_BY_ONE = 200
BENCH_PROBES = 50
BENCH_BULK = 1000


@command(tenant=False, create=True)
def bench(
    call: CommandCall,
    jobs: Annotated[int, typer.Option(min=1, help="No-op jobs to drain.", metavar="NUMBER")] = 20_000,
    concurrency: Annotated[int, typer.Option(min=1, help="Async jobs at once.", metavar="NUMBER")] = 1000,
) -> None:
    """Measure enqueue, drain and pick-up on your database. It makes a store of its own, and removes it afterwards."""
    with _scratch(call.app) as app:
        label = app.__internals__.store.label
        figures = asyncio.run(_measure(app, jobs, concurrency))
    if call.as_json:
        render.emit({"store": label, "jobs": jobs, "concurrency": concurrency} | figures)
        return
    print(f"{label}, {jobs:,} no-op jobs, concurrency {concurrency:,}, one process:")
    render.table(
        ("what", "figure"),
        [
            ("enqueue one at a time, jobs/s", f"{figures['enqueue']:,.0f}"),
            ("enqueue in bulk, jobs/s", f"{figures['bulk']:,.0f}"),
            ("drain, jobs/s", f"{figures['drain']:,.0f}"),
            ("pick-up by an idle worker, ms (median)", f"{figures['pickup_ms']:.1f}"),
        ],
    )


@contextmanager
def _scratch(beside: Leasehold) -> Iterator[Leasehold]:
    """An app without tasks on an empty store beside the store of the given app."""
    from leasehold.app import Leasehold

    internals = beside.__internals__
    with (
        internals.scratch_place() as (url, schema),
        Leasehold(url, schema=schema, pooler=internals.location.pooler) as app,
    ):
        app.upgrade()
        yield app


async def _measure(app: Leasehold, jobs: int, concurrency: int) -> dict[str, float]:
    began: list[float] = []

    @app.task
    async def noop() -> None:
        began.append(time.perf_counter())

    with _progress(2 * jobs + ONE_BY_ONE + BENCH_PROBES) as advance:

        def one_by_one() -> float:
            noop.enqueue()
            start = time.perf_counter()
            for _ in range(ONE_BY_ONE):
                noop.enqueue()
                advance(1)
            return ONE_BY_ONE / (time.perf_counter() - start)

        def in_bulk() -> float:
            start = time.perf_counter()
            for first in range(0, jobs, BENCH_BULK):
                many = min(BENCH_BULK, jobs - first)
                noop.enqueue_many([{}] * many)
                advance(many)
            return jobs / (time.perf_counter() - start)

        enqueue = await to_thread(one_by_one)
        bulk = await to_thread(in_bulk)
        waiting = jobs + ONE_BY_ONE + 1
        async with app.worker(concurrency=concurrency, retention=None) as worker:
            reported = 0
            while worker.attempts.ended < waiting:
                await asyncio.sleep(0.005)
                advance(min(worker.attempts.ended, jobs) - reported)
                reported = min(worker.attempts.ended, jobs)
            drain = waiting / (time.perf_counter() - began[0])
            waits = []
            for _ in range(BENCH_PROBES):
                await asyncio.sleep(0.02)
                began.clear()
                start = time.perf_counter()
                await noop.aenqueue()
                while not began:
                    await asyncio.sleep(0.0005)
                waits.append(1000 * (began[0] - start))
                advance(1)
    return {"enqueue": enqueue, "bulk": bulk, "drain": drain, "pickup_ms": statistics.median(waits)}


@contextmanager
def _progress(total: int) -> Iterator[render.Advance]:
    """A progress bar, on a terminal only."""
    if not render.on_terminal():
        yield lambda _: None
        return
    from rich.progress import Progress

    with Progress(console=render.console(stderr=True), transient=True) as progress:
        task = progress.add_task("measuring", total=total)
        yield lambda steps: progress.advance(task, steps)

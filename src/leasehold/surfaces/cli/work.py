"""`worker`, `enqueue` and `run-now`: the commands that need the tasks themselves."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from leasehold.domain.audit import KEPT_FOR
from leasehold.domain.errors import InvalidInput
from leasehold.surfaces.cli import options, render
from leasehold.surfaces.cli.load import APP_VARIABLE, load_app
from leasehold.surfaces.cli.problems import Exit

if TYPE_CHECKING:
    from leasehold.operations.operations import Operations
    from leasehold.types import CallOptions, Job, QueueOrder, Worker

LAST_WORDS = 3.0
"""Seconds that a worker which has ended gets to leave; a thread of a handler may hang and hold it back."""


def add_to(cli: typer.Typer) -> None:
    cli.command()(worker)
    cli.command()(enqueue)
    cli.command("run-now")(run_now)


def worker(
    app: options.AppName,
    queues: Annotated[str, typer.Option(help="Queues to serve.", metavar="A,B")] = "default",
    queue_order: Annotated[
        str,
        typer.Option(help="turns: each queue gets its share; strict: in the order given.", metavar="ORDER"),
    ] = "turns",
    concurrency: Annotated[int, typer.Option(help="Async jobs at once.")] = 20,
    threads: Annotated[int, typer.Option(help="Plain functions at once.")] = 8,
    max_executions: Annotated[int, typer.Option(help="Commands and containers at once.")] = 50,
    shutdown_grace: Annotated[
        str | None,
        typer.Option(
            help="How long running jobs may take to finish when the worker drains; 'none': as long as they need. "
            "Default: SHUTDOWN_GRACE_PERIOD_SECONDS in the environment, else 300.",
            metavar="DURATION",
            show_default=False,
        ),
    ] = None,
    burst: Annotated[bool, typer.Option("--burst", help="End when there is nothing left to do.")] = False,
    poll: Annotated[float, typer.Option(help="Seconds between polls when no wake-up comes.")] = 1.0,
    sweep: Annotated[float, typer.Option(help="Seconds between searches for lost leases.")] = 5.0,
    stop_grace: Annotated[
        float, typer.Option(help="Seconds a handler gets to obey a stop before it is abandoned.")
    ] = 10.0,
    retention: Annotated[
        str,
        typer.Option(help="Age at which finished jobs are pruned; 'none' keeps them.", metavar="DURATION"),
    ] = "7d",
    audit_retention: Annotated[
        str,
        typer.Option(help="Age at which the audit is pruned; 'none' keeps it.", metavar="DURATION"),
    ] = KEPT_FOR,
    tenants: Annotated[
        str,
        typer.Option(
            help="Serve these tenants in turn, not the app's own jobs; 'all': every tenant, and the app's own jobs.",
            metavar="A,B",
        ),
    ] = "",
    listen_url: Annotated[
        str | None,
        typer.Option(help="A PostgreSQL URL that bypasses the pooler, for wake-ups.", metavar="URL"),
    ] = None,
    health_file: Annotated[
        str | None,
        typer.Option(help="Touched while the worker is healthy, removed while it is not.", metavar="PATH"),
    ] = None,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.", metavar="LEVEL")] = "info",
    log_json: Annotated[bool, typer.Option("--log-json", help="One JSON object per line.")] = False,
) -> int:
    """Run jobs until SIGTERM or Ctrl-C. A second signal stops the running jobs at once."""
    import asyncio
    import logging

    from leasehold.surfaces.cli.logs import set_up_logging

    set_up_logging(log_level, log_json)
    with load_app(app) as found:
        made = found.worker(
            queues=queues,
            queue_order=cast("QueueOrder", queue_order),
            concurrency=concurrency,
            threads=threads,
            max_executions=max_executions,
            shutdown_grace=... if shutdown_grace is None else _or_none(shutdown_grace),
            drain_on_sigterm=False,  # it is ours: see _serve
            retention=_or_none(retention),
            audit_retention=_or_none(audit_retention),
            burst=burst,
            poll=poll,
            sweep=sweep,
            stop_grace=stop_grace,
            listen_url=listen_url,
            tenants=tenants,
            health_file=health_file,
        )
        logging.getLogger("leasehold.worker").info("store: %s", found.__internals__.store.label)
        asyncio.run(_serve(made))
    return Exit.GAVE_UP if made.gave_up else Exit.OK


async def _serve(worker: Worker) -> None:
    import asyncio
    import signal

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, worker.request_drain)
    await worker.run()
    _leave_in_time(Exit.GAVE_UP if worker.gave_up else Exit.OK)


def _leave_in_time(code: int) -> None:
    """A thread that hangs, such as an `asyncio.to_thread` of a handler, must not keep the process from ending."""
    import logging
    import threading

    def leave() -> None:
        logging.getLogger("leasehold.worker").warning("a thread does not end; exiting without it")
        sys.stdout.flush()
        os._exit(code)

    timer = threading.Timer(LAST_WORDS, leave)
    timer.daemon = True
    timer.start()


def enqueue(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[MODULE:APP] TASK [JSON]",
            help="The app (or LEASEHOLD_APP), the task's name, its arguments as a JSON object ('-': from stdin).",
        ),
    ],
    delay: Annotated[
        str, typer.Option(help="Do not start it before this long from now.", metavar="DURATION")
    ] = "0",
    priority: Annotated[
        str | None, typer.Option(help="-100 to 100, high, medium or low.", metavar="PRIORITY")
    ] = None,
    queue: Annotated[str | None, typer.Option(help="A queue other than the task's.", metavar="NAME")] = None,
    lane: Annotated[str | None, typer.Option(help="Run it in this lane.", metavar="NAME")] = None,
    group: Annotated[str | None, typer.Option(help="Make it a member of this group.", metavar="NAME")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Tag it; may be repeated.", metavar="NAME")] = None,
    hold: Annotated[bool, typer.Option("--hold", help="Keep it pending until it is released.")] = False,
    unique: Annotated[str | None, typer.Option(help="Its unique key.", metavar="KEY")] = None,
    wait: Annotated[
        str | None,
        typer.Option(help="Wait up to this long for its end, and print its result.", metavar="DURATION"),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Store a job and print its id. With --wait, wait for it and print its result. Exit code 1: it did not succeed;
    5: it has not ended yet."""
    from leasehold.domain.checks.durations import seconds

    name, task, text = _split(words, "enqueue")
    given = {"queue": queue, "lane": lane, "group": group, "unique": unique, "tags": tuple(tag or ()) or None}
    settings: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    if priority is not None:
        settings["priority"] = _number(priority)
    longest = None if wait is None else seconds(wait, "wait")
    with load_app(name) as app:
        job = app.enqueue(task, _arguments(text), delay=delay, hold=hold, **settings)
        render.note(f"store: {app.__internals__.store.label}")
        if longest is None:
            _print_new(job.id, job.created, as_json)
        else:
            _print_result(app.__internals__.operations, job, longest, as_json)


def run_now(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[MODULE:APP] TASK [JSON]",
            help="The app (or LEASEHOLD_APP), the task's name, its arguments as a JSON object ('-': from stdin).",
        ),
    ],
    max_running: Annotated[
        int | None, typer.Option(help="A limit other than the task's.", metavar="NUMBER")
    ] = None,
    wait: Annotated[
        str | None,
        typer.Option(help="Wait up to this long for its end, and print its result.", metavar="DURATION"),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Run a job in this process at once, or be refused. Exit code 4: the task already runs --max-running times.
    Prints the job's id, or with --wait its result, and exits when the run has ended; Ctrl-C stops it."""
    from leasehold.domain.checks.durations import seconds
    from leasehold.surfaces.cli.logs import set_up_logging

    set_up_logging("warning", as_json=False)
    name, task, text = _split(words, "run-now")
    longest = None if wait is None else seconds(wait, "wait")
    settings: CallOptions = {} if max_running is None else {"max_running": max_running}
    with load_app(name) as app:
        named = app.__internals__.named_task(task, settings)
        job = named.run_now(**_arguments(text))
        render.note(f"store: {app.__internals__.store.label}")
        if longest is None:
            _print_new(job.id, job.created, as_json)
            sys.stdout.flush()
        else:
            _print_result(app.__internals__.operations, job, longest, as_json)


def _print_new(job_id: str, created: bool, as_json: bool) -> None:
    if as_json:
        render.emit({"id": job_id, "created": created})
    else:
        print(job_id)
        if not created:
            render.note("not a new job: this one already holds the unique key")


def _print_result(operations: Operations, job: Job[Any], longest: float, as_json: bool) -> None:
    render.note(f"job {job.id}")
    job.result(longest)
    result = operations.result_text(job.__row__)
    if as_json:
        found = None if result is None else json.loads(result)
        render.emit({"id": job.id, "created": job.created, "state": job.state, "result": found})
    else:
        print("null" if result is None else render.safe_json(result))


def _split(words: list[str], command: str) -> tuple[str, str, str]:
    """[MODULE:APP] TASK [JSON]: arguments are an object, so they begin with a brace, which no name does."""
    *names, last = words
    arguments = "{}"
    if last == "-" or last.lstrip().startswith("{"):
        arguments = last
    else:
        names.append(last)
    named = os.environ.get(APP_VARIABLE)
    if len(names) == 1 and named:
        return named, names[0], arguments
    if len(names) != 2:
        raise InvalidInput(command, "needs MODULE:APP TASK [JSON]", "such as: tasks:app add '{\"a\": 1}'")
    return names[0], names[1], arguments


def _arguments(text: str) -> dict[str, Any]:
    try:
        found = json.loads(sys.stdin.read() if text == "-" else text)
    except ValueError as error:
        raise InvalidInput(
            "JSON", f"cannot be read ({error})", "give the arguments as a JSON object"
        ) from None
    if not isinstance(found, dict):
        raise InvalidInput("JSON", "is not an object", 'name the arguments, such as {"a": 1}')
    return found


def _number(priority: str) -> int | str:
    try:
        return int(priority)
    except ValueError:
        return priority


def _or_none(text: str) -> str | None:
    return None if text.strip().lower() == "none" else text

"""`worker`: runs jobs until it gets a signal."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated, cast

import typer

from leasehold.domain.audit import KEPT_FOR
from leasehold.surfaces.cli import options
from leasehold.surfaces.cli.options import load_app
from leasehold.surfaces.cli.problems import Exit

if TYPE_CHECKING:
    from leasehold.types import QueueOrder, Worker

EXIT_GRACE = 3.0
"""Seconds that the process gets to exit after the worker has ended: a thread of a handler may hang."""


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
        float, typer.Option(help="Seconds a handler gets to obey a stop before it is left behind.")
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
    log_level: options.LogLevel = "info",
    log_json: options.LogJson = False,
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
            drain_on_sigterm=False,  # _serve handles the signals
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
    """Exit even if a thread hangs, such as an `asyncio.to_thread` of a handler."""
    import logging
    import threading

    def leave() -> None:
        logging.getLogger("leasehold.worker").warning("a thread does not end; exiting without it")
        sys.stdout.flush()
        os._exit(code)

    timer = threading.Timer(EXIT_GRACE, leave)
    timer.daemon = True
    timer.start()


def _or_none(text: str) -> str | None:
    return None if text.strip().lower() == "none" else text

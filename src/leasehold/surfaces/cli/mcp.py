"""`mcp`: the MCP server over stdin and stdout, as clients start it."""

from __future__ import annotations

from typing import Annotated

import typer

from leasehold.surfaces.cli import options
from leasehold.surfaces.cli.load import load_app
from leasehold.surfaces.cli.problems import Exit


def add_to(cli: typer.Typer) -> None:
    cli.command()(mcp)


def check_mcp() -> None:
    """Raises DriverMissing where the extra is not installed."""
    import importlib.util

    from leasehold.domain.errors import DriverMissing

    if importlib.util.find_spec("mcp") is None:
        raise DriverMissing("mcp", "mcp")


def mcp(
    app: options.AppName,
    scope: Annotated[
        list[str] | None,
        typer.Option(
            help="What the client may do: read, enqueue or operate; may be repeated. Default: all three.",
            metavar="SCOPE",
            show_default=False,
        ),
    ] = None,
    tenant: Annotated[
        str | None,
        typer.Option(
            help="Work on this tenant's jobs, not the app's own.",
            metavar="NAME",
            envvar="LEASEHOLD_TENANT",
        ),
    ] = None,
    with_worker: Annotated[
        bool, typer.Option("--with-worker", help="Also run jobs in this process.")
    ] = False,
    queues: Annotated[str, typer.Option(help="Queues of that worker.", metavar="A,B")] = "default",
    concurrency: Annotated[
        int, typer.Option(help="Async jobs at once in that worker.", metavar="NUMBER")
    ] = 20,
    log_level: Annotated[
        str, typer.Option(help="debug, info, warning or error.", metavar="LEVEL")
    ] = "warning",
    log_json: Annotated[bool, typer.Option("--log-json", help="One JSON object per line.")] = False,
) -> int:
    """Serve MCP over stdin and stdout, until the client leaves. For MCP over HTTP: leasehold serve --mcp."""
    import asyncio

    from leasehold.domain.tokens import checked_scopes
    from leasehold.surfaces.cli.logs import set_up_logging

    check_mcp()
    from leasehold.surfaces.serve_stdio import serve_stdio

    set_up_logging(log_level, log_json)
    scopes = checked_scopes(scope or ("read", "enqueue", "operate"))
    with load_app(app) as found:
        worker = None
        if with_worker:
            worker = found.worker(
                queues=queues,
                concurrency=concurrency,
                drain_on_sigterm=False,
                tenants="" if tenant is None else tenant,
            )
        asyncio.run(serve_stdio(found, scopes, tenant, worker))
    return Exit.GAVE_UP if worker is not None and worker.gave_up else Exit.OK

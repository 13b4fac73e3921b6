"""`serve` and `mcp`: the HTTP API, the dashboard and MCP, optionally with a worker."""

from __future__ import annotations

from typing import Annotated

import typer

from leasehold.domain.errors import need_extra
from leasehold.surfaces.cli import options
from leasehold.surfaces.cli.options import load_app
from leasehold.surfaces.cli.problems import Exit

WithWorker = Annotated[bool, typer.Option("--with-worker", help="Also run jobs in this process.")]
Queues = Annotated[str, typer.Option(help="Queues of that worker.", metavar="A,B")]
Concurrency = Annotated[int, typer.Option(help="Async jobs at once in that worker.", metavar="NUMBER")]


def serve(
    app: options.AppName,
    host: Annotated[
        str,
        typer.Option(
            help="The address to listen on. Any other than loopback needs tokens.", metavar="ADDRESS"
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="The port to listen on. 0: any free port.", metavar="NUMBER", min=0, max=65535)
    ] = 8700,
    require_tokens: Annotated[
        bool, typer.Option("--require-tokens", help="Require tokens on loopback, too.")
    ] = False,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="Another host name of this server; may be repeated.", metavar="NAME"),
    ] = None,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(
            help="A site whose pages may call the API, such as https://ops.example.org; may be repeated.",
            metavar="URL",
        ),
    ] = None,
    rate_limit: Annotated[
        float,
        typer.Option(
            help="Requests per second for each token, and for each address without one. 0: no limit.",
            metavar="NUMBER",
            min=0,
        ),
    ] = 100,
    with_worker: WithWorker = False,
    with_mcp: Annotated[bool, typer.Option("--mcp", help="Also serve MCP at /mcp.")] = False,
    dashboard: Annotated[
        bool, typer.Option("--dashboard/--no-dashboard", help="Serve the dashboard at /dashboard/.")
    ] = True,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="The dashboard shows everything and changes nothing.")
    ] = False,
    queues: Queues = "default",
    concurrency: Concurrency = 20,
    log_level: options.LogLevel = "info",
    log_json: options.LogJson = False,
) -> int:
    """Serve the HTTP API and the dashboard until SIGTERM or Ctrl-C. Loopback needs no token; elsewhere every request
    needs one."""
    import asyncio
    import logging

    from leasehold.surfaces.cli.logs import set_up_logging

    need_extra(*options.SERVER)
    from leasehold.surfaces.serve import ServeSettings
    from leasehold.surfaces.serve import serve as listen

    set_up_logging(log_level, log_json)
    settings = ServeSettings(
        host=host,
        port=port,
        require_tokens=require_tokens,
        hosts=tuple(allow_host or ()),
        origins=tuple(allow_origin or ()),
        rate_limit=rate_limit,
        mcp=with_mcp,
        dashboard=dashboard,
        read_only=read_only,
    )
    if with_mcp:
        need_extra("mcp", "mcp")
    with load_app(app) as found:
        settings.check(found)
        worker = None
        if with_worker:
            worker = found.worker(queues=queues, concurrency=concurrency, drain_on_sigterm=False)
        logging.getLogger("leasehold.http").info("store: %s", found.__internals__.store.label)
        asyncio.run(listen(found, settings, worker))
    return Exit.GAVE_UP if worker is not None and worker.gave_up else Exit.OK


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
    tenant: options.Tenant = None,
    with_worker: WithWorker = False,
    queues: Queues = "default",
    concurrency: Concurrency = 20,
    log_level: options.LogLevel = "warning",
    log_json: options.LogJson = False,
) -> int:
    """Serve MCP over stdin and stdout, until the client leaves. For MCP over HTTP: leasehold serve --mcp."""
    import asyncio

    from leasehold.domain.tokens import checked_scopes
    from leasehold.surfaces.cli.logs import set_up_logging

    need_extra("mcp", "mcp")
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

"""`dev`: worker, API and dashboard in one command, which starts anew when the code changes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from leasehold.surfaces.cli import options
from leasehold.surfaces.cli.listening import HOST, Port, check_server, choose_port, dashboard_url
from leasehold.surfaces.cli.serve import check_mcp

if TYPE_CHECKING:
    from leasehold.surfaces.cli.dev_child import DevSettings, Message


def dev(
    app: options.AppName,
    port: Port = None,
    queues: Annotated[
        str | None,
        typer.Option(
            help="Queues to serve. Default: those of the app's tasks.", metavar="A,B", show_default=False
        ),
    ] = None,
    concurrency: Annotated[int, typer.Option(help="Async jobs at once.", metavar="NUMBER")] = 20,
    no_reload: Annotated[
        bool, typer.Option("--no-reload", help="Do not watch files; run in one process, for a debugger.")
    ] = False,
    with_mcp: Annotated[bool, typer.Option("--mcp", help="Also serve MCP at /mcp.")] = False,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the dashboard in a browser.")] = False,
    log_level: options.LogLevel = "info",
) -> int:
    """Run a worker, the API and the dashboard for development. Only on this machine, until Ctrl-C. Restarts when a
    .py file changes: running jobs get 5 seconds, then they are handed back."""
    import threading

    from leasehold.surfaces.cli.dev_child import DevSettings, run
    from leasehold.surfaces.cli.dev_parent import Supervisor

    check_server()
    if with_mcp:
        check_mcp()
    settings = DevSettings(
        app=app,
        port=choose_port(port),
        queues=queues,
        concurrency=concurrency,
        mcp=with_mcp,
        log_level=log_level,
    )

    def ready(message: Message) -> None:
        _welcome(settings, message, reloads=not no_reload)
        if open_browser:
            threading.Thread(target=_show, args=(settings.port,), daemon=True).start()

    if no_reload:
        return run(settings, ready)
    return Supervisor(settings, Path.cwd(), ready).run()


def _welcome(settings: DevSettings, message: Message, reloads: bool) -> None:
    base = f"http://{HOST}:{settings.port}"
    rows = {
        "dashboard": dashboard_url(settings.port),
        "API": f"{base}/v1",
        "MCP": f"{base}/mcp" if settings.mcp else "",
        "store": message["store"],
        "queues": ", ".join(message["queues"]),
        "reload": "when a .py file here changes" if reloads else "off",
        "stop": "Ctrl-C",
    }
    lines = [f"  {name:<11}{text}" for name, text in rows.items() if text]
    print("\n".join(["", f"Leasehold: {settings.app}", *lines, ""]), flush=True)


def _show(port: int) -> None:
    import sys
    import webbrowser

    if not webbrowser.open(dashboard_url(port)):
        print(f"no browser was found: open {dashboard_url(port)}", file=sys.stderr)

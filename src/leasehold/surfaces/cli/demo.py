"""`demo`: runs the sample jobs of leasehold/demo, on the terminal or on the dashboard."""

from __future__ import annotations

from typing import Annotated

import typer

from leasehold.domain.errors import InvalidInput
from leasehold.surfaces.cli.listening import Port


def demo(
    dashboard: Annotated[
        bool,
        typer.Option("--dashboard", help="Run sample work to look at in a browser instead, until Ctrl-C."),
    ] = False,
    port: Port = None,
) -> int:
    """Watch a demo: retries, a halted lane, a killed worker. Takes half a minute, needs nothing, leaves nothing."""
    if dashboard:
        from leasehold.demo.dashboard import show_dashboard

        return show_dashboard(port)
    if port is not None:
        raise InvalidInput("--port", "is for the dashboard", "add --dashboard")
    from leasehold.demo.play import play

    return play()

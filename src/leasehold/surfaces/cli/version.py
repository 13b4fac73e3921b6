"""`version`."""

from __future__ import annotations

import typer


def add_to(cli: typer.Typer) -> None:
    cli.command()(version)


def version() -> None:
    """Print the version."""
    from importlib.metadata import version

    print(version("leasehold"))

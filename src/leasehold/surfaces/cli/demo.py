"""Stub."""

import typer


def add_to(cli: typer.Typer) -> None:
    pass

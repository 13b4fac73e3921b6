"""Commands that only have others below them: called alone, they print their help."""

from __future__ import annotations

import typer

from leasehold.surfaces.cli.problems import Exit


def command_group(name: str, text: str) -> typer.Typer:
    made = typer.Typer(name=name, help=text, rich_markup_mode=None)
    made.callback(invoke_without_command=True)(help_alone)
    return made


def help_alone(context: typer.Context) -> int:
    if context.invoked_subcommand is None:
        print(context.get_help())
        return Exit.USAGE
    return Exit.OK

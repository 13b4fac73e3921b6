"""Entry point of the command line: finds the command, runs it, and turns errors into exit codes."""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from leasehold.domain.errors import LeaseholdError
from leasehold.surfaces.cli import render
from leasehold.surfaces.cli.nouns import ENTRIES, NOUNS, modules_of
from leasehold.surfaces.cli.problems import Exit, notify, print_usage_error

_HELP = """Long background work that survives crashes, in your own database.

Which database: --url or LEASEHOLD_URL, else that of the app in LEASEHOLD_APP, else sqlite:///leasehold.db.

Exit codes: 0 ok · 1 the job failed · 2 usage · 3 not found · 4 refused in this state · 5 timed out waiting ·
6 cannot reach the database or a runner · 75 the worker gave up, restart it · 130 interrupted.
"""


class Top(TyperGroup):
    """The top level. It imports only the modules of the noun that is called: loading all takes longer than most
    commands."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(ENTRIES)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in ENTRIES and cmd_name not in self.commands:
            from leasehold.surfaces.cli.command import Noun, build

            first, *_ = [
                importlib.import_module(f"{__package__}.{module}") for module in modules_of(cmd_name)
            ]
            found = getattr(first, cmd_name)
            if isinstance(found, Noun):
                from leasehold.surfaces.cli.verbs import add_missing

                add_missing(cmd_name, found)
            self.commands[cmd_name] = build(found, cmd_name)
        return self.commands.get(cmd_name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the entries under their headings, with aligned columns."""
        width = max(map(len, ENTRIES))
        for heading, entries in NOUNS.items():
            with formatter.section(heading):
                formatter.write_dl([(f"{word:<{width}}", entry.sentence) for word, entry in entries.items()])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] not in ENTRIES:
            found = [
                f"leasehold {word} {args[0]}"
                for word in ENTRIES
                if _has(self.get_command(ctx, word), args[0])
            ]
            ctx.fail(
                f"no such command: {args[0]}; "
                + (f"use {', '.join(found)}" if found else "see leasehold --help")
            )
        return super().resolve_command(ctx, args)


def _has(command: Any, verb: str) -> bool:
    return isinstance(command, TyperGroup) and verb in command.list_commands(None)  # type: ignore[arg-type] # our groups take none


def _top(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> int:
    if version:
        from importlib.metadata import version as installed

        print(installed("leasehold"))
        return Exit.OK
    if context.invoked_subcommand is None:
        print(context.get_help())
        return Exit.USAGE
    return Exit.OK


@functools.cache
def command() -> Any:
    """The click command of the whole tree."""
    # Plain help: drawing it with rich would double the time it takes.
    cli = typer.Typer(
        name="leasehold",
        cls=Top,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    cli.callback(invoke_without_command=True, help=_HELP)(_top)
    return get_command(cli)


def run(arguments: Sequence[str]) -> int:
    """Run one command, and return its exit code."""
    as_json = "--json" in arguments
    try:
        # A command may return its exit code; None means 0.
        code = command()(args=list(arguments), prog_name="leasehold", standalone_mode=False)
        sys.stdout.flush()
        return int(code or Exit.OK)
    except LeaseholdError as error:
        return notify(error, as_json)
    except typer.TyperException as error:
        return print_usage_error(error.format_message(), as_json)
    except (KeyboardInterrupt, typer.Abort):
        print("interrupted", file=sys.stderr)
        return Exit.INTERRUPTED
    except BrokenPipeError:
        return _close_stdout()
    except SystemExit as leaving:
        # On a broken pipe typer exits with code 1, which here means that a job failed.
        if isinstance(leaving.__context__, BrokenPipeError):
            return _close_stdout()
        raise


def _close_stdout() -> int:
    """Redirect stdout to /dev/null after the reader has closed the pipe: else the interpreter fails again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return Exit.OK


def main() -> None:
    render.survive_any_terminal()
    sys.exit(run(sys.argv[1:]))

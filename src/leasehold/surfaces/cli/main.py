"""The tree of commands, and the way in and out of them."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import typer
from typer.main import get_command

from leasehold.domain.errors import LeaseholdError
from leasehold.surfaces.cli import (
    audit,
    bench,
    budgets,
    database,
    demo,
    doctor,
    executions,
    health,
    hooks,
    jobs,
    limits,
    lists,
    mcp,
    metrics,
    questions,
    queues,
    render,
    run_by_id,
    schedules,
    serve,
    steer,
    stop,
    sweep,
    tenants,
    tokens,
    work,
)
from leasehold.surfaces.cli.load import forget_tenant
from leasehold.surfaces.cli.problems import Exit, tell, tell_usage

_HELP = """Long background work that survives crashes, in your own database.

Which store: --url or LEASEHOLD_URL, else the app that LEASEHOLD_APP names, else sqlite:///leasehold.db.

Exit codes: 0 ok · 1 the job failed · 2 usage · 3 not found · 4 refused in this state · 5 timed out waiting ·
6 database or runner out of reach · 75 the worker gave up, restart it · 130 interrupted.
"""

# Plain help: drawing it with rich would double the time it takes.
cli = typer.Typer(
    name="leasehold",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for module in (
    work,
    serve,
    mcp,
    run_by_id,
    demo,
    jobs,
    steer,
    stop,
    questions,
    budgets,
    lists,
    queues,
    limits,
    schedules,
    hooks,
    tenants,
    tokens,
    audit,
    database,
    sweep,
    doctor,
    executions,
    health,
    metrics,
    bench,
):
    module.add_to(cli)


@cli.callback(invoke_without_command=True, help=_HELP)
def top(context: typer.Context) -> int:
    if context.invoked_subcommand is None:
        print(context.get_help())
        return Exit.USAGE
    return Exit.OK


@cli.command()
def version() -> None:
    """Print the version."""
    from importlib.metadata import version

    print(version("leasehold"))


@functools.cache
def _command() -> Callable[..., Any]:
    command = get_command(cli)
    tenants.add_option(command)
    return command


def run(arguments: Sequence[str]) -> int:
    """Run one command; the exit code."""
    as_json = "--json" in arguments
    forget_tenant()
    try:
        # A command may return its code; nothing means 0.
        code = _command()(args=list(arguments), prog_name="leasehold", standalone_mode=False)
        sys.stdout.flush()
        return int(code or Exit.OK)
    except LeaseholdError as error:
        return tell(error, as_json)
    except typer.TyperException as error:
        return tell_usage(error.format_message(), as_json)
    except (KeyboardInterrupt, typer.Abort):
        print("interrupted", file=sys.stderr)
        return Exit.INTERRUPTED
    except BrokenPipeError:
        return _seen_enough()
    except SystemExit as leaving:
        # typer's own answer to a broken pipe is exit code 1, which here says that a job failed.
        if isinstance(leaving.__context__, BrokenPipeError):
            return _seen_enough()
        raise


def _seen_enough() -> int:
    """Whoever read us has left. The interpreter must not stumble over the closed pipe again at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return Exit.OK


def main() -> None:
    render.survive_any_terminal()
    sys.exit(run(sys.argv[1:]))

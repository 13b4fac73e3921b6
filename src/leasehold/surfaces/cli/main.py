"""The tree of commands, and the way in and out of them."""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.main import get_command

from leasehold.domain.errors import LeaseholdError
from leasehold.surfaces.cli import render, tenants
from leasehold.surfaces.cli.load import forget_tenant
from leasehold.surfaces.cli.problems import Exit, tell, tell_usage
from leasehold.surfaces.cli.subcommands import help_alone
from leasehold.surfaces.cli.version import version as print_version

COMMANDS = {
    "work": ("worker", "enqueue", "run-now"),
    "serve": ("serve",),
    "dev": ("dev",),
    "mcp": ("mcp",),
    "run_by_id": ("run-by-id",),
    "demo": ("demo",),
    "jobs": ("jobs", "show", "result", "why"),
    "failures": ("failures",),
    "steer": ("cancel", "pause", "interrupt", "resume", "retry", "resolve", "release"),
    "stop": ("stop", "group"),
    "questions": ("questions", "answer"),
    "budgets": ("top-up",),
    "lists": ("groups", "budgets", "leases"),
    "queues": ("workers", "queues", "kinds", "lanes"),
    "limits": ("slots", "rates"),
    "schedules": ("schedules",),
    "hooks": ("hooks", "webhooks"),
    "tenants": ("tenants",),
    "tokens": ("tokens",),
    "audit": ("audit",),
    "database": ("prune", "db"),
    "sweep": ("sweep",),
    "doctor": ("doctor",),
    "executions": ("runs", "abandon"),
    "health": ("health",),
    "metrics": ("metrics",),
    "bench": ("bench",),
    "version": ("version",),
}
"""The modules in this folder that add commands, in the order of the help, and the commands that each of them adds."""

_HELP = """Long background work that survives crashes, in your own database.

Which database: --url or LEASEHOLD_URL, else that of the app in LEASEHOLD_APP, else sqlite:///leasehold.db.

Exit codes: 0 ok · 1 the job failed · 2 usage · 3 not found · 4 refused in this state · 5 timed out waiting ·
6 cannot reach the database or a runner · 75 the worker gave up, restart it · 130 interrupted.
"""


def tree(called: str | None = None) -> typer.Typer:
    """All commands; or, for one that is called, its module's alone: most commands take less time than building all."""
    # Plain help: drawing it with rich would double the time it takes.
    cli = typer.Typer(
        name="leasehold",
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    cli.callback(invoke_without_command=True, help=_HELP)(_top)
    for module in [name for name, added in COMMANDS.items() if called in added] or COMMANDS:
        importlib.import_module(f"{__package__}.{module}").add_to(cli)
    return cli


def _top(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> int:
    if version:
        print_version()
        return Exit.OK
    return help_alone(context)


@functools.cache
def command(called: str | None = None) -> Any:
    """`tree`, ready to be called with arguments."""
    made = get_command(tree(called))
    tenants.add_option(made)
    return made


def run(arguments: Sequence[str]) -> int:
    """Run one command; the exit code."""
    as_json = "--json" in arguments
    forget_tenant()
    try:
        # A command may return its code; nothing means 0.
        called = command(arguments[0] if arguments else None)
        code = called(args=list(arguments), prog_name="leasehold", standalone_mode=False)
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

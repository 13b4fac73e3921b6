"""`tenants create|list|upgrade|drop`, and `--tenant` for every command that looks at one store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from leasehold.domain.errors import InvalidInput
from leasehold.surfaces.cli import options, render
from leasehold.surfaces.cli.load import choose_tenant, open_app
from leasehold.surfaces.cli.subcommands import command_group

WITHOUT = frozenset(
    {"worker", "serve", "dev", "demo", "bench", "version", "tenants", "tokens", "db upgrade", "db sql"}
)
"""Commands that take no --tenant: they are about all tenants, or about none."""

Name = Annotated[str, typer.Argument(metavar="NAME", help="The tenant's name.")]


def add_to(cli: typer.Typer) -> None:
    group = command_group("tenants", "List, create, upgrade or drop tenants.")
    group.command()(create)
    group.command("list")(list_tenants)
    group.command()(upgrade)
    group.command()(drop)
    cli.add_typer(group)


def add_option(command: Any) -> None:
    """Give `--tenant` to every command of the tree that works on one store: one place for all of them."""
    model = typer.Typer(add_completion=False)
    model.command()(_on_tenant)
    option = next(one for one in get_command(model).params if one.name == "tenant")
    for name, found in _commands(command):
        has_its_own = any(one.name == option.name for one in found.params)
        if name.split()[0] not in WITHOUT and name not in WITHOUT and not has_its_own:
            found.params.append(option)


def _on_tenant(
    tenant: Annotated[
        str | None,
        typer.Option(
            "--tenant",
            envvar="LEASEHOLD_TENANT",
            metavar="NAME",
            help="Work on this tenant's jobs, not the app's own.",
            expose_value=False,
            callback=lambda value: choose_tenant(value),
        ),
    ] = None,
) -> None:
    """What the option looks like."""


def _commands(group: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        path = f"{before}{name}"
        if isinstance(command, TyperGroup):
            yield from _commands(command, f"{path} ")
            if command.params and command.invoke_without_command:
                yield path, command
        elif isinstance(command, TyperCommand):
            yield path, command


def create(
    name: Name,
    actor: options.Actor = None,
    url: options.Url = None,
    schema: options.Schema = options.DEFAULT_SCHEMA,
    as_json: options.AsJson = False,
) -> None:
    """Create a tenant. It gets its own schema on PostgreSQL, its own file on SQLite."""
    with open_app(url, schema) as app:
        created = app.tenants.create(name, actor=options.acting(actor))
    if as_json:
        render.emit({"name": name, "created": created})
    else:
        print(f"tenant {name} is created" if created else f"tenant {name} already exists")


def list_tenants(
    url: options.Url = None,
    schema: options.Schema = options.DEFAULT_SCHEMA,
    as_json: options.AsJson = False,
) -> None:
    """List tenants, and when each last had something to do."""
    with open_app(url, schema) as app:
        rows = app.tenants.list()
    render.show(
        rows,
        {
            "tenant": lambda row: row.name,
            "ready": lambda row: "yes" if row.ready else "no: run create or drop again",
            "created": lambda row: row.created_at,
            "last work": lambda row: row.told_at,
        },
        as_json=as_json,
        empty="no tenants; create one with leasehold tenants create NAME",
    )


def upgrade(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Which tenants. Default: all.")
    ] = None,
    actor: options.Actor = None,
    url: options.Url = None,
    schema: options.Schema = options.DEFAULT_SCHEMA,
    as_json: options.AsJson = False,
) -> None:
    """Bring the schemas of tenants up to date. Run `leasehold db upgrade` first: the app's own schema lists them."""
    with open_app(url, schema) as app:
        applied = app.tenants.upgrade(names or None, actor=options.acting(actor))
    if as_json:
        render.emit(applied)
        return
    for name, versions in applied.items():
        print(f"{name}: " + (f"applied {', '.join(map(str, versions))}" if versions else "nothing to do"))


def drop(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    actor: options.Actor = None,
    url: options.Url = None,
    schema: options.Schema = options.DEFAULT_SCHEMA,
    as_json: options.AsJson = False,
) -> None:
    """Delete a tenant and all its jobs, for good."""
    with open_app(url, schema) as app:
        if not yes and not _sure(name):
            return
        app.tenants.drop(name, actor=options.acting(actor))
    if as_json:
        render.emit({"name": name, "dropped": True})
    else:
        print(f"tenant {name} is dropped")


def _sure(name: str) -> bool:
    """Ask the person at the terminal; without one, only --yes will do."""
    if not render.on_terminal():
        raise InvalidInput(
            "--yes", f"is needed to drop {name} and all its jobs", "there is no terminal to ask on"
        )
    return typer.confirm(f"drop {name} and all its jobs, for good?", err=True)

"""`tenants list|create|upgrade|drop`: the tenants of an app."""

from __future__ import annotations

from typing import Annotated

import typer

from leasehold.operations import tenants as verbs
from leasehold.surfaces.cli import options, render
from leasehold.surfaces.cli.command import CommandCall, command, noun
from leasehold.surfaces.cli.verbs import add

Name = Annotated[str, typer.Argument(metavar="NAME", help="The tenant's name.")]

tenants = noun("tenants")


add(
    tenants,
    verbs.list_tenants,
    columns={
        "tenant": "name",
        "ready": lambda row: "yes" if row.ready else "no: run create or drop again",
        "created": "created_at",
        "last work": "changed_at",
    },
    empty="no tenants; create one with leasehold tenants create NAME",
    tenant=False,
)
add(
    tenants,
    verbs.create_tenant,
    "tenant {name} is created",
    "tenant {name} already exists",
    tenant=False,
)


@command(tenants, acts=True, tenant=False)
def upgrade(
    call: CommandCall,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Which tenants. Default: all.")
    ] = None,
) -> None:
    """Bring the schemas of tenants up to date. Run `leasehold db upgrade` first: the app's own schema lists them."""
    applied = call.operations.upgrade_tenants(names or None, actor=call.actor)
    if call.as_json:
        render.emit(applied)
        return
    for name, versions in applied.items():
        print(f"{name}: " + (f"applied {', '.join(map(str, versions))}" if versions else "nothing to do"))


@command(tenants, acts=True, tenant=False)
def drop(call: CommandCall, name: Name, yes: options.Yes = False) -> None:
    """Delete a tenant and all its jobs, for good."""
    what = f"drop {name} and all its jobs"
    if yes or call.confirm(f"{what}, for good?", f"is needed to {what}"):
        call.app.tenants.drop(name, actor=call.actor)
        call.report({"name": name, "dropped": True}, f"tenant {name} is dropped")

"""`tokens list|create|revoke`: access for programs and people over HTTP."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from leasehold.domain.tokens import SCOPES, TokenRow
from leasehold.operations import tokens as verbs
from leasehold.surfaces.cli import render
from leasehold.surfaces.cli.command import CommandCall, command, noun
from leasehold.surfaces.cli.verbs import add

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="The token's name, which the history shows as the actor.")
]


tokens = noun("tokens")


@command(tokens, "list", tenant=False)
def list_tokens(call: CommandCall) -> None:
    """List tokens, with their scopes and until when they are valid."""
    rows = call.operations.call(verbs.list_tokens)
    if call.as_json:
        render.emit([{**asdict(row.token), "live": row.live} for row in rows])
        return
    call.show(
        rows,
        {
            "token": lambda row: row.token.name,
            "scopes": lambda row: " ".join(row.token.scopes),
            "tenants": lambda row: " ".join(row.token.tenants) or "the app's own jobs",
            "queues": lambda row: " ".join(row.token.queues) or "all",
            "created": lambda row: row.token.created_at,
            "valid": _validity,
        },
        empty="no tokens; create one with leasehold tokens create NAME --scope read",
    )


def _validity(row: TokenRow) -> str:
    if row.token.revoked_at is not None:
        return f"no: revoked {render.ago(row.token.revoked_at)}"
    if row.token.expires_at is None:
        return "until it is revoked"
    ends = render.ago(row.token.expires_at)
    return f"until {render.clean(row.token.expires_at)} ({ends})" if row.live else f"no: expired {ends}"


@command(tokens, acts=True, tenant=False, create=True)
def create(
    call: CommandCall,
    name: Name,
    scope: Annotated[
        list[str],
        typer.Option(
            "--scope", "-s", metavar="SCOPE", help=f"{', '.join(SCOPES)} (all of them); may be repeated."
        ),
    ],
    expires: Annotated[
        str,
        typer.Option(help="How long it is valid; 'none': until it is revoked.", metavar="DURATION"),
    ] = "90d",
    tenant: Annotated[
        list[str] | None,
        typer.Option(
            "--for-tenant",
            help="Only for these tenants, such as acme or 'eu_*'; '*': all of them.",
            metavar="PATTERN",
        ),
    ] = None,
    queue: Annotated[
        list[str] | None,
        typer.Option(help="Only for jobs of these queues, such as 'agents*'.", metavar="PATTERN"),
    ] = None,
) -> None:
    """Create a token. It is printed once, now; only its hash is stored."""
    made, text = call.operations.call(
        verbs.create_token,
        name,
        scope,
        tenants=tenant or (),
        queues=queue or (),
        expires_in=None if expires.strip().lower() == "none" else expires,
        actor=call.actor,
    )
    if call.as_json:
        render.emit({**asdict(made), "token": text})
    else:
        print(text)
        render.note("store it safely: it is not shown again")


add(tokens, verbs.revoke_token, "token {name} is revoked", tenant=False)

"""`tokens create|list|revoke`: who may ask over HTTP."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from leasehold.domain.tokens import SCOPES, TokenRow
from leasehold.surfaces.cli import options, render
from leasehold.surfaces.cli.load import open_app
from leasehold.surfaces.cli.subcommands import command_group

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="The token's name, which the history shows for what it does.")
]


def add_to(cli: typer.Typer) -> None:
    group = command_group("tokens", "List, create or revoke tokens for the HTTP API.")
    group.command()(create)
    group.command("list")(list_tokens)
    group.command()(revoke)
    cli.add_typer(group)


def create(
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
    actor: options.Actor = None,
    url: options.Url = None,
    schema: options.Schema = options.DEFAULT_SCHEMA,
    as_json: options.AsJson = False,
) -> None:
    """Create a token. It is printed once, now; only its hash is stored."""
    with open_app(url, schema, create=True) as app:
        made, text = app.__internals__.operations.create_token(
            name,
            scope,
            tenants=tenant or (),
            queues=queue or (),
            expires_in=None if expires.strip().lower() == "none" else expires,
            actor=options.acting(actor),
        )
    if as_json:
        render.emit({**asdict(made), "token": text})
    else:
        print(text)
        render.note("store it safely: it is not shown again")


def list_tokens(
    url: options.Url = None,
    schema: options.Schema = options.DEFAULT_SCHEMA,
    as_json: options.AsJson = False,
) -> None:
    """List tokens: what each may do, and until when."""
    with open_app(url, schema) as app:
        rows = app.__internals__.operations.list_tokens()
    if as_json:
        render.emit([{**asdict(row.token), "live": row.live} for row in rows])
        return
    render.show(
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


def revoke(
    name: Name,
    actor: options.Actor = None,
    url: options.Url = None,
    schema: options.Schema = options.DEFAULT_SCHEMA,
    as_json: options.AsJson = False,
) -> None:
    """Revoke a token. Its name stays taken."""
    with open_app(url, schema) as app:
        app.__internals__.operations.revoke_token(name, actor=options.acting(actor))
    if as_json:
        render.emit({"name": name, "revoked": True})
    else:
        print(f"token {name} is revoked")

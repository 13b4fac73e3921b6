"""Options that several commands share: one spelling, one help text."""

from __future__ import annotations

import getpass
import os
import socket
from typing import Annotated

import typer

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar="LEASEHOLD_URL",
        help="The database: sqlite:///file.db or postgresql://…",
        metavar="URL",
    ),
]
Schema = Annotated[
    str, typer.Option("--schema", envvar="LEASEHOLD_SCHEMA", help="The PostgreSQL schema.", metavar="NAME")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
AppName = Annotated[
    str,
    typer.Argument(
        metavar="MODULE:APP", envvar="LEASEHOLD_APP", help="The app to load; ':app' may be left out."
    ),
]
JobId = Annotated[str, typer.Argument(metavar="ID", help="The job's id, or the beginning of it.")]

Actor = Annotated[
    str | None,
    typer.Option(
        "--actor",
        envvar="LEASEHOLD_ACTOR",
        metavar="NAME",
        help="Who does it, for the history and the audit. Default: user@host.",
    ),
]

States = Annotated[
    list[str] | None, typer.Option("--state", "-s", help="In this state; may be repeated.", metavar="STATE")
]
Queue = Annotated[str | None, typer.Option("--queue", "-q", help="Of this queue.", metavar="NAME")]
Kind = Annotated[str | None, typer.Option("--kind", "-k", help="Of this task.", metavar="NAME")]
Lane = Annotated[str | None, typer.Option("--lane", help="In this lane.", metavar="NAME")]
Group = Annotated[str | None, typer.Option("--group", help="In this group.", metavar="NAME")]
Tag = Annotated[str | None, typer.Option("--tag", help="With this tag.", metavar="NAME")]

Follow = Annotated[bool, typer.Option("--follow", "-f", help="Show what changes, until Ctrl-C.")]

DEFAULT_SCHEMA = "leasehold"


def acting(actor: str | None) -> str:
    """Who stands in the history for what this command does."""
    if actor:
        return actor
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container whose user has no name
        user = f"uid {os.getuid()}"
    return f"{user}@{socket.gethostname()}"

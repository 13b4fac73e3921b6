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
Tenant = Annotated[
    str | None,
    typer.Option(
        "--tenant",
        envvar="LEASEHOLD_TENANT",
        metavar="NAME",
        help="Work on this tenant's jobs, not the app's own.",
    ),
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
        help="The actor that the history and the audit record. Default: user@host.",
    ),
]

States = Annotated[
    list[str] | None, typer.Option("--state", "-s", help="In this state; may be repeated.", metavar="STATE")
]
Queue = Annotated[str | None, typer.Option("--queue", "-q", help="Of this queue.", metavar="NAME")]
Task = Annotated[str | None, typer.Option("--task", "-t", help="Of this task.", metavar="NAME")]
Tasks = Annotated[
    list[str] | None, typer.Option("--task", "-t", help="Of this task; may be repeated.", metavar="NAME")
]
Lane = Annotated[str | None, typer.Option("--lane", help="In this lane.", metavar="NAME")]
Group = Annotated[str | None, typer.Option("--group", help="In this group.", metavar="NAME")]
Tag = Annotated[str | None, typer.Option("--tag", help="With this tag.", metavar="NAME")]

Limit = Annotated[int, typer.Option(help="At most this many, up to 500.", metavar="NUMBER")]
Cursor = Annotated[
    str | None, typer.Option(help="Continue after the page that printed this cursor.", metavar="TEXT")
]
AllPages = Annotated[bool, typer.Option("--all", help="All pages.")]

Name = Annotated[str, typer.Argument(metavar="NAME")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
JobReason = Annotated[str | None, typer.Option(help="Kept with the job.", metavar="TEXT")]
Wait = Annotated[
    str | None,
    typer.Option(help="Wait up to this long for its end, and print its result.", metavar="DURATION"),
]
For = Annotated[str | None, typer.Option("--for", help="Only for this long.", metavar="DURATION")]
Until = Annotated[str | None, typer.Option(help="Only until this time.", metavar="TIME")]
Worker = Annotated[str | None, typer.Option(help="Of this worker.", metavar="NAME")]
LogLevel = Annotated[str, typer.Option(help="debug, info, warning or error.", metavar="LEVEL")]
LogJson = Annotated[bool, typer.Option("--log-json", help="One JSON object per line.")]

Follow = Annotated[bool, typer.Option("--follow", "-f", help="Show what changes, until Ctrl-C.")]

DEFAULT_SCHEMA = "leasehold"


def acting(actor: str | None) -> str:
    """The actor that the history and the audit record for this command."""
    if actor:
        return actor
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container whose user has no name
        user = f"uid {os.getuid()}"
    return f"{user}@{socket.gethostname()}"

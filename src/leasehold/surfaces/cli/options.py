"""Parameters that commands share: options with one help text, the app to load, and the port to listen on."""

from __future__ import annotations

import errno
import getpass
import importlib
import os
import socket
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from leasehold.domain.checks.texts import checked_tenant
from leasehold.domain.errors import DatabaseUnreachable, InvalidInput

if TYPE_CHECKING:
    from leasehold.app import Leasehold

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


# -- the app, from MODULE:APP or a URL ---------------------------------------------------------------------------------

APP_VARIABLE = "LEASEHOLD_APP"
"""The variable that names the app, as `module:app`, for its tasks, or for its database if no URL is given."""
_OURS = str(Path(__file__).parents[2]) + os.sep
_REMEDY = "give MODULE:APP, such as mypackage.tasks:app"


def load_app(name: str, tenant: str | None = None) -> Leasehold:
    """Import `module:attribute`; the current folder is on the path. With a tenant, the app works only on the tenant's
    jobs."""
    from leasehold.app import Leasehold

    module_name, _, attribute = name.partition(":")
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: object = importlib.import_module(module_name)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and _is_part_of(error.name, module_name):
            raise InvalidInput("app", f"cannot find a module {module_name!r} here", _REMEDY) from None
        raise InvalidInput("app", _why_not_imported(module_name, error), "") from error
    for part in (attribute or "app").split("."):
        found = getattr(found, part, None)
    if not isinstance(found, Leasehold):
        raise InvalidInput("app", f"{module_name!r} has no Leasehold app {attribute or 'app'!r}", _REMEDY)
    return _on_tenant(found, tenant)


def app_and_name(words: list[str], error: InvalidInput) -> tuple[str, str]:
    """Split [MODULE:APP] NAME. Without MODULE:APP, the app is that of LEASEHOLD_APP."""
    named = os.environ.get(APP_VARIABLE)
    if len(words) == 1 and named:
        return named, words[0]
    if len(words) != 2:
        raise error
    return words[0], words[1]


def _why_not_imported(module_name: str, error: Exception) -> str:
    """The problem, with its place in the user's own code."""
    if isinstance(error, SyntaxError):
        return f"{module_name!r} cannot be imported: {error.filename}:{error.lineno}: {error.msg}"
    own = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(("<", _OURS)) and frame.filename != importlib.__file__
    ]
    where = f"{own[-1].filename}:{own[-1].lineno}: " if own else ""
    return f"{module_name!r} cannot be imported: {where}{type(error).__name__}: {error}"


def open_app(url: str | None, schema: str, tenant: str | None = None, *, create: bool = False) -> Leasehold:
    """The app that a command works on: by URL, else LEASEHOLD_APP, else the default file. Only a command that may
    make a database makes one: a mistyped path must not look like an empty queue."""
    from leasehold.app import Leasehold

    named = os.environ.get(APP_VARIABLE)
    app = load_app(named) if url is None and named else Leasehold(url, schema=schema)
    if not create:
        _check_file(app.url)
    return _on_tenant(app, tenant)


def _on_tenant(app: Leasehold, tenant: str | None) -> Leasehold:
    if tenant is not None:
        app.__internals__.choose_tenant(checked_tenant(tenant))
    return app


def _check_file(url: str) -> None:
    scheme, _, rest = url.partition("://")
    path = Path(rest.removeprefix("/"))
    if scheme != "sqlite" or not rest:
        return
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        remedy = (
            f"name the store with --url or LEASEHOLD_URL, or the app with {APP_VARIABLE}=module:app; "
            "`leasehold db upgrade` creates a new one"
        )
        raise DatabaseUnreachable(url, f"there is no file {path}", remedy) from None
    except OSError as error:
        raise DatabaseUnreachable(url, str(error), "let this user open its folder") from None


def _is_part_of(missing: str | None, wanted: str) -> bool:
    return missing is not None and (wanted == missing or wanted.startswith(f"{missing}."))


# -- the port to listen on ---------------------------------------------------------------------------------------------

HOST = "127.0.0.1"
USUAL_PORT = 8700
PORTS_TRIED = 100
SERVER = ("server", "fastapi", "uvicorn", "jinja2")
"""The extra that a server needs, and its packages."""

Port = Annotated[
    int | None,
    typer.Option(
        help=f"The port to listen on. 0: any free port. Default: {USUAL_PORT}, or the next free one.",
        metavar="NUMBER",
        min=0,
        max=65535,
        show_default=False,
    ),
]


def choose_port(given: int | None) -> int:
    """The given port. By default the usual port, or the next free one with a note on stderr. Raises InvalidInput if
    the given port is taken."""
    if given is not None:
        return _probe(given)
    for port in range(USUAL_PORT, USUAL_PORT + PORTS_TRIED):
        try:
            found = _probe(port)
        except InvalidInput:
            continue
        if found != USUAL_PORT:
            print(f"port {USUAL_PORT} is in use by another program: using {found}", file=sys.stderr)
        return found
    raise InvalidInput(
        "--port", f"{USUAL_PORT} to {USUAL_PORT + PORTS_TRIED - 1} are all in use", "give a free one"
    )


def _probe(port: int) -> int:
    """Check that the port is free. Another program may still take it a moment later."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            why = (
                "is in use by another program"
                if error.errno == errno.EADDRINUSE
                else f"cannot be used ({error})"
            )
            raise InvalidInput("--port", f"{port} {why}", "give another, or leave it out") from None
        return int(probe.getsockname()[1])


def dashboard_url(port: int) -> str:
    return f"http://{HOST}:{port}/dashboard/"

"""Shared by `dev` and `demo`, which listen on this machine only: the check of the extra, the port, the address."""

from __future__ import annotations

import errno
import socket
import sys
from typing import Annotated

import typer

from leasehold.domain.errors import DriverMissing, InvalidInput

HOST = "127.0.0.1"
USUAL = 8700
TRIES = 100

Port = Annotated[
    int | None,
    typer.Option(
        help=f"The port to listen on. 0: any free port. Default: {USUAL}, or the next free one.",
        metavar="NUMBER",
        min=0,
        max=65535,
        show_default=False,
    ),
]


def choose_port(given: int | None) -> int:
    """The given port; without one, the usual port, or with a note the next free one. Raises InvalidInput if the given
    port is taken."""
    if given is not None:
        return _probe(given)
    for port in range(USUAL, USUAL + TRIES):
        try:
            found = _probe(port)
        except InvalidInput:
            continue
        if found != USUAL:
            print(f"port {USUAL} is in use by another program: using {found}", file=sys.stderr)
        return found
    raise InvalidInput("--port", f"{USUAL} to {USUAL + TRIES - 1} are all in use", "give a free one")


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


def check_server() -> None:
    """Check that the extra is installed. Raises DriverMissing."""
    import importlib.util

    for name in ("fastapi", "uvicorn", "jinja2"):
        if importlib.util.find_spec(name) is None:
            raise DriverMissing(name, "server")

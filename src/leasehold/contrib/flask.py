"""Flask: `from leasehold.contrib.flask import FlaskLeasehold`, an app that a Flask app configures.

jobs = FlaskLeasehold()                             # in its own module; tasks are registered with it

def create_app():
    app = Flask(__name__)
    app.config["LEASEHOLD_URL"] = "postgresql://…"  # and LEASEHOLD_SCHEMA; defaults as in Leasehold()
    jobs.init_app(app)
    return app

`flask leasehold …` is the command line: `flask --app shop leasehold worker`, `flask --app shop leasehold jobs`.
"""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Unpack

import click
from flask import Flask
from flask.cli import NoAppException, ScriptInfo, pass_script_info

from leasehold import Leasehold, Worker
from leasehold.errors import InvalidInput
from leasehold.types import Run, WorkerOptions

if TYPE_CHECKING:
    app: FlaskLeasehold
    """The app of the Flask app that FLASK_APP names: `leasehold worker leasehold.contrib.flask:app`."""

__all__ = ["FlaskLeasehold"]

_FLASK_VARIABLE = "FLASK_APP"
"""The Flask app, for commands of Leasehold that use `leasehold.contrib.flask:app` in a process without one."""
_EXTENSION = "leasehold"
_REMEDY = "call init_app(app), or start it with `flask leasehold worker`"
_bound: Flask | None = None
"""The last Flask app that `init_app` was called with. A process has one, as it has one FLASK_APP."""


class FlaskLeasehold(Leasehold):
    """A `Leasehold` that takes its database from the configuration of a Flask app, and runs handlers in that app's
    context. Give it the Flask app at once, or later with `init_app`. `options` are those of `Leasehold`."""

    def __init__(self, app: Flask | None = None, **options: Any) -> None:
        super().__init__(**options)
        self._is_bound = False
        self.middleware(in_app_context)
        self.middleware(in_app_context_async)
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        """Take LEASEHOLD_URL and LEASEHOLD_SCHEMA from the app's configuration, and add `flask leasehold`."""
        global _bound
        self.configure(app.config.get("LEASEHOLD_URL"), schema=app.config.get("LEASEHOLD_SCHEMA"))
        app.extensions[_EXTENSION] = self
        app.cli.add_command(_command)
        _bound = app
        self._is_bound = True

    def worker(self, **settings: Unpack[WorkerOptions]) -> Worker:
        """See `Leasehold.worker`. Raises before `init_app`: the worker would serve another database."""
        if not self._is_bound:
            raise InvalidInput("app", "is bound to no Flask app", _REMEDY)
        return super().worker(**settings)


# -- attempts ----------------------------------------------------------------------------------------------------------
# At the top of the module, not methods: a job in its own process imports them.
def in_app_context(run: Run, call_next: Callable[[], Any]) -> Any:
    with _flask_app().app_context():
        return call_next()


async def in_app_context_async(run: Run, call_next: Callable[[], Awaitable[Any]]) -> Any:
    with _flask_app().app_context():
        return await call_next()


def _flask_app() -> Flask:
    """Return the Flask app; load it by FLASK_APP if the process has none, as in the process of one job."""
    if _bound is not None:
        return _bound
    try:
        return ScriptInfo(os.environ.get(_FLASK_VARIABLE)).load_app()
    except NoAppException as error:
        raise InvalidInput("FLASK_APP", error.format_message(), _REMEDY) from None


def __getattr__(name: str) -> object:
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = _flask_app()
    if _EXTENSION not in found.extensions:
        raise InvalidInput("app", f"the Flask app {found.name!r} has no Leasehold", _REMEDY)
    return found.extensions[_EXTENSION]


# -- the command -------------------------------------------------------------------------------------------------------
@click.command("leasehold", add_help_option=False, context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@pass_script_info
def _command(info: ScriptInfo, arguments: tuple[str, ...]) -> None:
    """Run a command of Leasehold with this app, such as worker or jobs."""
    if arguments[:1] != (
        "dev",
    ):  # the processes of `dev` load the app again, and may need the variable for that
        # The configuration names the database. A variable left over from elsewhere would override it.
        os.environ.pop("LEASEHOLD_URL", None)
    os.environ["LEASEHOLD_APP"] = f"{__name__}:app"
    if info.app_import_path:
        os.environ["FLASK_APP"] = info.app_import_path  # for processes that this one starts
    sys.argv = ["leasehold", *arguments]
    runpy.run_module("leasehold", run_name="__main__")

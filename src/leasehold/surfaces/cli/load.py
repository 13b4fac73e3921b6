"""The app of a command, from MODULE:APP, a URL or the environment."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from leasehold.domain.checks.names import checked_tenant
from leasehold.domain.errors import DatabaseUnreachable, InvalidInput

if TYPE_CHECKING:
    from leasehold.app import Leasehold

APP_VARIABLE = "LEASEHOLD_APP"
"""The app, as `module:app`, for commands that need its tasks, or a database when no URL is given."""
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
    if scheme == "sqlite" and rest and not path.exists():
        remedy = (
            f"name the store with --url or LEASEHOLD_URL, or the app with {APP_VARIABLE}=module:app; "
            "`leasehold db upgrade` creates a new one"
        )
        raise DatabaseUnreachable(url, f"there is no file {path}", remedy)


def _is_part_of(missing: str | None, wanted: str) -> bool:
    return missing is not None and (wanted == missing or wanted.startswith(f"{missing}."))

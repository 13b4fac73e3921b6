"""From what was typed to an app: MODULE:APP, or a URL."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from leasehold.domain.errors import DatabaseUnreachable, InvalidInput

if TYPE_CHECKING:
    from leasehold.app import Leasehold

APP_VARIABLE = "LEASEHOLD_APP"
_REMEDY = "give MODULE:APP, such as mypackage.tasks:app"


def load_app(name: str) -> Leasehold:
    """Import `module:attribute`; the current folder is on the path."""
    from leasehold.app import Leasehold

    module_name, _, attribute = name.partition(":")
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: object = importlib.import_module(module_name)
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and _is_part_of(error.name, module_name):
            raise InvalidInput("app", f"there is no module {module_name!r} here", _REMEDY) from None
        traceback.print_exc()
        raise InvalidInput("app", f"{module_name!r} cannot be imported ({error})", "") from error
    except ValueError as error:
        raise InvalidInput("app", f"{name!r} is not a module ({error})", _REMEDY) from None
    for part in (attribute or "app").split("."):
        found = getattr(found, part, None)
    if not isinstance(found, Leasehold):
        raise InvalidInput("app", f"{module_name!r} has no Leasehold app {attribute or 'app'!r}", _REMEDY)
    return found


def open_app(url: str | None, schema: str, *, create: bool = False) -> Leasehold:
    """The app that a command works on: by URL, else LEASEHOLD_APP, else the default file. Only a command that may
    make a database makes one: a mistyped path must not look like an empty queue."""
    from leasehold.app import Leasehold

    named = os.environ.get(APP_VARIABLE)
    app = load_app(named) if url is None and named else Leasehold(url, schema=schema)
    if not create:
        _check_file(app.url)
    return app


def _check_file(url: str) -> None:
    scheme, _, rest = url.partition("://")
    path = Path(rest.removeprefix("/"))
    if scheme == "sqlite" and rest and not path.exists():
        raise DatabaseUnreachable(url, f"there is no file {path}")


def _is_part_of(missing: str | None, wanted: str) -> bool:
    return missing is not None and (wanted == missing or wanted.startswith(f"{missing}."))

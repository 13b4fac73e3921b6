"""The direction of imports: every room knows only what lies below it, and the domain is pure."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.sources import (
    PACKAGE,
    ROOT,
    WHOLE,
    Module,
    imported_modules,
    imports,
    modules,
    nodes,
    parse,
    where,
)

# What each part may know of ours: a module and everything below it. A part without a line here may not exist.
# "leasehold" alone stands for the public names, `from leasehold import …`.
STORE = ("stores.store", "stores.results", "stores.database.wakeups", "stores.database.read_timeout")
ROOMS = ("tasks", "run", "worker", "operations", "client")
DOORS = ("errors", "types")
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "domain": ("domain",),
    "threads": (),
    "stores": ("stores", "threads", "domain"),
    "tasks": ("tasks", "runners.contract", "threads", "domain"),
    "run": ("run", "tasks", "runners.contract", *STORE, "threads", "domain"),
    "runners": ("runners", "domain"),
    "worker": ("worker", "run", "runners", "tasks", *STORE, "threads", "domain"),
    "operations": ("operations", *STORE, "threads", "domain"),
    "client": ("client", "operations", "tasks", "threads", "domain"),
    "wiring": (*ROOMS, "stores", "runners", "threads", "domain"),
    "view": ("wiring", *ROOMS, "threads", "domain"),
    "app": ("wiring", "view", *ROOMS, "stores", "runners", "threads", "domain"),
    "demo": ("demo", "app", "types", "surfaces.cli", "domain"),
    "surfaces": (
        "app",
        "demo",
        "types",
        "operations",
        "surfaces.guard",
        "surfaces.prometheus",
        "surfaces.serve",
        "surfaces.serve_stdio",
        "threads",
        "domain",
    ),
    "remote": ("remote", "client", "operations", "errors", "domain"),
    "errors": ("domain",),
    "webhooks": ("domain",),
    "http": ("surfaces.http", "domain"),
    "mcp": ("surfaces.mcp", "domain"),
    "dashboard": ("surfaces.dashboard", "domain"),
    "types": (*ROOMS, "view", "runners", "domain"),
    "testing": (
        "app",
        "client",
        "worker",
        "run",
        "stores",
        "threads",
        "domain",
    ),  # a worker whose runs wait on its clock
    "pytest_plugin": ("testing", "app"),
    "contrib": ("leasehold", *DOORS),
    "__init__": ("app", "errors", "types"),
    "__main__": ("surfaces.cli",),
}

# Run as a script without site-packages, and still alive when a newer Leasehold is installed: it knows only Python.
ALONE = "leasehold.runners.shim"

# They put the surfaces that are spoken to into one process: the only ones that know more than one of them.
SERVE = ("leasehold.surfaces.serve", "leasehold.surfaces.serve_stdio")

# Folders whose parts know nothing of each other, but each of itself.
STRANGERS = ("surfaces", "contrib")

# The two dialects; the verbs are all they share.
DIALECTS = ("leasehold.stores.sqlite", "leasehold.stores.postgres")

# Modules through which the domain would reach a file, a socket, a clock, a thread or chance.
IMPURE = {
    "_thread", "asyncio", "concurrent", "http", "io", "logging", "multiprocessing", "os", "pathlib", "psycopg",
    "psycopg_pool", "random", "secrets", "select", "selectors", "shutil", "signal", "socket", "sqlite3", "ssl",
    "subprocess", "sys", "tempfile", "threading", "time",
}  # fmt: skip
IMPURE_CALLS = {
    "datetime.now",
    "datetime.utcnow",
    "datetime.today",
    "date.today",
    "uuid1",
    "uuid4",
    "uuid7",
    "open",
}

# What a user may import besides `from leasehold import …`.
PUBLIC_MODULES = (
    "leasehold.errors",
    "leasehold.types",
    "leasehold.testing",
    "leasehold.dashboard",
    "leasehold.http",
    "leasehold.mcp",
    "leasehold.remote",
    "leasehold.runners",
    "leasehold.webhooks",
    "leasehold.contrib",
)


def test_the_package_is_there():
    assert PACKAGE.joinpath("__init__.py").is_file()


@WHOLE
def test_every_layer_imports_only_what_lies_below_it():
    none_of(wrong_directions(PACKAGE))


@WHOLE
def test_rooms_import_the_store_for_its_type_only():
    none_of(loads_of_the_store(PACKAGE))


@WHOLE
def test_the_domain_is_pure():
    none_of(impurities(PACKAGE))


@WHOLE
def test_the_shim_knows_the_standard_library_only():
    (shim,) = (module for module in modules(PACKAGE) if module.name == ALONE)
    known = {statement.module.split(".")[0] for statement in imports(shim)}
    assert "fcntl" in known
    assert known - sys.stdlib_module_names == set()


def test_contrib_and_examples_use_public_names_only():
    none_of(private_uses(PACKAGE / "contrib", PACKAGE))
    none_of(private_uses(ROOT / "examples", PACKAGE))


def none_of(problems: Iterator[str]) -> None:
    found = list(problems)
    assert not found, "\n" + "\n".join(found)


def wrong_directions(package: Path) -> Iterator[str]:
    found = modules(package)
    known = {module.name for module in found}
    for module in found:
        part = part_of(module)
        if part not in MAY_IMPORT:
            yield f"{module.name}: MAY_IMPORT has no line for it, so nobody has said what it may know"
            continue
        for line, target in imported_modules(module, known):
            if is_below(target, "leasehold") and not may_import(module, part, target):
                yield f"{where(module.path, line, package.parent)}: {module.name} may not import {target}"


def loads_of_the_store(package: Path) -> Iterator[str]:
    """Imports of `stores.store` that run: they would load every verb with the app, before a database is opened."""
    for module in modules(package):
        if part_of(module) in ("stores", "domain"):
            continue
        typing_only = {
            child.lineno
            for node in nodes(module.tree)
            if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
            for child in node.body
        }
        for statement in imports(module):
            names = {statement.module, *(f"{statement.module}.{name}" for name in statement.names)}
            if "leasehold.stores.store" in names and statement.line not in typing_only:
                yield f"{where(module.path, statement.line, package.parent)}: import it under TYPE_CHECKING"


def may_import(module: Module, part: str, target: str) -> bool:
    if module.name == ALONE:
        return False
    for mine, other in (DIALECTS, DIALECTS[::-1]):
        if is_below(module.name, mine) and is_below(target, other):
            return False
    if part in STRANGERS and is_below(target, ".".join(module.name.split(".")[:3])):
        return True
    if module.name in SERVE and is_below(target, "leasehold.surfaces"):
        return True
    if target == "leasehold":
        return "leasehold" in MAY_IMPORT[part]
    return any(
        is_below(target, f"leasehold.{allowed}") for allowed in MAY_IMPORT[part] if allowed != "leasehold"
    )


def impurities(package: Path) -> Iterator[str]:
    for module in modules(package):
        if not is_below(module.name, "leasehold.domain"):
            continue
        for statement in imports(module):
            if statement.module.split(".")[0] in IMPURE or is_below(statement.module, "urllib.request"):
                yield f"{where(module.path, statement.line, package.parent)}: imports {statement.module}"
        for node in nodes(module.tree):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                if any(called == name or called.endswith(f".{name}") for name in IMPURE_CALLS):
                    yield f"{where(module.path, node.lineno, package.parent)}: calls {called}"


def private_uses(folder: Path, package: Path) -> Iterator[str]:
    public = public_names(package)
    own = "leasehold.contrib" if folder.name == "contrib" else None
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder).with_suffix("").parts
        module = Module(
            ".".join([own or folder.name, *(part for part in parts if part != "__init__")]), path, parse(path)
        )
        for statement in imports(module):
            if not is_below(statement.module, "leasehold"):
                continue
            if own and is_below(statement.module, ".".join(module.name.split(".")[:3])):
                continue
            doors = [f"leasehold.{door}" for door in DOORS] if own else PUBLIC_MODULES
            if any(is_below(statement.module, name) for name in doors):
                continue
            place = where(path, statement.line, folder.parent)
            if statement.module != "leasehold" or not statement.names:
                yield f"{place}: imports {statement.module}, not names with `from leasehold import …`"
            for name in statement.names if statement.module == "leasehold" else ():
                if name not in public and f"leasehold.{name}" not in PUBLIC_MODULES:
                    yield f"{place}: {name} is not in leasehold.__all__"


def public_names(package: Path) -> set[str]:
    for node in parse(package / "__init__.py").body:
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            return set(ast.literal_eval(node.value))
    raise AssertionError("leasehold/__init__.py has no literal __all__")


def part_of(module: Module) -> str:
    parts = module.name.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def is_below(name: str, top: str) -> bool:
    return name == top or name.startswith(f"{top}.")


# The checks themselves are checked: each of these sources breaks one rule, or keeps them all.

BREAKS = {
    "domain imports a run": ("domain/job.py", "from ..run import attempt"),
    "domain imports a store inside a function": ("domain/job.py", "def f():\n    import leasehold.stores.store"),
    "domain imports the public package": ("domain/job.py", "from leasehold import Leasehold"),
    "stores import the worker": ("stores/store.py", "from leasehold.worker.worker import Worker"),
    "stores import the app": ("stores/store.py", "from .. import app"),
    "a run imports a store's inside": ("run/attempt.py", "from ..stores.sqlite.database import Database"),
    "a run imports the package of stores": ("run/attempt.py", "from ..stores import open"),
    "a task imports a run": ("tasks/task.py", "from ..run.attempt import Attempt"),
    "a task imports the store": ("tasks/task.py", "from ..stores.store import JobStore"),
    "a task imports a handle for typing": ("tasks/task.py", "if TYPE_CHECKING:\n    from ..client.job import Job"),
    "a run imports the worker": ("run/attempt.py", "from ..worker.worker import Worker"),
    "a run imports a handle": ("run/attempt.py", "from ..client.job import Job"),
    "an operation imports a task": ("operations/operations.py", "from ..tasks.task import Task"),
    "an operation imports a handle": ("operations/operations.py", "from ..client.job import Job"),
    "a handle imports the store": ("client/job.py", "from ..stores.store import JobStore"),
    "a handle imports the worker": ("client/job.py", "from ..worker.worker import Worker"),
    "a worker imports a dialect": ("worker/worker.py", "from leasehold.stores.sqlite.database import Database"),
    "a worker imports the app": ("worker/worker.py", "from leasehold.app import Leasehold"),
    "a run imports a surface for typing": ("run/attempt.py", "if TYPE_CHECKING:\n    from ..surfaces import cli"),
    "a runner imports the worker": ("runners/contract.py", "from ..worker.worker import Worker"),
    "a runner imports the store": ("runners/contract.py", "from ..stores.store import JobStore"),
    "the shim imports its neighbour": ("runners/shim.py", "from .contract import Phase"),
    "postgres imports sqlite": ("stores/postgres/database.py", "from ..sqlite.database import Database"),
    "sqlite imports postgres": ("stores/sqlite/database.py", "from leasehold.stores import postgres"),
    "app imports a surface": ("app.py", "from .surfaces import cli"),
    "a surface imports a store": ("surfaces/cli/main.py", "from ...stores import store"),
    "a surface imports the worker": ("surfaces/cli/main.py", "from leasehold.worker import worker"),
    "a surface imports its sibling": ("surfaces/cli/main.py", "from ..http import problems"),
    "a surface that listens imports the command line": ("surfaces/http/problems.py", "from ..cli import main"),
    "contrib imports the app module": ("contrib/rq.py", "from ..app import Leasehold"),
    "contrib imports the domain": ("contrib/rq.py", "from leasehold.domain.job import Grant"),
    "the remote client imports the app": ("remote/client.py", "from ..app import Leasehold"),
    "a part nobody has spoken of": ("helpers.py", ""),
}  # fmt: skip
KEEPS = {
    "app wires everything": ("app.py", "from .worker import worker\nfrom .stores.sqlite import database"),
    "a run knows the store": ("run/attempt.py", "from ..stores import store\nfrom ..domain.job import Job"),
    "a worker knows the runs": ("worker/worker.py", "from ..run import attempt\nfrom ..tasks.task import Task"),
    "a handle knows the door": ("client/job.py", "from ..operations import operations\nfrom ..tasks import task"),
    "a runner knows the domain": ("runners/subprocess.py", "from ..domain.job import Job\nfrom .contract import Phase"),
    "stores open both dialects": ("stores/open.py", "from .sqlite import database\nfrom .postgres import database"),
    "a dialect knows the shared files": ("stores/sqlite/database.py", "from ..store import X\nfrom . import wakeup"),
    "a surface knows the door": ("surfaces/cli/main.py", "from ...operations import operations\nfrom ...app import X"),
    "a surface knows itself": ("surfaces/cli/main.py", "from . import render\nfrom leasehold.surfaces.cli import x"),
    "serve knows the surfaces": ("surfaces/serve.py", "from .http import problems\nfrom ..app import Leasehold"),
    "contrib uses public names": ("contrib/rq.py", "from leasehold import Leasehold\nfrom ..types import Run"),
}  # fmt: skip


@pytest.mark.parametrize("name", BREAKS)
def test_a_wrong_direction_is_noticed(name: str, tmp_path: Path):
    assert len(list(wrong_directions(a_package(tmp_path, *BREAKS[name])))) == 1


@pytest.mark.parametrize("name", KEEPS)
def test_a_right_direction_is_left_alone(name: str, tmp_path: Path):
    assert list(wrong_directions(a_package(tmp_path, *KEEPS[name]))) == []


@pytest.mark.parametrize(
    ("source", "problems"),
    [
        ("from ..stores.store import JobStore", 1),
        ("from ..stores import store", 1),
        ("def f():\n    from leasehold.stores.store import JobStore", 1),
        ("if TYPE_CHECKING:\n    from ..stores.store import JobStore", 0),
        ("from ..stores.results import Ending", 0),
    ],
)
def test_a_load_of_the_store_is_noticed(source: str, problems: int, tmp_path: Path):
    assert len(list(loads_of_the_store(a_package(tmp_path, "run/attempt.py", source)))) == problems


@pytest.mark.parametrize(
    "source",
    [
        "import sqlite3", "from os import environ", "def f():\n    import time", "import concurrent.futures",
        "from datetime import datetime\nx = datetime.now()", "import datetime\nx = datetime.datetime.now(None)",
        "import uuid\nx = uuid.uuid4()", "x = open('file')",
    ],
)  # fmt: skip
def test_an_impure_domain_is_noticed(source: str, tmp_path: Path):
    assert len(list(impurities(a_package(tmp_path, "domain/job.py", source)))) == 1


@pytest.mark.parametrize(
    "source", ["from datetime import datetime, timedelta", "import enum", "x = store.reopen(1)"]
)
def test_a_pure_domain_is_left_alone(source: str, tmp_path: Path):
    assert list(impurities(a_package(tmp_path, "domain/job.py", source))) == []


@pytest.mark.parametrize(
    ("source", "problems"),
    [
        ("from leasehold import Leasehold", 0),
        ("from leasehold.testing import drain\nfrom leasehold.contrib.rq import enqueue", 0),
        ("import json", 0),
        ("from leasehold import Leasehold, secret", 1),
        ("from leasehold.worker.worker import Worker", 1),
        ("import leasehold", 1),
    ],
)
def test_a_private_use_in_an_example_is_noticed(source: str, problems: int, tmp_path: Path):
    package = a_package(tmp_path, "app.py", "")
    example = tmp_path / "examples" / "first" / "app.py"
    example.parent.mkdir(parents=True)
    example.write_text(source)
    assert len(list(private_uses(tmp_path / "examples", package))) == problems


@pytest.mark.parametrize(
    ("source", "problems"),
    [
        (
            "from leasehold import Leasehold\n"
            "from leasehold.types import Run\n"
            "from leasehold.errors import InvalidState",
            0,
        ),
        ("from leasehold import Leasehold, secret", 1),
        ("from leasehold.testing import drain", 1),
        ("from leasehold.domain.job import Grant", 1),
        ("from leasehold.contrib.other import x", 1),
    ],
)
def test_a_private_use_in_contrib_is_noticed(source: str, problems: int, tmp_path: Path):
    package = a_package(tmp_path, "contrib/rq.py", source)
    assert len(list(private_uses(package / "contrib", package))) == problems


def a_package(folder: Path, path: str, source: str) -> Path:
    package = folder / "leasehold"
    files = [
        "__main__.py", "app.py", "domain/job.py", "tasks/task.py", "run/attempt.py", "worker/worker.py",
        "operations/operations.py", "client/job.py", "stores/store.py",
        "stores/open.py", "stores/sqlite/database.py", "stores/postgres/database.py", "surfaces/cli/main.py",
        "remote/client.py", "surfaces/http/problems.py",
        "contrib/rq.py", "runners/contract.py", "runners/shim.py", "runners/subprocess.py",
    ]  # fmt: skip
    for name in files:
        file = package / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("")
        for parent in file.relative_to(folder).parents[:-1]:
            (folder / parent / "__init__.py").write_text("")
    (package / "__init__.py").write_text('__all__ = ["Leasehold"]\n')
    (package / path).write_text(source)
    return package

"""An underscore is a promise: only its owner uses the name, so its owner may change it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.sources import PACKAGE, WHOLE, Module, modules, nodes, parse, where

# Public in all but spelling: a namedtuple's underscores keep clear of its fields.
OF_NAMEDTUPLES = {"_asdict", "_field_defaults", "_fields", "_make", "_replace"}

BY_TEXT = {"getattr", "setattr", "hasattr", "delattr"}

# Names of other people's packages that have no public spelling, and why we need them.
OF_OTHERS = {
    "os._exit": "ends the process at once, as a crash or an impatient operator does",
    "sys._current_frames": "where a thread stands that does not answer; public in all but its name",
    "threading._register_atexit": "runs before the interpreter refuses new work for thread pools; atexit is too late",
}

# Files that still reach into others, and why. An entry that is no longer needed fails a test too.
KNOWN: dict[str, str] = {
    "stores/postgres/connections.py: _deallocate": "psycopg offers no public way to keep its prepared statements",
}


@WHOLE
def test_no_module_uses_an_underscore_name_of_another():
    found = {place: line for module in modules(PACKAGE) for place, line in foreign_names(module, PACKAGE)}
    unexplained = [f"{place} ({found[place]})" for place in sorted(found.keys() - KNOWN.keys())]
    assert not unexplained, "\n" + "\n".join(unexplained)
    assert sorted(KNOWN.keys() - found.keys()) == [], "these are gone: take them out of KNOWN"


def foreign_names(module: Module, package: Path) -> Iterator[tuple[str, str]]:
    """("file: name", "file:line") for every underscore name that is not the module's own."""
    for node in nodes(module.tree):
        if isinstance(node, ast.Attribute):
            if is_private(node.attr) and not is_own(node):
                yield place(module, node.attr, package), where(module.path, node.lineno)
        elif isinstance(node, ast.Call):
            if (name := named_by_text(node)) is not None:
                yield place(module, name, package), where(module.path, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if is_private(alias.name) and f"{node.module}.{alias.name}" not in OF_OTHERS:
                    yield place(module, alias.name, package), where(module.path, node.lineno)


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in OF_NAMEDTUPLES


def is_own(node: ast.Attribute) -> bool:
    return ast.unparse(node.value) in ("self", "cls") or ast.unparse(node) in OF_OTHERS


def named_by_text(call: ast.Call) -> str | None:
    """The private name in `getattr(other, "_name")`, and in those like it."""
    match call:
        case ast.Call(func=ast.Name(id=requested), args=[owner, ast.Constant(value=str(name)), *_]):
            foreign = requested in BY_TEXT and ast.unparse(owner) not in ("self", "cls")
            return name if foreign and is_private(name) else None
    return None


def place(module: Module, name: str, package: Path) -> str:
    return f"{module.path.relative_to(package)}: {name}"


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("def f(self):\n    return self._x", []),
        ("def f(cls):\n    cls._x = 1", []),
        ("row._replace(a=1)\nRow._make([])\nrow._asdict()\nRow._fields", []),
        ("x.__class__\nx.__dict__", []),
        ("import os\nos._exit(1)", []),
        ("from shop import till", []),
        ("def f(other):\n    return other._x", ["_x"]),
        ("def f(self):\n    self.till._x = 1", ["_x"]),
        ("def f(self):\n    super()._x()", ["_x"]),
        ("getattr(self, '_x')\ngetattr(other, 'x')\ngetattr(other, name)", []),
        ("getattr(other, '_x', None)\nsetattr(other, '_y', 1)", ["_x", "_y"]),
        ("from shop import _x, y", ["_x"]),
        ("def f():\n    from .till import _x as x", ["_x"]),
        ("import sys\nsys._getframe()", ["_getframe"]),
    ],
)
def test_a_foreign_underscore_is_noticed(source: str, names: list[str], tmp_path: Path):
    path = tmp_path / "till.py"
    path.write_text(source)
    found = foreign_names(Module("shop.till", path, parse(path)), tmp_path)
    assert [name for name, _ in found] == [f"till.py: {name}" for name in names]

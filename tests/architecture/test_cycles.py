"""No import goes in a circle: a file can be read, and loaded, after those below it."""

from __future__ import annotations

from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.architecture.sources import PACKAGE, WHOLE, imported_modules, modules


@WHOLE
def test_no_import_goes_in_a_circle():
    assert circle(PACKAGE) == []


def circle(package: Path) -> list[str]:
    """The modules of one circle, each imported by the one before it; imports for type checkers count as well."""
    found = modules(package)
    known = {module.name for module in found}
    wanted: Mapping[str, set[str]] = {
        module.name: {target for _, target in imported_modules(module, known)} & known - {module.name}
        for module in found
    }
    try:
        TopologicalSorter(wanted).prepare()
    except CycleError as error:
        return list(error.args[1][::-1])
    return []


# The check itself is checked, with packages made up for it.

CIRCLES = {
    "two modules": {"a.py": "from shop.b import x", "b.py": "import shop.a"},
    "relative": {"a.py": "from . import b", "b.py": "from .a import x"},
    "for types only": {"a.py": "if TYPE_CHECKING:\n    from shop.b import x", "b.py": "from shop.a import y"},
    "inside a function": {"a.py": "def f():\n    from shop import b", "b.py": "from shop.a import y"},
    "three modules": {"a.py": "from shop.b import x", "b.py": "from shop.c import x", "c.py": "from shop.a import x"},
    "through a package": {"a.py": "from shop.room import x", "room/__init__.py": "from shop.a import x"},
}  # fmt: skip
STRAIGHT = {
    "a row": {"a.py": "from shop.b import x", "b.py": "from shop.c import x", "c.py": "import json"},
    "two that share a third": {"a.py": "from shop.c import x", "b.py": "from shop.c import x", "c.py": ""},
    "a package and its parts": {"room/__init__.py": "from shop.room.a import x", "room/a.py": "from shop.b import y"},
}  # fmt: skip


@pytest.mark.parametrize("name", CIRCLES)
def test_a_circle_is_noticed(name: str, tmp_path: Path):
    found = circle(a_package(tmp_path, CIRCLES[name]))
    assert found[0] == found[-1]
    assert len(set(found)) == len(CIRCLES[name])


@pytest.mark.parametrize("name", STRAIGHT)
def test_imports_without_a_circle_are_left_alone(name: str, tmp_path: Path):
    assert circle(a_package(tmp_path, STRAIGHT[name])) == []


def a_package(folder: Path, sources: Mapping[str, str]) -> Path:
    package = folder / "shop"
    for path, source in {"__init__.py": "", "b.py": "", **sources}.items():
        file = package / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source)
    return package

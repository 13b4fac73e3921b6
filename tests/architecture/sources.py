"""Reads the package's source without importing it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "leasehold"

# In one process, which then parses the package once.
WHOLE = pytest.mark.xdist_group("sources")


class Module(NamedTuple):
    name: str  # dotted, with the top package: leasehold.domain.states
    path: Path
    tree: ast.Module

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"


class Import(NamedTuple):
    line: int
    module: str  # absolute, even if written relative
    names: tuple[str, ...]  # of `from module import …`; empty for `import module`


def modules(package: Path) -> tuple[Module, ...]:
    """Every module of a package, in order of name. Ours is parsed once, for all tests."""
    return _ours() if package == PACKAGE else _parsed(package)


@cache
def _ours() -> tuple[Module, ...]:
    return _parsed(PACKAGE)


def _parsed(package: Path) -> tuple[Module, ...]:
    found = []
    for path in sorted(package.rglob("*.py")):
        parts = [package.name, *path.relative_to(package).with_suffix("").parts]
        if parts[-1] == "__init__":
            parts.pop()
        found.append(Module(".".join(parts), path, parse(path)))
    return tuple(found)


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


@cache
def nodes(tree: ast.Module) -> tuple[ast.AST, ...]:
    """As `ast.walk`, which takes as long as parsing does, and many tests walk the same trees."""
    return tuple(ast.walk(tree))


def imports(module: Module) -> Iterator[Import]:
    """Every import statement, also inside functions and under TYPE_CHECKING: knowing is knowing."""
    for node in nodes(module.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(node.lineno, alias.name, ())
        elif isinstance(node, ast.ImportFrom):
            yield Import(node.lineno, _absolute(module, node), tuple(alias.name for alias in node.names))


def imported_modules(module: Module, known: set[str]) -> Iterator[tuple[int, str]]:
    """(line, module) for everything imported; `from package import module` counts as the module, not the package."""
    for statement in imports(module):
        inside = [f"{statement.module}.{name}" for name in statement.names]
        for name in inside:
            yield statement.line, name if name in known else statement.module
        if not inside:
            yield statement.line, statement.module


def where(path: Path, line: int, root: Path = ROOT) -> str:
    return f"{path.relative_to(root) if path.is_relative_to(root) else path}:{line}"


def _absolute(module: Module, node: ast.ImportFrom) -> str:
    if node.level == 0:
        return node.module or ""
    base = module.name.split(".")
    climb = node.level - (1 if module.is_package else 0)
    base = base[: len(base) - climb]
    return ".".join([*base, node.module] if node.module else base)

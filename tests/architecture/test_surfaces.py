"""Surfaces read and change jobs through `operations`; the handles of `client` are for users. A surface uses the app's
own methods for new jobs, for which it needs the tasks' signatures, and for what only an app has: search, sweep, metrics
and tenants with their open stores."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from leasehold.client.view import View
from tests.architecture.sources import PACKAGE, WHOLE, Module, modules, nodes, parse, where

APPS = {"app", "view", "tenant"}
OF_USERS = {name for name in vars(View) if not name.startswith("_")} | {
    "bulk", "lanes", "questions", "queues", "rates", "slots",
}  # fmt: skip


@WHOLE
def test_surfaces_use_no_handle_where_an_operation_does_it():
    surfaces = [module for module in modules(PACKAGE) if module.name.startswith("leasehold.surfaces.")]
    found = [place for module in surfaces for place in uses_of_handles(module, PACKAGE)]
    assert not found, "\n" + "\n".join(found)


def uses_of_handles(module: Module, package: Path) -> Iterator[str]:
    for node in nodes(module.tree):
        if isinstance(node, ast.Attribute) and node.attr in OF_USERS and _name_of(node.value) in APPS:
            yield f"{where(module.path, node.lineno, package)}: {ast.unparse(node)}"


def _name_of(node: ast.AST) -> str | None:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else None


def test_a_use_of_a_handle_is_noticed(tmp_path: Path):
    source = tmp_path / "page.py"
    source.write_text("job = caller.view.get(1)\nrows = app.lanes.list()\nmade = app.enqueue('x')\n")
    found = list(uses_of_handles(Module("page", source, parse(source)), tmp_path))
    assert [place.rpartition(": ")[2] for place in found] == ["caller.view.get", "app.lanes"]

"""Surfaces read and change jobs through `operations`; the handles of `client` and the methods of an app are for users,
but for the exceptions named here."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from leasehold.client.view import View
from leasehold.view import AppView
from tests.architecture.sources import PACKAGE, WHOLE, Module, modules, nodes, parse, where

APPS = {"app", "view", "tenant"}
OF_USERS = {name for name in vars(View) | vars(AppView) if not name.startswith("_")} | {
    "bulk", "lanes", "questions", "queues", "rates", "schedules", "slots", "tasks", "tenants",
}  # fmt: skip
ONLY_AN_APP = {
    "enqueue": "a new job needs the signature and the settings of its task",
    "schedules.set": "the arguments are checked by the task's signature",
    "run_by_id": "runs the job in this process, by the app's embedded worker",
    "sweep": "remembers the leases that it has found missed, for its second look",
    "tenants.drop": "closes the tenant's store, if this process has opened it",
}
"""What a surface may use of an app, as no operation does it, and why."""


@WHOLE
def test_surfaces_use_no_handle_where_an_operation_does_it():
    surfaces = [module for module in modules(PACKAGE) if module.name.startswith("leasehold.surfaces.")]
    used = [(word, place) for module in surfaces for word, place in uses_of_handles(module, PACKAGE)]
    found = [f"{place}: {word}" for word, place in used if word not in ONLY_AN_APP]
    assert not found, "\n" + "\n".join(found)
    assert {word for word, _ in used} == set(ONLY_AN_APP), "an exception that nothing needs"


def uses_of_handles(module: Module, package: Path) -> Iterator[tuple[str, str]]:
    """What is used of an app (`tenants.drop`), and where."""
    further = {id(node.value): node.attr for node in nodes(module.tree) if isinstance(node, ast.Attribute)}
    for node in nodes(module.tree):
        if isinstance(node, ast.Attribute) and node.attr in OF_USERS and _name_of(node.value) in APPS:
            word = f"{node.attr}.{further[id(node)]}" if id(node) in further else node.attr
            yield word, where(module.path, node.lineno, package)


def _name_of(node: ast.AST) -> str | None:
    """The last name of an expression. `call.load(name)` is an app too."""
    if isinstance(node, ast.Call) and _name_of(node.func) == "load":
        return "app"
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else None


def test_a_use_of_a_handle_is_noticed(tmp_path: Path):
    source = tmp_path / "page.py"
    source.write_text(
        "job = caller.view.get(1)\nrows = app.lanes.list()\nmade = load('x').schedules.run('y')\n"
    )
    found = list(uses_of_handles(Module("page", source, parse(source)), tmp_path))
    assert [word for word, _ in found] == ["get", "lanes.list", "schedules.run"]

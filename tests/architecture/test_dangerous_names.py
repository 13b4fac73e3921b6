"""Stored data is data: nothing in the package turns bytes or text from outside into running code."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.sources import PACKAGE, WHOLE, Import, Module, imports, modules, nodes, where

MODULES = {"_pickle", "cPickle", "cloudpickle", "dill", "jsonpickle", "marshal", "pickle", "shelve"}
CALLS = {"eval", "exec"}  # the built-ins; a method of that name on something else is another matter
MAY_EXEC = {
    PACKAGE / "domain" / "frozen.py"
}  # the names of fields in our own classes, as `dataclasses` does it
YAML = {"load", "load_all", "full_load", "unsafe_load", "unsafe_load_all"}


@WHOLE
def test_the_package_neither_unpickles_nor_evaluates():
    found = modules(PACKAGE)
    assert found, "there is no source to look at"
    assert [problem for module in found for problem in dangers(module)] == []


def dangers(module: Module) -> Iterator[str]:
    for statement in imports(module):
        for name in dangerous_imports(statement):
            yield f"{where(module.path, statement.line)}: imports {name}"
    for node in nodes(module.tree):
        if isinstance(node, ast.Name) and node.id in CALLS and module.path not in MAY_EXEC:
            yield f"{where(module.path, node.lineno)}: uses {node.id}"
        elif isinstance(node, ast.Attribute) and node.attr in CALLS | YAML:
            used = ast.unparse(node)
            if used in {f"builtins.{name}" for name in CALLS} | {f"yaml.{name}" for name in YAML}:
                yield f"{where(module.path, node.lineno)}: uses {used}"
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in (
            "__import__",
            "importlib.import_module",
            "import_module",
        ):
            for argument in node.args[:1]:
                if isinstance(argument, ast.Constant) and argument.value in MODULES:
                    yield f"{where(module.path, node.lineno)}: imports {argument.value}"


def dangerous_imports(statement: Import) -> Iterator[str]:
    top = statement.module.split(".")[0]
    if top in MODULES:
        yield statement.module
    for name in statement.names:
        if (top == "builtins" and name in CALLS) or (top == "yaml" and name in YAML):
            yield f"{statement.module}.{name}"


@pytest.mark.parametrize(
    "source",
    [
        "import pickle", "from pickle import loads", "def f():\n    import marshal", "import pickle as p",
        "eval('1')", "run = exec", "import builtins\nbuiltins.eval('1')", "from builtins import exec",
        "import yaml\nyaml.load(text)", "from yaml import unsafe_load",
        "import importlib\nimportlib.import_module('pickle')",
    ],
)  # fmt: skip
def test_a_danger_is_noticed(source: str):
    assert list(dangers(Module("leasehold.x", Path("x.py"), ast.parse(source))))


@pytest.mark.parametrize(
    "source",
    ["import json", "connection.exec('x')", "# eval(x)", "x = 'pickle'", "import yaml\nyaml.safe_load(text)"],
)
def test_what_is_harmless_is_left_alone(source: str):
    assert not list(dangers(Module("leasehold.x", Path("x.py"), ast.parse(source))))

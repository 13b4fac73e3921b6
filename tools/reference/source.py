"""What the source says: the sentences under its fields, its annotations as a user writes them, its defaults."""

from __future__ import annotations

import ast
import inspect
import itertools
import re
import sys
from dataclasses import MISSING, Field
from functools import cache
from types import EllipsisType, ModuleType
from typing import Any, Literal, get_args, get_origin

LINKED = {
    "Duration": "[duration](settings.md#durations-sizes-and-templates)",
    "Size": "[size](settings.md#durations-sizes-and-templates)",
    "EllipsisType": "",
}
"""Aliases that a reader is sent to, instead of what they are made of; and what no user writes."""


@cache
def tree_of(module: ModuleType) -> ast.Module:
    return ast.parse(inspect.getsource(module))


@cache
def body_of(worker: type) -> ast.ClassDef:
    for node in ast.walk(tree_of(sys.modules[worker.__module__])):
        if isinstance(node, ast.ClassDef) and node.name == worker.__name__:
            return node
    raise LookupError(f"no source of {worker.__qualname__}")


def field_docs(worker: type) -> dict[str, str]:
    """The texts under the fields of a class, those it inherits included, and under what `__init__` sets."""
    found: dict[str, str] = {}
    for one in reversed(worker.__mro__):
        if one.__module__.startswith("leasehold."):
            for node in ast.walk(body_of(one)):
                if isinstance(node, ast.ClassDef | ast.FunctionDef):
                    found |= docs_in(node.body)
    return found


def constant_docs(module: ModuleType) -> dict[str, str]:
    """The texts under the constants of a module."""
    return docs_in(tree_of(module).body)


def docs_in(body: list[ast.stmt]) -> dict[str, str]:
    found = {}
    for node, after in itertools.pairwise(body):
        match node, after:
            case (
                (ast.AnnAssign(target=target) | ast.Assign(targets=[target])),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                name = target.attr if isinstance(target, ast.Attribute) else ast.unparse(target)
                found[name] = " ".join(text.split())
    return found


def annotations_of(worker: type) -> dict[str, str]:
    """Fields and their types as Markdown, in the order of the class; inherited ones first."""
    found: dict[str, str] = {}
    for one in reversed(worker.__mro__):
        if one.__module__.startswith("leasehold."):
            for node in body_of(one).body:
                if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                    found[node.target.id] = type_text(node.annotation, sys.modules[one.__module__])
    # A TypedDict has no bases at run time: it knows its inherited fields alone by name.
    for base in getattr(worker, "__orig_bases__", ()):
        if inspect.isclass(base) and base.__module__.startswith("leasehold."):
            found = annotations_of(base) | found
    return {name: text for name, text in found.items() if not name.startswith("_")}


def type_text(annotation: ast.expr, module: ModuleType) -> str:
    """`str | None` → `str` or `None`: a bar would end the cell of a table."""
    return " or ".join(dict.fromkeys(part for part in _parts(annotation, module) if part))


def _parts(node: ast.expr, module: ModuleType) -> list[str]:
    match node:
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _parts(left, module) + _parts(right, module)
        case ast.Name(id=name) if name in LINKED:
            return [LINKED[name]]
        case ast.Name(id=name):
            value = getattr(module, name, None)
            if get_origin(value) is Literal:
                return [f"`{one!r}`".replace("'", '"') for one in get_args(value)]
            if value is not None and not inspect.isclass(value) and get_args(value):
                return _alias_parts(name)
        case ast.Subscript(value=ast.Name(id="Literal"), slice=ast.Tuple(elts=choices)):
            return [f'`"{one.value}"`' for one in choices if isinstance(one, ast.Constant)]
    return [f"`{ast.unparse(node)}`".replace("'", '"').replace(" | ", " or ")]


@cache
def _alias_parts(name: str) -> list[str]:
    """What an alias of ours, such as Priority, is made of: from where it is defined."""
    homes = [one for key, one in sorted(sys.modules.items()) if key.startswith("leasehold.domain")]
    for module in (one for one in homes if hasattr(one, name)):
        for node in tree_of(module).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
                return _parts(node.value, module)
    return [f"`{name}`"]


def default_text(value: object) -> str:
    """As Markdown; empty where there is none to show."""
    if value is MISSING or value is inspect.Parameter.empty or isinstance(value, EllipsisType):
        return ""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return f"`{value!r}`".replace("'", '"')


def field_default(field: Field[Any]) -> str:
    if field.default_factory is MISSING:
        return default_text(field.default)
    made = field.default_factory()
    return (
        f"`{type(made).__name__}()`" if type(made).__module__.startswith("leasehold.") else default_text(made)
    )


def first_sentence(text: str | None) -> str:
    """Up to its first full stop: not that of an abbreviation, of a number, or inside of code."""
    plain = " ".join((text or "").split("\n\n")[0].split())
    inside = 0
    for place, letter in enumerate(plain):
        inside ^= letter == "`"
        if letter == "." and not inside and re.match(r"\.(\s+[A-Z`\"“(]|$)", plain[place:]):
            return plain[: place + 1]
    return plain.rstrip(":") + ("" if not plain or plain[-1] in ".!?" else ".")


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    lines = [" | ".join(head), "|".join("---" for _ in head), *(" | ".join(row) for row in rows)]
    return [f"| {line} |" if "---" not in line else f"|{line}|" for line in lines]

"""environment.md: every environment variable that the source reads, and those that it sets for commands."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from leasehold.runners import execution_folder
from tools.reference.source import constant_docs, docs_in, table

SOURCE = Path(execution_folder.__file__).parent.parent
HEAD = """# Environment variables

Every environment variable that Leasehold reads. What a program passes in code, or an option of a command, comes first.
Drivers read their own besides, such as `PGPASSWORD`.
"""
GIVEN = """## For commands and containers

Leasehold sets these for the programs of `@app.command` and `@app.container`.
"""
MARKS = re.compile(r"\benviron\b|\bgetenv\b|\benvvar\b")
READERS = ("os.environ.get", "os.getenv")


def environment_page() -> str:
    given = [
        (getattr(execution_folder, name), text)
        for name, text in constant_docs(execution_folder).items()
        if name.endswith("_VARIABLE")
    ]
    lines = [HEAD, *_rows(sorted(variables().items())), "", GIVEN, *_rows(given)]
    return "\n".join(lines) + "\n"


def variables() -> dict[str, str]:
    """Name and sentence of each that is read: the sentence of its constant, else that of the option which takes it."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(SOURCE.rglob("*.py"))}
    trees = {path: ast.parse(text) for path, text in texts.items() if MARKS.search(text)}
    constants: dict[str, str] = {}
    sentences: dict[str, str] = {}
    for tree in trees.values():
        docs = docs_in(tree.body)
        for name, value in _constants(tree):
            constants[name] = value
            if name in docs:
                sentences.setdefault(value, docs[name])
    found: dict[str, str] = {}
    for tree in trees.values():
        own = constants | dict(_constants(tree))
        for node, about in _reads(tree):
            for name in _names(node, own):
                found[name] = sentences.get(name) or found.get(name) or about
    return found


def _constants(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(value))):
                yield name, value


def _reads(tree: ast.Module) -> Iterator[tuple[ast.expr, str]]:
    """What names a variable, and the help of the option if it is one."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=function, args=[name, *_]) if ast.unparse(function) in READERS:
                yield name, ""
            case ast.Subscript(value=value, slice=name, ctx=ast.Load()) if ast.unparse(value) == "os.environ":
                yield name, ""
            case ast.comprehension(target=ast.Name(), iter=ast.Tuple() as names, ifs=[test]) if (
                "os.environ" in ast.unparse(test)
            ):
                yield names, ""
            case ast.Call(keywords=keywords):
                given = {one.arg: one.value for one in keywords}
                if "envvar" in given:
                    about = given.get("help")
                    yield given["envvar"], about.value if isinstance(about, ast.Constant) else ""


def _names(node: ast.expr, constants: dict[str, str]) -> list[str]:
    match node:
        case ast.Constant(value=str(name)):
            return [name]
        case ast.Name(id=name):
            return [constants[name]] if name in constants else []
        case ast.Tuple(elts=parts):
            return [name for part in parts for name in _names(part, constants)]
    return []


def _rows(found: list[tuple[str, str]]) -> list[str]:
    return table(["Variable", "Meaning"], [[f"`{name}`", text] for name, text in found])

"""store.md: every verb of a store with its promise, by stage."""

from __future__ import annotations

import ast

from leasehold.stores.store import JobStore
from tools.reference.source import body_of

HEAD = """# The store

Every verb of `JobStore` (`src/leasehold/stores/store.py`) with what it promises. Both databases keep the same promises;
`tests/contract` checks them on both. A verb is synchronous, safe to call from several threads, and one short
transaction: all of it has happened when the call returns, or nothing when it raises.

A section stands for a file in `src/leasehold/stores/verbs`, written once for both databases. What each database writes
itself is marked with *each database*: a third database would write these methods, and the statements in SQL.
"""

Verb = ast.FunctionDef | ast.AsyncFunctionDef


def store_page() -> str:
    lines = [HEAD]
    for stage in (JobStore, *stages(JobStore)):
        if found := verbs_of(stage):
            title = stage.__module__.rpartition(".")[2].replace("_", " ").capitalize()
            lines += [f"## {title}", "", _text(body_of(stage)), "", *map(_line, found), ""]
    return "\n".join(lines).rstrip() + "\n"


def stages(store: type) -> list[type]:
    """The classes that a store is made of, in the order of its bases, each after those that it builds on."""
    found: dict[type, None] = {}
    for base in store.__bases__:
        if base.__module__.startswith("leasehold."):
            found |= dict.fromkeys([*stages(base), base])
    return list(found)


def verbs_of(stage: type) -> list[Verb]:
    """The public methods and properties that the class itself defines."""
    return [node for node in body_of(stage).body if isinstance(node, Verb) and not node.name.startswith("_")]


def _line(verb: Verb) -> str:
    marks = {ast.unparse(mark) for mark in verb.decorator_list}
    signature = verb.name if "property" in marks else f"{verb.name}({_arguments(verb.args)})"
    awaited = "await " if isinstance(verb, ast.AsyncFunctionDef) else ""
    own = " (*each database*)" if "abstractmethod" in marks else ""
    return (
        f"- `{awaited}{signature} -> {ast.unparse(verb.returns or ast.Constant(None))}`{own}: {_text(verb)}"
    )


def _arguments(arguments: ast.arguments) -> str:
    """Without the session, which `transaction` and `reading` give."""
    text = ast.unparse(arguments).removeprefix("self").removeprefix(", ").removeprefix("session: Session")
    return text.removeprefix(", ").replace("'", '"').replace("=", " = ")


def _text(node: Verb | ast.ClassDef) -> str:
    return " ".join((ast.get_docstring(node) or "").split())

"""python.md: every public name of every public module, classes with their methods and fields."""

from __future__ import annotations

import ast
import enum
import importlib
import inspect
import pkgutil
import re
import sys
from collections.abc import Iterator
from dataclasses import is_dataclass
from types import ModuleType
from typing import Any, get_args, is_typeddict

import leasehold.contrib
from tools.reference.source import (
    annotations_of,
    body_of,
    constant_docs,
    docs_in,
    field_docs,
    first_sentence,
    table,
    tree_of,
)

HEAD = """# Python

Every public name. Import what a program needs most from `leasehold`, errors from `leasehold.errors`, and values for
annotations from `leasehold.types`. Every method that touches the database has an async twin with an `a` before its
name and the same arguments: `job.cancel()` and `await job.acancel()`. A name with an underscore is not public.
"""
MODULES = (
    "leasehold",
    "leasehold.types",
    "leasehold.errors",
    "leasehold.testing",
    "leasehold.http",
    "leasehold.dashboard",
    "leasehold.mcp",
    "leasehold.remote",
    "leasehold.runners",
    "leasehold.webhooks",
)
ELSEWHERE = {
    "TaskOptions": "settings.md#tasks-and-calls",
    "CallOptions": "settings.md#calls-only",
    "Retry": "settings.md#retry",
    "Rate": "settings.md#rate",
    "Slot": "settings.md#slot",
    "ScheduleOptions": "settings.md#schedules",
    "Command": "settings.md#command",
    "ContainerSpec": "settings.md#containerspec",
    "Mount": "settings.md#mount",
}
"""Their fields are settings, and stand on that page."""
MADE_BY_USERS = {
    "Leasehold",
    "Remote",
    "Delivery",
    "McpApp",
    "ManualClock",
    "Fail",
    "Pause",
    "Snooze",
    "RetryIn",
}
"""Other objects are given back by a method: how they are made is nobody's business."""


def modules() -> list[ModuleType]:
    of_contrib = [f"leasehold.contrib.{one.name}" for one in pkgutil.iter_modules(leasehold.contrib.__path__)]
    return [importlib.import_module(name) for name in (*MODULES, *sorted(of_contrib))]


def public_names(module: ModuleType) -> list[str]:
    return list(module.__all__)


def python_page() -> str:
    lines, shown = [HEAD], {}
    for module in modules():
        lines += [f"## {module.__name__}", "", _opening(module), ""]
        if module.__name__ == "leasehold.errors":
            lines += [f"[Errors](errors.md) describes each: {_listed(public_names(module))}.", ""]
            continue
        again = []
        for name in public_names(module):
            value = getattr(module, name, None) if name not in _declared(module) else None
            if (
                inspect.isclass(value)
                and issubclass(value, BaseException)
                and module.__name__ == "leasehold"
                and value.__module__.endswith("errors")
            ):
                again.append(f"[{name}](errors.md#{name.lower()})")
            elif value is not None and shown.get(name) is value:
                again.append(f"[{name}](#{name.lower()})")
            else:
                title = name if name not in shown else f"{module.__name__}.{name}"
                shown.setdefault(name, value)
                lines += [f"### {title}", "", *_described(module, name, value), ""]
        lines += [f"And, as described elsewhere: {', '.join(again)}.", ""] if again else []
    return "\n".join(lines).rstrip() + "\n"


def _opening(module: ModuleType) -> str:
    """What its docstring says before the example."""
    return " ".join((module.__doc__ or "").strip().split("\n\n")[0].split())


def _listed(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _declared(module: ModuleType) -> dict[str, str]:
    """Names that are made when they are asked for, and stand in the source for type checkers alone."""
    found: dict[str, str] = {}
    for node in tree_of(module).body:
        if isinstance(node, ast.If):
            found |= docs_in(node.body)
    return found


def _described(module: ModuleType, name: str, value: Any) -> Iterator[str]:
    if name in _declared(module):
        yield _declared(module)[name]
    elif inspect.isclass(value) or inspect.isfunction(value):
        yield _doc(value)
        if inspect.isfunction(value):
            yield ""
            yield f"- `{name}{signature_of(value)}`"
        elif name in ELSEWHERE:
            yield ""
            yield f"[Settings]({ELSEWHERE[name]}) has its fields."
        else:
            yield from _of_class(value)
    else:
        yield from _of_alias(name, value)


def _doc(value: Any) -> str:
    """The whole docstring as Markdown. An example in it, which is indented further, becomes a block."""
    parts = []
    for part in re.sub(r"^ {4}", "", value.__doc__ or "", flags=re.MULTILINE).strip().split("\n\n"):
        if part.startswith("    "):
            example = "\n".join(line.removeprefix("    ") for line in part.splitlines())
            parts.append(f"```text\n{example}\n```")
        else:
            parts.append(" ".join(part.split()))
    return "\n\n".join(parts)


def _of_alias(name: str, value: Any) -> Iterator[str]:
    homes = [one for key, one in sorted(sys.modules.items()) if key.startswith("leasehold.")]
    same = (one for one in homes if getattr(one, name, None) == value)  # first: it costs nothing
    home = next((one for one in same if name in constant_docs(one)), None)
    if home is not None:
        yield constant_docs(home)[name]
        yield ""
    choices = get_args(value)
    words = [
        repr(one).replace("'", '"') if isinstance(one, str | bool) else getattr(one, "__name__", str(one))
        for one in choices
    ]
    yield "One of " + ", ".join(f"`{word}`" for word in words) + "."


def _of_class(worker: type) -> Iterator[str]:
    if issubclass(worker, enum.Enum):
        yield ""
        yield (
            "One of " + ", ".join(f"`{one.name}` (`{one.value!r}`)".replace("'", '"') for one in worker) + "."
        )
        return
    if is_dataclass(worker) or is_typeddict(worker) or hasattr(worker, "_fields"):
        types, docs = annotations_of(worker), _all_docs(worker)
        rows = [[f"`{name}`", text, docs.get(name, "")] for name, text in types.items()]
        yield ""
        yield from table(["Field", "Type", "Meaning"], rows)
    members = list(_members(worker))
    if members:
        yield ""
        yield from members


def _all_docs(worker: type) -> dict[str, str]:
    found: dict[str, str] = {}
    for base in getattr(worker, "__orig_bases__", ()):
        if inspect.isclass(base) and base.__module__.startswith("leasehold."):
            found |= _all_docs(base)
    return found | field_docs(worker)


def _members(worker: type) -> Iterator[str]:
    """Its own and its inherited ones, in the order of the source; attributes, then methods."""
    found: dict[str, object] = {}
    for one in reversed(worker.__mro__):
        if one.__module__.startswith("leasehold."):
            found |= {name: member for name, member in vars(one).items() if not name.startswith("_")}
    if worker.__name__ in MADE_BY_USERS:
        yield f"- `{worker.__name__}{signature_of(worker.__init__)}`"
    for name, text in _attributes(worker).items():
        yield f"- `{name}`: {text}"
    for name, member in found.items():
        if isinstance(member, property):
            yield f"- `{name}`: {first_sentence(member.__doc__)}".rstrip(": ")
    for name, member in found.items():
        function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        if not inspect.isfunction(function) or (name.startswith("a") and name[1:] in found):
            continue
        twin = f" Async: `a{name}`." if f"a{name}" in found else ""
        wait = "await " if inspect.iscoroutinefunction(function) else ""
        yield f"- `{wait}{name}{signature_of(function)}`: {first_sentence(inspect.getdoc(getattr(worker, name)))}{twin}"


def _attributes(worker: type) -> dict[str, str]:
    """Handles that `__init__` sets, such as `app.queues`: what their class says of itself."""
    found: dict[str, str] = {}
    for one in reversed(worker.__mro__):
        if not one.__module__.startswith("leasehold.") or is_dataclass(one):
            continue
        init = next(
            (n for n in body_of(one).body if isinstance(n, ast.FunctionDef) and n.name == "__init__"), None
        )
        module = sys.modules[one.__module__]
        for node in init.body if init else ():
            match node:
                case ast.Assign(
                    targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)],
                    value=ast.Call(func=ast.Name(id=made)),
                ) if not name.startswith("_") and _is_handle(getattr(module, made, None)):
                    found[name] = f"[{made}](#{made.lower()})."
    return found


def _is_handle(made: Any) -> bool:
    return inspect.isclass(made) and made.__module__.startswith(("leasehold.client.", "leasehold.remote."))


def signature_of(function: Any) -> str:
    """Without `self`, with the annotations as they stand in the source."""
    signature = inspect.signature(function)
    parameters = [_Shown(one) for one in signature.parameters.values() if one.name not in ("self", "cls")]
    given = signature.return_annotation
    returns = "" if given in (signature.empty, None, "None") else f" -> {_annotation(given)}"
    return str(inspect.Signature(parameters)) + returns


class _Shown(inspect.Parameter):
    """A parameter whose annotation is not quoted, and whose text has the quotes that people write."""

    def __init__(self, one: inspect.Parameter) -> None:
        super().__init__(one.name, one.kind, default=one.default, annotation=one.annotation)

    def __str__(self) -> str:
        stars = "*" * ((self.kind is self.VAR_POSITIONAL) + 2 * (self.kind is self.VAR_KEYWORD))
        typed = "" if self.annotation is self.empty else f": {_annotation(self.annotation)}"
        if self.default is self.empty:
            return f"{stars}{self.name}{typed}"
        default = "..." if self.default is ... else repr(self.default).replace("'", '"')
        return f"{self.name}{typed} = {default}" if typed else f"{self.name}={default}"


def _annotation(given: Any) -> str:
    return given if isinstance(given, str) else inspect.formatannotation(given)

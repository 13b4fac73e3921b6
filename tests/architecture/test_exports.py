"""The public names are those of these doors, and no others."""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Iterator

import pytest

import leasehold
import leasehold.errors
import leasehold.http
import leasehold.remote
import leasehold.types
from leasehold.domain import errors as tree
from leasehold.domain import signals
from tests.architecture.sources import PACKAGE, WHOLE, modules

DOORS = (leasehold, leasehold.errors, leasehold.http, leasehold.remote, leasehold.types)
MOST = 20
"""Names at the top: what nearly every program needs. The rest has a door of its own."""


@pytest.mark.parametrize("door", DOORS)
def test_all_is_sorted_and_names_nothing_twice(door):
    assert list(door.__all__) == sorted(set(door.__all__))


@pytest.mark.parametrize("door", DOORS)
def test_every_public_name_can_be_imported(door):
    missing = [name for name in door.__all__ if not hasattr(door, name)]
    assert missing == []


@pytest.mark.parametrize("door", DOORS)
def test_every_public_class_and_function_is_ours(door):
    foreign = [
        name
        for name in door.__all__
        if inspect.isclass(value := getattr(door, name)) or inspect.isfunction(value)
        if value.__module__.split(".")[0] != "leasehold"
    ]
    assert foreign == []


@pytest.mark.parametrize("door", DOORS)
def test_nothing_else_looks_public(door):
    leaks = [
        name
        for name, value in vars(door).items()
        # pytest's assertion rewriting hangs names with "@" onto the modules of a plugin's package.
        if not name.startswith(("_", "@")) and name not in door.__all__ and not is_own_module(value)
    ]
    assert leaks == [], "import it under a private name, or add it to __all__"


def is_own_module(value: object) -> bool:
    """Python itself hangs every imported submodule onto its package."""
    return isinstance(value, types.ModuleType) and value.__name__.startswith("leasehold.")


def test_the_top_stays_small():
    assert len(leasehold.__all__) <= MOST


def test_every_error_of_the_tree_can_be_imported():
    # What makes them survive pickling, and what AtCapacity lists: a record, in leasehold.types.
    others = {"Portable", "RunningJob"}
    assert set(leasehold.errors.__all__) == own_classes(tree) - others


def test_every_signal_that_a_handler_may_raise_can_be_imported_from_the_top():
    # What they have in common, what ctx.ask raises, and what an exit in a child task becomes.
    ours = {"Signal", "Park", "HandlerExit"}
    assert own_classes(signals) - ours <= set(leasehold.__all__)


def own_classes(module: types.ModuleType) -> set[str]:
    return {name for name, value in vars(module).items() if inspect.isclass(value) and is_from(value, module)}


def is_from(value: type, module: types.ModuleType) -> bool:
    return value.__module__ == module.__name__


def exported() -> set[str]:
    return {name for door in DOORS for name in door.__all__}


def public_classes() -> list[type]:
    found = {getattr(door, name) for door in DOORS for name in door.__all__}
    return sorted((one for one in found if inspect.isclass(one)), key=lambda one: one.__name__)


# Given back by public methods, and yet nothing that anybody would name.
UNNAMED = {
    "Register": "the decorator that @app.task(...) makes; used at once",
    "RegisterExternal": "the decorator that @app.command(...) makes; used at once",
    "RegisterSchedule": "the decorator that @app.schedule(...) makes; used at once",
    "NewJob": "what a follow-up stores with the success; for the run itself",
}


@pytest.mark.parametrize("one", public_classes(), ids=lambda one: one.__name__)
def test_what_a_public_method_gives_back_can_be_imported(one: type):
    found = {
        f"{one.__name__}.{name} gives {given.__name__}"
        for name, returned in returns(one)
        for given in ours_in(returned)
        if given.__name__ not in exported() and given.__name__ not in UNNAMED
    }
    assert found == set(), "add it to leasehold.types"


def returns(one: type) -> Iterator[tuple[str, object]]:
    """What its public methods, properties and fields give."""
    for name, member in inspect.getmembers(one):
        if name.startswith("_"):
            continue
        function = member.fget if isinstance(member, property) else member
        if inspect.isfunction(function):
            yield name, typing.get_type_hints(function).get("return")
    for name, annotation in fields_of(one).items():
        yield name, annotation


def fields_of(one: type) -> dict[str, object]:
    return {name: hint for name, hint in typing.get_type_hints(one).items() if not name.startswith("_")}


def ours_in(annotation: object) -> Iterator[type]:
    """The classes of ours that an annotation is made of."""
    if inspect.isclass(annotation) and annotation.__module__.startswith("leasehold."):
        yield annotation
    for part in typing.get_args(annotation):
        yield from ours_in(part)
    origin = typing.get_origin(annotation)
    if inspect.isclass(origin) and origin.__module__.startswith("leasehold."):
        yield origin


def test_what_a_docstring_says_is_raised_can_be_imported():
    raised = {
        name
        for one in public_classes()
        for _, member in inspect.getmembers(one, inspect.isfunction)
        for name in re.findall(r"\b[Rr]aises? (?:an? )?([A-Z]\w+)", inspect.getdoc(member) or "")
    }
    assert raised
    assert raised - exported() == set()


# What stands behind a public object, and who may reach it: see wiring.py.
INSIDES = {
    "__internals__": (
        "leasehold.app",
        "leasehold.view",
        "leasehold.testing",
        "leasehold.surfaces",
        "leasehold.demo",
    ),
    "__plan__": ("leasehold.tasks", "leasehold.run.follow_ups"),
    "__row__": ("leasehold.client.job", "leasehold.surfaces", "leasehold.demo"),
}


@WHOLE
def test_only_our_own_surfaces_reach_behind_a_public_object():
    found = {
        f"{module.name} uses {name}"
        for module in modules(PACKAGE)
        for name, allowed in INSIDES.items()
        if f".{name}" in module.path.read_text(encoding="utf-8")
        and not module.name.startswith(allowed)
        and module.name != "leasehold.wiring"
    }
    assert found == set()


def test_internals_are_not_offered():
    hidden = {"store", "operations", "unchecked", "scratch", "moved_to", "run_now_by_name", "row", "new_job"}
    for one in (leasehold.Leasehold, leasehold.Task, leasehold.Job, leasehold.types.Call):
        assert {name for name in dir(one) if not name.startswith("_")} & hidden == set()

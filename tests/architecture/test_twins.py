"""Every verb that touches the database has an async twin, `a…`, with the same arguments."""

from __future__ import annotations

import inspect

import pytest

from leasehold import Group, Job, Leasehold, Task
from leasehold.types import Call, Chain, Dag, Lanes, Pausable, Questions, Rates, Schedules, Slots

HANDLES = (Leasehold, Task, Call, Chain, Dag, Job, Group, Lanes, Pausable, Questions, Rates, Schedules, Slots)

# They only make something in memory, or register it.
WITHOUT_DATABASE = {
    Leasehold: {
        "task",
        "chain",
        "dag",
        "worker",
        "include",
        "schedule",
        "lifespan",
        "middleware",
        "on",
        "group",
    },
    Task: {"using", "bind"},
    Call: {"bind"},
    Dag: {"add"},
}


def is_async(member: object) -> bool:
    return inspect.iscoroutinefunction(member) or inspect.isasyncgenfunction(member)


VERBS = [
    (handle, name)
    for handle in HANDLES
    for name, member in vars(handle).items()
    if not name.startswith("_") and inspect.isfunction(member) and not is_async(member)
]


@pytest.mark.parametrize(("handle", "name"), VERBS, ids=lambda one: getattr(one, "__name__", one))
def test_a_verb_has_its_twin(handle: type, name: str):
    if name in WITHOUT_DATABASE.get(handle, ()):
        assert not hasattr(handle, f"a{name}"), "it touches nothing: no twin is needed"
        return
    twin = getattr(handle, f"a{name}", None)
    assert twin is not None, f"{handle.__name__}.{name} has no a{name}"
    assert is_async(twin)
    mine, others = inspect.signature(getattr(handle, name)), inspect.signature(twin)
    assert mine.parameters == others.parameters


@pytest.mark.parametrize("handle", HANDLES)
def test_a_twin_has_its_verb(handle: type):
    lonely = [
        name
        for name, member in vars(handle).items()
        if is_async(member) and not (name.startswith("a") and hasattr(handle, name[1:]))
    ]
    assert lonely == []

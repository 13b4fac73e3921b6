"""Every verb that touches the database has an async twin, `a…`, with the same arguments."""

from __future__ import annotations

import ast
import dataclasses
import inspect

import pytest

import leasehold.types
from leasehold import Group, Job, Leasehold, Task, remote
from leasehold.client.schedules import AppSchedules
from leasehold.client.view import View
from leasehold.remote.client import RemoteView
from leasehold.types import (
    Bulk,
    Call,
    Chain,
    Dag,
    Lanes,
    Mirrors,
    Pausable,
    Questions,
    Queues,
    Rates,
    Schedules,
    Slots,
    Tasks,
    Tenant,
    Tenants,
)
from leasehold.view import AppView
from tests.architecture.sources import PACKAGE, WHOLE, modules, nodes

HANDLES = (
    Leasehold,
    Task,
    Call,
    Chain,
    Dag,
    Job,
    Bulk,
    Group,
    Tasks,
    Lanes,
    Mirrors,
    Pausable,
    Questions,
    Queues,
    Rates,
    Schedules,
    Slots,
    Tenant,
    Tenants,
    AppSchedules,
    AppView,
    View,
    remote.Remote,
    RemoteView,
    remote.Tenant,
)

# They only make something in memory, or register it.
WITHOUT_DATABASE = {
    Leasehold: {
        "task",
        "worker",
        "configure",
        "include",
        "schedule",
        "command",
        "container",
        "external",
        "webhook",
        "lifespan",
        "middleware",
        "instrument",
        "on",
        "tenant",
    },
    AppView: {"chain", "dag"},
    View: {"group"},
    remote.Remote: {"tenant"},
    Task: {"using", "bind"},
    Call: {"bind"},
    Dag: {"add"},
}


# Public classes with plain methods that are no handles, and why they need no twins.
ONE_COLOUR = {
    "Bindable": "a shape: what it makes is in memory",
    "FollowUp": "a shape: what it makes is stored with its run's success",
    "Context": "of async handlers: its verbs are awaited, or only put something in a buffer",
    "SyncContext": "of plain handlers",
    "SyncTransaction": "of plain handlers",
    "Tracing": "a shape: what is told is never waited for",
    "Transaction": "of async handlers",
    "Worker": "lives on a loop: what blocks is awaited, the rest only sets a flag or looks into memory",
}


def test_every_public_class_is_a_handle_or_says_why_it_needs_no_twins():
    """A handle that is new must come under the test below."""
    unlisted = {
        name
        for name in leasehold.types.__all__
        if inspect.isclass(one := getattr(leasehold.types, name))
        and one not in HANDLES
        and name not in ONE_COLOUR
        and not dataclasses.is_dataclass(one)
        and any(inspect.isfunction(m) and not n.startswith("_") for n, m in vars(one).items())
    }
    assert unlisted == set()


def test_no_property_of_a_handle_asks_the_database_by_itself():
    """What must be asked for is a verb, which has a twin; a property tells what was read before, or the one row."""
    questions_box = {
        f"{handle.__name__}.{name}"
        for handle in HANDLES
        for name, member in vars(handle).items()
        if isinstance(member, property) and not name.startswith("_") and "_operations" in getsource(member)
    }
    assert questions_box == set()


def getsource(member: property) -> str:
    assert member.fget is not None
    return inspect.getsource(member.fget)


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
        if is_async(member)
        and not name.startswith("__")
        and not (name.startswith("a") and hasattr(handle, name[1:]))
    ]
    assert lonely == []


BY_THE_PROGRAMS_THREADS = {"leasehold.tasks.external"}
"""What it calls is the user's."""


@WHOLE
def test_twins_wait_in_threads_of_our_own():
    """asyncio's may all be taken by the program's own blocking calls."""
    users = {
        module.name
        for module in modules(PACKAGE)
        for node in nodes(module.tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "asyncio.to_thread"
    }
    assert users == BY_THE_PROGRAMS_THREADS

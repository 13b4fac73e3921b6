"""The public names are the ones in `leasehold.__all__`, and no others."""

from __future__ import annotations

import inspect
import types

import leasehold


def test_all_is_sorted_and_names_nothing_twice():
    assert list(leasehold.__all__) == sorted(set(leasehold.__all__))


def test_every_public_name_can_be_imported():
    missing = [name for name in leasehold.__all__ if not hasattr(leasehold, name)]
    assert missing == []


def test_every_public_class_and_function_is_ours():
    foreign = [
        name
        for name in leasehold.__all__
        if inspect.isclass(value := getattr(leasehold, name)) or inspect.isfunction(value)
        if value.__module__.split(".")[0] != "leasehold"
    ]
    assert foreign == []


def test_nothing_else_looks_public():
    leaks = [
        name
        for name, value in vars(leasehold).items()
        # pytest's assertion rewriting hangs names with "@" onto the modules of a plugin's package.
        if not name.startswith(("_", "@")) and name not in leasehold.__all__ and not is_own_module(value)
    ]
    assert leaks == [], "import it under a private name, or add it to __all__"


def is_own_module(value: object) -> bool:
    """Python itself hangs every imported submodule onto its package."""
    return isinstance(value, types.ModuleType) and value.__name__.startswith("leasehold.")

"""One meaning per class name, among the names that users import, the classes of the domain and those of surfaces."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections import defaultdict
from collections.abc import Iterator
from types import ModuleType

import leasehold.contrib
import leasehold.domain
import leasehold.surfaces

PUBLIC = (
    *("leasehold", "leasehold.types", "leasehold.errors", "leasehold.webhooks", "leasehold.remote"),
    *("leasehold.runners", "leasehold.runners.contract", "leasehold.testing"),
    *(
        f"leasehold.contrib.{found.name}"
        for found in pkgutil.iter_modules(leasehold.contrib.__path__)
        if not found.ispkg
    ),
)  # Django's package has no class that users import.
MODELS = ("leasehold.surfaces.http.responses", "leasehold.surfaces.mcp.responses")
"""Their classes are the public ones as JSON, under the same names."""

# Names that two classes share, and why. An entry that is no longer needed fails a test too.
SHARED = {
    "CallOptions": "the keywords of one call; a remote client has those that the HTTP API takes",
    "Job": "the handle that users hold, and the record of the job that it shows",
    "JobCall": "one call of a task: what the remote client sends, and the body that the server reads",
    "Progress": "what a job reports, and rich's own class, which a program imports from contrib instead",
    "Tenant": "one tenant, of the app and of a server over HTTP: the same verbs",
}


def test_a_class_name_has_one_meaning():
    meanings = defaultdict(set)
    for kind in [*public_classes(), *classes_below(leasehold.domain)]:
        meanings[kind.__name__].add(f"{kind.__module__}.{kind.__qualname__}")
    known = frozenset(meanings)
    for kind in classes_below(leasehold.surfaces):
        if kind.__name__ in known and kind.__module__ not in MODELS:
            meanings[kind.__name__].add(f"{kind.__module__}.{kind.__qualname__}")
    shared = {name: sorted(places) for name, places in meanings.items() if len(places) > 1}
    assert {name: places for name, places in shared.items() if name not in SHARED} == {}
    assert sorted(SHARED.keys() - shared.keys()) == [], "these are gone: take them out of SHARED"


def public_classes() -> Iterator[type]:
    """The classes that a public module lists in `__all__`; without one, those that it defines."""
    for name in PUBLIC:
        module = importlib.import_module(name)
        if hasattr(module, "__all__"):
            found = (getattr(module, public) for public in module.__all__)
            yield from filter(inspect.isclass, found)
        else:
            yield from classes_in(name)


def classes_below(package: ModuleType) -> Iterator[type]:
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        yield from classes_in(found.name)


def classes_in(name: str) -> Iterator[type]:
    for own, kind in vars(importlib.import_module(name)).items():
        if inspect.isclass(kind) and kind.__module__ == name and not own.startswith("_"):
            yield kind

"""One meaning per class name, among the names that users import and the classes of the domain."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections import defaultdict
from collections.abc import Iterator

import leasehold.domain

PUBLIC = ("leasehold", "leasehold.types", "leasehold.errors", "leasehold.webhooks", "leasehold.remote")

# Names that two classes share, and why. An entry that is no longer needed fails a test too.
SHARED = {
    "Job": "the handle that users hold, and the record of the job that it shows",
}


def test_a_class_name_has_one_meaning():
    meanings = defaultdict(set)
    for kind in [*public_classes(), *classes_of_the_domain()]:
        # `leasehold.remote` has the app's names for the app's things: they are compared as one.
        if not kind.__module__.startswith("leasehold.remote."):
            meanings[kind.__name__].add(f"{kind.__module__}.{kind.__qualname__}")
    shared = {name: sorted(places) for name, places in meanings.items() if len(places) > 1}
    assert {name: places for name, places in shared.items() if name not in SHARED} == {}
    assert sorted(SHARED.keys() - shared.keys()) == [], "these are gone: take them out of SHARED"


def public_classes() -> Iterator[type]:
    for name in PUBLIC:
        module = importlib.import_module(name)
        yield from filter(inspect.isclass, (getattr(module, public) for public in module.__all__))


def classes_of_the_domain() -> Iterator[type]:
    for found in pkgutil.walk_packages(leasehold.domain.__path__, "leasehold.domain."):
        module = importlib.import_module(found.name)
        for name, kind in vars(module).items():
            if inspect.isclass(kind) and kind.__module__ == found.name and not name.startswith("_"):
                yield kind

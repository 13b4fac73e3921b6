from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.harness import Fleet, Place

MakePlace = Callable[..., Place]


@pytest.fixture
def make_place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakePlace]:
    """A database of the test's own: `make_place("sqlite", lease=2.0)`."""
    places: list[Place] = []

    def make(store: str, *, lease: float = 2.0, url: str | None = None, **more: str) -> Place:
        folder = tmp_path / str(len(places))
        folder.mkdir()
        if store == "sqlite":
            place = Place(store, url or f"sqlite:///{folder}/jobs.db", "leasehold", folder, lease)
        elif url is not None:
            place = Place(store, url, "leasehold", folder, lease, **more)
        else:
            shared = request.getfixturevalue("postgres_url")
            schema = request.getfixturevalue("postgres_schema")
            place = Place(store, shared, schema, folder, lease)
        places.append(place)
        return place

    yield make
    for place in places:
        place.close()


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, make_place: MakePlace) -> Place:
    """An empty database of each kind. The lease is short, so that recovery is quick; a test that needs another one
    says so with `@pytest.mark.parametrize("lease", …)`."""
    lease = request.getfixturevalue("lease") if "lease" in request.fixturenames else 2.0
    return make_place(request.param, lease=lease)


@pytest.fixture
def fleet(place: Place) -> Iterator[Fleet]:
    """Its workers are gone before the database is."""
    fleet = Fleet(place)
    yield fleet
    fleet.close()

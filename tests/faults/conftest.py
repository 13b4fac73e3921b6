from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.faults import execution_tasks
from tests.faults.execution_kinds import Kind
from tests.faults.harness import Fleet, Place
from tests.runners.docker.lab import HOST

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


# --- executions -----------------------------------------------------------------------------------------------------


ONE_ENGINE = pytest.mark.xdist_group("docker")


@pytest.fixture(params=["command", pytest.param("container", marks=ONE_ENGINE)])
def kind_name(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Workers that the test starts from here on run executions of this kind."""
    name: str = request.param
    if name == "container":
        monkeypatch.setenv(HOST, request.getfixturevalue("docker_engine").host)
    monkeypatch.setenv("LEASEHOLD_TEST_KIND", name)
    return name


# Containers are slow to start and to stop: of what the runner decides, its own tests show more.
containers_on_sqlite_alone = pytest.mark.parametrize(
    ("place", "kind_name"),
    [("sqlite", "command"), ("postgres", "command"), pytest.param("sqlite", "container", marks=ONE_ENGINE)],
    indirect=True,
)
commands_alone = pytest.mark.parametrize("kind_name", ["command"], indirect=True)


@pytest.fixture
def executions(place: Place, kind_name: str) -> Iterator[SimpleNamespace]:
    """The tasks."""
    tasks = execution_tasks.register(place.app, place.folder, place.lease)
    yield tasks
    tasks.kind.clean_up()


@pytest.fixture
def kind(executions: SimpleNamespace) -> Kind:
    found: Kind = executions.kind
    return found

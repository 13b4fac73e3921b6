"""What limits cost those who do not use them: which statements a plain job's life is made of."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from leasehold.domain.outcome import Success
from leasehold.stores.postgres.claim import LOOK_FIRST_SECONDS
from leasehold.stores.postgres.database import PostgresSession
from leasehold.stores.results import Ending
from leasehold.stores.sqlite.database import SqliteSession
from leasehold.stores.store import JobStore
from tests.backends import new_job, put

LIFE = {
    "sqlite": [
        "insert_jobs",
        "insert_new_ready",
        "list_unpaused_gates",
        "find_ready_groups",
        "find_ticket_groups",
        "list_due",
        "insert_leases_of_ready",
        "drop_ready",
        "read_grants",
        "settle_succeeded",
        "end_leases",
    ],
    "postgres": ["insert_plain", "find_due_groups", "claim_plain", "settle_plain"],
}
"""Of a plain job, whose gate is known and the only one."""


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the statements, as they are run."""
    names: list[str] = []
    for session in (SqliteSession, PostgresSession):
        for method in ("rows", "tuples", "run", "quick"):
            if hasattr(session, method):
                monkeypatch.setattr(session, method, _telling(getattr(session, method), names))
    return names


def _telling(real: Callable, names: list[str]) -> Callable:
    def call(self, statement, /, **parameters):
        names.append(statement)
        return real(self, statement, **parameters)

    return call


def live(store: JobStore, queue: str) -> None:
    store.enqueue([new_job(queue=queue)])
    (grant,) = store.claim("w", [queue], 5)
    assert store.settle([Ending(grant.id, grant.token, Success(), grant.seq)]).accepted == [grant.id]


def test_a_plain_life_has_the_statements_that_it_had_without_limits(store, backend, said):
    """Queues of their own: the gates of other tests stay."""
    live(store, "plain-life")
    said.clear()
    live(store, "plain-life")
    assert said == LIFE[backend.name]


@pytest.mark.parametrize("backend", ["postgres"], indirect=True)
def test_an_idle_worker_looks_and_takes_in_one_statement_until_it_meets_more_than_plain_jobs(
    store, said, clock
):
    """On SQLite a statement is no round trip."""

    def statements(idle: bool = True) -> list[str]:
        said.clear()
        grants = store.claim("w", ["idle-life"], 5, idle=idle)
        store.settle([Ending(grant.id, grant.token, Success()) for grant in grants])
        return [name for name in said if name.startswith(("find_due_groups", "claim"))]

    put(store, queue="idle-life")
    assert statements(idle=False) == ["find_due_groups", "claim_plain"]
    assert statements(idle=False) == ["find_due_groups"]
    assert statements() == ["claim_idle"]
    put(store, queue="idle-life")
    assert statements() == ["claim_idle"]
    put(store, queue="idle-life", lane="a")
    assert statements()[:3] == ["claim_idle", "find_due_groups", "claim_lanes"]
    assert "claim_idle" not in statements()
    clock.advance(LOOK_FIRST_SECONDS)
    assert statements() == ["claim_idle"]


@pytest.mark.parametrize(
    ("need", "requested"), [({"slots": (("browser", 1),)}, "read_slots"), ({"rate": "api"}, "read_rates")]
)
def test_a_limit_that_is_closed_costs_others_one_small_read_a_look(store, backend, said, need, requested):
    queue = f"beside-{requested}"
    store.set_slot("browser", 0)
    store.set_rate("api", "1/s", 1.0, 1)
    store.close_rate("api")
    put(store, task="limited", queue=queue, priority=10, **need)
    live(store, queue)
    said.clear()
    live(store, queue)
    more = list(said)
    for name in LIFE[backend.name]:
        more.remove(name)
    assert more == [requested]


def test_an_enqueue_with_limits_that_are_known_asks_nothing_more(store, said):
    store.set_slot("browser", 4)
    store.set_rate("api", "1/s", 1.0, 1)
    put(store, queue="known", slots=(("browser", 1),), rate="api")
    said.clear()
    store.enqueue([new_job(queue="known", slots=(("browser", 1),), rate="api")])
    assert said == ["insert_jobs", "insert_new_ready"]

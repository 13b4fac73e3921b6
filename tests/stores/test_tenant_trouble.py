"""One tenant's database is damaged, locked or lacks its tables: every other tenant, and the app's own store, go on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from leasehold import Leasehold
from leasehold.domain.errors import StoreError
from leasehold.domain.hooks import Listener
from leasehold.domain.job import Grant
from leasehold.domain.outcome import Success
from leasehold.stores.results import Ending
from leasehold.stores.store import JobStore
from leasehold.stores.tenants import visits
from leasehold.testing import ManualClock
from leasehold.worker.reaper import Reaper
from leasehold.worker.scheduler import Scheduler
from tests.backends import Backend, new_job
from tests.trouble import KINDS, Trouble
from tests.workers import wait_for

WELL = {None, "acme"}
EVERYONE = {*WELL, "beta"}


@pytest.fixture(params=KINDS)
def trouble(request: pytest.FixtureRequest, backend: Backend, monkeypatch: pytest.MonkeyPatch) -> Trouble:
    monkeypatch.setattr(visits, "FIRST_PAUSE", 0.05)
    monkeypatch.setattr(visits, "LATE_IS_TROUBLE", 0.0)
    return Trouble(backend, "beta", request.param)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def app(backend: Backend, clock: ManualClock, trouble: Trouble) -> Iterator[Leasehold]:
    with Leasehold(backend.url, schema=backend.schema, clock=clock) as app:
        app.task(name="work")(lambda: None)
        for name in ("acme", "beta"):
            app.tenants.create(name)
        yield app
        for row in app.tenants.list():
            app.tenants.drop(row.name)


@pytest.fixture
def many(app: Leasehold) -> Iterator[JobStore]:
    """The store of a worker that serves all."""
    many = app.__internals__.shared.stores.serving(["all"])
    many.claim("worker", ["default"], 1)
    yield many
    wait_for(lambda: not many._visits._late, "the late calls to end")  # type: ignore[attr-defined]


def part(app: Leasehold, name: str | None) -> JobStore:
    return app.__internals__.store if name is None else app.tenant(name).__internals__.store


def enqueue_everywhere(app: Leasehold, **fields: object) -> dict[str | None, str]:
    ids = {}
    for name in EVERYONE:
        (made,) = part(app, name).enqueue([new_job(**fields)])
        ids[name] = made.id
    return ids


def claim_all(many: JobStore, number: int = 3) -> dict[str | None, Grant]:
    grants: list[Grant] = []
    wait_for(lambda: grants.extend(many.claim("worker", ["default"], 10)) or len(grants) >= number)
    assert len(grants) == number
    return {grant.tenant: grant for grant in grants}


def leases(grants: dict[str | None, Grant]) -> dict[str, int]:
    return {grant.id: grant.token for grant in grants.values()}


def test_claims_of_others_go_on_and_what_was_granted_late_is_found_once(
    app: Leasehold, many: JobStore, trouble: Trouble
):
    ids = enqueue_everywhere(app)
    trouble.begin()
    assert set(claim_all(many, 2)) == WELL
    trouble.end()
    found: list[Grant] = []

    def look() -> bool:
        if many.claims_in_doubt:
            found.extend(many.find_leases_of("worker"))
        found.extend(many.claim("worker", ["default"], 10))
        return bool(found)

    wait_for(look)
    assert [(grant.tenant, grant.id) for grant in found] == [("beta", ids["beta"])]
    (renewal,) = many.renew({found[0].id: found[0].token})
    assert renewal.extended


def test_leases_of_others_are_renewed_and_its_own_are_not_taken_for_lost(
    app: Leasehold, many: JobStore, trouble: Trouble
):
    enqueue_everywhere(app)
    grants = claim_all(many)
    trouble.begin()
    for _ in range(2):
        renewals = {renewal.id: renewal.extended for renewal in many.renew(leases(grants))}
        assert renewals == {grant.id: name in WELL for name, grant in grants.items()}
    assert many.read_stop_requests({grant.id: (grant.seq, grant.token) for grant in grants.values()}) == {}
    trouble.end()
    wait_for(lambda: all(renewal.extended for renewal in many.renew(leases(grants))))


def test_endings_of_others_are_stored_and_its_own_are_kept(app: Leasehold, many: JobStore, trouble: Trouble):
    enqueue_everywhere(app)
    grants = claim_all(many)
    endings = {name: Ending(one.id, one.token, Success("1"), one.seq) for name, one in grants.items()}
    trouble.begin()
    settled = many.settle(list(endings.values()), wait=False)
    assert sorted(settled.accepted) == sorted(grants[name].id for name in WELL)
    assert settled.unanswered == [grants["beta"].id]
    assert settled.fenced == []
    verdicts = many.read_settlements(leases(grants), "worker")
    assert {name: verdicts[grants[name].id] for name in WELL} == dict.fromkeys(WELL, "done")
    assert verdicts[grants["beta"].id] != "fenced"
    trouble.end()
    wait_for(lambda: not many.settle([endings["beta"]], wait=False).unanswered)
    done = dict.fromkeys(leases(grants), "done")
    wait_for(lambda: many.read_settlements(leases(grants), "worker") == done)
    assert part(app, "beta").get(grants["beta"].id).state.value == "succeeded"


def test_lost_leases_of_others_are_recovered(
    app: Leasehold, many: JobStore, trouble: Trouble, clock: ManualClock
):
    ids = enqueue_everywhere(app)
    for name in EVERYONE:
        assert part(app, name).claim("gone", ["default"], 1)
    reaper = Reaper(many, 5.0)
    clock.advance(31)
    assert reaper.sweep() == []
    clock.advance(11)
    trouble.begin()
    assert {lost.tenant for lost in reaper.sweep()} == WELL
    trouble.end()

    def recovered() -> bool:
        reaper.sweep()
        clock.advance(11)
        return part(app, "beta").get(ids["beta"]).state.value == "queued"

    wait_for(recovered)


def test_time_limits_and_schedules_of_others_are_kept(
    app: Leasehold, many: JobStore, trouble: Trouble, clock: ManualClock
):
    for view in (app, app.tenant("acme"), app.tenant("beta")):
        view.schedules.set("hourly", "work", every="1h")
    scheduler = Scheduler(many, "worker", app.__internals__.tasks.definitions, tuple)
    scheduler.beat()
    enqueue_everywhere(app, start_by=5.0)
    clock.advance(3601)
    trouble.begin()
    assert len(many.expire()) == 2
    scheduler.beat()
    for name in WELL:
        assert [job.task for job in part(app, name).list_jobs().jobs if job.state.value == "queued"] == [
            "work"
        ]
    trouble.end()

    def ticked() -> bool:
        scheduler.beat()
        many.expire()
        states = [job.state.value for job in part(app, "beta").list_jobs().jobs]
        return sorted(states) == ["cancelled", "queued"]

    wait_for(ticked)


def test_events_of_others_are_delivered(app: Leasehold, many: JobStore, trouble: Trouble):
    many.register_listeners([Listener("ops", "cancelled", "")])
    many.find_listeners()
    ids = enqueue_everywhere(app)
    more = enqueue_everywhere(app)
    for name in EVERYONE:
        part(app, name).cancel(ids[name])
    first = taken(many, 3)
    for name in EVERYONE:
        part(app, name).cancel(more[name])
    trouble.begin()
    assert {delivery.event.tenant for delivery in taken(many, 2)} == WELL
    many.drop_events([delivery.event.id for delivery in first])
    many.find_listeners()
    trouble.end()
    assert [delivery.event.job_id for delivery in taken(many, 1)] == [more["beta"]]
    wait_for(lambda: taken(many, 0) == [] and waiting(app, "beta") == 1)


def taken(many: JobStore, number: int) -> list:
    found: list = []

    def look() -> bool:
        found.extend(many.take_events(["ops"], 10, 60.0))
        return len(found) >= number

    wait_for(look)
    assert len(found) == number
    return found


def waiting(app: Leasehold, name: str) -> int:
    return part(app, name).list_listeners()[0].waiting


def test_it_is_logged_once_when_it_begins_and_once_when_it_is_over(
    app: Leasehold, many: JobStore, trouble: Trouble, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO, "leasehold.tenants")
    enqueue_everywhere(app)
    grants = claim_all(many)

    def work() -> None:
        many.claim("worker", ["default"], 10)
        many.renew(leases(grants))
        many.sight_overdue()
        many.list_schedules()

    trouble.begin()
    enqueue_everywhere_but_beta(app)
    for _ in range(3):
        many._mark_ready(["beta"])  # type: ignore[attr-defined]
        work()
    (problem,) = many.problems
    assert problem.tenant == "beta"
    assert "://" not in problem.text, "where the database is, is for the log alone"
    (begun,) = [record.getMessage() for record in caplog.records]
    assert begun.startswith("tenant beta is in trouble, and its jobs wait: ")
    trouble.end()
    wait_for(lambda: work() or not many.problems)
    assert [record.getMessage() for record in caplog.records[1:]] == ["tenant beta is served again"]


def enqueue_everywhere_but_beta(app: Leasehold) -> None:
    for name in WELL:
        part(app, name).enqueue([new_job()])


def test_a_role_may_be_late_with_one_tenant_in_several_threads(
    app: Leasehold, many: JobStore, trouble: Trouble
):
    """As the settler, which has two batches under way."""
    for _ in range(2):
        enqueue_everywhere(app)
    grants: list[Grant] = []
    wait_for(lambda: grants.extend(many.claim("worker", ["default"], 10)) or len(grants) == 6)
    first, second = ([one for one in grants if one.tenant == "beta"][number] for number in range(2))
    trouble.begin()
    with ThreadPoolExecutor(2) as threads:
        for grant in (first, second):
            threads.submit(many.settle, [Ending(grant.id, grant.token, Success("1"), grant.seq)], wait=False)
    trouble.end()
    wait_for(lambda: not many._visits._late)  # type: ignore[attr-defined]
    leases_left = {grant.id: grant.token for grant in grants if grant.tenant != "beta"}
    assert all(renewal.extended for renewal in many.renew(leases_left))


def test_if_every_one_is_in_trouble_the_claim_says_so(
    app: Leasehold, backend: Backend, trouble: Trouble, many: JobStore
):
    app.tenants.create("gamma")
    both = app.__internals__.shared.stores.serving(["beta", "gamma"])
    for name in ("beta", "gamma"):
        part(app, name).enqueue([new_job()])
    other = Trouble(backend, "gamma", trouble._kind)
    calls: list[Callable[[], None]] = [trouble.begin, other.begin]
    for call in calls:
        call()
    with pytest.raises(StoreError):
        wait_for(lambda: both.claim("worker", ["default"], 10) and False)
    trouble.end()
    other.end()
    wait_for(lambda: not both._visits._late)  # type: ignore[attr-defined]

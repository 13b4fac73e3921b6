"""A verb on every job that matches: each by itself, under the rules of single verbs, with a report of all of them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from leasehold import Leasehold
from leasehold.domain.bulk import SAMPLE, BulkRequest
from leasehold.domain.errors import DatabaseUnreachable, InvalidInput
from leasehold.domain.records import Filter
from leasehold.domain.states import State
from leasehold.operations import bulk, jobs
from leasehold.operations.operations import Operations
from leasehold.types import Job

NOON = datetime(2100, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def app(app: Leasehold) -> Leasehold:
    @app.task(name="work")
    def work() -> None: ...

    @app.task(name="other")
    def other() -> None: ...

    return app


def enqueue(app: Leasehold, number: int, task: str = "work", **settings) -> list[Job]:
    return [app.enqueue(task, **settings) for _ in range(number)]


def states(jobs: list[Job]) -> set[str]:
    return {job.refresh().state.value for job in jobs}


def test_what_matches_is_changed_and_nothing_else(app: Leasehold, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bulk, "PAGE_SIZE", 3)
    mine, others = enqueue(app, 8), enqueue(app, 2, "other")
    report = app.bulk.cancel(task="work", reason="enough", actor="ann")
    assert (report.matched, report.changed, report.refused, report.next) == (8, 8, (), None)
    assert (states(mine), states(others)) == ({"cancelled"}, {"queued"})
    assert mine[0].refresh().reason == "enough"
    assert mine[0].history()[-1].actor == "ann"


def test_a_dry_run_counts_names_some_and_changes_nothing(app: Leasehold):
    jobs = enqueue(app, SAMPLE + 5)
    report = app.bulk.cancel(task="work", dry_run=True)
    assert (report.matched, report.changed, report.dry_run) == (SAMPLE + 5, 0, True)
    assert list(report.sample) == [job.id for job in reversed(jobs[5:])]
    assert states(jobs) == {"queued"}


@pytest.mark.parametrize("dry_run", [True, False])
def test_it_stops_at_its_limit_and_goes_on_at_its_cursor(
    app: Leasehold, monkeypatch: pytest.MonkeyPatch, dry_run: bool
):
    monkeypatch.setattr(bulk, "PAGE_SIZE", 2)
    jobs = enqueue(app, 7)
    first = app.bulk.pause(task="work", limit=5, dry_run=dry_run)
    assert first.matched == 5
    assert first.next is not None
    rest = app.bulk.pause(task="work", limit=5, cursor=first.next, dry_run=dry_run)
    assert (rest.matched, rest.next) == (2, None)
    assert {*first.sample, *rest.sample} == {job.id for job in jobs}
    assert states(jobs) == ({"queued"} if dry_run else {"paused"})


def test_an_empty_filter_has_to_be_meant(app: Leasehold):
    jobs = enqueue(app, 2) + enqueue(app, 1, "other")
    with pytest.raises(InvalidInput, match="everything=True"):
        app.bulk.cancel()
    with pytest.raises(InvalidInput, match="everything=True"):
        app.bulk.cancel(dry_run=True)
    assert states(jobs) == {"queued"}
    assert app.bulk.cancel(everything=True).changed == 3
    assert states(jobs) == {"cancelled"}


def test_without_a_state_a_verb_finds_what_it_is_meant_for(app: Leasehold):
    (paused, queued) = enqueue(app, 2)
    paused.pause()
    assert app.bulk.resume(task="work").sample == (paused.id,)
    assert app.bulk.retry(task="work").matched == 0
    held = app.enqueue("work", hold=True)
    assert app.bulk.release(task="work").sample == (held.id,)
    assert states([paused, queued, held]) == {"queued"}


def test_a_snooze_finds_what_waits_and_refuses_what_does_not(app: Leasehold):
    held, queued, paused, ended = enqueue(app, 1, hold=True) + enqueue(app, 3)
    paused.pause()
    ended.cancel()
    request = BulkRequest(verb="snooze", filter=Filter(task="work"), own={"until": NOON, "reason": "closed"})
    operations = app.__internals__.operations
    assert operations.bulk(replace(request, dry_run=True, own={})).matched == 3
    assert operations.bulk(request).changed == 3
    assert {job.refresh().available_at for job in (held, queued, paused)} == {NOON}
    assert queued.history()[-1].detail == "until 2100-01-01T12:00:00+00:00: closed"
    assert ended.refresh().available_at != NOON
    request = replace(request, filter=Filter(task="work", states=(State.CANCELLED,)))
    (refusal,) = operations.bulk(request).refused
    assert (refusal.error, refusal.state, refusal.sample) == ("InvalidState", "cancelled", (ended.id,))


def test_jobs_that_refuse_are_reported_by_reason_and_hold_up_nobody(app: Leasehold):
    """Those of a group on hold, and those that are final though they were asked for."""
    held, free = enqueue(app, 3, group="held"), enqueue(app, 2)
    for job in held + free:
        job.pause()
    app.__internals__.store.stop_group("held", True)
    report = app.bulk.resume(task="work")
    assert (report.matched, report.changed) == (5, 2)
    (refusal,) = report.refused
    assert (refusal.error, refusal.state, refusal.jobs) == ("GroupOnHold", None, 3)
    assert set(refusal.sample) == {job.id for job in held}
    assert "held" in refusal.detail
    assert (states(held), states(free)) == ({"paused"}, {"queued"})
    over = app.bulk.pause(task="work", state=["paused", "queued"])
    assert (over.matched, over.changed) == (5, 2)
    (refusal,) = over.refused
    assert (refusal.error, refusal.state, refusal.jobs) == ("InvalidState", "paused", 3)


def test_no_more_ids_are_named_than_somebody_reads(app: Leasehold):
    jobs = enqueue(app, SAMPLE + 3)
    for job in jobs:
        job.pause()
    (refusal,) = app.bulk.pause(state="paused").refused
    assert (refusal.jobs, len(refusal.sample)) == (SAMPLE + 3, SAMPLE)


def test_one_that_has_moved_on_is_neither_changed_nor_refused(
    app: Leasehold, monkeypatch: pytest.MonkeyPatch
):
    one, two = enqueue(app, 2)
    found = Operations.list_jobs

    def look_then_lose(self, *requested):
        page = found(self, *requested)
        one.cancel()
        return page

    monkeypatch.setattr(Operations, "list_jobs", look_then_lose)
    report = app.bulk.pause(task="work")
    assert (report.matched, report.changed, report.moved_on, report.refused) == (2, 1, 1, ())
    assert two.refresh().state is State.PAUSED


def test_jobs_that_a_retry_makes_are_not_met_by_it(app: Leasehold, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bulk, "PAGE_SIZE", 1)
    jobs = enqueue(app, 3)
    app.bulk.cancel(task="work")
    report = app.bulk.retry(task="work", state=["cancelled", "queued"])
    assert (report.matched, report.changed) == (3, 3)
    assert len(app.jobs(state="queued").jobs) == len(jobs)


def test_when_the_database_goes_away_the_rest_is_left_as_it_was(
    app: Leasehold, monkeypatch: pytest.MonkeyPatch
):
    made = enqueue(app, 3)
    call = Operations.call

    def cut(self, verb, *args, **kwargs):
        if verb is jobs.cancel and args[0] == made[1].id:
            raise DatabaseUnreachable("here", "gone")
        return call(self, verb, *args, **kwargs)

    monkeypatch.setattr(Operations, "call", cut)
    with pytest.raises(DatabaseUnreachable):
        app.bulk.cancel(task="work")
    assert [job.refresh().state.value for job in made] == ["queued", "queued", "cancelled"]


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"verb": "delete"}, "verb"),
        ({"limit": 0}, "limit"),
        ({"limit": True}, "limit"),
        ({"limit": 10**9}, "limit"),
        ({"verb": "retry", "own": {"reason": "x"}}, "reason"),
        ({"own": {"fresh": True}}, "fresh"),
        ({"verb": "resume", "own": {"args": {"day": 1}}}, "args"),
        ({"verb": "snooze"}, "until"),
        ({"verb": "snooze", "own": {"until": NOON.replace(tzinfo=None)}}, "until"),
        ({"own": {"until": NOON}}, "until"),
        ({"cursor": "nonsense"}, "cursor"),
        ({"actor": 7}, "actor"),
    ],
)
def test_what_is_wrong_with_it_is_refused_by_its_name(wrong, field: str):
    with pytest.raises(InvalidInput) as refused:
        BulkRequest(**{"verb": "cancel", "filter": Filter(task="work"), **wrong})
    assert refused.value.field == field


def test_every_verb_has_its_twin_at_work(app: Leasehold):
    asyncio.run(use_twins(app))


async def use_twins(app: Leasehold) -> None:
    (job,) = enqueue(app, 1)
    assert (await app.bulk.apause(task="work", reason="lunch")).changed == 1
    assert (await app.bulk.aresume(task="work", fresh=True)).changed == 1
    assert (await app.bulk.ainterrupt(task="work")).changed == 1
    assert job.refresh().state is State.CANCELLED
    assert (await app.bulk.aretry(task="work", state="cancelled")).changed == 1
    assert (await app.bulk.acancel(task="work")).changed == 1
    assert (await app.bulk.askip(task="work")).matched == 0
    assert (await app.bulk.arelease(task="work")).matched == 0

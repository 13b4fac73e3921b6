"""A time that Python cannot tell, a policy or tags that nobody can read: one bad row breaks nothing for the others."""

from __future__ import annotations

import time
from datetime import datetime

import pytest

from leasehold.domain.checks.times import EARLIEST, LATEST
from leasehold.domain.outcome import Failure
from leasehold.domain.records import Filter
from leasehold.domain.states import State
from leasehold.domain.stop import StopRequest
from leasehold.operations import jobs
from leasehold.operations.operations import Operations
from leasehold.stores.results import Ending
from leasehold.surfaces.cli import render
from tests.backends import Backend, put

BAD = {
    "sqlite": {"year 10000": 253_402_300_800_000_000, "no year": 2**63 - 1, "long ago": -(2**63)},
    "postgres": {"year 10000": "10000-01-01", "no year": "infinity", "long ago": "-infinity"},
}


def spoil(backend: Backend, job_id: str, what: str) -> None:
    bad = BAD[backend.name][what]
    given = "?" if backend.name == "sqlite" else "?::timestamptz"
    backend.query(f"UPDATE leasehold.job SET available_at = {given} WHERE id = ?", bad, job_id)
    seq = "(SELECT seq FROM leasehold.job WHERE id = ?)"
    backend.query(f"UPDATE leasehold.ready SET available_at = {given} WHERE seq = {seq}", bad, job_id)


@pytest.mark.parametrize("what", ["year 10000", "no year", "long ago"])
def test_a_row_with_such_a_time_is_shown_and_stopped_like_the_others(backend, store, what):
    good, bad, other = (put(store) for _ in range(3))
    spoil(backend, bad.id, what)
    clamped = EARLIEST if what == "long ago" else LATEST
    operations = Operations(lambda: store)
    assert store.get(bad.id).available_at == clamped
    assert [job.id for job in store.list_jobs().jobs] == [other.id, bad.id, good.id]
    assert len(store.list_jobs(Filter((State.QUEUED,), queue="default")).jobs) == 3
    assert operations.call(jobs.explain, bad.id)
    assert operations.call(jobs.pause, bad.id).state is State.PAUSED
    assert operations.call(jobs.resume, bad.id).state is State.QUEUED
    spoil(backend, bad.id, what)
    report = operations.stop(StopRequest(everything=True, mode="immediate"))
    assert report.cancelled == 3
    assert {store.get(job.id).state for job in (good, bad, other)} == {State.CANCELLED}


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/Los_Angeles"])
@pytest.mark.parametrize("instant", [EARLIEST, LATEST])
def test_a_clamped_time_can_be_told_in_every_time_zone(monkeypatch, zone: str, instant: datetime):
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        assert render.clean(instant)
        assert render.ago(instant)
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/Los_Angeles"])
@pytest.mark.parametrize("backend", ["postgres"], indirect=True)
def test_a_session_of_another_time_zone_reads_the_same(backend, store, zone):
    job = put(store)
    spoil(backend, job.id, "year 10000")
    backend.url, before = f"{backend.url}&options=-c%20TimeZone%3D{zone}", backend.url
    try:
        assert backend.open().get(job.id).available_at == LATEST
    finally:
        backend.url = before


@pytest.mark.parametrize(
    ("column", "text"), [("policy", "[7]"), ("policy", '{"backoff": {}}'), ("tags", '{"a": 1}')]
)
def test_a_row_that_was_edited_by_hand_is_listed_claimed_and_settled_like_the_others(
    backend, store, column, text
):
    good, bad = put(store), put(store)
    backend.query(f"UPDATE leasehold.job SET {column} = ? WHERE id = ?", text, bad.id)
    assert [job.id for job in store.list_jobs().jobs] == [bad.id, good.id]
    grants = store.claim("me", ["default"], 10)
    endings = [Ending(grant.id, grant.token, Failure("no")) for grant in grants]
    assert len(store.settle(endings).accepted) == 2
    assert Operations(lambda: store).stop(StopRequest(everything=True, mode="immediate")).cancelled == 2

"""Pauses of queues and kinds: no new claims, by whom, why, until when; what runs goes on."""

from __future__ import annotations

from datetime import timedelta

import pytest

from leasehold.domain.errors import InvalidInput
from leasehold.domain.outcome import Success
from leasehold.domain.records import PauseRecord
from tests.backends import put
from tests.contract.lives import claim_ids, claim_one, end

SCOPES = pytest.mark.parametrize("scope", ["queue", "task"])


@SCOPES
def test_nothing_is_claimed_under_a_pause_until_it_is_resumed(store, scope):
    paused = put(store, **{scope: "p"})
    other = put(store, **{scope: "o"})
    store.pause_scope(scope, "p")
    queues = ["default", "p", "o"]
    assert [grant.id for grant in store.claim("w", queues, 10)] == [other.id]
    assert store.get(paused.id) == paused, "a pause of its queue does not touch the job"
    assert store.resume_scope(scope, "p") is True
    assert [grant.id for grant in store.claim("w", queues, 10)] == [paused.id]


@SCOPES
def test_a_pause_tells_who_why_and_until_when(store, clock, scope):
    answer = store.pause_scope(scope, "p", "anna", "provider is down", for_=90.0)
    until = clock.now() + timedelta(seconds=90)
    assert answer == PauseRecord(scope, "p", "anna", "provider is down", clock.now(), until)
    assert store.list_pauses() == [answer]


@SCOPES
def test_a_pause_without_an_end_lasts_until_it_is_resumed(store, clock, scope):
    put(store, **{scope: "p"})
    answer = store.pause_scope(scope, "p")
    assert (answer.until, answer.paused_by, answer.reason) == (None, None, None)
    clock.advance(10_000_000)
    assert store.claim("w", ["default", "p"], 10) == []
    assert store.list_pauses() == [answer]


@SCOPES
def test_a_pause_ends_by_itself_at_its_time(store, clock, scope):
    job = put(store, **{scope: "p"})
    store.pause_scope(scope, "p", for_=60.0)
    clock.advance(59.999)
    assert store.claim("w", ["default", "p"], 10) == []
    clock.advance(0.001)
    assert store.list_pauses() == []
    assert [grant.id for grant in store.claim("w", ["default", "p"], 10)] == [job.id]


def test_a_pause_until_a_given_time_ends_then(store, clock):
    job = put(store)
    until = clock.now() + timedelta(minutes=5)
    assert store.pause_scope("queue", "default", until=until).until == until
    clock.advance(299)
    assert claim_ids(store) == []
    clock.advance(1)
    assert claim_ids(store) == [job.id]


def test_a_second_pause_takes_the_place_of_the_first(store, clock):
    store.pause_scope("queue", "p", "anna", "first", for_=10.0)
    clock.advance(5)
    second = store.pause_scope("queue", "p", "bert", "second")
    assert store.list_pauses() == [second]
    assert (second.paused_by, second.reason, second.paused_at, second.until) == (
        "bert",
        "second",
        clock.now(),
        None,
    )


def test_a_job_is_claimed_only_when_neither_its_queue_nor_its_kind_is_paused(store):
    job = put(store, task="k", queue="q")
    store.pause_scope("queue", "q")
    store.pause_scope("task", "k")
    for scope, name in (("queue", "q"), ("task", "k")):
        assert claim_ids(store, queue="q") == []
        store.resume_scope(scope, name)
    assert claim_ids(store, queue="q") == [job.id]


def test_the_pause_of_a_kind_is_not_the_pause_of_a_queue_of_that_name(store):
    job = put(store, task="same", queue="other")
    store.pause_scope("queue", "same")
    assert claim_ids(store, queue="other") == [job.id]


def test_what_was_not_paused_is_not_resumed(store):
    assert store.resume_scope("queue", "p") is False
    store.pause_scope("task", "p")
    assert store.resume_scope("queue", "p") is False
    assert store.resume_scope("task", "p") is True
    assert store.resume_scope("task", "p") is False


def test_a_pause_that_has_ended_by_itself_is_not_resumed(store, clock):
    store.pause_scope("queue", "p", for_=1.0)
    clock.advance(2)
    assert store.resume_scope("queue", "p") is False


@SCOPES
def test_what_runs_goes_on_under_a_pause(store, scope):
    put(store, task="p", queue="p")
    grant = claim_one(store, queue="p")
    store.pause_scope(scope, "p")
    assert len(store.renew({grant.id: grant.token})) == 1
    end(store, grant, Success())


def test_jobs_are_enqueued_under_a_pause(store):
    store.pause_scope("task", "p")
    job = put(store, task="p")
    assert claim_ids(store) == []
    store.resume_scope("task", "p")
    assert claim_ids(store) == [job.id]


def test_a_pause_made_in_one_process_holds_in_every_other(store, clock, backend):
    put(store)
    other = backend.open(clock)
    other.pause_scope("queue", "default")
    assert claim_ids(store) == []


def test_pauses_are_listed_by_scope_and_name(store):
    for scope, name in (("queue", "b"), ("task", "z"), ("queue", "a"), ("task", "y")):
        store.pause_scope(scope, name)
    listed = [(pause.scope, pause.name) for pause in store.list_pauses()]
    assert listed == [("queue", "a"), ("queue", "b"), ("task", "y"), ("task", "z")]


def test_an_unknown_scope_is_refused_by_name(store):
    with pytest.raises(InvalidInput) as refusal:
        store.pause_scope("lane", "l")
    assert refusal.value.field == "scope"


@pytest.mark.parametrize("seconds", [0.0, -1.0])
def test_a_pause_of_no_length_is_refused_by_name(store, seconds):
    with pytest.raises(InvalidInput) as refusal:
        store.pause_scope("queue", "q", for_=seconds)
    assert refusal.value.field == "for_"
    assert store.list_pauses() == []

"""What runs outside: it is listed while it lives, and can be given up when its site is gone."""

from __future__ import annotations

import os

import pytest

from leasehold.domain.errors import InvalidState
from leasehold.domain.outcome import Success
from leasehold.domain.policy import Policy
from leasehold.domain.states import State
from leasehold.operations.explain import explain
from leasehold.stores.results import ClaimDenied
from tests.backends import Backend
from tests.contract.lives import OWNER, SITE, end, is_fenced, orphan, run, run_external

ADOPT = Policy(on_lost="adopt")


def test_executions_are_listed_with_who_watches_them_the_oldest_first(store, clock):
    run(store)
    watched = run_external(store, policy=ADOPT)
    clock.advance(1)
    left = orphan(store, clock, policy=ADOPT, site="machine-2")
    store.cancel(left.id, "me")
    first, second = store.list_executions()
    assert (first.job_id, first.site, first.worker, first.attempt) == (watched.id, SITE, OWNER, 1)
    assert first.started_at is not None
    assert (second.job_id, second.site, second.worker) == (left.id, "machine-2", None)
    assert second.stop_requested == "cancel"
    assert store.list_executions(limit=1) == [first]
    end(store, watched, Success())
    assert [row.job_id for row in store.list_executions()] == [left.id]


def test_a_placed_execution_that_nobody_has_started_is_listed_as_such(store):
    grant = run(store, policy=ADOPT)
    store.record_site(grant.id, grant.token, SITE, "run-1")
    (row,) = store.list_executions()
    assert (row.name, row.started_at) == ("run-1", None)


def test_an_abandoned_execution_counts_as_a_failure_and_its_job_goes_on(store, clock):
    left = orphan(store, clock, policy=ADOPT)
    job = store.abandon(left.id, "ann", "the machine burnt down")
    assert (job.state, job.failures, job.crashes, job.execution_site) == (State.QUEUED, 1, 0, None)
    assert job.available_at > clock.now(), "with backoff"
    assert job.error == f"its execution at {SITE} was given up: the machine burnt down"
    entry = store.history(left.id)[-1]
    assert (entry.event, entry.actor) == ("abandoned", "ann")
    assert store.attempts(left.id)[-1].outcome == "abandoned"
    assert store.adopt("late", [SITE]) == []
    assert store.list_executions() == []


def test_an_abandoned_execution_ends_its_job_when_no_attempt_is_left(store, clock):
    left = orphan(store, clock, policy=Policy(on_lost="adopt", max_attempts=1))
    assert store.abandon(left.id).state is State.FAILED


@pytest.mark.parametrize(("verb", "state"), [("cancel", State.CANCELLED), ("pause", State.PAUSED)])
def test_an_abandoned_execution_obeys_the_stop_that_was_asked_for(store, clock, verb, state):
    left = orphan(store, clock, policy=ADOPT)
    getattr(store, verb)(left.id)
    assert store.abandon(left.id).state is state


def test_only_an_orphan_can_be_abandoned(store, clock):
    watched = run_external(store, policy=ADOPT)
    with pytest.raises(InvalidState, match="cancel the job"):
        store.abandon(watched.id)
    left = orphan(store, clock, policy=ADOPT)
    (adopted,) = store.adopt("adopter", [SITE])
    with pytest.raises(InvalidState):
        store.abandon(left.id)
    assert not is_fenced(store, adopted, Success())


# -- which database has placed it


def test_a_copy_of_a_database_leaves_alone_what_its_original_has_placed(store, clock, backend):
    left = orphan(store, clock, policy=ADOPT)
    with backend.copied() as copy:
        other = copy.open(clock)
        assert other.get(left.id).orphan
        assert other.adopt("late", [SITE]) == []
        denied = other.claim_by_id(left.id, "late", [SITE])
        assert isinstance(denied, ClaimDenied)
        assert "another database" in denied.why
        *_, hold = explain(other, left.id)
        assert "copied or restored" in hold.detail
        assert f"abandon {left.id}" in hold.remedy
        assert other.abandon(left.id).state is State.QUEUED
    assert [grant.id for grant in store.adopt("late", [SITE])] == [left.id]


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
def test_a_file_that_is_renamed_is_the_same_database(backend, tmp_path):
    with backend.copied() as copy:
        known = copy.open().identity("any")
        copy.close_opened()
        os.rename(copy.url.removeprefix("sqlite:///"), tmp_path / "renamed.db")
        copy.url = f"sqlite:///{tmp_path}/renamed.db"
        assert copy.open().identity("any") == known


@pytest.mark.parametrize("backend", ["postgres"], indirect=True)
def test_a_database_with_another_url_is_the_same(store, backend):
    url = f"{backend.url}{'&' if '?' in backend.url else '?'}application_name=other"
    other = Backend("postgres", url, backend.schema)
    assert other.open().identity("any") == store.identity("any")
    other.close_opened()


@pytest.mark.parametrize("backend", ["postgres"], indirect=True)
def test_a_role_that_may_not_read_the_clusters_identifier_has_an_identity_too(store, backend, start_postgres):
    server = start_postgres()
    own = Backend("postgres", server.url())
    own.open().upgrade()
    known = own.open().identity("any")
    for text in (
        "REVOKE EXECUTE ON FUNCTION pg_catalog.pg_control_system() FROM PUBLIC",
        "CREATE ROLE reader LOGIN",
        "GRANT USAGE ON SCHEMA leasehold TO reader",
    ):
        own.query(text.replace("leasehold ", '"leasehold" '))
    found = Backend("postgres", f"{own.url}{'&' if '?' in own.url else '?'}options=-crole%3Dreader")
    identity = found.open().identity("any")
    assert len(identity) == len(known)
    assert identity != known
    for opened in (own, found):
        opened.close_opened()

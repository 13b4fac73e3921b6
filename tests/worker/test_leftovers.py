"""What executions have left whose worker died before it was deleted: found later, and only what is surely over."""

from __future__ import annotations

import pytest

from leasehold.domain.outcome import Success
from leasehold.domain.policy import Policy
from leasehold.run.external import job_of, name_of
from leasehold.runners.contract import Phase
from leasehold.runners.subprocess import Command, SubprocessRunner
from leasehold.worker.pruner import ExecutionCleanup
from tests.backends import new_id
from tests.contract.lives import end, run
from tests.runners.conformance import ended

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def runner(tmp_path):
    return SubprocessRunner(tmp_path / "runs")


@pytest.fixture
def leftovers(store, runner):
    return ExecutionCleanup(store, lambda: [runner])


def begin(store, runner, argv):
    grant = run(store, policy=Policy(on_lost="adopt"))
    name = name_of(grant, store.identity(grant.id))
    assert store.record_site(grant.id, grant.token, runner.site, name)
    runner.ensure_started(name, grant.token, Command(argv))
    return grant, name


def test_the_name_of_an_execution_leads_to_its_job(store):
    grant = run(store)
    identity = store.identity(grant.id)
    assert job_of(name_of(grant, identity)) == (identity, grant.id)
    assert job_of(name_of(grant._replace(tenant="acme"), identity)) is None
    assert job_of("somebody-elses-1") is None


def test_a_run_whose_job_has_ended_is_removed_alive_or_not(store, runner, leftovers):
    (ended, dead), (going, alive) = (begin(store, runner, argv) for argv in (["true"], ["sleep", "60"]))
    for grant in (ended, going):
        end(store, grant, Success())
    leftovers.beat()
    while runner.names():  # what is stopped needs a moment to die
        leftovers.beat()
    assert [runner.probe(name).phase for name in (dead, alive)] == [Phase.TOMBSTONE] * 2


def test_a_run_whose_job_still_runs_is_left_alone(store, runner, leftovers):
    _, name = begin(store, runner, ["sleep", "60"])
    leftovers.beat()
    assert runner.probe(name).phase is Phase.RUNNING
    runner.stop(name, 0.0)
    ended(runner, name)


def test_a_run_of_another_database_is_left_alone(store, runner, leftovers):
    """Also if this database is a copy of the other one: it has the same jobs, and they may have ended here."""
    copied = run(store, policy=Policy(on_lost="adopt"))
    end(store, copied, Success())
    names = [name_of(copied, 16 * "0"), f"app-{store.identity(copied.id)}-{new_id()}-1"]
    for name in names:
        runner.ensure_started(name, 1, Command(["true"]))
        ended(runner, name)
    leftovers.beat()
    assert set(runner.names()) == set(names)

"""A worker registers what its tasks say about how long jobs are kept, and its pruner goes by what all have said."""

from __future__ import annotations

import pytest

from leasehold import Leasehold, State
from leasehold.domain.retention import retention_by_state
from leasehold.errors import InvalidInput
from leasehold.testing import ManualClock
from leasehold.worker.pruner import Pruner
from tests.backends import Backend
from tests.workers import burst

DAY = 86_400.0


def test_a_pruner_without_the_tasks_goes_by_their_rules(backend: Backend, clock: ManualClock):
    with Leasehold(backend.url, schema=backend.schema, clock=clock) as app:

        @app.task(retention=None)
        def audited() -> None: ...

        @app.task(retention={"succeeded": "1h"})
        def chatty() -> None: ...

        @app.task
        def usual() -> None: ...

        jobs = [audited.enqueue(), chatty.enqueue(), usual.enqueue()]
        burst(app)
        usual.using(hold=True).enqueue()
        clock.advance(2 * 3600)
        Pruner(backend.open(clock), retention_by_state("7d", "retention")).beat()
        assert _kept(app) == {jobs[0].id, jobs[2].id}
        clock.advance(10 * DAY)
        report = app.prune("7d", dry_run=True)
        assert [(one.task, one.state, one.jobs) for one in report.counts] == [("usual", State.SUCCEEDED, 1)]
        assert app.prune("7d").jobs == 1
        assert _kept(app) == {jobs[0].id}
        assert app.prune("7d", override=True).jobs == 1
        assert _kept(app) == set()


def _kept(app: Leasehold) -> set[str]:
    return {job.id for job in app.jobs(state="succeeded").jobs}


def test_a_rule_that_has_gone_from_the_code_is_forgotten(backend: Backend):
    for settings, rules in (({"retention": "1d"}, True), ({}, False)):
        with Leasehold(backend.url, schema=backend.schema) as app:
            app.task(name="work", **settings)(lambda: None)
            burst(app)
            assert ("work" in app.__internals__.store.retention()) == rules


@pytest.mark.parametrize("wrong", ["soon", {"running": "1d"}, {"failed": -1}])
def test_a_rule_that_makes_no_sense_is_refused_where_it_is_written(wrong):
    with Leasehold("sqlite:///never-made.db") as app, pytest.raises(InvalidInput, match="retention"):
        app.task(name="work", retention=wrong)(lambda: None)


def test_a_call_cannot_say_how_long_it_is_kept():
    """The rule is the task's: whoever prunes knows tasks, not calls."""
    app = Leasehold("sqlite:///never-made.db")

    @app.task
    def work() -> None: ...

    with pytest.raises(InvalidInput, match="retention"):
        work.using(retention="1d")  # type: ignore[call-arg]

"""`FlaskLeasehold` and `app.configure`: which database, said after the tasks are registered."""

from __future__ import annotations

import pytest
from flask import Flask

from leasehold import Leasehold
from leasehold.contrib import flask as contrib
from leasehold.contrib.flask import FlaskLeasehold
from leasehold.errors import InvalidInput
from leasehold.testing import sandbox
from tests.backends import Backend


@pytest.fixture(autouse=True)
def _nothing_bound(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setattr(contrib, "_bound", None)
    monkeypatch.chdir(tmp_path)
    for name in ("FLASK_APP", "LEASEHOLD_URL", "LEASEHOLD_SCHEMA"):
        monkeypatch.delenv(name, raising=False)


def made(backend: Backend) -> Flask:
    app = Flask("shop")
    app.config.update(LEASEHOLD_URL=backend.url, LEASEHOLD_SCHEMA=backend.schema)
    return app


@pytest.mark.parametrize("how", ["init_app", "constructor"])
def test_the_configuration_of_the_flask_app_says_where_jobs_go(
    app: Leasehold, backend: Backend, how, tmp_path
):
    jobs = (
        FlaskLeasehold(made(backend))
        if how == "constructor"
        else FlaskLeasehold(url=f"sqlite:///{tmp_path}/x")
    )

    @jobs.task
    def work() -> None: ...

    if how == "init_app":
        jobs.init_app(made(backend))
    with jobs:
        assert jobs.url == backend.url
        assert app.get(work.enqueue().id).task == "work"
    assert not (tmp_path / "x").exists()


def test_what_the_configuration_leaves_out_stays(tmp_path):
    jobs = FlaskLeasehold(url=f"sqlite:///{tmp_path}/mine.db", schema="mine")
    jobs.init_app(Flask("shop"))
    assert jobs.url == f"sqlite:///{tmp_path}/mine.db"
    assert jobs.__internals__.location.schema == "mine"


def test_an_app_that_was_used_moves_with_its_tasks_and_its_tenants(
    app: Leasehold, backend: Backend, tmp_path
):
    with Leasehold(f"sqlite:///{tmp_path}/before.db") as jobs:

        @jobs.task
        def work() -> None: ...

        jobs.tenants.create("acme")
        before = work.enqueue()
        jobs.configure(backend.url, schema=backend.schema)
        assert [job.id for job in jobs.jobs().jobs] == []
        after = work.enqueue()
        assert app.get(after.id).id == after.id
        assert [tenant.name for tenant in jobs.tenants.list()] == []
        jobs.configure(f"sqlite:///{tmp_path}/before.db")
        assert [job.id for job in jobs.jobs().jobs] == [before.id]


def test_a_factory_that_is_called_in_a_sandbox_does_not_lead_out_of_it(
    app: Leasehold, backend: Backend, tmp_path
):
    jobs = FlaskLeasehold()

    @jobs.task
    def work() -> None: ...

    (tmp_path / "box").mkdir()
    with jobs:
        with sandbox(jobs, tmp_path / "box") as box:
            jobs.init_app(made(backend))
            work.enqueue()
            box.assert_enqueued("work", count=1)
            assert list(app.jobs().jobs) == []
        assert jobs.url == backend.url, "from its end on"
        work.enqueue()
    assert len(app.jobs().jobs) == 1


def test_no_worker_starts_before_the_app_is_bound(backend: Backend):
    jobs = FlaskLeasehold()

    @jobs.task
    def work() -> None: ...

    with pytest.raises(InvalidInput, match="init_app"):
        jobs.worker()
    jobs.init_app(made(backend))
    with jobs:
        assert jobs.worker(concurrency=3).settings.concurrency == 3


def test_a_flask_app_without_the_extension_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(contrib, "_bound", Flask("other"))
    with pytest.raises(InvalidInput, match="'other' has no Leasehold"):
        _ = contrib.app
    with pytest.raises(AttributeError):
        _ = contrib.nothing

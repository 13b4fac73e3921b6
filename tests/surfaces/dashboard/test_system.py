"""System: health, settings without their secrets, tasks, tenants, and the audit."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator

import pytest
from starlette.types import ASGIApp

from leasehold import Leasehold
from leasehold.dashboard import create_dashboard
from leasehold.domain.records import WorkerCard
from leasehold.surfaces.dashboard.pages.system import masked_url, shown_environment
from tests.backends import Backend
from tests.surfaces.dashboard.conftest import Dashboard, Viewer

HOSTILE = "<script>alert(1)</script>\"'/é"


def test_health_version_and_tasks_are_shown(app: Leasehold, viewer: Viewer, backend: Backend):
    text = viewer.page("/system")
    assert html.escape(app.__internals__.store.label) in text
    assert f"schema version {app.__internals__.store.schema_version()}" in text
    assert "no live worker" in text
    assert "of the database" in text
    app.__internals__.store.report_worker(WorkerCard("w1", ("default",), ("add",)))
    assert "1 live" in viewer.page("/system")
    assert "lane <bdi>{name}</bdi>" in text
    assert "sensitive <bdi>key</bdi>" in text
    assert "<dt>leasehold</dt>" in text


def test_everything_is_examined_only_when_asked(operator: Viewer, viewer: Viewer, dashboard: Dashboard):
    assert "Run all checks" in operator.page("/system")
    text = operator.page("/system", examine="1")
    assert "every job is in one place" in text
    assert 'id="live"' not in text
    for one in (viewer, dashboard.viewer("operate", "read", queues=["agents"])):
        assert "Run all checks" not in one.page("/system")
        assert "every job is in one place" not in one.page("/system", examine="1")


def test_the_audit_is_for_admins(
    app: Leasehold,
    admin: Viewer,
    operator: Viewer,
    dashboard: Dashboard,
    listen: Callable[[ASGIApp], Dashboard],
):
    app.slots.set("gpu", 4, actor=HOSTILE)
    job = app.enqueue("add", {"a": 1})
    job.cancel(actor="ann")
    with pytest.raises(Exception, match="cancelled"):
        job.cancel(actor="ann")
    text = admin.page("/system")
    assert "slot.set" in text
    assert "refused" in text
    assert f'href="/jobs/{job.id}"' in text
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert" in text
    only = admin.page("/system", verb="job.cancel", actor="ann", target=job.id)
    assert 'value="ann"' in only
    assert ">gpu<" not in only
    for one in (operator, dashboard.viewer("admin", queues=["agents"])):
        hidden = one.page("/system", verb="slot.set")
        assert "You need a token with the admin scope" in hidden
        assert ">gpu<" not in hidden
    looking = listen(create_dashboard(app, rate_limit=0, read_only=True)).viewer("admin")
    assert ">gpu<" in looking.page("/system")


def test_the_audit_is_paged(app: Leasehold, admin: Viewer):
    for number in range(35):
        app.slots.set("gpu", number)
    text = admin.page("/system", verb="slot.set")
    assert text.count("slot.set</bdi>") == 30
    following = html.unescape(re.search(r'href="([^"]+)" rel="next"', text)[1])
    more = admin.client.get(following).text
    assert more.count("slot.set</bdi>") == 5
    assert admin.get("/system", cursor="x").status_code == 422


def test_settings_are_for_admins_and_without_secrets(
    app: Leasehold, admin: Viewer, viewer: Viewer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("LEASEHOLD_URL", "postgresql://bob:hunter2@db:5432/jobs?password=hunter2")
    monkeypatch.setenv("LEASEHOLD_WEBHOOK_SECRET", "hunter2")
    monkeypatch.setenv("LEASEHOLD_ACTOR", "ann")
    text = admin.page("/system")
    assert "LEASEHOLD_WEBHOOK_SECRET" in text
    assert "hunter2" not in text
    assert "db:5432/jobs" in text
    assert ">ann<" in text
    assert "LEASEHOLD_ACTOR" not in viewer.page("/system")


@pytest.fixture
def _tenants(app: Leasehold) -> Iterator[None]:
    """Dropped again: on PostgreSQL they are schemas of a server that other tests share."""
    for name in ("blue", "green"):
        app.tenants.create(name)
    yield
    for name in ("blue", "green"):
        app.tenants.drop(name)


@pytest.mark.usefixtures("_tenants")
def test_tenants_are_listed_to_those_who_are_for_them(app: Leasehold, dashboard: Dashboard):
    everybody, blue = dashboard.viewer("admin", tenants=["*"]), dashboard.viewer("admin", tenants=["blue"])
    assert ">green<" in everybody.page("/system").partition("<main")[2]
    text = blue.page("/tenant/blue/system").partition("<main")[2]
    assert ">blue<" in text
    assert ">green<" not in text
    assert "Only an admin of the whole server" in text


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:p4ss@h:5/d?x=p4ss", "postgresql://…@h:5/d?…"),
        ("postgresql://h/d", "postgresql://h/d"),
        ("postgresql://u:p4@ss@h/d", "postgresql://…"),
        ("postgresql://u:p4/ss@h/d", "postgresql://…"),
        ("postgresql://u:p4ss@h:5,i:6/d", "postgresql://…@h:5,i:6/d"),
        ("postgresql://u:12#4@h/d", "postgresql://…"),
        ("host=h password=p4ss", "set, not shown"),
        ("sqlite:///jobs.db", "sqlite:///jobs.db"),
    ],
)
def test_a_url_is_shown_without_what_opens_it(url: str, shown: str):
    assert masked_url(url) == shown


def test_only_known_settings_are_shown():
    given = {"LEASEHOLD_NEW": "x", "LEASEHOLD_APP": "a:b", "PATH": "y", "LEASEHOLD_TENANT": ""}
    given["LEASEHOLD_EXECUTIONS"] = "/var/runs"
    assert shown_environment(given) == [
        ("LEASEHOLD_APP", "a:b"),
        ("LEASEHOLD_EXECUTIONS", "/var/runs"),
        ("LEASEHOLD_NEW", "set, not shown"),
    ]

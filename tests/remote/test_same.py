"""The client says the same as the Python API: its verbs, its values, its errors."""

from __future__ import annotations

import importlib
import inspect
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

import leasehold
from leasehold import Group, Job, Leasehold
from leasehold.client.schedules import AppSchedules
from leasehold.client.view import View
from leasehold.domain.errors import error_code
from leasehold.domain.outcome import Failure, Success
from leasehold.domain.policy import Policy
from leasehold.domain.questions import QuestionAsked
from leasehold.errors import (
    AtCapacity,
    GroupOnHold,
    InvalidInput,
    JobError,
    LeaseholdError,
    RemoteError,
    RemoteUnreachable,
    StoreError,
    TenantNotFound,
)
from leasehold.operations.json_records import from_json, to_json
from leasehold.remote import Remote, operator
from leasehold.remote.exchange import ERRORS, error_of
from leasehold.surfaces.http.problems import _ERRORS, answer_to
from leasehold.types import (
    Bulk,
    BulkRefusal,
    BulkReport,
    HistoryEntry,
    Lanes,
    Page,
    Questions,
    Queues,
    Rates,
    RunningJob,
    Schedules,
    Slots,
    TaskCard,
    Tasks,
    WorkerCard,
)
from leasehold.view import AppView
from tests.backends import Backend
from tests.contract.lives import run_external
from tests.remote.conftest import settle
from tests.surfaces.http.conftest import Server
from tests.workers import burst

HANDLES = (Bulk, Queues, Tasks, Lanes, Slots, Rates, Questions, Schedules)
ONLY_LOCAL = {
    "chain": "made of calls of tasks, and there are none here",
    "dag": "made of calls of tasks, and there are none here",
    "run_now": "runs the task in this process",
    "run_by_id": "runs the task in this process",
    "metrics": "no route but `GET /metrics`, which is text for Prometheus",
    "search": "no route: it looks into the arguments of other callers' jobs",
    "prune": "no route: nothing is deleted over HTTP",
    "sweep": "no route: it is the work of workers",
}


def test_what_is_only_in_python_has_a_reason():
    """All else stands on the view that both have, with the same handles."""
    public = {name for name in vars(AppView) if not name.startswith("_")}
    assert public - {"enqueue", "aenqueue", "schedules"} == {
        f"{a}{name}" for name in ONLY_LOCAL for a in ("", "a")
    } - {
        "achain",
        "adag",
    }


def test_both_have_the_same_handles(app: Leasehold, remote: Remote):
    mine = {name: type(one) for name, one in vars(app).items() if isinstance(one, HANDLES)}
    far = {name: type(one) for name, one in vars(remote).items() if isinstance(one, HANDLES)}
    assert len(far) >= 8
    assert {name: one for name, one in mine.items() if name in far} == far | {"schedules": AppSchedules}


def test_every_verb_of_a_handle_has_an_http_line():
    """But what only the handles of an app have."""
    handles = "\n".join(
        inspect.getsource(one) for one in (*HANDLES, Job, Group, View) if one is not AppSchedules
    )
    called = {(module, name) for module, name in re.findall(r"_operator\.call\(\s*(\w+)\.(\w+)", handles)}
    assert len(called) > 30
    for module, name in called:
        assert getattr(importlib.import_module(f"leasehold.operations.{module}"), name).http, (module, name)


def test_who_acts_is_the_tokens_to_say(app: Leasehold, remote: Remote):
    job = remote.enqueue("add", {"a": 1})
    for act in (
        lambda: job.cancel(actor="ann"),
        lambda: remote.queues.pause("default", actor="ann"),
        lambda: remote.bulk.cancel(task="add", actor="ann"),
        lambda: remote.group("g").stop(actor="ann"),
        lambda: remote.schedules.run("nightly", actor="ann"),
    ):
        with pytest.raises(InvalidInput) as caught:
            act()
        assert caught.value.field == "actor"
    assert app.get(job.id).state == "queued"


def public(kind: Any, value: object) -> Any:
    """As it is read from its JSON: without what stays inside."""
    return from_json(kind, to_json(kind, value))


def test_the_values_are_those_of_python(app: Leasehold, remote: Remote):
    app.__internals__.store.report_worker(WorkerCard("w1", ("default",), ("add",), concurrency=3))
    app.slots.set("browser", 2)
    app.queues.pause("q", reason="deploy")
    app.schedules.set("nightly", "add", {"a": 1}, cron="0 3 * * *")
    lane = app.enqueue("add", {"a": 1}, group="g")
    settle(app, Failure("boom", final=True))
    app.enqueue("greet", {"name": "x"}, group="g")
    settle(app, QuestionAsked("go", "May I?", schema='{"type":"boolean"}'))
    job = app.enqueue("add", {"a": 2}, group="g", tags=("x",))
    settle(app, Success("3"))
    running = run_external(
        app.__internals__.store, task="add", policy=Policy(budget={"tokens": 10}), group="g"
    )
    app.group("g").budget(tokens=7, pages=None)
    app.get(running.id).top_up(tokens=5, actor="ann")
    app.group("g").stop("work", mode="immediate", actor="ann", reason="enough")
    far = remote.get(job.id)
    assert [one.cause for one in far.explain()] == [one.cause for one in job.explain()]
    for verb in ("attempts", "progress", "log"):
        assert getattr(far, verb)() == getattr(job, verb)(), verb
    assert remote.get(lane.id).attempts() == lane.attempts()
    app.get(running.id).pause("later")
    for fact in ("worker", "lease_expires_at", "stop_requested"):
        assert getattr(remote.get(running.id), fact) == getattr(app.get(running.id), fact) is not None, fact
    assert remote.group("g").status() == app.group("g").status()
    assert remote.groups() == app.groups()
    assert remote.budgets() == app.budgets()
    assert remote.get(running.id).budget() == app.get(running.id).budget()
    assert remote.group("g").budget() == app.group("g").budget()
    assert remote.executions() == app.executions()
    assert remote.audit() == app.audit()
    assert len(remote.audit().entries) >= 5
    (lease,), (other_lease,) = app.leases().leases, remote.leases().leases
    assert replace(other_lease, expires_in=lease.expires_in) == lease, "but for the time that has passed"
    stop: dict[str, Any] = {"tasks": ["add", "work"], "tags": "x", "dry_run": True}
    assert remote.stop(**stop).scope == app.stop(**stop).scope
    assert remote.bulk.cancel(everything=True, dry_run=True) == app.bulk.cancel(everything=True, dry_run=True)
    assert remote.slots.list() == app.slots.list()
    assert remote.queues.paused() == app.queues.paused()
    assert remote.queues.list() == app.queues.list() != []
    assert remote.workers() == app.workers() != []
    assert remote.jobs() == public(Page, app.jobs())
    assert far.history() == public(list[HistoryEntry], job.history())
    for mine, other in zip(app.schedules.list(), remote.schedules.list(), strict=True):
        assert other == replace(mine, args=other.args, now=other.now)
        assert json.loads(other.args) == json.loads(mine.args)
    (question,), (other_question,) = app.questions.list(), remote.questions.list()
    assert json.loads(str(other_question.schema)) == json.loads(str(question.schema))
    assert replace(other_question, schema=question.schema) == question
    assert remote.tasks.list() == public(list[TaskCard], app.tasks.list())
    assert {card.name for card in remote.tasks.list()} >= {"add", "greet"}


def test_a_refusal_of_many_has_the_name_of_its_error():
    names = {kind.__name__ for kind in (*every_kind_of(JobError), GroupOnHold)}
    assert "DuplicateJob" in names
    for name in names:
        one = BulkRefusal(name, None, "no", 2, ("a", "b"))
        report = BulkReport(
            verb="pause", dry_run=False, matched=2, changed=0, moved_on=0, refused=(one,), sample=("a",), next=None
        )  # fmt: skip
        assert public(BulkReport, report) == report
        assert to_json(BulkReport, report)["refused"][0]["code"] == error_code(name)


def every_kind_of(error: type[LeaseholdError]) -> Iterator[type[LeaseholdError]]:
    yield error
    for kind in error.__subclasses__():
        yield from every_kind_of(kind)


@pytest.mark.parametrize("at_once", [1, 2, 3, 1000])
def test_a_bulk_verb_in_pieces_reports_as_one(
    app: Leasehold, remote: Remote, monkeypatch: pytest.MonkeyPatch, at_once: int
):
    monkeypatch.setattr(operator, "MOST_IN_BULK", at_once)
    for n in range(6):
        job = app.enqueue("add", {"a": n}, **({"group": "g"} if n % 2 else {}))
        if n != 4:
            job.pause()
    app.__internals__.store.stop_group("g", True)
    requested: dict[str, Any] = {"task": "add", "state": ["paused", "queued"], "limit": 5}
    for dry in ({"dry_run": True}, {"dry_run": True, "limit": 6}):
        assert remote.bulk.resume(**requested | dry) == app.bulk.resume(**requested | dry)
    report = remote.bulk.resume(**requested)
    assert (report.matched, report.changed, len(report.sample)) == (5, 1, 5)
    assert [(one.error, one.state, one.jobs, len(one.sample)) for one in report.refused] == [
        ("GroupOnHold", None, 3, 3),
        ("InvalidState", "queued", 1, 1),
    ]
    rest = remote.bulk.resume(**requested, cursor=report.next)
    assert (rest.matched, rest.changed, rest.next) == (1, 1, None)


def test_an_empty_text_is_not_taken_for_none(app: Leasehold, remote: Remote):
    """Over HTTP it would be, and tell of everything. In Python it finds nothing, or is no cursor."""
    job = app.enqueue("add", {"a": 1})
    for ask, field in (
        (lambda: remote.jobs(task=""), "task"),
        (lambda: remote.jobs(cursor=""), "cursor"),
        (lambda: remote.groups(cursor=""), "cursor"),
        (lambda: remote.budgets(cursor=""), "cursor"),
        (lambda: remote.leases(worker=""), "worker"),
        (lambda: remote.leases(cursor=""), "cursor"),
        (lambda: remote.audit(target=""), "target"),
        (lambda: remote.audit(cursor=""), "cursor"),
        (lambda: remote.bulk.cancel(queue=""), "queue"),
    ):
        with pytest.raises(InvalidInput) as caught:
            ask()
        assert caught.value.field == field
    assert job.refresh().state == "queued"


def test_a_result_that_is_a_file_is_read_when_it_is_looked_at(
    app: Leasehold, backend: Backend, remote: Remote, tmp_path
):
    internals = app.__internals__
    with internals.moved_to(replace(internals.location, results=str(tmp_path / "results"))):
        internals.named_task("add", {"result": "file", "group": "g"}).enqueue(a=1)
        burst(app, queues=["default"])
        (one,) = remote.group("g").status().results
        assert (one.result_ref is not None, one.result) == (True, 2)


# -- errors --------------------------------------------------------------------------------------------------------
CAUSES: dict[str, Callable[[Any], object]] = {
    "JobNotFound": lambda api: api.get("019a7c1e-5b0c-7d11-9a3e-0f2d6c4b8a10"),
    "UnknownTask": lambda api: api.enqueue("nothing"),
    "InvalidArguments": lambda api: api.enqueue("add", {"b": "x"}),
    "NotSerializable": lambda api: api.enqueue("work", {"target": "a\0b"}),
    "InvalidInput": lambda api: api.enqueue("add", {"a": 1}, at=datetime(1960, 1, 1, tzinfo=UTC)),
    "ScheduleNotFound": lambda api: api.schedules.run("no such"),
    "InvalidState": lambda api: api.enqueue("add", {"a": 1}, unique="same").release(),
    "InvalidInput of a rate": lambda api: api.rates.set("r", "often"),
    "InvalidInput of a bulk verb": lambda api: api.bulk.retry(),
    "InvalidInput of its reason": lambda api: api.bulk.cancel(task="add", reason="x" * 20_000),
    "InvalidInput of a list's state": lambda api: api.groups(state="asleep"),
    "InvalidInput of a list's scope": lambda api: api.budgets(scope="queue"),
    "InvalidInput of a list's cursor": lambda api: api.leases(cursor="nonsense"),
    "InvalidInput of a top-up": lambda api: api.enqueue("add", {"a": 1}).top_up(tokens="x"),
    "InvalidInput of no top-up": lambda api: api.enqueue("add", {"a": 1}).top_up(),
    "InvalidInput of a group's budget": lambda api: api.group("g").budget(tokens=-1),
    "InvalidInput of a stop": lambda api: api.stop(tasks=["nothing"]),
}


@pytest.mark.parametrize("cause", CAUSES)
def test_an_error_is_the_very_error_of_python(app: Leasehold, remote: Remote, cause: str):
    mine, other = (error_in(lambda api=api: CAUSES[cause](api)) for api in (app, remote))
    assert type(mine).__name__ == cause.partition(" ")[0]
    assert (type(other), str(other), facts(other)) == (type(mine), str(mine), facts(mine))


def error_in(act: Callable[[], object]) -> LeaseholdError:
    with pytest.raises(LeaseholdError) as caught:
        act()
    return caught.value


def facts(error: LeaseholdError) -> dict[str, Any]:
    return {name: value for name, value in vars(error).items() if value is not None}


def test_every_code_of_the_server_has_its_error_here():
    """But what went wrong on the server itself, which is no error of a job."""
    servers = {code: kind for kind, _, code in _ERRORS if kind not in (StoreError, LeaseholdError)}
    assert servers == ERRORS


def test_who_is_refused_for_now_learns_when_to_come_back():
    holder = RunningJob("019a", "w1", datetime.now(UTC), None)
    before = AtCapacity("add", 2, [holder], 4.5)
    answer = answer_to(before)
    after = error_of(answer.status_code, json.loads(bytes(answer.body)))
    assert (type(after), str(after), vars(after)) == (AtCapacity, str(before), vars(before))


def test_an_error_of_a_server_that_tells_less_still_has_its_attributes():
    error: Any = error_of(409, {"code": "invalid-state", "detail": "no"})
    assert (str(error), error.verb, error.job_id) == ("no", None, None)
    assert isinstance(error_of(429, {"code": "at-capacity"}), AtCapacity)
    assert isinstance(error_of(503, {"code": "database-unavailable", "detail": "away"}), RemoteError)
    assert isinstance(error_of(500, "<p>"), RemoteError)
    assert not isinstance(error_of(500, None), RemoteUnreachable)


# -- who may ask ---------------------------------------------------------------------------------------------------
def test_a_token_may_do_what_its_scopes_say(app: Leasehold, server: Server, connect: Callable[..., Remote]):
    job = app.enqueue("add", {"a": 1})
    for token, code in ((None, "unauthenticated"), ("lh_unknown", "unauthenticated")):
        with pytest.raises(RemoteError) as caught:
            connect(token).get(job.id)
        assert (caught.value.status, caught.value.code) == (401, code)
        assert "lh_unknown" not in str(caught.value)
    reader = connect(server.token("read") + "\n")
    assert reader.get(job.id).state == "queued"
    with pytest.raises(RemoteError) as caught:
        reader.get(job.id).cancel()
    assert (caught.value.status, caught.value.code) == (403, "scope-missing")
    confined = connect(server.token("admin", queues=["q"]))
    with pytest.raises(leasehold.errors.JobNotFound):
        confined.get(job.id)
    app.queues.pause("default")
    app.queues.pause("q")
    app.tasks.pause("add")
    assert ([one.name for one in confined.queues.paused()], confined.tasks.paused()) == (["q"], [])
    with pytest.raises(RemoteError, match="queue-limited"):
        confined.stop(group="g", queue="q")


@pytest.fixture
def tenants(app: Leasehold) -> Iterator[None]:
    for name in ("acme", "beta"):
        app.tenants.create(name)
    yield
    for row in app.tenants.list():
        app.tenants.drop(row.name)


@pytest.mark.usefixtures("tenants")
def test_a_client_is_about_the_jobs_of_the_tenant_that_it_names(
    app: Leasehold, server: Server, connect: Callable[..., Remote]
):
    token = server.token("admin", tenants=["*"])
    acme = connect(token, tenant="acme")
    job = acme.enqueue("add", {"a": 1}, group="g")
    assert app.tenant("acme").get(job.id).task == "add"
    assert acme.group("g").status().total == 1
    assert [event.kind for event in acme.get(job.id).cancel().watch()] == ["state"]
    beta = connect(token).tenant("beta")
    assert (beta.name, beta.jobs().jobs) == ("beta", [])
    with pytest.raises(leasehold.errors.JobNotFound):
        beta.get(job.id)
    with pytest.raises(TenantNotFound) as caught:
        connect(token, tenant="nobody").jobs()
    assert caught.value.name == "nobody"


def test_the_history_names_the_token(server: Server, remote: Remote):
    job = remote.enqueue("add", {"a": 1}).cancel("enough")
    assert job.history()[-1].actor == "http:token 0"
    remote.group("g").budget(tokens=5)
    remote.bulk.cancel(task="add", state="cancelled")
    done = [(one.verb, one.outcome) for one in remote.audit(actor="http:token 0").entries]
    assert done == [("job.cancel", "refused"), ("budget.set", "done"), ("job.cancel", "done")]

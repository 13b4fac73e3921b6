"""The client says the same as the Python API: its verbs, its values, its errors."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, fields, replace
from datetime import UTC, datetime
from typing import Any

import pytest

import leasehold
from leasehold import Leasehold, remote, types
from leasehold.domain.outcome import Failure, QuestionAsked, Success
from leasehold.domain.policy import Policy
from leasehold.domain.records import HistoryEntry, ScheduleRow, Summary, WorkerCard
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
from leasehold.remote import Remote, bulk_requests, decode
from leasehold.remote.exchange import Answer
from leasehold.remote.problems import KINDS, error_of
from leasehold.remote.view import View as RemoteView
from leasehold.surfaces.http.bulk import _refusal
from leasehold.surfaces.http.problems import _ERRORS, answer_to
from leasehold.types import BulkRefusal, BulkReport, Holder
from leasehold.view import View
from tests.backends import Backend
from tests.contract.lives import run_external
from tests.remote.conftest import settle
from tests.surfaces.http.conftest import Server
from tests.workers import burst

TWO_HANDS = [
    (View, RemoteView),
    (types.Bulk, remote.Bulk),
    (leasehold.Job, remote.Job),
    (leasehold.Group, remote.Group),
    (types.Queues, remote.Queues),
    (types.Tasks, remote.Tasks),
    (types.Lanes, remote.Lanes),
    (types.Slots, remote.Slots),
    (types.Rates, remote.Rates),
    (types.Schedules, remote.Schedules),
    (types.Questions, remote.Questions),
]
ONLY_REMOTE = {
    "enqueue_many": "in Python it is a verb of a task, and there are none here",
    "Tasks.alist": "in Python the tasks are in hand, and nobody is asked",
}
ONLY_PYTHON = {
    "View.chain": "made of calls of tasks, and there are none here",
    "View.dag": "made of calls of tasks, and there are none here",
    "View.run_now": "runs the task in this process",
    "View.run_by_id": "runs the task in this process",
    "View.metrics": "no route but `GET /metrics`, which is text for Prometheus",
    "View.search": "no route: it looks into the arguments of other callers' jobs",
    "View.prune": "no route: nothing is deleted over HTTP",
    "View.sweep": "no route: it is the work of workers",
    "Job.spending": "no route: `budget()` tells the sums",
    "Schedules.set": "no route: they are made where the tasks are",
    "Schedules.delete": "no route: they are made where the tasks are",
}


@pytest.mark.parametrize(("python", "far"), TWO_HANDS)
def test_a_verb_is_called_as_in_python(python: type, far: type):
    """Who acts is the token's to say, so there is no `actor`, but in what is asked of the audit."""
    for name, member in verbs(far).items():
        plain = plain_name(name, far)
        if {plain, f"{far.__name__}.{plain}", f"{far.__name__}.{name}"} & ONLY_REMOTE.keys():
            continue
        ours = inspect.signature(getattr(python, name)).parameters
        theirs = inspect.signature(member).parameters
        assert [one for one in ours if one != "actor" or plain == "audit"] == [
            one for one in theirs if one != "idempotency_key"
        ], name
        for one in ours.keys() & theirs.keys():
            assert (ours[one].kind, ours[one].default) == (theirs[one].kind, theirs[one].default), (name, one)


def test_every_verb_of_python_is_here_or_says_why_not():
    """In both colours. A reason that is no longer needed fails too."""
    missing = {
        f"{far.__name__}.{plain_name(name, python)}"
        for python, far in TWO_HANDS
        for name in verbs(python).keys() - verbs(far).keys()
    }
    assert missing == ONLY_PYTHON.keys()


def test_every_handle_of_python_is_here(app: Leasehold, remote: Remote):
    """And its verbs are compared above."""
    mine = {name: one for name, one in vars(View(app.__internals__)).items() if not name.startswith("_")}
    assert "bulk" in mine
    for name, one in mine.items():
        assert (type(one), type(getattr(remote, name))) in TWO_HANDS, name


def verbs(handle: type) -> dict[str, Callable[..., Any]]:
    return {
        name: one for name, one in inspect.getmembers(handle, inspect.isfunction) if not name.startswith("_")
    }


def plain_name(name: str, handle: type) -> str:
    """Of a verb or its async twin."""
    return name[1:] if name.startswith("a") and hasattr(handle, name[1:]) else name


# What is ours alone, and so not told over HTTP.
UNTOLD = {
    Summary: {"seq", "gate"},
    HistoryEntry: {"token"},
    ScheduleRow: {"at_start", "changed_at", "hosts", "now", "tenant"},
}


@pytest.mark.parametrize("python", UNTOLD, ids=lambda one: one.__name__)
def test_a_value_has_the_names_that_it_has_in_python(python: type):
    far = {one.name for one in fields(getattr(remote, python.__name__))}
    mine = {one.name for one in fields(python)}
    assert mine - far == UNTOLD[python]
    assert {name for name in far - mine if not hasattr(python, name)} == set()


def test_the_values_are_those_of_python(app: Leasehold, remote: Remote):
    app.__internals__.store.beat_worker(WorkerCard("w1", ("default",), ("add",), concurrency=3))
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
    for mine, other in (
        (app.jobs().jobs, remote.jobs().jobs),
        (job.history(), far.history()),
        (app.schedules.list(), remote.schedules.list()),
    ):
        assert len(mine) == len(other)
        for one, two in zip(mine, other, strict=True):
            same = {name.name for name in fields(two)} - {"args"}
            assert {name: getattr(one, name) for name in same} == {name: getattr(two, name) for name in same}
    (question,), (other,) = app.questions.list(), remote.questions.list()
    assert replace(other, schema=question.schema) == question
    kind = next(one for one in remote.tasks.list() if one.name == "add")
    assert (kind.description, kind.queue, kind.arguments["required"]) == (
        "Adds two numbers.",
        "default",
        ["a"],
    )


def test_a_refusal_of_many_has_the_name_of_its_error():
    names = {kind.__name__ for kind in (*every_kind_of(JobError), GroupOnHold)}
    assert "DuplicateJob" in names
    for name in names:
        one = BulkRefusal(name, None, "no", 2, ("a", "b"))
        report = BulkReport(
            verb="pause", dry_run=False, matched=2, changed=0, moved_on=0, refused=(one,), sample=("a",), next=None
        )  # fmt: skip
        reported = {**asdict(report), "refused": [_refusal(one).model_dump()]}
        assert decode.bulk_report(Answer(200, reported)) == report


def every_kind_of(error: type[LeaseholdError]) -> Iterator[type[LeaseholdError]]:
    yield error
    for kind in error.__subclasses__():
        yield from every_kind_of(kind)


@pytest.mark.parametrize("at_once", [1, 2, 3, 1000])
def test_a_bulk_verb_in_pieces_reports_as_one(
    app: Leasehold, remote: Remote, monkeypatch: pytest.MonkeyPatch, at_once: int
):
    monkeypatch.setattr(bulk_requests, "AT_ONCE", at_once)
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
        (lambda: remote.jobs(before=""), "before"),
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
    with internals.moved_to(replace(internals.place, results=str(tmp_path / "results"))):
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
    assert servers == KINDS


def test_who_is_refused_for_now_learns_when_to_come_back():
    holder = Holder("019a", "w1", datetime.now(UTC), None)
    before = AtCapacity("add", 2, [holder], 4.5)
    answer = answer_to(before)
    after = error_of(answer.status_code, json.loads(bytes(answer.body)))
    assert (type(after), str(after), vars(after)) == (AtCapacity, str(before), vars(before))


def test_an_error_of_a_server_that_tells_less_still_has_its_attributes():
    error: Any = error_of(409, {"code": "refused", "detail": "no"})
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

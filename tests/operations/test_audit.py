"""The audit: every verb that changes something is recorded, with the change or not at all."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, ParamSpec, TypeVar

import pytest

from leasehold.domain.audit import AuditRow
from leasehold.domain.bulk import BulkRequest
from leasehold.domain.hooks import Listener, checked_webhook, listeners_for, new_secret
from leasehold.domain.mirror import Mirror
from leasehold.domain.outcome import Success
from leasehold.domain.policy import Policy
from leasehold.domain.questions import QuestionAsked
from leasehold.domain.records import Filter, Scope
from leasehold.domain.schedules import Schedule
from leasehold.domain.states import State
from leasehold.domain.stop import StopRequest
from leasehold.errors import (
    DatabaseUnreachable,
    DuplicateJob,
    GroupOnHold,
    InvalidAnswer,
    InvalidInput,
    InvalidState,
    JobNotFound,
    LeaseholdError,
    ScheduleNotFound,
    TenantNotFound,
)
from leasehold.operations import (
    audit,
    budgets,
    groups,
    jobs,
    limits,
    mirrors,
    questions,
    queues,
    schedules,
    tenants,
    tokens,
    webhooks,
)
from leasehold.operations.operations import Operations
from leasehold.operations.verb import VERBS, Verb
from leasehold.stores.store import JobStore
from leasehold.testing import ManualClock
from tests.backends import Backend, new_job, put
from tests.contract.lives import end, in_state, orphan, run

P = ParamSpec("P")
R = TypeVar("R")

SECRET = "swordfish"
LATER = datetime(2100, 1, 1, tzinfo=UTC)
"""Whatever must not be seen is called so, or holds it."""
READERS = {
    "aended", "agroup_status", "aupdates", "await_job", "check_clock", "check_health", "claimable_in", "ended",
    "examine", "find_id", "group_status", "insert_sql", "job_mark", "list_failures", "list_jobs", "list_queues",
    "metrics", "mirror_sql", "now", "read_flow", "result_text", "rollups", "schema_version", "search_jobs",
    "short_ids", "unmirror_sql", "updates", "upgrade_sql", "verify", "watch",
}  # fmt: skip
OPERATOR = {"call"}
"""It calls the verbs of the table."""
PRODUCERS = {"enqueue", "enqueue_once", "enqueue_within", "aenqueue_within"}
"""The job itself tells of them, and its history."""

MIRROR = Mirror(
    task="work",
    table="users_own",
    key="id",
    status="state",
    states={state.value: state.value for state in State},
)


class Scene:
    """A store, and the operator's verbs on it. What is prepared goes past them, so that nothing of it is recorded."""

    def __init__(self, store: JobStore, clock: ManualClock, backend: Backend) -> None:
        self.store = store
        self.clock = clock
        self.backend = backend
        self.verbs = Operations(lambda: store, lambda: {"work": "default"})

    def call(self, verb: Verb[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.verbs.call(verb, *args, **kwargs)

    def job(self, state: State, **fields: Any) -> str:
        return in_state(self.store, self.clock, state, **fields).id

    def audit(self, store: JobStore | None = None) -> list[AuditRow]:
        return (store or self.store).list_audit().entries

    def seen_in_the_table(self) -> str:
        return str(
            self.backend.query("SELECT actor, verb, target, detail, outcome, error FROM leasehold.audit")
        )

    def questions_box(self) -> str:
        grant = run(self.store)
        schema = json.dumps({"type": "string"})
        return end(self.store, grant, QuestionAsked("q", "May I?", schema=schema)).id

    def schedule(self, name: str = "nightly") -> str:
        self.store.set_schedule(Schedule(name=name, task="work", every=3600.0))
        return name

    def mirrored(self) -> Mirror:
        where = "users_own" if self.backend.name == "sqlite" else "public.users_own"
        self.backend.query(f"DROP TABLE IF EXISTS {where}")
        self.backend.query(f"CREATE TABLE {where} (id text PRIMARY KEY, state text)")
        return MIRROR

    def webhook(self, name: str = "pager") -> str:
        made = checked_webhook(name, "https://example.org/x", new_secret(bytes(32)))
        self.store.set_webhook(made, listeners_for(made, ["failed"]))
        return name


@pytest.fixture
def scene(store: JobStore, clock: ManualClock, backend: Backend) -> Iterator[Scene]:
    yield Scene(store, clock, backend)
    for row in store.list_tenants():
        store.drop_tenant(row.name)
    for mirror in store.list_mirrors():
        store.remove_mirror(mirror.mirror)


Case = tuple[str, str | None, Callable[[], Any]]
"""The verb, its target, and the call."""


def on_job(verb: Verb[..., Any], state: State, **given: Any) -> Callable[[Scene], Case]:
    def prepare(scene: Scene) -> Case:
        job_id = scene.job(state)
        return verb.name, job_id, lambda: scene.call(verb, job_id, actor="ann", **given)

    return prepare


def bulk(scene: Scene) -> Case:
    """Job by job, as the single verb is."""
    job_id = scene.job(State.QUEUED)
    request = BulkRequest(verb="cancel", filter=Filter(states=(State.QUEUED,)), actor="ann")
    return "job.cancel", job_id, lambda: scene.verbs.bulk(request)


def abandon(scene: Scene) -> Case:
    job_id = orphan(scene.store, scene.clock, policy=Policy(on_lost="adopt")).id
    return "job.abandon", job_id, lambda: scene.call(jobs.abandon, job_id, actor="ann", reason="burnt")


def answer(scene: Scene) -> Case:
    job_id = scene.questions_box()
    return (
        "question.answer",
        job_id,
        lambda: scene.call(questions.answer, job_id, "q", SECRET, actor="ann"),
    )


def top_up(scene: Scene) -> Case:
    job_id = put(scene.store, policy=Policy(budget={"tokens": 10})).id
    return (
        "budget.top_up",
        job_id,
        lambda: scene.call(budgets.top_up, job_id, {"tokens": 5}, actor="ann"),
    )


def resume_lane(scene: Scene) -> Case:
    put(scene.store, lane="l")
    (grant,) = scene.store.claim("w", ["default"], 1)
    scene.store.pause(grant.id)
    from leasehold.domain.outcome import Stopped

    end(scene.store, grant, Stopped())
    return "lane.resume", "l", lambda: scene.call(queues.resume_lane, "l", actor="ann")


def stop(scene: Scene) -> Case:
    for _ in range(3):
        put(scene.store, group="g")
    request = StopRequest(group="g", mode="immediate", reason="enough", actor="ann")
    return "stop", "g", lambda: scene.verbs.stop(request)


def astop(scene: Scene) -> Case:
    for _ in range(3):
        put(scene.store, group="g")
    request = StopRequest(group="g", mode="immediate", reason="enough", actor="ann")
    return "stop", "g", lambda: asyncio.run(scene.verbs.astop(request))


def release_group(scene: Scene) -> Case:
    scene.store.stop_group("g", hold=True)
    return "group.release", "g", lambda: scene.call(groups.release_group, "g", actor="ann")


def pausing(verb: Verb[..., Any], name: str) -> Callable[[Scene], Case]:
    return lambda scene: (
        verb.name,
        name,
        lambda: scene.call(verb, name, for_="1h", reason="disk", actor="ann"),
    )


def resuming(verb: Verb[..., Any], scope: Scope, name: str) -> Callable[[Scene], Case]:
    def prepare(scene: Scene) -> Case:
        scene.store.pause_scope(scope, name)
        return verb.name, name, lambda: scene.call(verb, name, actor="ann")

    return prepare


def close_rate(scene: Scene) -> Case:
    scene.store.set_rate("api", "1/s", 1.0, 1)
    return "rate.close", "api", lambda: scene.call(limits.close_rate, "api", actor="ann")


def open_rate(scene: Scene) -> Case:
    scene.store.set_rate("api", "1/s", 1.0, 1)
    scene.store.close_rate("api")
    return "rate.open", "api", lambda: scene.call(limits.open_rate, "api", actor="ann")


def set_schedule(scene: Scene) -> Case:
    wanted = Schedule(name="nightly", task="work", args=json.dumps({"key": SECRET}), cron="0 3 * * *")
    return (
        "schedule.set",
        "nightly",
        lambda: scene.call(schedules.set_schedule, "nightly", wanted, actor="ann"),
    )


def on_schedule(verb: Verb[..., Any], *, paused: bool = False) -> Callable[[Scene], Case]:
    def prepare(scene: Scene) -> Case:
        schedule = scene.schedule()
        if paused:
            scene.store.pause_schedule(schedule)
        return verb.name, schedule, lambda: scene.call(verb, schedule, actor="ann")

    return prepare


def run_schedule(scene: Scene) -> Case:
    # Of a queue that no job was in yet: the gate is made too, and says nothing of who made it.
    name, job = scene.schedule(), new_job(queue=f"queue-{new_job().id}", args=json.dumps({"key": SECRET}))
    return "schedule.run", name, lambda: scene.verbs.run_schedule(name, job, actor="ann")


def add_mirror(scene: Scene) -> Case:
    mirror = scene.mirrored()
    return "mirror.add", "work", lambda: scene.call(mirrors.add_mirror, "work", mirror, actor="ann")


def remove_mirror(scene: Scene) -> Case:
    mirror = scene.mirrored()
    scene.store.add_mirror(mirror)
    return (
        "mirror.remove",
        "work",
        lambda: scene.call(mirrors.remove_mirror, "work", mirror, actor="ann"),
    )


def remove_listener(scene: Scene) -> Case:
    scene.store.register_listeners([Listener("h", "failed", "")])
    return "hook.remove", "h", lambda: scene.call(webhooks.remove_listener, "h", actor="ann")


def set_webhook(scene: Scene) -> Case:
    secret, url = new_secret(SECRET.encode() * 4), f"https://example.org/{SECRET}?key={SECRET}"
    given = {"secret": secret, "actor": "ann"}
    return (
        "webhook.set",
        "pager",
        lambda: scene.call(webhooks.set_webhook, "pager", url, ["failed"], **given),
    )


def on_webhook(verb: Verb[..., Any]) -> Callable[[Scene], Case]:
    def prepare(scene: Scene) -> Case:
        webhook = scene.webhook()
        return verb.name, webhook, lambda: scene.call(verb, webhook, actor="ann")

    return prepare


def drop_tenant(scene: Scene) -> Case:
    scene.store.create_tenant("acme")
    return "tenant.drop", "acme", lambda: scene.call(tenants.drop_tenant, "acme", actor="ann")


def revoke_token(scene: Scene) -> Case:
    text = scene.call(tokens.create_token, "ci", ["read"], actor="before")[1]
    assert scene.call(tokens.find_token, text)
    scene.backend.query("DELETE FROM leasehold.audit")
    return "token.revoke", "ci", lambda: scene.call(tokens.revoke_token, "ci", actor="ann")


CHANGING: dict[str, Callable[[Scene], Case]] = {
    "cancel": on_job(jobs.cancel, State.QUEUED, reason="enough"),
    "pause": on_job(jobs.pause, State.RUNNING),
    "interrupt": on_job(jobs.interrupt, State.QUEUED),
    "resume": on_job(jobs.resume, State.FAILED, args={"key": SECRET}),
    "skip": on_job(jobs.skip, State.FAILED),
    "snooze": on_job(jobs.snooze, State.QUEUED, until=LATER, reason="closed"),
    "release": on_job(jobs.release, State.PENDING),
    "retry": on_job(jobs.retry, State.FAILED),
    "abandon": abandon,
    "bulk": bulk,
    "answer": answer,
    "top_up": top_up,
    "set_group_budget": lambda scene: (
        "budget.set",
        "g",
        lambda: scene.call(budgets.set_group_budget, "g", {"tokens": 7}, actor="ann"),
    ),
    "prune": lambda scene: ("prune", None, lambda: scene.verbs.prune("1d", actor="ann")),
    "prune_batches": lambda scene: (
        "prune",
        None,
        lambda: list(
            scene.verbs.prune_batches(
                "1d", inspect.signature(scene.verbs.prune).parameters["choice"].default, actor="ann"
            )
        ),
    ),
    "release_group": release_group,
    "astop": astop,
    "stop": stop,
    "pause_queue": pausing(queues.pause_queue, "mail"),
    "pause_task": pausing(queues.pause_task, "work"),
    "resume_queue": resuming(queues.resume_queue, "queue", "mail"),
    "resume_task": resuming(queues.resume_task, "task", "work"),
    "resume_lane": resume_lane,
    "set_slot": lambda scene: (
        "slot.set",
        "gpu",
        lambda: scene.call(limits.set_slot, "gpu", 0, actor="ann"),
    ),
    "set_rate": lambda scene: (
        "rate.set",
        "api",
        lambda: scene.call(limits.set_rate, "api", "1/s", actor="ann"),
    ),
    "close_rate": close_rate,
    "open_rate": open_rate,
    "set_schedule": set_schedule,
    "pause_schedule": on_schedule(schedules.pause_schedule),
    "resume_schedule": on_schedule(schedules.resume_schedule, paused=True),
    "delete_schedule": on_schedule(schedules.delete_schedule),
    "run_schedule": run_schedule,
    "add_mirror": add_mirror,
    "remove_mirror": remove_mirror,
    "remove_listener": remove_listener,
    "set_webhook": set_webhook,
    "remove_webhook": on_webhook(webhooks.remove_webhook),
    "try_webhook": on_webhook(webhooks.try_webhook),
    "create_tenant": lambda scene: (
        "tenant.create",
        "acme",
        lambda: scene.call(tenants.create_tenant, "acme", actor="ann"),
    ),
    "drop_tenant": drop_tenant,
    "create_token": lambda scene: (
        "token.create",
        "ci",
        lambda: scene.call(tokens.create_token, "ci", ["read"], queues=["a*"], expires_in="1d", actor="ann"),
    ),
    "revoke_token": revoke_token,
}
ON_THEIR_OWN = {"upgrade", "upgrade_tenants"}
"""Tests of their own below: the schema must be missing."""


def test_every_method_either_reads_or_is_recorded():
    methods = {name for name in dir(Operations) if not name.startswith("_")}
    changing = CHANGING.keys() - verbs_that_write().keys()
    known = READERS | OPERATOR | PRODUCERS | changing | ON_THEIR_OWN
    assert methods - known == set(), "say in this file whether it changes anything, and record it if it does"
    assert known - methods == set()
    unsigned = [
        name
        for name in sorted(changing | ON_THEIR_OWN)
        if not {"actor", "request"} & set(inspect.signature(getattr(Operations, name)).parameters)
    ]
    assert unsigned == [], "they do not say who does it"


def test_every_verb_of_the_table_is_tried_here():
    """By the name of its function."""
    assert verbs_that_write().keys() - CHANGING.keys() == {"upgrade_tenant"}
    unsigned = [name for name, verb in verbs_that_write().items() if "actor" not in verb.signature.parameters]
    assert unsigned == [], "they do not say who does it"


def verbs_that_write() -> dict[str, Verb[..., Any]]:
    return {verb.function.__name__: verb for verb in VERBS if verb.write}


@pytest.mark.parametrize("name", sorted(CHANGING))
def test_a_verb_that_changes_something_is_recorded_once(scene: Scene, name: str):
    verb, target, call = CHANGING[name](scene)
    assert scene.audit() == []
    answer = call()
    (row,) = scene.audit()
    assert (row.verb, row.target, row.actor) == (verb, target, "ann")
    assert (row.outcome, row.error) == ("done", None)
    assert row.at == scene.clock.now()
    kept = scene.seen_in_the_table()
    assert SECRET not in kept
    if name == "create_token":
        assert answer[1] not in kept


@pytest.mark.parametrize("name", sorted(CHANGING))
def test_a_change_that_is_undone_leaves_no_record(scene: Scene, name: str, monkeypatch: pytest.MonkeyPatch):
    """The database fails after the verb's last statement, when the record is written."""
    _, _, call = CHANGING[name](scene)
    before = scene_of_tables(scene)
    real = scene.store._database.transact
    database = scene.store._database

    def transact(work: Callable[[Any], Any], **how: Any) -> Any:
        def broken(session: Any) -> Any:
            work(session)
            raise DatabaseUnreachable("test", "cut off before the commit")

        return real(broken if is_recorded(work) else work, **how)

    monkeypatch.setattr(database, "transact", transact)
    with pytest.raises(DatabaseUnreachable):
        call()
    monkeypatch.undo()
    assert scene.audit() == []
    assert scene_of_tables(scene) == before


def is_recorded(work: Callable[[Any], Any]) -> bool:
    """Whether this transaction carries an entry."""
    return work.__qualname__.startswith("Waiting.go_with")


CHANGED_TABLES = (
    "job", "ready", "lease", "parked", "outcome", "history", "question", "budget", "pause", "slot", "rate", "schedule",
    "job_group", "mirror", "listener", "webhook", "tenant", "token", "outbox",
)  # fmt: skip


def scene_of_tables(scene: Scene) -> dict[str, list[tuple[Any, ...]]]:
    return {
        table: sorted(scene.backend.query(f"SELECT * FROM leasehold.{table}"), key=str)
        for table in CHANGED_TABLES
    }


def test_what_is_given_along_is_told(scene: Scene):
    job_id = scene.job(State.QUEUED)
    scene.call(jobs.pause, job_id, reason="later", actor="ann")
    scene.call(limits.set_slot, "gpu", 0)
    scene.verbs.stop(StopRequest(queue="q", tasks=["work"], mode="immediate", actor="bob"))
    put(scene.store, queue="q")
    scene.verbs.stop(StopRequest(queue="q", tasks=["work"], mode="immediate", actor="bob"))
    scene.call(jobs.resume, job_id, args={}, fresh=True)
    resumed, stopped, slot, paused = scene.audit()
    assert paused.detail == {"reason": "later"}
    assert (slot.detail, slot.actor) == ({"limit": 0}, None)
    assert stopped.detail == {"scope": {"queue": "q", "tasks": ["work"]}, "mode": "immediate"}
    assert resumed.detail == {"fresh": True, "new_args": True}


NOTHING: dict[str, Callable[[Scene], Any]] = {
    "resume_queue": lambda scene: scene.call(queues.resume_queue, "mail", actor="ann"),
    "resume_lane": lambda scene: scene.call(queues.resume_lane, "l", actor="ann"),
    "release_group": lambda scene: scene.call(groups.release_group, "g", actor="ann"),
    "open_rate": lambda scene: (
        scene.store.set_rate("api", "1/s", 1.0, 1),
        scene.call(limits.open_rate, "api", actor="ann"),
    )[1],
    "resume_schedule": lambda scene: scene.call(schedules.resume_schedule, scene.schedule(), actor="ann"),
    "create_tenant": lambda scene: (
        scene.store.create_tenant("acme"),
        scene.call(tenants.create_tenant, "acme", actor="ann"),
    )[1],
    "upgrade": lambda scene: scene.verbs.upgrade(actor="ann"),
    "stop": lambda scene: scene.verbs.stop(StopRequest(queue="q", actor="ann")).flagged,
}


@pytest.mark.parametrize("name", sorted(NOTHING))
def test_what_changes_nothing_is_not_recorded(scene: Scene, name: str):
    assert not NOTHING[name](scene)
    assert scene.audit() == []


def test_a_dry_run_is_not_recorded(scene: Scene):
    job_id = scene.job(State.SUCCEEDED)
    put(scene.store, queue="q")
    scene.clock.advance(1e6)
    from leasehold.domain.retention import PruneChoice

    assert scene.verbs.prune("1d", PruneChoice(dry_run=True), actor="ann").jobs == 1
    assert scene.verbs.stop(StopRequest(queue="q", dry_run=True, actor="ann")).cancelled_counts
    assert scene.audit() == []
    assert scene.store.get(job_id)


def held(scene: Scene) -> Any:
    job_id = put(scene.store, group="g", hold=True).id
    scene.store.stop_group("g", hold=True)
    return scene.call(jobs.release, job_id, actor="ann")


def taken_token(scene: Scene) -> Any:
    from leasehold.domain.tokens import checked_token

    scene.store.add_token(checked_token("lh_x", "ci", ["read"]))
    return scene.call(tokens.create_token, "ci", ["read"], actor="ann")


def duplicate_run(scene: Scene) -> Any:
    """The gate of its queue is made before, and stays: the entry must not go with that."""
    fields = {"unique_key": "k", "on_duplicate": "raise"}
    scene.store.enqueue([new_job(**fields)])
    job = new_job(queue=f"queue-{new_job().id}", **fields)
    return scene.verbs.run_schedule(scene.schedule(), job, actor="ann")


REFUSED: dict[str, tuple[type[LeaseholdError], str, Callable[[Scene], Any]]] = {
    "final": (
        InvalidState,
        "job.cancel",
        lambda scene: scene.call(jobs.cancel, scene.job(State.SUCCEEDED), actor="ann"),
    ),
    "gone": (
        JobNotFound,
        "job.cancel",
        lambda scene: scene.call(jobs.cancel, new_job().id, actor="ann"),
    ),
    "held": (GroupOnHold, "job.release", held),
    "misfit": (
        InvalidAnswer,
        "question.answer",
        lambda scene: scene.call(questions.answer, scene.questions_box(), "q", 5, actor="ann"),
    ),
    "no rate": (
        InvalidInput,
        "rate.open",
        lambda scene: scene.call(limits.open_rate, "api", actor="ann"),
    ),
    "no rate to close": (
        InvalidInput,
        "rate.close",
        lambda scene: scene.call(limits.close_rate, "api", actor="ann"),
    ),
    "no schedule": (
        ScheduleNotFound,
        "schedule.pause",
        lambda scene: scene.call(schedules.pause_schedule, "x", actor="ann"),
    ),
    "duplicate run": (DuplicateJob, "schedule.run", duplicate_run),
    "no hook": (
        InvalidInput,
        "hook.remove",
        lambda scene: scene.call(webhooks.remove_listener, "x", actor="ann"),
    ),
    "no webhook": (
        InvalidInput,
        "webhook.test",
        lambda scene: scene.call(webhooks.try_webhook, "x", actor="ann"),
    ),
    "no tenant": (
        TenantNotFound,
        "tenant.drop",
        lambda scene: scene.call(tenants.drop_tenant, "x", actor="ann"),
    ),
    "no token": (
        InvalidInput,
        "token.revoke",
        lambda scene: scene.call(tokens.revoke_token, "x", actor="ann"),
    ),
    "taken token": (InvalidInput, "token.create", taken_token),
}


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_is_refused_is_recorded_as_that(scene: Scene, name: str):
    error, verb, call = REFUSED[name]
    with pytest.raises(error):
        call(scene)
    (row,) = scene.audit()
    assert (row.verb, row.actor, row.outcome, row.error) == (verb, "ann", "refused", error.__name__)


def test_arguments_that_make_no_sense_are_not_recorded(scene: Scene):
    for call in (
        lambda: scene.call(jobs.cancel, "no id", actor="ann"),
        lambda: scene.call(limits.set_slot, "gpu", -1, actor="ann"),
        lambda: scene.call(limits.set_slot, "gpu", 1, actor="x" * 1000),
        lambda: scene.call(tokens.create_token, "ci", ["unheard of"], actor="ann"),
        lambda: scene.call(webhooks.set_webhook, "x", "ftp://example.org", ["failed"], actor="ann"),
    ):
        with pytest.raises((InvalidInput, JobNotFound)):
            call()
    assert scene.audit() == []


@pytest.mark.parametrize("backend", ["postgres"], indirect=True)
def test_a_try_that_the_database_wants_repeated_is_recorded_once(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
):
    """On SQLite, which has one writer, nothing is repeated."""
    import psycopg

    from leasehold.stores.verbs import audit

    tries = []
    real = audit.insert_entry

    def insert(session: Any, entry: Any) -> None:
        real(session, entry)
        tries.append(entry)
        if len(tries) == 1:
            raise psycopg.errors.SerializationFailure("could not serialize")

    monkeypatch.setattr(audit, "insert_entry", insert)
    scene.call(limits.set_slot, "gpu", 3, actor="ann")
    assert len(tries) == 2
    assert len(scene.audit()) == 1


def test_a_record_of_one_verb_is_not_taken_along_by_another(scene: Scene):
    """A verb that changes nothing leaves nothing waiting for the next."""
    scene.call(queues.resume_queue, "mail", actor="ann")
    scene.store.set_slot("gpu", 1)
    assert scene.audit() == []


def test_an_upgrade_is_recorded_in_what_it_has_made(
    backend: Backend, tmp_path, postgres_url, postgres_schema
):
    url = f"sqlite:///{tmp_path}/fresh.db" if backend.name == "sqlite" else postgres_url
    fresh = Backend(backend.name, url, postgres_schema if backend.name == "postgres" else "leasehold")
    store = fresh.open()
    verbs = Operations(lambda: store)
    assert verbs.upgrade(actor="ann") != []
    assert verbs.upgrade(actor="bob") == []
    (row,) = store.list_audit().entries
    assert (row.verb, row.actor) == ("upgrade", "ann")
    fresh.close_opened()


def test_an_upgrade_of_a_tenant_is_recorded_there(scene: Scene, monkeypatch: pytest.MonkeyPatch):
    scene.store.create_tenant("acme")
    assert scene.verbs.upgrade_tenants(actor="ann") == {"acme": []}
    scene.store._remove("acme")
    if scene.backend.name == "sqlite":
        scene.store._open_tenant("acme", lambda hint: None, create=True).close()  # type: ignore[attr-defined]
    assert scene.verbs.upgrade_tenants(actor="ann")["acme"] != []
    tenant = scene.store.open_tenant("acme", lambda hint: None)
    (row,) = tenant.list_audit().entries
    assert (row.verb, row.target, row.actor) == ("tenant.upgrade", "acme", "ann")
    assert scene.audit() == []
    tenant.close()


def test_a_page_follows_a_page_newest_first(scene: Scene):
    for number in range(7):
        scene.call(limits.set_slot, "gpu", number, actor="ann" if number % 2 else "bob")
    seen, cursor = [], None
    while True:
        page = scene.call(audit.list_audit, limit=3, cursor=cursor)
        seen += [row.detail["limit"] for row in page.entries]
        cursor = page.next
        if cursor is None:
            break
    assert seen == [6, 5, 4, 3, 2, 1, 0]
    assert [row.detail["limit"] for row in scene.call(audit.list_audit, actor="ann").entries] == [
        5,
        3,
        1,
    ]
    assert scene.call(audit.list_audit, verb="slot.set", target="gpu", actor="bob", limit=1).entries[
        0
    ].detail == {"limit": 6}
    assert scene.call(audit.list_audit, target="cpu").entries == []


@pytest.mark.parametrize("wrong", ["x", "-1", "9" * 30, True])
def test_a_cursor_of_nobody_is_refused(scene: Scene, wrong: Any):
    with pytest.raises(InvalidInput, match="cursor"):
        scene.call(audit.list_audit, cursor=wrong)


def test_a_lane_with_a_long_name_is_found_and_told_whole(scene: Scene):
    lane = "x" * 500
    from leasehold.domain.checks.texts import storable_name

    put(scene.store, lane=storable_name(lane, "lane"), full_names=((storable_name(lane, "lane"), lane),))
    (grant,) = scene.store.claim("w", ["default"], 1)
    scene.store.pause(grant.id)
    from leasehold.domain.outcome import Stopped

    end(scene.store, grant, Stopped())
    scene.call(queues.resume_lane, lane, actor="ann")
    (row,) = scene.call(audit.list_audit, target=lane).entries
    assert row.target == lane


def test_what_a_run_does_itself_is_not_recorded(scene: Scene):
    end(scene.store, run(scene.store), Success())
    assert scene.audit() == []


def test_a_tenant_that_was_left_half_made_is_recorded_where_it_is_listed(scene: Scene):
    """Its own store is written first then, and must not take the entry."""
    scene.store.create_tenant("acme")
    scene.store._remove("acme")
    scene.store._mark("acme", ready=False)
    assert scene.call(tenants.create_tenant, "acme", actor="ann")
    assert [row.verb for row in scene.audit()] == ["tenant.create"]
    tenant = scene.store.open_tenant("acme", lambda hint: None)
    assert tenant.list_audit().entries == []
    tenant.close()

"""A store of many stores: every verb of the contract has its way, and a tenant in trouble costs the others nothing."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

from leasehold import Leasehold
from leasehold.domain.errors import DatabaseUnreachable, InvalidInput
from leasehold.domain.outcome import Success
from leasehold.stores.database.wakeups import Hint
from leasehold.stores.open import MOST_FILES
from leasehold.stores.results import Ending
from leasehold.stores.store import JobStore
from leasehold.stores.tenants.multi_store import TO_CONTROL, ManyStores, takes_id
from leasehold.stores.tenants.tenant_store import VERBS, TenantStore
from tests.backends import Backend, new_job

OPERATORS = {
    "enqueue", "enqueue_within", "aenqueue_within", "run_now", "set_group_budget", "group_budget", "open_questions",
    "pause_scope", "resume_scope", "list_pauses", "resume_lane", "set_slot", "list_slots", "set_rate", "close_rate",
    "open_rate", "list_rates", "limits_of", "find_stoppable", "stop_jobs", "still_running", "group", "group_status",
    "group_versions", "group_notes", "stop_group", "end_group_stop", "release_group", "group_wakeups",
    "set_schedule", "delete_schedule", "pause_schedule", "resume_schedule", "record_manual_job", "full_names",
    "list_jobs",
    "list_executions", "list_groups", "list_budgets", "list_leases",
    "search_jobs", "find_failures", "ties", "find_ids", "short_ids", "count", "count_ahead", "list_lanes",
    "list_gates", "lane_front", "count_by_queue",
    "stuck_lanes", "stuck_children", "misplaced", "long_expired", "missing_objects", "examine", "upgrade_sql",
    "upgrade", "drop", "check_schema", "schema_version", "insert_sql", "mirror_sql", "unmirror_sql", "add_mirror",
    "remove_mirror",
    "list_mirrors", "stray_mirrors", "prune_groups", "enqueue_once", "add_token", "find_token", "list_tokens",
    "revoke_token", "mark_jobs", "audited", "write_audit", "list_audit", "totals", "list_rollups",
    "gauges",
}  # fmt: skip
"""What only an operator asks, of one tenant. A verb that workers use must not come in here: it would be refused."""


def test_every_verb_of_the_contract_has_one_way():
    written = _written()
    for verb in sorted(VERBS):
        by_id = verb not in written and verb not in TO_CONTROL and takes_id(verb)
        ways = [verb in written, verb in TO_CONTROL, by_id, verb in OPERATORS]
        assert ways.count(True) == 1, (
            f"{verb}: say in ManyStores where it goes, in TO_CONTROL, or here that only operators ask it"
        )
        assert hasattr(TenantStore, verb)


def _written() -> set[str]:
    """By hand, in one of its roles."""
    found: set[str] = set()
    for role in ManyStores.__mro__[:-1]:
        (cls,) = ast.parse(inspect.getsource(role)).body
        assert isinstance(cls, ast.ClassDef)
        found |= {node.name for node in cls.body if isinstance(node, ast.FunctionDef)}
    return found


@pytest.fixture
def app(app: Leasehold) -> Iterator[Leasehold]:
    for name in ("acme", "beta"):
        app.tenants.create(name)
    yield app
    for row in app.tenants.list():
        app.tenants.drop(row.name)


def part(app: Leasehold, name: str) -> JobStore:
    return app.tenant(name).__internals__.store


def test_what_only_operators_ask_is_refused(app: Leasehold):
    many = app.__internals__.shared.stores.serving(["acme"])
    with pytest.raises(InvalidInput, match="one tenant"):
        many.list_jobs()


def test_jobs_are_settled_and_renewed_where_they_were_claimed(app: Leasehold):
    many = app.__internals__.shared.stores.serving(["acme", "beta"])
    for name in ("acme", "beta"):
        part(app, name).enqueue([new_job(), new_job()])
    grants = many.claim("w", ["default"], 10)
    assert sorted(grant.tenant for grant in grants) == ["acme", "acme", "beta", "beta"]
    assert len({grant.seq for grant in grants}) < len(grants), "numbers are a store's own"
    leases = {grant.id: grant.token for grant in grants}
    assert {renewal.id for renewal in many.renew(leases)} == set(leases)
    settled = many.settle([Ending(grant.id, grant.token, Success("1"), grant.seq) for grant in grants])
    assert set(settled.accepted) == set(leases)
    for name in ("acme", "beta"):
        assert {job.state.value for job in part(app, name).list_jobs().jobs} == {"succeeded"}


def test_a_copied_tenant_cannot_be_mistaken_for_the_one_it_was_copied_from(app: Leasehold):
    """The same id in two tenants: the second is handed back, untouched."""
    many = app.__internals__.shared.stores.serving(["acme", "beta"])
    job = new_job()
    for name in ("acme", "beta"):
        part(app, name).enqueue([job])
    (grant,) = many.claim("w", ["default"], 10)
    other = "beta" if grant.tenant == "acme" else "acme"
    assert part(app, other).get(job.id).state.value == "queued"
    many.settle([Ending(grant.id, grant.token, Success("1"), grant.seq)])
    assert part(app, grant.tenant).get(job.id).state.value == "succeeded"
    assert part(app, other).get(job.id).state.value == "queued"


def test_a_tenant_in_trouble_costs_the_others_no_lease(app: Leasehold, monkeypatch: pytest.MonkeyPatch):
    many = app.__internals__.shared.stores.serving(["acme", "beta"])
    for name in ("acme", "beta"):
        part(app, name).enqueue([new_job()])
    grants = {grant.tenant: grant for grant in many.claim("w", ["default"], 10)}
    real = TenantStore.renew  # type: ignore[attr-defined]

    def renew(self: TenantStore, leases):
        if self.name == "acme":
            raise DatabaseUnreachable("acme", "locked")
        return real(self, leases)

    monkeypatch.setattr(TenantStore, "renew", renew)
    renewals = {renewal.id: renewal for renewal in many.renew({g.id: g.token for g in grants.values()})}
    assert renewals[grants["beta"].id].extended
    assert not renewals[grants["acme"].id].extended, "neither lost nor extended"


def test_at_most_so_many_files_are_open(tmp_path: Path):
    with Leasehold(f"sqlite:///{tmp_path}/jobs.db") as app:
        names = [f"t{number}" for number in range(50)]
        for name in names:
            app.tenants.create(name)
        for name in names:
            part(app, name).enqueue([new_job()])
        many = app.__internals__.shared.stores.serving(names)
        grants = []
        while some := many.claim("w", ["default"], 7):
            grants += some
            many.renew({grant.id: grant.token for grant in grants})
            assert len(open_files()) <= MOST_FILES + 1, "the app's own is open too"
        assert {grant.tenant for grant in grants} == set(names)
        keeper = many.another()
        assert len(keeper.renew({grant.id: grant.token for grant in grants})) == 50
        assert len(open_files()) <= MOST_FILES + 1
        keeper.close()


def open_files() -> set[str]:
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            path = str(entry.readlink())
        except OSError:
            continue
        if path.endswith(".db"):
            found.add(path)
    return found


def test_a_lost_hint_is_made_up_for_by_the_sweep(app: Leasehold, monkeypatch: pytest.MonkeyPatch):
    """The process died between the commit and the hint."""
    many = app.__internals__.shared.stores.serving(["acme"])
    assert many.claim("w", ["default"], 10) == []
    directory = app.__internals__.shared.stores.directory
    monkeypatch.setattr(directory, "notify", lambda name, hint: None)
    directory.cache.drop("acme")
    part(app, "acme").enqueue([new_job()])
    assert many.claim("w", ["default"], 10) == []
    many._swept_at = float("-inf")  # type: ignore[attr-defined]
    assert len(many.claim("w", ["default"], 10)) == 1


def test_what_a_transaction_frees_is_told_after_its_commit_whoever_wakes_meanwhile(
    app: Leasehold, monkeypatch: pytest.MonkeyPatch
):
    many = app.__internals__.shared.stores.serving(["acme"])
    first, second = (new_job(lane="l") for _ in range(2))
    part(app, "acme").enqueue([first, second])
    (grant,) = many.claim("w", ["default"], 10)
    while many.claim("w", ["default"], 10) or many.opens_in(["default"]) == 0:
        pass
    reported: list[str] = []
    monkeypatch.setattr(
        app.__internals__.shared.stores.directory, "notify", lambda name, hint: reported.append(name)
    )
    with many.transaction(grant.id, grant.token, 20.0) as tx:
        many.notify_workers()  # as the settler does for another job
        reported.clear()
        tx.succeed(Success("1"))
    many.notify_workers()
    assert reported == ["acme"]
    assert [grant.id for grant in many.claim("w", ["default"], 10)] == [second.id], "here it is known at once"


def test_idle_tenants_are_not_asked(app: Leasehold, monkeypatch: pytest.MonkeyPatch):
    many = app.__internals__.shared.stores.serving(["acme", "beta"])
    while many.claim("w", ["default"], 10) or many.opens_in(["default"]) == 0:
        pass
    used: list[str] = []
    cache = app.__internals__.shared.stores.directory.cache
    real = cache.use

    def use(name, *args):
        used.append(name)
        return real(name, *args)

    monkeypatch.setattr(cache, "use", use)
    for _ in range(20):
        assert many.claim("w", ["default"], 10, idle=True) == []
    assert used == []
    part(app, "beta").enqueue([new_job()])
    app.__internals__.store.notify_tenants(["beta"], Hint.WORK)
    used.clear()
    assert len(many.claim("w", ["default"], 10, idle=True)) == 1, "idle: it reads afresh who was told of"
    assert set(used) == {"beta"}


def test_a_schema_or_file_of_somebody_else_is_not_taken_for_a_tenant(app: Leasehold, backend: Backend):
    backend.query("DELETE FROM leasehold.tenant WHERE name = 'acme'")
    with pytest.raises(InvalidInput, match="belongs to no tenant"):
        app.tenants.create("acme")
    assert [row.name for row in app.tenants.list()] == ["beta"]
    app.__internals__.store._remove("acme")


def test_one_that_was_left_half_made_is_made_whole(app: Leasehold, backend: Backend):
    backend.query("UPDATE leasehold.tenant SET ready = ?", False)
    app.__internals__.shared.stores.forget("acme")
    with pytest.raises(LookupError):
        part(app, "acme").list_jobs()
    assert app.tenants.create("acme")
    assert part(app, "acme").list_jobs().jobs == []

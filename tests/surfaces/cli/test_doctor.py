"""The doctor finds what it looks for, and says what to do about it."""

from __future__ import annotations

from pathlib import Path

import pytest

from leasehold.stores.postgres.store import PostgresStore
from leasehold.stores.sqlite.store import filesystem_of
from leasehold.testing import ManualClock
from tests.backends import Backend
from tests.faults.pgbouncer import PgBouncer, ensure_pgbouncer


def finding(answer, check: str) -> dict:
    return next(line for line in answer.lines if line["check"] == check)


def test_a_healthy_store_has_nothing_bad(app, here, backend):
    answer = here("doctor", "--json")
    assert answer.code == (1 if _fsync_is_off(answer) else 0)
    bad = {line["check"] for line in answer.lines if line["verdict"] == "bad"}
    # The tests' own server runs without fsync, and the doctor says so.
    assert bad <= {"fsync"}
    assert {"database", "clock", "schema", "jobs", "lanes", "leases"} <= {
        line["check"] for line in answer.lines
    }


def _fsync_is_off(answer) -> bool:
    return any(line["check"] == "fsync" and line["verdict"] == "bad" for line in answer.lines)


def test_a_table_is_drawn_for_people(app, here):
    assert here("doctor").out.splitlines()[0].split() == ["check", "verdict", "found", "remedy"]


def test_postgres_without_a_pooler_listens(here, postgres_url, postgres_schema, monkeypatch):
    monkeypatch.setattr("leasehold.stores.postgres.store.RECEIVED_WITHIN", 30.0)  # it ends when it has heard
    to = ["--url", postgres_url, "--schema", postgres_schema]
    assert here("db", "upgrade", *to).code == 0
    answer = here("doctor", "--json", *to)
    assert finding(answer, "pooler")["detail"] == "none"
    assert finding(answer, "wake-ups")["detail"] == "LISTEN works"


def test_a_missing_index_is_bad(app, here, backend):
    index = "leasehold_tag_job" if backend.name == "sqlite" else "tag_job"
    backend.query("DROP INDEX leasehold.tag_job")
    try:
        answer = here("doctor", "--json")
        assert answer.code == 1
        assert f"index {index}" in finding(answer, "schema")["detail"]
    finally:
        backend.query(f"CREATE INDEX {index} ON leasehold.tag (job_id)")


def test_a_missing_primary_key_is_bad(here, postgres_url, postgres_schema):
    to = ["--url", postgres_url, "--schema", postgres_schema]
    assert here("db", "upgrade", *to).code == 0
    Backend("postgres", postgres_url, postgres_schema).query(
        "ALTER TABLE leasehold.tag DROP CONSTRAINT tag_pkey"
    )
    assert finding(here("doctor", "--json", *to), "schema")["detail"] == "missing: constraint tag_pkey"


def test_a_job_that_is_nowhere_is_bad(app, here, backend):
    lost, _ = app.enqueue("work"), app.enqueue("work")
    assert finding(here("doctor", "--json"), "jobs")["verdict"] == "ok"
    backend.query("DELETE FROM leasehold.ready WHERE seq = ?", lost.__row__.seq)
    answer = here("doctor", "--json")
    assert answer.code == 1
    assert finding(answer, "jobs")["verdict"] == "bad"
    assert f"job {lost.id} is in no place" in finding(answer, "jobs")["detail"]


def test_a_job_in_two_places_is_bad(app, here, backend):
    twice, other = app.enqueue("work"), app.enqueue("work", hold=True)
    backend.query("UPDATE leasehold.parked SET job = ? WHERE job = ?", twice.__row__.seq, other.__row__.seq)
    found = finding(here("doctor", "--json"), "jobs")
    assert found["verdict"] == "bad"
    assert f"job {twice.id} is in more than one place" in found["detail"]
    assert f"job {other.id} is in no place" in found["detail"]


def test_a_group_that_miscounts_is_bad(app, here, backend):
    app.enqueue("work", group="g")
    assert finding(here("doctor", "--json"), "jobs")["verdict"] == "ok"
    backend.query("UPDATE leasehold.job_group SET live = 7")
    found = finding(here("doctor", "--json"), "jobs")
    assert found["verdict"] == "bad"
    assert "group 'g' miscounts" in found["detail"]


def test_a_lane_without_a_ticket_is_bad(app, here, backend):
    app.enqueue("in_lane", {"lane": "t1"})
    assert finding(here("doctor", "--json"), "lanes")["verdict"] == "ok"
    backend.query("DELETE FROM leasehold.ticket")
    found = finding(here("doctor", "--json"), "lanes")
    assert found["verdict"] == "bad"
    assert "t1" in found["detail"]


def test_a_lane_that_is_blocked_needs_no_ticket(app, here, backend):
    for _ in range(2):
        app.enqueue("in_lane", {"lane": "t1"})
    assert len(app.__internals__.store.claim("host:1:aa", ["default"], 5)) == 1
    backend.query("DELETE FROM leasehold.ticket")
    assert finding(here("doctor", "--json"), "lanes")["verdict"] == "ok"


def test_a_lease_that_ran_out_long_ago_and_an_unserved_queue_are_warned_of(app, here, backend):
    job = app.enqueue("work", queue="lonely")
    app.enqueue("work", queue="lonely")
    app.__internals__.store.claim_by_id(job.id, "host:1:aa")
    earlier = "1000000000" if backend.name == "sqlite" else "interval '1000 s'"
    backend.query(f"UPDATE leasehold.lease SET expires_at = expires_at - {earlier}")
    answer = here("doctor", "--json")
    assert finding(answer, "leases")["verdict"] == "warn"
    assert job.id in finding(answer, "leases")["detail"]
    assert "'lonely'" in finding(answer, "workers")["detail"]


def test_clocks_that_differ_are_told(backend):
    from leasehold.operations.doctor import examine

    behind = next(found for found in examine(backend.open(ManualClock())) if found.check == "clock")
    assert behind.verdict == "bad"
    assert "ahead of the database" in behind.detail


def test_a_file_on_a_network_file_system_is_recognised():
    mounts = "/dev/sda1 / ext4 rw 0 0\nserver:/x /mnt/my\\040share nfs4 rw 0 0\n"
    assert filesystem_of(Path("/mnt/my share/jobs.db"), mounts) == "nfs4"
    assert filesystem_of(Path("/home/jobs.db"), mounts) == "ext4"
    assert filesystem_of(Path("/home/jobs.db"), "") is None


@pytest.mark.slow(12)
def test_a_pooler_is_noticed_and_so_is_that_the_url_does_not_declare_it(here, start_postgres):
    if (why := ensure_pgbouncer()) is not None:
        pytest.skip(why)
    server = start_postgres(fsync=False)
    direct = server.create_database("behind")
    assert here("db", "upgrade", "--url", direct).code == 0
    with PgBouncer(server, "behind") as bouncer:
        reported = here("doctor", "--json", "--url", bouncer.url)
        assert finding(reported, "pooler")["detail"] == "transaction mode, as declared"
        assert finding(reported, "wake-ups")["verdict"] == "warn"
        assert "ALTER ROLE" in finding(reported, "jit")["remedy"]
        assert "listen_url" in finding(reported, "wake-ups")["remedy"]
        store = PostgresStore(bouncer.url.partition("?")[0], pooler=True)
        store._pooler = False
        try:
            untold = next(found for found in store.examine() if found.check == "pooler")
        finally:
            store.close()
        assert untold.verdict == "bad"
        assert "?pooler=transaction" in untold.remedy

"""`leasehold workers health`, and the file that a worker touches while it is well."""

from __future__ import annotations

import signal

from leasehold.domain.records import WorkerCard
from leasehold.worker.health import Health, HealthWatch
from tests.surfaces.cli.conftest import MODULE, Cli, read_until, stop
from tests.workers import wait_for


def test_health_is_0_with_a_live_worker_and_1_without(app, here):
    answer = here("workers", "health", "--json")
    assert (answer.code, answer.json["ok"]) == (1, False)
    assert [(one["check"], one["verdict"]) for one in answer.json["checks"]] == [
        ("database", "ok"),
        ("schema", "ok"),
        ("workers", "bad"),
    ]
    store = app.__internals__.store
    store.report_worker(WorkerCard(name="embedded", queues=(), tasks=("work",)))
    store.report_worker(WorkerCard(name="leaving", queues=("default",), tasks=("work",), draining=True))
    assert here("workers", "health").code == 1, "neither takes jobs from a queue"
    store.report_worker(WorkerCard(name="alive", queues=("default",), tasks=("work",)))
    assert (here("workers", "health", "--json").json["ok"], here("workers", "health").code) == (True, 0)


def test_health_is_1_when_the_database_is_away_or_has_no_schema(here, postgres_url, postgres_schema):
    for url in ("sqlite:///no/such/file.db", "postgresql://nobody:secret@127.0.0.1:1/none"):
        answer = here("workers", "health", "--url", url, "--json")
        assert answer.code == 1
        (check,) = answer.json["checks"]
        assert (check["check"], check["verdict"]) == ("database", "bad")
        assert "secret" not in answer.out
    answer = here("workers", "health", "--url", postgres_url, "--schema", postgres_schema, "--json")
    assert [(one["check"], one["verdict"]) for one in answer.json["checks"]] == [
        ("database", "ok"),
        ("schema", "bad"),
    ]


def test_a_worker_has_a_health_file_as_long_as_it_lives(sqlite_cli: Cli):
    path = sqlite_cli.folder / "healthy"
    worker = sqlite_cli.start("worker", MODULE, "--health-file", str(path))
    read_until(worker, "stderr", "serves")
    wait_for(path.exists)
    assert stop(worker, signal.SIGTERM)[0] == 0
    assert not path.exists()
    refused = sqlite_cli("worker", MODULE, "--health-file", str(path / "no" / "folder"))
    assert (refused.code, "make the folder first" in refused.err) == (2, True)


def judged(*problems: str) -> Health:
    return Health(not problems, problems, tenants=(), running=0, unsettled=0, left_behind=0)


def test_the_health_file_goes_while_its_worker_is_not_well(tmp_path):
    path, found = tmp_path / "healthy", [judged(), judged("no claims: it is away"), judged()]
    beats = HealthWatch(lambda: found.pop(0), path)
    seen = []
    for _ in range(3):
        beats.beat()
        seen.append(path.exists())
    assert seen == [True, False, True]


def test_a_problem_is_logged_when_it_begins_and_when_it_is_over(caplog):
    caplog.set_level("INFO", "leasehold.worker")
    slow = [judged(f"no claim for {seconds} s: the database has not answered it") for seconds in (16, 21)]
    found = [judged(), *slow, judged("presence: no answer from the database for 17 s"), judged(), judged()]
    beats = HealthWatch(lambda: found.pop(0), None)
    while found:
        beats.beat()
    assert [record.getMessage() for record in caplog.records] == [
        "unhealthy: no claim for 16 s: the database has not answered it",
        "unhealthy: presence: no answer from the database for 17 s",
        "healthy again",
    ]

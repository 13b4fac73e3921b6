"""The application from outside: real workers of RQ, a real Valkey, both databases."""

from __future__ import annotations

import json
import os
import random
import signal
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic

import pytest
import yaml

from examples.measured import KILLS, database_of
from leasehold import Leasehold

from .conftest import Stage
from .processes import horses_of, until

pytestmark = pytest.mark.slow
HERE = Path(__file__).parent
on_sqlite = pytest.mark.parametrize("whole_stage", ["sqlite"], indirect=True, scope="module")
on_postgres = pytest.mark.parametrize("whole_stage", ["postgres"], indirect=True, scope="module")


def test_a_run_is_triggered_seen_running_and_has_succeeded(stage: Stage) -> None:
    """The document's manual verification."""
    run_id = stage.client.trigger(seconds=4)
    running = stage.client.wait(run_id, "RUNNING")
    assert (running["lease_owner"], running["attempt_count"], running["model"]) == ("worker-1", 1, "mock")
    expires_at = datetime.fromisoformat(running["lease_expires_at"])
    assert expires_at > datetime.now(UTC)
    renewed = until(
        lambda: stage.client.run(run_id)["lease_expires_at"] != running["lease_expires_at"], "renewed"
    )
    assert renewed
    done = stage.client.wait(run_id, "SUCCEEDED")
    assert done["started_at"] == running["started_at"]
    assert (done["lease_owner"], done["lease_expires_at"], done["last_error"]) == (None, None, None)
    assert done["result_ref"] == f"{run_id}.1.json", "its name holds the job and the token"
    assert json.loads(stage.result_file(done["result_ref"]).read_text())["attempt"] == 1


@on_postgres
def test_a_message_that_comes_three_times_is_run_once(stage: Stage) -> None:
    stage.ensure_workers("worker-1", "worker-2")
    run_id = stage.client.trigger(seconds=2)
    stage.deliver_again(run_id, 2)
    assert stage.client.wait(run_id, "SUCCEEDED")["attempt_count"] == 1
    stage.deliver_again(run_id, 1)
    until(
        lambda: any(
            f"Lease acquisition failed: run {run_id}" in stage.processes.log(f"worker-{n}") for n in (1, 2)
        ),
        "somebody was turned away",
    )
    until(
        lambda: stage.queue.count == 0 and stage.queue.scheduled_job_registry.count == 0,
        "all are acknowledged",
    )
    assert stage.client.run(run_id)["attempt_count"] == 1
    assert Counter(line.split()[1] for line in stage.starts())[run_id] == 1
    assert stage.queue.failed_job_registry.count == 0


@on_postgres
def test_a_retriable_failure_is_published_again_and_another_is_final(stage: Stage) -> None:
    flaky, broken = stage.client.trigger("flaky", 0.1), stage.client.trigger("broken")
    done = stage.client.wait(flaky, "SUCCEEDED", "FAILED")
    assert (done["status"], done["attempt_count"]) == ("SUCCEEDED", 2)
    failed = stage.client.wait(broken, "FAILED")
    assert failed["attempt_count"] == 1
    assert failed["last_error"].startswith("ValueError: the matrix is singular")
    assert failed["result_ref"] is None


@on_sqlite
def test_what_redis_has_forgotten_is_found_in_the_database(stage: Stage) -> None:
    """FLUSHALL while one runs and three wait."""
    runs = [stage.client.trigger(seconds=2), *(stage.client.trigger(seconds=0.1) for _ in range(3))]
    stage.client.wait(runs[0], "RUNNING")
    stage.redis.flushall()
    assert [stage.client.wait(run, "SUCCEEDED")["attempt_count"] for run in runs] == [1] * 4


@on_sqlite
def test_a_worker_that_is_told_to_end_lets_its_run_end(stage: Stage) -> None:
    run_id = stage.client.trigger(seconds=2)
    stage.client.wait(run_id, "RUNNING")
    worker = stage.processes.live.pop("worker-1")
    worker.terminate()
    assert worker.wait(60) == 0
    done = stage.client.run(run_id)
    assert (done["status"], done["attempt_count"]) == ("SUCCEEDED", 1), (
        "settled before the work horse has left"
    )


@on_postgres
def test_a_late_loser_cannot_touch_the_result_of_the_winner(stage: Stage) -> None:
    """worker-1's work horse is frozen for longer than its lease, and wakes up when worker-2 is done."""
    run_id = stage.client.trigger("blocking", 1.5)
    first = stage.client.wait(run_id, "RUNNING")
    until(lambda: any(run_id in line for line in stage.starts()), "its model has begun")
    (horse,) = horses_of(stage.processes.live["worker-1"].pid)
    os.kill(horse, signal.SIGSTOP)
    try:
        stage.processes.start_worker("worker-2")
        done = stage.client.wait(run_id, "SUCCEEDED")
    finally:
        os.kill(horse, signal.SIGCONT)
    assert done["attempt_count"] == 2
    assert done["started_at"] == first["started_at"], "kept from the first start"
    winner = stage.result_file(done["result_ref"])
    before = winner.read_bytes()
    assert json.loads(before)["attempt"] == 2
    until(lambda: horse not in horses_of(stage.processes.live["worker-1"].pid), "the loser has ended")
    assert winner.read_bytes() == before
    assert stage.client.run(run_id) == done
    others = [path.name for path in winner.parent.glob(f"{run_id}*") if path != winner]
    assert all(name.startswith(f"{run_id}.1.") for name in others), "what it has left is under its own token"


@on_postgres
def test_a_run_that_loses_its_worker_too_often_has_failed(stage: Stage) -> None:
    """MAX_ATTEMPTS travels with a run from its creation, so only the API has to know it."""
    with stage.api_with(MAX_ATTEMPTS="2"):
        run_id = stage.client.trigger(seconds=600)
    for attempt in (1, 2):
        running = stage.wait_for_attempt(run_id, attempt)
        assert (running["status"], running["lease_owner"]) == ("RUNNING", "worker-1")
        stage.processes.kill("worker-1")
        stage.processes.start_worker("worker-1")
    failed = stage.client.wait(run_id, "FAILED")
    assert (failed["attempt_count"], failed["lease_owner"], failed["result_ref"]) == (2, None, None)
    assert "lease was lost" in failed["last_error"]
    stage.deliver_again(run_id, 1)
    until(lambda: f"Lease acquisition failed: run {run_id}" in stage.processes.log("worker-1"), "turned away")
    assert stage.client.run(run_id) == failed, "nobody steals it any more"


def test_any_process_may_be_killed_at_any_time(stage: Stage, chance: random.Random) -> None:
    survive_kills(stage, chance, 5)


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_any_process_may_be_killed_twenty_times(stage: Stage, chance: random.Random) -> None:
    began = monotonic()
    runs = survive_kills(stage, chance, 20)
    minutes = round((monotonic() - began) / 60, 1)
    url = stage.processes.settings["LEASEHOLD_URL"]
    with Leasehold(url) as app:
        ends = Counter(attempt.outcome for run in runs for attempt in app.get(run).attempts())
    KILLS.put("model_runs", database_of(url), 20, len(runs), ends.total(), ends["lost"], minutes)


def survive_kills(stage: Stage, chance: random.Random, kills: int) -> list[str]:
    """Workers with their work horses, the deliver process, Redis and the API, one after the other. Nothing is lost, and
    no attempt begins twice. Gives back the runs."""
    stage.ensure_workers("worker-1", "worker-2")
    victims = ["worker-1", "worker-2", "deliver", "redis", "api"]
    runs = []
    for number in range(kills):
        runs += [stage.client.trigger(seconds=chance.uniform(0.2, 1.5)) for _ in range(2)]
        victim = victims[number % len(victims)]
        stage.client.wait(runs[-1], "RUNNING", "SUCCEEDED")  # so that most of them are killed while they work
        stage.processes.kill(victim)
        stage.restart(victim)
    ended = {run: stage.client.wait(run, "SUCCEEDED", "FAILED", seconds=180) for run in runs}
    assert {run["status"] for run in ended.values()} == {"SUCCEEDED"}
    for run in ended.values():
        assert json.loads(stage.result_file(run["result_ref"]).read_text())["attempt"] <= run["attempt_count"]
    begun = Counter(line for line in stage.starts() if line.split()[1] in ended)
    assert begun
    assert set(begun.values()) == {1}, "a token was granted once"
    return runs


def test_the_compose_file_has_every_part_of_the_application() -> None:
    """Read as YAML, since images cannot be pulled everywhere; its words are those that the application reads."""
    services = yaml.safe_load((HERE / "docker-compose.yml").read_text())["services"]
    assert set(services) == {"postgres", "redis", "api", "deliver", "worker"}
    assert "rq.serializers.JSONSerializer" in services["worker"]["command"]
    assert "examples.model_runs.rq_settings" in services["worker"]["command"]
    assert "examples.model_runs.deliver" in services["deliver"]["command"]
    assert "examples.model_runs.api:api" in services["api"]["command"]
    built = [services[name] for name in ("api", "deliver", "worker")]
    assert all(one["build"] == built[0]["build"] for one in built)
    root = (HERE / built[0]["build"]["context"]).resolve()
    lines = (root / built[0]["build"]["dockerfile"]).read_text().splitlines()
    copied = [name for line in lines if line.startswith("COPY ") for name in line.split()[1:-1]]
    assert {"src", "examples", "constraints.txt"} <= set(copied)
    assert [name for name in copied if not (root / name).exists()] == []
    read = (HERE / "app.py").read_text() + (HERE / "rq_settings.py").read_text()
    assert [name for name in built[0]["environment"] if f'"{name}"' not in read] == []
    waits_for = {name: set(one.get("depends_on", ())) for name, one in services.items()}
    assert waits_for["api"] == {"postgres", "redis"}
    assert waits_for["worker"] == waits_for["deliver"] == {"api"}, "it makes the tables"

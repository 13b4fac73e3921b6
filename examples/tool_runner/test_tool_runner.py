"""The application from outside: processes, a real Docker engine, SQLite and PostgreSQL."""

from __future__ import annotations

import http.client
import itertools
import random
import re
import signal
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable

import pytest

from examples.measured import KILLS, database_of, ends_of_runs
from examples.tool_runner.conftest import Docker, Observer
from examples.tool_runner.fleet import PATIENCE, Fleet, wait_for
from leasehold import Leasehold

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("docker"), pytest.mark.timeout(300)]

Start = Callable[..., Fleet]
COLUMNS = [
    "id", "run_id", "status", "queue", "priority", "attempts", "max_attempts", "available_at", "locked_by",
    "locked_until", "last_error", "created_at", "updated_at", "started_at", "finished_at",
]  # fmt: skip


# -- the record


def test_the_record_of_a_run_is_truthful_from_the_request_to_the_end(start: Start, docker: Docker) -> None:
    with start() as fleet, Observer(fleet):
        fleet.start_api()
        run_id = fleet.request("sleep", "600", priority=7)
        run, job = fleet.run(run_id), fleet.job(run_id)
        assert list(job) == COLUMNS
        assert (run["status"], run["started_at"], run["finished_at"]) == ("queued", None, None)
        assert (job["queue"], job["priority"], job["attempts"], job["max_attempts"]) == ("default", 7, 0, 1)
        assert (job["locked_by"], job["locked_until"], job["started_at"]) == (None, None, None)

        worker = fleet.start_worker()
        docker.begun(run_id)
        job = fleet.job(run_id)
        assert (job["status"], fleet.run(run_id)["status"]) == ("running", "running")
        assert f":{worker.pid}:" in job["locked_by"]
        until = job["locked_until"]
        (container,) = docker.containers(run_id)
        # In the middle stands the database: a copy of it leaves this one alone.
        assert re.fullmatch(rf"app-[0-9a-f]+-{job['id']}-1", container["Labels"]["leasehold.execution"])
        wait_for(lambda: fleet.job(run_id)["locked_until"] != until, "a heartbeat")
        docker.notify_workers(run_id)

        run, job = fleet.wait_for_status(run_id, "succeeded"), fleet.job(run_id)
        assert (run["exit_code"], run["result"]) == (0, {"exit_code": 0, "output": "slept 600 s\n"})
        assert run["requested_at"] <= run["started_at"] < run["finished_at"] == job["updated_at"]
        assert (job["attempts"], job["locked_by"], job["locked_until"]) == (1, None, None)


def test_a_run_and_its_job_are_stored_together_or_not_at_all(start: Start) -> None:
    with start() as fleet:
        fleet.start_api()
        requested = {"tool": "echo", "run_id": str(uuid.uuid4())}
        assert fleet.ask("/tool-runs", requested)[0] == 202
        assert fleet.ask("/tool-runs", requested)[0] == 409
        status, refusal = fleet.ask("/tool-runs", {"tool": "echo", "queue": "x" * 1000})  # by the enqueue
        assert (status, "queue" in refusal["detail"]) == (422, True)
        assert fleet.ask("/tool-runs", {"tool": "unheard of"})[0] == 422
        assert fleet.ask(f"/tool-runs/{uuid.uuid4()}")[0] == 404
        assert (fleet.count("tool_runs"), fleet.count("tool_run_jobs")) == (1, 1)


# -- workers and callers die


def survive_kills(start: Start, docker: Docker, kills: int) -> Counter[str]:
    """Each round asks for two runs and kills one process, each in turn. How the runs of their jobs have ended."""
    chance = random.Random(kills)
    runs: list[str] = []
    with start() as fleet, Observer(fleet):
        starters = {"api": fleet.start_api, "one": fleet.start_worker, "two": fleet.start_worker}
        processes = {name: starter() for name, starter in starters.items()}
        for victim in itertools.islice(itertools.cycle(processes), kills):
            runs += [fleet.request("sleep", str(chance.randint(0, 4))) for _ in range(2)]
            time.sleep(chance.uniform(0.0, 2.0))  # any moment
            fleet.kill(processes[victim])
            processes[victim] = starters[victim]()
        for run_id in runs:
            fleet.wait_for_status(run_id, "succeeded", "failed", "timed_out", "cancelled")
        ends = {run_id: (fleet.run(run_id)["status"], fleet.job(run_id)["attempts"]) for run_id in runs}
    assert ends == dict.fromkeys(runs, ("succeeded", 1)), fleet.said()
    assert docker.starts(runs) == Counter(runs)
    with Leasehold(fleet.url) as app:
        return Counter(end for job in ends_of_runs(app).values() for end in job)


def test_processes_may_be_killed_at_any_moment(start: Start, docker: Docker) -> None:
    survive_kills(start, docker, 5)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_processes_may_be_killed_twenty_times(start: Start, docker: Docker, url: str) -> None:
    began = time.monotonic()
    ends = survive_kills(start, docker, 20)
    minutes = round((time.monotonic() - began) / 60, 1)
    KILLS.put("tool_runner", database_of(url), 20, ends["succeeded"], ends.total(), ends["lost"], minutes)


def test_orphans_are_adopted_first_then_by_priority_then_by_age(start: Start, docker: Docker) -> None:
    with start(RUNNER_WORKER_RUNS="1") as fleet:
        fleet.start_api()
        killed = fleet.start_worker()
        orphan = fleet.request("sleep", "600")
        docker.begun(orphan)
        fleet.kill(killed)
        low, high, later = (fleet.request("echo", priority=priority) for priority in (-1, 5, 5))
        wait_for(lambda: fleet.reap() and fleet.job(orphan)["locked_by"] is None, "the reaper")
        job = fleet.job(orphan)
        assert (job["status"], job["locked_until"], job["attempts"]) == ("running", None, 1)

        worker = fleet.start_worker()
        wait_for(lambda: f":{worker.pid}:" in (fleet.job(orphan)["locked_by"] or ""), "the adoption")
        assert {fleet.run(run_id)["status"] for run_id in (low, high, later)} == {"queued"}
        docker.notify_workers(orphan)
        runs = [fleet.wait_for_status(run_id, "succeeded") for run_id in (orphan, high, later, low)]
        begins = [run["started_at"] for run in runs]
        assert begins == sorted(begins)
        assert docker.starts([orphan])[orphan] == fleet.job(orphan)["attempts"] == 1


def test_a_worker_that_is_told_to_end_hands_its_runs_over(start: Start, docker: Docker) -> None:
    with start(RUNNER_LEASE_TTL_SECONDS="60") as fleet, Observer(fleet):
        fleet.start_api()
        worker = fleet.start_worker()
        run_id = fleet.request("sleep", "600")
        docker.begun(run_id)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(PATIENCE) == 0, fleet.said()
        job = fleet.job(run_id)
        assert (job["status"], job["locked_by"], job["attempts"]) == ("running", None, 1)
        docker.notify_workers(run_id)
        fleet.start_worker()
        assert fleet.wait_for_status(run_id, "succeeded", "failed")["status"] == "succeeded"
        assert docker.starts([run_id])[run_id] == 1


def test_a_container_that_is_gone_costs_an_attempt(start: Start, docker: Docker) -> None:
    with start() as fleet, Observer(fleet):
        fleet.start_api()
        worker = fleet.start_worker()
        twice, once = (fleet.request("sleep", "600", max_attempts=attempts) for attempts in (2, 1))
        docker.begun(twice, once)
        fleet.kill(worker)
        docker.remove()
        fleet.start_worker()

        run = fleet.wait_for_status(once, "failed")
        assert run["error"] == "its execution has vanished: how it ended is unknown"
        job = wait_for(lambda: (job := fleet.job(twice))["last_error"] and job, "the loss to be noticed")
        assert (job["status"], job["attempts"], job["last_error"]) == ("queued", 1, run["error"])
        assert job["available_at"] > job["updated_at"]
        first_started_at = job["started_at"]
        docker.begun(twice)
        docker.notify_workers(twice)
        assert fleet.wait_for_status(twice, "succeeded", "failed")["status"] == "succeeded"
        assert (fleet.job(twice)["attempts"], fleet.run(twice)["started_at"]) == (2, first_started_at)
        assert docker.starts([twice, once]) == {twice: 2, once: 1}


# -- the other ends, and the numbers


def test_every_end_is_told_and_counted(start: Start, docker: Docker) -> None:
    with start() as fleet, Observer(fleet):
        fleet.start_api()
        never = fleet.request("echo", queue="unserved")
        fleet.ask(f"/tool-runs/{never}/cancel", {})
        assert fleet.run(never)["started_at"] is None
        depth = fleet.request("echo", queue="unserved")
        worker = fleet.start_worker()
        slow = fleet.request("sleep", "60", timeout_seconds=1)
        wrong = fleet.request("exit", "3")
        stopped, killed = fleet.request("sleep", "60"), fleet.request("sleep", "60")
        good = fleet.request("word_count", "one two three")
        docker.begun(stopped, killed)
        fleet.ask(f"/tool-runs/{stopped}/cancel", {})
        (container,) = docker.containers(killed)
        docker.engine.call("POST", f"/containers/{container['Id']}/kill", {"signal": "SIGKILL"})
        for run_id, end in {
            never: "cancelled", slow: "timed_out", wrong: "failed", stopped: "cancelled", killed: "failed",
            good: "succeeded", depth: "queued",
        }.items():  # fmt: skip
            run = fleet.wait_for_status(run_id, end)
            assert (run["finished_at"] is None) == (end == "queued")
            assert fleet.job(run_id)["attempts"] == (run_id not in (never, depth))
        assert fleet.run(wrong)["error"] == "exit code 3: about to exit with 3"
        assert fleet.run(killed)["error"].startswith("exit code -9")
        assert fleet.run(good)["result"]["output"] == "3\n"
        assert fleet.ask(f"/tool-runs/{good}/cancel", {})[1]["status"] == "succeeded"

        worker.send_signal(signal.SIGTERM)  # what it has counted is written when it ends
        assert worker.wait(PATIENCE) == 0
        numbers = (told := fleet.ask("/metrics")[1])["default"]
        assert told["unserved"]["depth"] == 1
        assert numbers["mean_wait_seconds"] > 0
        expected = {"depth": 0, "attempts": 5, "succeeded": 1, "failed": 2, "timed_out": 1, "cancelled": 1}
        assert numbers | expected | {"success_rate": 0.2, "failure_rate": 0.6} == numbers


# -- without a queue


def test_cap_and_reject_needs_no_worker_and_a_killed_caller_leaks_no_place(
    start: Start, docker: Docker
) -> None:
    with start(RUNNER_QUEUE_ENABLED="false", RUNNER_MAX_CONCURRENCY="2") as fleet, Observer(fleet):
        api = fleet.start_api()
        status, run = fleet.ask("/tool-runs", {"tool": "echo", "argument": "hello"})
        assert (status, run["status"], run["result"]["output"]) == (200, "succeeded", "hello\n")
        status, run = fleet.ask("/tool-runs", {"tool": "exit", "argument": "3"})
        assert (status, run["status"], run["error"]) == (200, "failed", "exit code 3: about to exit with 3")

        runs = [str(uuid.uuid4()) for _ in range(2)]
        callers = [threading.Thread(target=call_and_die, args=(fleet, run_id)) for run_id in runs]
        for caller in callers:
            caller.start()
        docker.begun(*runs)
        status, refusal = fleet.ask("/tool-runs", {"tool": "echo"})
        assert (status, refusal["detail"]) == (429, "2 runs are under way, which is the cap")
        assert int(refusal["headers"]["retry-after"]) >= 1
        assert fleet.count("tool_runs") == 4  # nothing is stored for who was rejected

        fleet.kill(api)
        for caller in callers:
            caller.join()
        fleet.start_api()
        assert fleet.ask("/tool-runs", {"tool": "echo"})[0] == 429  # the containers live: places are taken
        docker.notify_workers(*runs)
        wait_for(lambda: fleet.ask("/tool-runs", {"tool": "echo"})[0] == 200, "a place")
        for run_id in runs:
            assert fleet.wait_for_status(run_id, "succeeded", "failed")["status"] == "succeeded"
            assert fleet.job(run_id)["attempts"] == 1
        assert docker.starts(runs) == Counter(runs)


def call_and_die(fleet: Fleet, run_id: str) -> None:
    """Its server is killed before it can answer."""
    with pytest.raises((ConnectionError, http.client.HTTPException)):
        fleet.ask("/tool-runs", {"tool": "sleep", "argument": "600", "run_id": run_id})

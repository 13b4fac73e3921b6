"""`python -m examples.tool_runner.show`: the application end to end, as processes, one of which is killed at work."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from pathlib import Path

from examples.tool_runner.__main__ import choose_runner
from examples.tool_runner.fleet import Fleet, wait_for

BEGAN = time.monotonic()


def say(text: str) -> None:
    print(f"{time.monotonic() - BEGAN:5.1f} s  {text}", flush=True)


def check(holds: bool, what: str) -> None:
    if not holds:
        raise SystemExit(f"this does not hold: {what}")


def show_queue(fleet: Fleet) -> None:
    fleet.start_api()
    run_id = fleet.request("sleep", "10")
    run = fleet.run(run_id)
    say(f"requested: {run['status']}, started_at {run['started_at']}; no worker runs yet")
    check(run["status"] == "queued" and run["started_at"] is None, "a run that nobody has begun is queued")

    first = fleet.start_worker()
    fleet.wait_for_status(run_id, "running")
    wait_for(lambda: fleet.job(run_id)["attempts"], "the tool to be started")
    say(f"worker {first.pid} runs it until {fleet.job(run_id)['locked_until']}, unless it renews its lease")
    fleet.kill(first)
    say("that worker is killed; what it had started goes on")
    wait_for(lambda: fleet.reap() and fleet.job(run_id)["locked_by"] is None, "the lease to run out")
    job = fleet.job(run_id)
    say(f"the reaper has cleared its lease; the run is {job['status']}, locked_by {job['locked_by']}")
    check((job["status"], job["attempts"]) == ("running", 1), "the reaper leaves the run alone")
    second = fleet.start_worker()

    def taken_over() -> str | None:
        """On a busy machine the tool may have ended before anybody looks."""
        job = fleet.job(run_id)
        is_adopted = f":{second.pid}:" in (job["locked_by"] or "")
        return "adopted it" if is_adopted else "collected what it left" if job["finished_at"] else None

    say(f"worker {second.pid} has {wait_for(taken_over, 'the adoption')}")
    run = fleet.wait_for_status(run_id, "succeeded", "failed")
    job = fleet.job(run_id)
    say(f"{run['status']}: {run['result']}, attempts {job['attempts']}")
    check((run["status"], job["attempts"]) == ("succeeded", 1), "the tool ran once")

    slow = fleet.request("sleep", "60", timeout_seconds=1)
    wrong = fleet.request("exit", "3", max_attempts=2)
    stopped = fleet.request("sleep", "60")
    fleet.wait_for_status(stopped, "running")
    fleet.ask(f"/tool-runs/{stopped}/cancel", {})
    for run_id, end in ((slow, "timed_out"), (wrong, "failed"), (stopped, "cancelled")):
        run = fleet.wait_for_status(run_id, "succeeded", "failed", "timed_out", "cancelled")
        say(f"{run['status']}: {run['tool']} {run['argument']}, attempts {fleet.job(run_id)['attempts']}")
        check(run["status"] == end, f"it is {end}")
    check(fleet.job(wrong)["attempts"] == 2, "it was tried again, after a while")


def show_cap(fleet: Fleet) -> None:
    fleet.start_api()
    answers: list[int] = []

    def hold_a_place() -> None:
        answers.append(fleet.ask("/tool-runs", {"tool": "sleep", "argument": "3"})[0])

    holder = threading.Thread(target=hold_a_place)
    holder.start()
    wait_for(lambda: fleet.ask("/tool-runs")[1], "the first run to begin")
    status, refusal = fleet.ask("/tool-runs", {"tool": "echo", "argument": "hello"})
    say(f"without a queue and without a worker, one place: {status}, {refusal['detail']}")
    check(status == 429, "a request beyond the cap is rejected")
    holder.join()
    status, run = fleet.ask("/tool-runs", {"tool": "echo", "argument": "hello"})
    say(f"when the first has ended ({answers[0]}): {status}, {run['result']}")
    check((answers, status, run["status"]) == ([200], 200, "succeeded"), "then there is a place")


def main() -> int:
    runner = choose_runner()
    say(
        f"tools are run by {runner}"
        + ("" if runner == "docker" else ": no Docker engine with our image is here")
    )
    short = {"RUNNER_LEASE_TTL_SECONDS": "2", "RUNNER_RETRY_BACKOFF_SECONDS": "0.5"}
    seen = 0
    with tempfile.TemporaryDirectory(prefix="tool_runner-") as folder:
        for name, part in (("queue", show_queue), ("cap", show_cap)):
            home = Path(folder, name)
            home.mkdir()
            enabled = str(name == "queue").lower()
            settings = {**short, "RUNNER_QUEUE_ENABLED": enabled, "RUNNER_MAX_CONCURRENCY": "1"}
            with Fleet(f"sqlite:///{home}/runs.db", home, **settings) as fleet:
                part(fleet)
                check(fleet.disagreements() == [], "tool_runs and tool_run_jobs tell the same")
                seen += fleet.count("tool_runs")
    print(
        f"{seen} tool runs by {runner}: adopted after a kill, retried, timed out, cancelled, capped; both tables agree"
    )
    return 0


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    sys.exit(main())

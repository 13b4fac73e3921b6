"""`leasehold jobs run-by-id`: a job that is there already, run in the command's own process; exit codes and JSON."""

from __future__ import annotations

import signal

from leasehold.surfaces.cli.problems import Exit
from tests.backends import new_id
from tests.surfaces.cli.conftest import MODULE, Cli, stop
from tests.workers import wait_for


def enqueue(cli: Cli, *arguments: str) -> str:
    answer = cli("jobs", "enqueue", MODULE, *arguments)
    assert answer.code == 0, answer.err
    return answer.out.strip()


def test_it_runs_without_a_worker_and_tells_how_it_ended(cli: Cli):
    job_id = enqueue(cli, "add", '{"a": 2}')
    answer = cli("jobs", "run-by-id", MODULE, job_id, "--worker", "worker-1", "--json")
    assert answer.code == Exit.OK, answer
    assert (answer.json["ran"], answer.json["state"], answer.json["retry_in"]) == (True, "succeeded", None)
    shown = cli("jobs", "show", job_id, "--json").json
    assert (shown["result"], shown["attempts"][0]["worker"]) == (3, "worker-1")
    again = cli("jobs", "run-by-id", job_id, LEASEHOLD_APP=MODULE)
    assert again.code == Exit.REFUSED
    assert again.err == f"error: job {job_id} was not run: it has succeeded\n"
    failed = cli("jobs", "run-by-id", MODULE, enqueue(cli, "fail"))
    assert (failed.code, failed.out.split()[1]) == (Exit.JOB_FAILED, "failed")


def test_what_cannot_run_now_says_when_to_come_back(sqlite_cli: Cli):
    later = enqueue(sqlite_cli, "add", '{"a": 2}', "--delay", "1h")
    answer = sqlite_cli("jobs", "run-by-id", MODULE, later, "--json")
    assert answer.code == Exit.REFUSED
    assert (answer.json["ran"], answer.json["why"]) == (False, "it is not due yet")
    assert 3000 < answer.json["retry_in"] <= 3600
    assert sqlite_cli("jobs", "run-by-id", MODULE, new_id()).code == Exit.NOT_FOUND
    assert sqlite_cli("jobs", "run-by-id", later).code == Exit.USAGE


def test_ctrl_c_hands_the_job_back(sqlite_cli: Cli):
    job_id = enqueue(sqlite_cli, "until_told")
    running = sqlite_cli.start("jobs", "run-by-id", MODULE, job_id)
    wait_for((sqlite_cli.folder / "began").exists)
    code, err = stop(running, signal.SIGINT)
    assert (code, "Traceback" in err) == (Exit.INTERRUPTED, False)
    assert sqlite_cli("jobs", "show", job_id, "--json").json["state"] == "queued"

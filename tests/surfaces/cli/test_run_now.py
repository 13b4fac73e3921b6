"""`leasehold jobs run-now`: at once in its own process, or refused with exit code 4."""

from __future__ import annotations

import json

import pytest

from leasehold.surfaces.cli.problems import Exit
from tests.surfaces.cli.conftest import MODULE, PATIENCE, Cli, read_until
from tests.workers import wait_for


def test_it_runs_without_a_worker_and_prints_the_result(cli: Cli):
    answer = cli(
        "jobs", "run-now", MODULE, "add", '{"a": 2, "b": 3}', "--max-running", "1", "--wait", f"{PATIENCE}"
    )
    assert (answer.code, answer.out) == (Exit.OK, "5\n")
    plain = cli("jobs", "run-now", MODULE, "add", '{"a": 2}', "--max-running", "1", "--json")
    assert plain.code == Exit.OK
    assert plain.json["created"] is True
    shown = cli("jobs", "show", plain.json["id"], "--json").json
    assert (shown["state"], shown["result"]) == ("succeeded", 3)


def test_a_failed_run_is_exit_code_1(cli: Cli):
    answer = cli(
        "jobs",
        "run-now",
        MODULE,
        "fail",
        '{"text": "no luck"}',
        "--max-running",
        "1",
        "--wait",
        f"{PATIENCE}",
        "--json",
    )
    assert answer.code == Exit.JOB_FAILED
    assert "no luck" in answer.json["error"]["error"]


def test_over_the_cap_is_exit_code_4_with_the_holders_as_json(cli: Cli):
    holding = cli.start("jobs", "run-now", MODULE, "until_told", "--max-running", "1")
    job_id = read_until(holding, "stdout", "-").strip()
    refused = cli("jobs", "run-now", MODULE, "until_told", "--max-running", "1", "--json")
    assert refused.code == Exit.REFUSED == 4
    error = refused.json["error"]
    assert (error["type"], error["task"], error["max_running"]) == ("AtCapacity", "until_told", 1)
    (holder,) = error["holders"]
    assert holder["job_id"] == job_id
    assert holder["worker"] == json.loads(cli("jobs", "show", job_id, "--json").out)["worker"]
    assert error["retry_after"] >= 1
    text = cli("jobs", "run-now", MODULE, "until_told", "--max-running", "1")
    assert text.code == 4
    assert "its max_running is 1" in text.err
    assert len(text.err.splitlines()) == 1
    wait_for(lambda: (cli.folder / "began").exists())
    (cli.folder / "go").touch()
    assert holding.wait(PATIENCE) == Exit.OK


@pytest.mark.parametrize(
    ("arguments", "reported"),
    [(["add", '{"a": 1}'], "max_running"), (["no_such_task"], "no task is named"), (["add", "{"], "JSON")],
)
def test_wrong_usage_is_exit_code_2(sqlite_cli: Cli, arguments, reported):
    answer = sqlite_cli("jobs", "run-now", MODULE, *arguments)
    assert answer.code == Exit.USAGE
    assert reported in answer.err
    assert len(answer.err.splitlines()) == 1

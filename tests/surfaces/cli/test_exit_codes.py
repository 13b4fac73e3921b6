"""Every exit code of the table, from the command line as it is installed; each with one line that says why."""

from __future__ import annotations

import signal
import subprocess

import pytest

from leasehold.surfaces.cli.problems import Exit
from tests.backends import new_id
from tests.surfaces.cli.conftest import MODULE, PATIENCE, Cli, stop
from tests.workers import wait_for


def test_0_when_the_job_that_was_waited_for_has_succeeded(cli: Cli):
    worker = cli.start("worker", MODULE)
    answer = cli("jobs", "enqueue", MODULE, "add", '{"a": 2, "b": 3}', "--wait", f"{PATIENCE}")
    assert (answer.code, answer.out) == (Exit.OK, "5\n")
    failed = cli("jobs", "enqueue", MODULE, "fail", '{"text": "no luck"}', "--wait", f"{PATIENCE}", "--json")
    assert failed.code == Exit.JOB_FAILED == 1
    assert failed.json["error"]["type"] == "JobNotSucceeded"
    assert "no luck" in failed.json["error"]["error"]
    assert stop(worker)[0] == Exit.OK


def test_2_on_wrong_usage(sqlite_cli: Cli, here):
    for call, arguments, reported in (
        (sqlite_cli, ["jobs", "enqueue", MODULE, "no_such_task"], "no task is named"),
        (here, ["jobs", "--limit", "many"], "'--limit'"),
        (here, ["worker", "no_such_module"], "no_such_module"),
        (here, ["jobs", "enqueue", "lonely"], "MODULE:APP TASK [JSON]"),
    ):
        answer = call(*arguments)
        assert answer.code == Exit.USAGE == 2
        assert answer.err.startswith("error: ")
        assert reported in answer.err
        assert len(answer.err.splitlines()) == 1


def test_3_when_the_job_is_not_there(app, here):
    answer = here("jobs", "show", new_id())
    assert (answer.code, Exit.NOT_FOUND) == (3, 3)
    assert answer.err.startswith("error: no job has the id")


def test_4_when_the_verb_does_not_fit_the_state(app, here):
    job = app.enqueue("work")
    answer = here("jobs", "skip", job.id)
    assert (answer.code, Exit.REFUSED) == (4, 4)
    assert "it is queued" in answer.err
    job.cancel()
    snoozed = here("jobs", "snooze", job.id, "--until", "2100-01-01")
    assert (snoozed.code, "it was cancelled" in snoozed.err) == (Exit.REFUSED, True)
    snoozed = here("jobs", "snooze", "--state", "cancelled", "--until", "2100-01-01", "--yes")
    assert (snoozed.code, "it was cancelled" in snoozed.err) == (Exit.REFUSED, True)


def test_5_when_the_wait_is_over_before_the_job(sqlite_cli: Cli):
    answer = sqlite_cli("jobs", "enqueue", MODULE, "add", '{"a": 1}', "--wait", "0.1", "--json")
    assert answer.code == Exit.TIMED_OUT == 5
    assert answer.json["error"]["type"] == "WaitTimedOut"
    assert answer.json["error"]["job_id"]


@pytest.mark.parametrize("url", ["sqlite:///no/such/file.db", "postgresql://nobody:secret@127.0.0.1:1/none"])
def test_6_when_the_database_is_out_of_reach(here, url: str):
    answer = here("jobs", "--url", url)
    assert (answer.code, Exit.UNREACHABLE) == (6, 6)
    assert answer.err.startswith("error: cannot reach")
    assert "secret" not in answer.err


def test_6_when_the_schema_is_not_there_yet(here, postgres_url: str, postgres_schema: str):
    answer = here("jobs", "--url", postgres_url, "--schema", postgres_schema)
    assert answer.code == Exit.UNREACHABLE
    assert "has no Leasehold schema" in answer.err


@pytest.mark.parametrize(
    "command", [("jobs",), ("worker", MODULE), ("jobs", "enqueue", MODULE, "add", '{"a": 1}')]
)
def test_6_when_the_driver_is_not_installed(sqlite_cli: Cli, command: tuple[str, ...]):
    sqlite_cli.launched_by = subprocess.Popen  # a launched one has it imported
    missing = """raise ModuleNotFoundError("No module named 'psycopg'", name="psycopg")"""
    (sqlite_cli.folder / "psycopg.py").write_text(missing)
    answer = sqlite_cli(*command, LEASEHOLD_URL="postgresql://127.0.0.1/jobs")
    assert answer.code == Exit.UNREACHABLE
    assert answer.err == "error: psycopg is not installed; run: pip install 'leasehold[postgres]'\n"


CONTAINERS = """
from leasehold import Leasehold
app = Leasehold("sqlite:///tools.db")
@app.container(image="tools:1")
def convert(path: str) -> list[str]:
    return ["convert", path]
"""


def test_6_when_a_task_needs_an_engine_that_cannot_be_reached(sqlite_cli: Cli):
    (sqlite_cli.folder / "tools.py").write_text(CONTAINERS)
    answer = sqlite_cli("worker", "tools:app", DOCKER_HOST=f"unix://{sqlite_cli.folder}/nobody")
    assert answer.code == Exit.UNREACHABLE
    assert "error: cannot run convert: " in answer.err
    assert "the Docker engine cannot be reached" in answer.err
    assert "Traceback" not in answer.err


def test_75_when_the_worker_gave_up_on_handlers_that_ignore_their_stop(sqlite_cli: Cli):
    assert sqlite_cli("jobs", "enqueue", MODULE, "stubborn").code == 0
    answer = sqlite_cli("worker", MODULE, "--threads", "1", "--stop-grace", "0.1", "--shutdown-grace", "1")
    assert answer.code == Exit.GAVE_UP == 75
    assert "ignored its stop" in answer.err


def test_130_when_interrupted(sqlite_cli: Cli):
    waiting = sqlite_cli.start("jobs", "enqueue", MODULE, "add", '{"a": 1}', "--wait", "10m")
    database = sqlite_cli.folder / "cli.db"
    wait_for(lambda: database.exists() and _is_stored(sqlite_cli))
    code, err = stop(waiting, signal.SIGINT)
    assert code == Exit.INTERRUPTED == 130
    assert "Traceback" not in err


def _is_stored(cli: Cli) -> bool:
    answer = cli("jobs", "--json")
    return answer.code == Exit.OK and bool(answer.lines)


def test_with_json_the_error_is_an_object_on_stdout_and_stderr_is_silent(here, app):
    answer = here("jobs", "show", "01a1e", "--json")
    assert answer.code == Exit.USAGE
    assert answer.err == ""
    assert answer.json["error"]["type"] == "InvalidInput"
    assert answer.json["error"]["field"] == "id"


@pytest.mark.parametrize("command", ["jobs show", "why", "jobs cancel"])
def test_3_for_a_text_that_is_no_id(here, app, command):
    answer = here(*command.split(), "not-an-id", "--json")
    assert answer.code == Exit.NOT_FOUND == 3
    assert answer.json["error"]["type"] == "JobNotFound"

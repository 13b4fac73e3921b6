"""`leasehold worker`: what it serves, how it drains, what it says."""

from __future__ import annotations

import json
import signal

from leasehold import Leasehold
from tests.backends import new_job
from tests.surfaces.cli.conftest import MODULE, Cli, read_until, stop
from tests.workers import wait_for


def an_app(cli: Cli) -> Leasehold:
    return Leasehold(
        cli.environment["LEASEHOLD_URL"], schema=cli.environment.get("LEASEHOLD_SCHEMA", "leasehold")
    )


def enqueue(cli: Cli, *arguments: str) -> str:
    answer = cli("jobs", "enqueue", MODULE, *arguments)
    assert answer.code == 0, answer.err
    return answer.out.strip()


def test_a_burst_serves_the_queues_it_was_given_and_ends(cli: Cli):
    served = enqueue(cli, "add", '{"a": 1}', "--queue", "near")
    left = enqueue(cli, "add", '{"a": 1}', "--queue", "far")
    answer = cli("worker", MODULE, "--queues", "near,other", "--burst", "--log-json")
    assert answer.code == 0
    with an_app(cli) as app:
        assert app.get(served).state == "succeeded"
        assert app.get(left).state == "queued"
        said = [json.loads(line)["message"] for line in answer.err.splitlines()]
        assert f"store: {app.__internals__.store.label}" in said


def test_sigterm_lets_running_jobs_end_and_takes_no_new_ones(cli: Cli):
    running = enqueue(cli, "until_told")
    worker = cli.start("worker", MODULE)
    with an_app(cli) as app:
        # Its row says "running" a moment before the handler runs; asked to end in between, the worker gives it back.
        wait_for((cli.folder / "began").exists)
        worker.send_signal(signal.SIGTERM)
        read_until(worker, "stderr", "draining")
        late = app.__internals__.store.enqueue([new_job(task="add", args='{"a": 1}')])[0].id
        (cli.folder / "go").touch()
        worker.communicate(timeout=30)
        assert worker.returncode == 0
        assert app.get(running).state == "succeeded"
        assert app.get(late).state == "queued"


def test_sigterm_leaves_a_command_at_once_and_the_next_worker_goes_on_with_it(cli: Cli):
    job = enqueue(cli, "command_until_told")
    runs = {"LEASEHOLD_EXECUTIONS": str(cli.folder / "runs")}
    worker = cli.start("worker", MODULE, SHUTDOWN_GRACE_PERIOD_SECONDS="none", **runs)
    with an_app(cli) as app:
        wait_for((cli.folder / "began").exists)
        assert stop(worker)[0] == 0
        found = app.get(job)
        assert (found.state, found.__row__.worker) == ("running", None)
        (cli.folder / "go").touch()
        answer = cli("worker", MODULE, "--burst", **runs)
        assert answer.code == 0, answer.err
        assert found.refresh().result(timeout=0) == 7
        assert (found.attempt, found.__row__.failures, found.__row__.crashes) == (1, 0, 0)


def test_a_second_signal_hands_running_jobs_back_at_once(sqlite_cli: Cli):
    job = enqueue(sqlite_cli, "until_told")
    worker = sqlite_cli.start("worker", MODULE, SHUTDOWN_GRACE_PERIOD_SECONDS="none")
    with an_app(sqlite_cli) as app:
        wait_for((sqlite_cli.folder / "began").exists)
        worker.send_signal(signal.SIGINT)
        read_until(worker, "stderr", "draining")
        assert stop(worker, signal.SIGINT)[0] == 0
        found = app.get(job)
        assert (found.state, found.__row__.failures) == ("queued", 0)


def test_the_app_may_be_named_by_the_environment(sqlite_cli: Cli):
    answer = sqlite_cli("jobs", "enqueue", "add", '{"a": 1}', "--json", LEASEHOLD_APP=MODULE)
    assert answer.code == 0, answer.err
    assert sqlite_cli("worker", "--burst", LEASEHOLD_APP=f"{MODULE}:app").code == 0
    with an_app(sqlite_cli) as app:
        assert app.get(answer.json["id"]).result(timeout=0) == 2


def test_a_thread_that_hangs_does_not_keep_the_worker_from_ending(sqlite_cli: Cli):
    job = enqueue(sqlite_cli, "hang_in_thread")
    worker = sqlite_cli.start("worker", MODULE, "--shutdown-grace", "0")
    wait_for((sqlite_cli.folder / "hanging").exists)
    with an_app(sqlite_cli) as app:
        code, err = stop(worker)
        assert code == 0
        assert "exiting without it" in err
        assert app.get(job).state == "queued"

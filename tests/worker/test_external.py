"""Commands, watched by a worker inside this process: what their exit, output and stops come to. On both stores."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from leasehold import Context, Leasehold, Retry, State
from leasehold.domain.stream import LOG_CAP
from leasehold.errors import DatabaseUnreachable, InvalidInput, InvalidTask, RunnerUnreachable
from leasehold.runners.subprocess import SubprocessRunner
from leasehold.types import Command, Job, NotRun
from leasehold.worker.pruner import ExecutionCleanup
from tests.workers import burst, wait_for, working

NO_RETRY = Retry(max_attempts=1, max_crashes=1)
TWO_HOURS = {"sqlite": "7200000000", "postgres": "interval '2 hours'"}


@pytest.fixture
def app_settings(tmp_path: Path) -> dict[str, Any]:
    return {"executions": tmp_path / "runs"}


@pytest.fixture
def app(app: Leasehold) -> Iterator[Leasehold]:
    yield app
    for pid in alive(app):  # a failed test may have left some
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def shell(app: Leasehold) -> Callable[..., Job[Any]]:
    """Runs a script as a command of its own task, with these settings, and gives back its job."""

    def enqueue(script: str, *arguments: str, **settings: Any) -> Job[Any]:
        number = len(app.__internals__.tasks.definitions)

        @app.command(name=f"script_{number}", **{"retry": NO_RETRY, **settings})
        def run(script: str, arguments: list[str]) -> list[str]:
            return ["sh", "-c", script, "sh", *arguments]

        return run.enqueue(script, list(arguments))

    return enqueue


def runs_of(app: Leasehold) -> list[Path]:
    """The folders of runs that have left something."""
    folder = app.__internals__.command_runner().folder
    return [
        run for run in folder.iterdir() if run.is_dir() and {p.name for p in run.iterdir()} != {"tombstone"}
    ]


def alive(app: Leasehold, job: Job[Any] | None = None) -> list[int]:
    """The processes of commands, or of one job's, by the variable that each of them has."""
    folder = app.__internals__.command_runner().folder
    wanted = f"LEASEHOLD_RESULT={folder}/".encode()
    whose = b"" if job is None else job.id.encode()
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                _, there, name = (process / "environ").read_bytes().partition(wanted)
                if there and whose in name.partition(b"\0")[0]:
                    found.append(int(process.name))
            except OSError:
                continue
    return found


# --- its exit -------------------------------------------------------------------------------------------------------


def test_exit_codes_mean_what_the_task_says_and_else_what_a_shell_means(app, shell):
    policy = {"exit_codes": {3: "success", 4: "fail", 5: "retry", 0: "fail"}}
    retried = Retry(max_attempts=2, backoff=0)
    jobs = {
        "0": shell("exit 0"),
        "1": shell("exit 1", retry=retried),
        "3 is a success": shell("echo 3 > $LEASEHOLD_RESULT; exit 3", **policy),
        "4 is final": shell("exit 4", retry=retried, **policy),
        "5 is retried": shell("exit 5", retry=retried, **policy),
        "0 is final": shell("exit 0", retry=retried, **policy),
        "no such program": shell("exec no-such-program"),
    }
    burst(app)
    found = {name: (job.refresh().state, job.attempt) for name, job in jobs.items()}
    assert found == {
        "0": (State.SUCCEEDED, 1),
        "1": (State.FAILED, 2),
        "3 is a success": (State.SUCCEEDED, 1),
        "4 is final": (State.FAILED, 1),
        "5 is retried": (State.FAILED, 2),
        "0 is final": (State.FAILED, 1),
        "no such program": (State.FAILED, 1),
    }
    assert jobs["3 is a success"].result(timeout=0) == 3
    assert jobs["1"].error == "exit code 1"
    assert jobs["no such program"].error.startswith("exit code 127: ")
    assert runs_of(app) == [], "what a run has left is deleted once its ending is stored"


def test_an_exit_says_what_the_command_wrote_last(app, shell):
    on_stderr = shell("echo to stdout; echo it broke >&2; exit 2")
    on_stdout = shell("echo it broke here; exit 2")
    burst(app)
    assert on_stderr.refresh().error == "exit code 2: it broke"
    assert on_stdout.refresh().error == "exit code 2: it broke here"


def test_a_command_killed_by_a_signal_is_a_crash_with_the_name_of_the_signal(app, shell):
    killed = shell("kill -9 $$", retry=Retry(max_attempts=1, max_crashes=2, backoff=0))
    expected = shell("kill -TERM $$", exit_codes={-signal.SIGTERM: "success"})
    burst(app)
    row = killed.refresh().__row__
    assert (row.state, row.attempt, row.crashes, row.failures) == (State.FAILED, 2, 2, 0)
    assert killed.error == "killed by SIGKILL"
    assert expected.refresh().state is State.SUCCEEDED


# --- its result -----------------------------------------------------------------------------------------------------


def test_a_result_is_the_json_of_the_file_or_the_last_line(app, shell):
    jobs = [
        shell("echo told; echo '{\"n\": [1, 2]}' > $LEASEHOLD_RESULT"),
        shell("true"),
        shell("echo first; echo '[3]'; echo; echo noise >&2", result_from="last_line"),
        shell("echo first; echo just words", result_from="last_line"),
        shell("true", result_from="last_line"),
    ]
    burst(app)
    assert [job.result(timeout=0) for job in jobs] == [{"n": [1, 2]}, None, [3], "just words", None]


def test_a_result_that_cannot_be_kept_fails_and_says_why(app, shell):
    not_json = shell("echo just words > $LEASEHOLD_RESULT")
    not_text = shell(r"printf '\377' > $LEASEHOLD_RESULT")
    too_long = shell("head -c 17000000 /dev/zero | tr '\\0' 1 > $LEASEHOLD_RESULT")
    nan = shell("echo NaN > $LEASEHOLD_RESULT")
    too_deep = shell("head -c 200000 /dev/zero | tr '\\0' '[' > $LEASEHOLD_RESULT")
    burst(app)
    assert {job.refresh().state for job in (not_json, not_text, too_long, nan, too_deep)} == {State.FAILED}
    assert not_json.error.startswith("its result cannot be kept: result: is not JSON")
    assert "not UTF-8" in not_text.error
    assert too_deep.error.startswith("its result cannot be kept: ")
    assert "longer than" in too_long.error
    assert "NaN" in nan.error or "finite" in nan.error
    assert runs_of(app) == []


# --- its output -----------------------------------------------------------------------------------------------------


def test_output_is_in_the_log_while_the_command_runs_and_whole_lines_of_it(app, shell, tmp_path):
    gate = tmp_path / "gate"
    job = shell(
        f"echo begun; echo half >&2; printf 'the other '; while [ ! -e {gate} ]; do sleep 0.02; done; printf half"
    )
    with working(app):
        wait_for(lambda: {"begun", "half"} <= set(job.log().text.splitlines()))
        assert job.refresh().state is State.RUNNING
        assert "other" not in job.log().text
        gate.touch()
        wait_for(lambda: job.refresh().state is State.SUCCEEDED)
    assert sorted(job.log().text.splitlines()) == ["begun", "half", "the other half"]


def test_of_much_output_the_log_keeps_the_end_and_counts_the_rest(app, shell):
    job = shell("seq 200000")
    burst(app)
    log = job.log()
    assert log.text.rstrip("\n").endswith("\n199999\n200000")
    assert len(log.text) <= LOG_CAP
    assert log.cut > 0


# --- what it is given -----------------------------------------------------------------------------------------------


def test_no_shell_reads_the_arguments_and_only_the_variables_that_were_named_are_passed_on(app, monkeypatch):
    monkeypatch.setenv("SECRET_OF_THE_WORKER", "s3cret")
    monkeypatch.setenv("PASSED_ON", "passed")

    @app.command(result_from="last_line")
    def say(words: list[str]) -> list[str]:
        return ["echo", *words]

    @app.command()
    async def show() -> Command:
        return Command(["env"], env={"OWN": "own"}, pass_env=["PATH", "PASSED_ON"])

    words = ["$HOME", "`id`", "a;b", "*", "$(id)", "&&", "|"]
    said, shown = say.enqueue(words), show.enqueue()
    burst(app)
    assert said.result(timeout=0) == " ".join(words)
    variables = dict(line.split("=", 1) for line in shown.log().text.splitlines())
    assert variables.keys() == {"PATH", "PASSED_ON", "OWN", "LEASEHOLD_RESULT"}
    assert (variables["PASSED_ON"], variables["OWN"]) == ("passed", "own")


def test_what_is_no_list_of_texts_fails_before_anything_is_placed(app, backend):
    wrong: list[Any] = ["ls -l", [], ["ls", 1], None, {"argv": ["ls"]}]

    @app.command(retry=Retry(max_attempts=2, backoff=0))
    def say(number: int) -> Any:
        return wrong[number]

    jobs = [say.enqueue(number) for number in range(len(wrong))]
    burst(app)
    for job in jobs:
        assert job.refresh().state is State.FAILED
        assert "argv: " in job.error
    assert backend.query("SELECT count(*) FROM leasehold.execution") == [(0,)]


def test_a_function_that_raises_is_a_failure_that_may_be_retried(app, backend):
    tries = []

    @app.command(retry=Retry(max_attempts=2, backoff=0))
    def find() -> list[str]:
        tries.append(1)
        if len(tries) < 2:
            raise FileNotFoundError("the input is not there yet")
        return ["true"]

    job = find.enqueue()
    burst(app)
    assert (job.refresh().state, job.attempt, job.__row__.failures) == (State.SUCCEEDED, 2, 1)
    assert backend.query("SELECT attempt FROM leasehold.execution") == [(2,)]


# --- stops and limits -----------------------------------------------------------------------------------------------

WAITS = "echo begun; exec sleep 600"


def has_begun(job: Job[Any]) -> Callable[[], bool]:
    return lambda: "begun" in job.log().text


@pytest.mark.parametrize(("verb", "state"), [("cancel", State.CANCELLED), ("pause", State.PAUSED)])
def test_a_stop_ends_the_command_and_all_that_it_has_started(app, shell, verb, state):
    job = shell("sleep 600 & setsid sleep 600 & echo begun; wait")
    with working(app):
        wait_for(has_begun(job))
        wait_for(lambda: len(alive(app)) == 3)  # none is in the middle of its exec any more
        getattr(job, verb)()
        wait_for(lambda: job.refresh().state is state)
    assert alive(app) == []
    assert (job.__row__.failures, job.__row__.crashes) == (0, 0)


def test_a_command_that_ignores_sigterm_is_killed_after_its_own_grace(app, shell):
    job = shell("trap '' TERM; echo begun; while :; do sleep 0.05; done", stop_grace=0.1)
    with working(app):
        wait_for(has_begun(job))
        job.cancel()
        wait_for(lambda: job.refresh().state is State.CANCELLED)
    assert alive(app) == []


def test_the_command_of_a_tenant_that_is_dropped_is_stopped_and_what_it_left_removed(app):
    @app.command(lease=9)
    def waits() -> list[str]:
        return ["sh", "-c", WAITS]

    for name in ("acme", "doomed"):
        app.tenants.create(name)
    try:
        doomed, other = (waits.using(tenant=name).enqueue() for name in ("doomed", "acme"))
        with working(app, tenants="all"):
            for job in (doomed, other):
                wait_for(has_begun(job))
            both = alive(app)
            app.tenants.drop("doomed")
            wait_for(lambda: [path.name[:5] for path in runs_of(app)] == ["acme-"])
            assert 0 < len(alive(app)) < len(both)
            other.cancel()
            wait_for(lambda: other.refresh().state is State.CANCELLED)
        assert alive(app) == []
    finally:
        for row in app.tenants.list():
            app.tenants.drop(row.name)


def test_a_command_that_takes_too_long_is_ended_and_has_timed_out(app, shell):
    job = shell(WAITS, timeout=0.5)
    with working(app):
        wait_for(lambda: job.refresh().state is State.TIMED_OUT)
    assert alive(app) == []
    assert job.error.startswith("the attempt took longer than 0.5 s")


def leave_running(app: Leasehold, jobs: Sequence[Job[Any]]) -> None:
    """Its worker drains, and they live on."""
    with working(app):
        for job in jobs:
            wait_for(has_begun(job))
    assert {job.refresh().state for job in jobs} == {State.RUNNING}
    assert all(job.__row__.worker is None for job in jobs)
    assert all(alive(app, job) for job in jobs)


def test_a_drain_leaves_the_command_alone_and_the_next_worker_goes_on_with_it(app, shell, tmp_path):
    gate = tmp_path / "gate"
    job = shell(
        f"echo begun; while [ ! -e {gate} ]; do sleep 0.02; done; echo ended; echo 7 > $LEASEHOLD_RESULT"
    )
    leave_running(app, [job])
    before = set(alive(app, job))
    with working(app):
        wait_for(lambda: job.refresh().__row__.worker is not None)
        assert before & set(alive(app, job)), "its shell; what it waits with comes and goes"
        gate.touch()
        wait_for(lambda: job.refresh().state is State.SUCCEEDED)
    assert job.result(timeout=0) == 7
    row = job.__row__
    assert (row.attempt, row.failures, row.crashes) == (1, 0, 0)
    assert [entry.event for entry in job.history()] == ["detached", "adopted"]
    assert set(job.log().text.splitlines()) == {"begun", "ended"}


STANZAS = (
    "echo begun; printf 'half a '; while [ ! -e {first} ]; do sleep 0.02; done; echo line; echo unwatched >&2"
)
POEM = f"{STANZAS}; touch {{second}}; while [ ! -e {{third}} ]; do sleep 0.02; done; echo ended"


@pytest.mark.parametrize("ends_meanwhile", [False, True])
def test_what_a_command_writes_while_nobody_watches_is_in_the_log_and_nothing_is_twice(
    app, shell, tmp_path, ends_meanwhile
):
    gates = {name: tmp_path / name for name in ("first", "second", "third")}
    job = shell(POEM.format(**gates))
    leave_running(app, [job])
    gates["first"].touch()
    wait_for(gates["second"].exists)
    if ends_meanwhile:
        gates["third"].touch()
        wait_for(lambda: not alive(app, job))
    with working(app):
        wait_for(lambda: "unwatched" in job.log().text)
        gates["third"].touch()
        wait_for(lambda: job.refresh().state is State.SUCCEEDED)
    lines = job.log().text.splitlines()
    assert sorted(lines) == ["begun", "ended", "half a line", "unwatched"]
    assert [line for line in lines if line != "unwatched"] == ["begun", "half a line", "ended"]


def test_a_command_whose_time_is_over_while_the_database_is_away_is_ended_before_its_job(
    app, shell, monkeypatch
):
    job = shell(WAITS, timeout=0.5)
    store = app.__internals__.store
    alive_at_the_end: list[int] = []
    settle = store.settle

    def is_away(*_: object) -> bool:
        raise DatabaseUnreachable(app.url, "it restarts")

    def look_and_settle(endings: Any, **how: Any) -> Any:
        alive_at_the_end.extend(alive(app))
        return settle(endings, **how)

    monkeypatch.setattr(store, "mark_started", is_away)
    monkeypatch.setattr(store, "settle", look_and_settle)
    with working(app):
        wait_for(lambda: job.refresh().state is State.TIMED_OUT)
    assert alive_at_the_end == []
    assert alive(app) == []


def test_a_drain_that_comes_during_a_look_at_a_command_leaves_it_alone_too(app, shell, monkeypatch):
    job = shell(WAITS)
    leave_running(app, [job])
    runner = app.__internals__.command_runner()
    look, looking = runner.probe, threading.Event()

    def look_until_it_drains(name: str) -> Any:
        state = look(name)
        looking.set()
        wait_for(lambda: worker.attempts.held[job.id].cause is not None)
        return state

    monkeypatch.setattr(runner, "probe", look_until_it_drains)
    with working(app) as worker:
        wait_for(looking.is_set)
    monkeypatch.undo()
    assert not (runner.folder / job.refresh().__row__.execution_name / "stop").exists()
    assert alive(app, job)
    job.cancel()
    burst(app)
    assert alive(app) == []


def test_a_time_out_counts_from_the_start_of_the_command_also_for_who_adopts_it(app, shell, backend):
    late = shell(WAITS, timeout="1h", retry=NO_RETRY)
    in_time = shell(WAITS, timeout="3h", retry=NO_RETRY)
    leave_running(app, [late, in_time])
    backend.query(f"UPDATE leasehold.execution SET started_at = started_at - {TWO_HOURS[backend.name]}")
    with working(app):
        wait_for(lambda: late.refresh().state is State.TIMED_OUT)
        assert "longer than 3600 s" in late.error
        assert in_time.refresh().state is State.RUNNING
        assert alive(app) == alive(app, in_time) != []
        in_time.cancel()
        wait_for(lambda: in_time.refresh().state is State.CANCELLED)
    assert alive(app) == []


def test_a_job_whose_deadline_passes_while_nobody_watches_is_ended_by_who_adopts_it(app, shell, backend):
    job = shell(WAITS, deadline="1h")
    leave_running(app, [job])
    backend.query(f"UPDATE leasehold.job SET deadline_at = deadline_at - {TWO_HOURS[backend.name]}")
    with working(app):
        wait_for(lambda: job.refresh().state is State.TIMED_OUT)
    assert alive(app) == []
    assert "deadline" in job.error


def test_a_command_that_ended_in_time_while_nobody_watched_has_not_timed_out(app, shell, backend, tmp_path):
    gate = tmp_path / "gate"
    script = f"echo begun; while [ ! -e {gate} ]; do sleep 0.02; done; echo 7 > $LEASEHOLD_RESULT"
    job = shell(script, timeout="1h")
    leave_running(app, [job])
    gate.touch()
    wait_for(lambda: (runs_of(app)[0] / "exit").exists())
    backend.query(f"UPDATE leasehold.execution SET started_at = started_at - {TWO_HOURS[backend.name]}")
    with working(app):
        wait_for(lambda: job.refresh().state is not State.RUNNING)
    assert job.result(timeout=0) == 7


@pytest.mark.parametrize(("verb", "ends"), [("pause", State.SUCCEEDED), ("cancel", State.SUCCEEDED)])
def test_a_stop_that_comes_when_the_command_has_ended_comes_too_late(app, shell, tmp_path, verb, ends):
    gate = tmp_path / "gate"
    script = f"echo begun; while [ ! -e {gate} ]; do sleep 0.02; done; echo 7 > $LEASEHOLD_RESULT"
    job = shell(script)
    leave_running(app, [job])
    gate.touch()
    wait_for(lambda: (runs_of(app)[0] / "exit").exists())
    getattr(job, verb)()
    with working(app):
        wait_for(lambda: job.refresh().state is not State.RUNNING)
    assert job.state is ends
    assert job.result(timeout=0) == 7


@pytest.mark.parametrize(
    ("verb", "ends"), [("pause", State.PAUSED), ("cancel", State.CANCELLED), (None, State.SUCCEEDED)]
)
def test_a_command_that_obeys_its_stop_after_its_watcher_has_gone_was_stopped(
    app, shell, tmp_path, verb, ends
):
    """Also if it leaves with 0, as if nothing had happened; and if the stop was withdrawn, it runs again."""
    first = tmp_path / "first"
    script = f"echo begun; [ -e {first} ] && exit 0; touch {first}; trap 'exit 0' TERM; while :; do sleep 0.02; done"
    job = shell(script)
    leave_running(app, [job])
    if verb is not None:
        getattr(job, verb)()
    runner = app.__internals__.command_runner()
    runner.stop(job.refresh().__row__.execution_name, 10.0)
    wait_for(lambda: (runs_of(app)[0] / "exit").exists())
    with working(app):
        wait_for(lambda: job.refresh().state not in (State.RUNNING, State.QUEUED))
    assert job.state is ends
    assert (job.attempt, job.__row__.failures, job.__row__.crashes) == (1 if verb else 2, 0, 0)


def test_a_command_that_was_stopped_for_its_time_has_timed_out_though_its_watcher_was_gone_by_then(
    app, shell, backend
):
    job = shell(WAITS, timeout="1h")
    leave_running(app, [job])
    app.__internals__.command_runner().stop(job.refresh().__row__.execution_name, 10.0)
    wait_for(lambda: (runs_of(app)[0] / "exit").exists())
    backend.query(f"UPDATE leasehold.execution SET started_at = started_at - {TWO_HOURS[backend.name]}")
    burst(app)
    assert job.refresh().state is State.TIMED_OUT


def test_a_task_that_has_moved_to_another_runner_does_not_adopt_what_it_has_left(app, backend, tmp_path):
    """Its runner of today would see nothing there, and run it again beside the first."""

    def define(app: Leasehold, folder: str) -> Any:
        @app.external(runner=lambda: SubprocessRunner(tmp_path / folder), to_spec=Command.of, name="moves")
        def moves() -> list[str]:
            return ["sh", "-c", WAITS]

        return moves

    moves = define(app, "runs")
    job = moves.enqueue()
    leave_running(app, [job])
    with Leasehold(backend.url, schema=backend.schema, executions=tmp_path / "runs") as moved:
        define(moved, "elsewhere")

        @moved.command()
        def other() -> list[str]:
            return ["true"]

        with working(moved):
            own = [other.enqueue(), other.enqueue()]
            wait_for(lambda: all(one.refresh().state is State.SUCCEEDED for one in own))
            assert (job.refresh().state, job.__row__.worker) == (State.RUNNING, None)
        assert isinstance(moved.run_by_id(job.id), NotRun), "not by its id either"
    job.cancel()
    burst(app)
    assert job.refresh().state is State.CANCELLED
    assert alive(app) == []


# --- places ---------------------------------------------------------------------------------------------------------


def test_commands_take_neither_the_places_of_the_loop_nor_those_of_threads(app, shell, tmp_path):
    gate = tmp_path / "gate"
    script = f"echo begun; while [ ! -e {gate} ]; do sleep 0.05; done"
    watched = [shell(script) for _ in range(3)]

    @app.task
    async def on_loop() -> int:
        return 1

    @app.task
    def in_thread() -> int:
        return 2

    with working(app, concurrency=1, threads=1, max_executions=2) as worker:
        wait_for(lambda: sum(has_begun(job)() for job in watched) == 2)
        others = [on_loop.enqueue(), in_thread.enqueue()]
        wait_for(lambda: all(job.refresh().state is State.SUCCEEDED for job in others))
        assert worker.starter.external == 2
        assert sorted(job.refresh().state.value for job in watched) == ["queued", "running", "running"]
        gate.touch()
        wait_for(lambda: all(job.refresh().state is State.SUCCEEDED for job in watched))


# --- what cannot be registered --------------------------------------------------------------------------------------


def nothing() -> list[str]:
    return ["true"]


def with_context(ctx: Context) -> list[str]:
    return ["true"]


async def with_context_on_loop(ctx: Context) -> list[str]:
    return ["true"]


@pytest.mark.parametrize(
    ("function", "settings", "field", "remedy"),
    [
        (with_context_on_loop, {}, "ctx", "leave the context out"),
        (nothing, {"run_in": "process"}, "run_in", "leave it out"),
        (nothing, {"run_in": "thread"}, "run_in", "leave it out"),
        (nothing, {"on_lost": "retry"}, "on_lost", "leave it out"),
        (nothing, {"on_lost": "fail"}, "on_lost", "leave it out"),
        (nothing, {"exit_codes": {"1": "fail"}}, "exit_codes", "give 0 to 255"),
        (nothing, {"exit_codes": {256: "fail"}}, "exit_codes", "give 0 to 255"),
        (nothing, {"exit_codes": {True: "fail"}}, "exit_codes", "give 0 to 255"),
        (nothing, {"exit_codes": {1: "ignore"}}, "exit_codes", "'success', 'retry', 'fail'"),
        (nothing, {"result_from": "stdout"}, "result_from", "'file' or 'last_line'"),
        (nothing, {"stop_grace": "soon"}, "stop_grace", ""),
    ],
)
def test_a_command_that_cannot_be_kept_is_refused_when_it_is_defined(function, settings, field, remedy):
    app = Leasehold("sqlite://")
    with pytest.raises(InvalidInput, match=field) as caught:
        app.command(**settings)(function)
    assert remedy in str(caught.value)


def test_a_task_inside_the_worker_cannot_be_adopted():
    app = Leasehold("sqlite://")
    with pytest.raises(InvalidTask, match="on_lost") as caught:
        app.task(on_lost="adopt")(nothing)
    assert "@app.command" in str(caught.value)


def test_a_single_call_cannot_say_otherwise(app, shell):
    @app.command()
    def plain() -> list[str]:
        return ["true"]

    with pytest.raises(InvalidTask, match="on_lost"):
        plain.using(on_lost="retry").enqueue()


def test_a_worker_that_cannot_open_its_folder_says_so_when_it_starts(app, tmp_path):
    blocked = tmp_path / "file"
    blocked.touch()

    @app.external(runner=lambda: SubprocessRunner(blocked / "runs"), to_spec=Command.of)
    def plain() -> list[str]:
        return ["true"]

    with pytest.raises(RunnerUnreachable, match=r"cannot run plain: .*Not a directory"):
        burst(app)
    assert os.listdir(tmp_path)


# --- whose it is ----------------------------------------------------------------------------------------------------


def test_a_copy_of_a_database_with_the_same_folder_takes_nothing_of_the_original(
    app, shell, backend, tmp_path
):
    begun, gate = tmp_path / "begun", tmp_path / "gate"
    job = shell(
        f"echo begun; echo $$ >> {begun}; while [ ! -e {gate} ]; do sleep 0.02; done; echo 7 > $LEASEHOLD_RESULT"
    )
    leave_running(app, [job])
    with backend.copied() as copy:
        runner = app.__internals__.command_runner()
        with Leasehold(copy.url, schema=copy.schema, executions=runner.folder) as other:
            definition = app.__internals__.tasks.definitions[job.task]
            other.command(name=job.task, retry=NO_RETRY)(definition.function)

            @other.task
            def plain() -> None: ...

            later = plain.enqueue()
            with working(other):
                wait_for(lambda: later.refresh().state is State.SUCCEEDED)
            assert other.get(job.id).__row__.orphan, "executions are adopted before anything is claimed"
            other.__internals__.store.abandon(job.id)
            ExecutionCleanup(other.__internals__.store, lambda: [runner]).beat()
            assert alive(app, job)
    gate.touch()
    burst(app)
    assert (job.refresh().state, job.result(timeout=0), job.attempt) == (State.SUCCEEDED, 7, 1)
    assert len(begun.read_text().split()) == 1

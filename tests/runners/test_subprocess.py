"""The subprocess runner: the conformance suite, and what is its own."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from leasehold.errors import InvalidInput
from leasehold.runners.contract import ExecutionState, Phase, Start
from leasehold.runners.subprocess import SHIM, Command, SubprocessRunner
from tests.disks import fill, small_disk
from tests.runners.conformance import Lab, RunnerConformance, ended, mark, starts, until, wait_for
from tests.runners.starter import Starter

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc")


class SubprocessLab(Lab):
    def runner(self) -> SubprocessRunner:
        return SubprocessRunner(self.place / "runs")

    def spec(self, script: str, output_limit: int = 1024 * 1024) -> Command:
        return Command(["sh", "-c", script], env={"MARKS": str(self.marks)}, output_limit=output_limit)

    def clean_up(self) -> None:
        runner = self.runner()
        for folder in runner.folder.glob("[!.]*"):
            if runner.probe(folder.name).phase is Phase.RUNNING:
                runner.stop(folder.name, 0)
                ended(runner, folder.name)
        for process in Path("/proc").glob("[0-9]*"):  # shims whose folder a failed test has deleted
            with contextlib.suppress(OSError):
                if f"{self.place}/runs/".encode() in (process / "cmdline").read_bytes():
                    os.kill(int(process.name), signal.SIGKILL)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[SubprocessLab]:
    lab = SubprocessLab(tmp_path)
    yield lab
    lab.clean_up()


@pytest.fixture
def runner(lab: SubprocessLab) -> SubprocessRunner:
    return lab.runner()


@pytest.fixture
def starters() -> Iterator[Callable[[SubprocessLab, int], list[Starter]]]:
    made: list[Starter] = []

    def make(lab: SubprocessLab, count: int) -> list[Starter]:
        made.extend(Starter(type(lab), lab.place) for _ in range(count))
        return made[-count:]

    yield make
    for starter in made:
        starter.kill()


class TestSubprocess(RunnerConformance):
    pass


def run(runner: SubprocessRunner, command: Command) -> str:
    """Its stdout."""
    assert runner.ensure_started("a.1", 1, command) is Start.STARTED
    assert ended(runner, "a.1").phase is Phase.EXITED
    return runner.collect("a.1").stdout.tail


def test_a_command_ended_by_a_signal_has_its_number(lab, runner):
    runner.ensure_started("a.1", 1, lab.spec("kill -SEGV $$"))
    assert ended(runner, "a.1") == ExecutionState(Phase.EXITED, -signal.SIGSEGV)


def test_there_is_no_shell(runner):
    assert run(runner, Command(["echo", "$HOME; echo $(id) *"])) == "$HOME; echo $(id) *\n"


def test_a_command_sees_only_the_variables_it_was_given(runner, monkeypatch):
    monkeypatch.setenv("SECRET", "s3cret")
    monkeypatch.setenv("PASSED", "yes")
    seen = run(runner, Command(["env"], env={"MINE": "ü"}, pass_env=["PASSED", "MISSING", "PATH"]))
    names = dict(line.split("=", 1) for line in seen.splitlines())
    assert names.pop("LEASEHOLD_RESULT")
    assert names == {"PASSED": "yes", "MINE": "ü", "PATH": os.environ["PATH"]}


def test_neither_the_shim_nor_the_disk_shows_a_variable(lab, runner, monkeypatch):
    monkeypatch.setenv("SECRET", "s3cret-1")
    script = f"cat /proc/$PPID/environ; {mark('a')}"
    seen = run(runner, Command(["sh", "-c", script], env={"MARKS": str(lab.marks), "KEY": "s3cret-2"}))
    assert starts(lab, "a") == 1
    assert "s3cret" not in seen
    files = [path for path in runner.folder.rglob("*") if path.is_file()]
    assert [path for path in files if b"s3cret" in path.read_bytes()] == []


def test_a_command_ignores_no_signal_and_blocks_none(runner):
    seen = run(runner, Command(["grep", "-E", "SigIgn|SigBlk", "/proc/self/status"]))
    ours = ~(
        1 << 31 | 1 << 32
    )  # 32 and 33 are the C library's own: what was inherited there nobody can reset
    assert [int(line.split()[1], 16) & ours for line in seen.splitlines()] == [0, 0]


def test_a_command_works_in_a_folder_of_its_own_or_the_one_it_names(runner, tmp_path):
    assert run(runner, Command(["pwd"])) == f"{runner.folder}/a.1/work\n"
    runner.ensure_started("b.1", 1, Command(["pwd"], cwd=str(tmp_path)))
    ended(runner, "b.1")
    assert runner.collect("b.1").stdout.tail == f"{tmp_path}\n"


@pytest.mark.parametrize(
    ("command", "code", "reported"),
    [
        (Command(["no-such-program-here"]), 127, "No such file"),
        (Command(["/"]), 126, "Permission denied"),
        (Command(["true"], cwd="/no/such/folder"), 127, "No such file"),
    ],
)
def test_a_command_that_cannot_be_run_exits_as_in_a_shell(runner, command, code, reported):
    runner.ensure_started("a.1", 1, command)
    assert ended(runner, "a.1") == ExecutionState(Phase.EXITED, code)
    assert reported in runner.collect("a.1").stderr.tail


def test_output_takes_no_more_of_the_disk_than_its_limit(lab, runner):
    runner.ensure_started("a.1", 1, lab.spec("head -c 3000000 /dev/zero", output_limit=100_000))
    ended(runner, "a.1")
    assert runner.collect("a.1").stdout.size == 3_000_000
    kept = sum(path.stat().st_size for path in (runner.folder / "a.1").glob("stdout*"))
    assert 50_000 <= kept <= 100_000
    assert len(runner.collect("a.1").stdout.tail) >= 50_000


def test_offsets_count_what_was_dropped(lab, runner):
    runner.ensure_started("a.1", 1, lab.spec("head -c 3000000 /dev/zero", output_limit=100_000))
    ended(runner, "a.1")
    found, after = runner.read_output("a.1", "stdout", 0, 10)
    assert found == bytes(10)
    assert 2_900_000 <= after < 3_000_000
    assert runner.read_output("a.1", "stdout", 2_999_995, 10) == (bytes(5), 3_000_000)


@pytest.mark.parametrize(
    "result", ["printf '\\377'", "head -c 17000000 /dev/zero"], ids=["bytes", "too long"]
)
def test_a_result_that_cannot_be_kept_is_refused(lab, runner, result):
    runner.ensure_started("a.1", 1, lab.spec(f"{result} > $LEASEHOLD_RESULT"))
    ended(runner, "a.1")
    with pytest.raises(InvalidInput, match="result"):
        runner.collect("a.1")


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"argv": "ls -l"}, "argv"),
        ({"argv": []}, "argv"),
        ({"argv": ["a\0b"]}, "argv"),
        ({"argv": ["a"], "env": {"A=B": "c"}}, "env"),
        ({"argv": ["a"], "pass_env": "PATH"}, "pass_env"),
        ({"argv": ["a"], "output_limit": 0}, "output_limit"),
    ],
)
def test_a_command_that_makes_no_sense_is_refused(settings, field):
    with pytest.raises(InvalidInput, match=field):
        Command(**settings)


# -- the shim


def shim_of(runner: SubprocessRunner, name: str) -> int:
    return json.loads((runner.folder / name / "started").read_text())["shim"]


def test_a_run_whose_shim_is_killed_has_vanished_and_is_not_started_again(lab, runner):
    spec = lab.spec(f"{mark('a')}; exec sleep 600")
    runner.ensure_started("a.1", 1, spec)
    until(lambda: starts(lab, "a"))
    os.kill(shim_of(runner, "a.1"), signal.SIGKILL)
    assert ended(runner, "a.1") == ExecutionState(Phase.VANISHED)
    assert runner.ensure_started("a.1", 2, spec) is Start.FOUND
    assert runner.tombstone("a.1") == ExecutionState(Phase.TOMBSTONE)
    assert starts(lab, "a") == 1


@pytest.fixture
def left_behind(lab, runner) -> str:
    """A run whose shim and command are dead, and whose grandchild lives in a session of its own."""
    left = f"setsid sh -c '{mark('left')}; exec sleep 600'"
    runner.ensure_started("a.1", 1, lab.spec(f"{left} & {mark('command')}; {wait_for('never')}"))
    until(lambda: starts(lab, "left") and starts(lab, "command"))
    os.kill(shim_of(runner, "a.1"), signal.SIGKILL)
    until(lambda: not is_alive(lab, "command"))
    return "a.1"


def is_alive(lab: SubprocessLab, name: str) -> bool:
    """Whether the process that left this mark lives; a zombie does not."""
    try:
        status = Path("/proc", (lab.marks / name).read_text().strip(), "stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def test_what_a_killed_shim_has_left_counts_as_running_until_it_is_stopped(lab, runner, left_behind):
    assert is_alive(lab, "left")
    assert runner.probe(left_behind) == ExecutionState(Phase.RUNNING)
    runner.stop(left_behind, 5)
    assert ended(runner, left_behind) == ExecutionState(Phase.VANISHED)


def test_a_worker_that_just_probes_is_not_killed_with_what_a_shim_has_left(runner, left_behind):
    program = "import sys; lock = open(sys.argv[1]); print(flush=True); sys.stdin.read()"
    lock = runner.folder / left_behind / "lock"
    command = [sys.executable, "-c", program, str(lock)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as prober:
        prober.stdout.readline()
        runner.stop(left_behind, 5)
        assert ended(runner, left_behind) == ExecutionState(Phase.VANISHED)
        prober.stdin.close()
        assert prober.wait() == 0


def start_shim(lab: SubprocessLab, folder: Path) -> subprocess.Popen[bytes]:
    """A shim with token 1 that leaves the mark `a`."""
    reported = {
        "argv": ["sh", "-c", mark("a")],
        "env": {"MARKS": str(lab.marks)},
        "cwd": None,
        "output_limit": 100,
    }
    shim = subprocess.Popen([sys.executable, "-I", "-S", str(SHIM), str(folder), "1"], stdin=subprocess.PIPE)
    shim.stdin.write(json.dumps(reported).encode())
    shim.stdin.close()
    return shim


@pytest.mark.parametrize("found", ["token.2", "started", "stop", "tombstone", "exit"])
def test_a_late_shim_leaves_when_it_finds(lab, runner, found):
    folder = runner.folder / "a.1"
    folder.mkdir()
    (folder / "token.1").touch()
    (folder / found).write_text('{"code": 0}')
    assert start_shim(lab, folder).wait() == 75
    assert starts(lab, "a") == 0


def test_a_run_goes_on_when_the_process_that_waits_for_its_start_is_killed(lab, runner):
    folder = runner.folder / "a.1"
    folder.mkdir()
    with (folder / "lock").open("w") as lock:  # as a prober does: the shim waits
        fcntl.flock(lock, fcntl.LOCK_EX)
        waiting = start_shim(lab, folder)
        until((folder / "shim.log").exists)
        waiting.kill()
        waiting.wait()
    assert ended(runner, "a.1") == ExecutionState(Phase.EXITED, 0)
    assert starts(lab, "a") == 1


def test_sigterm_to_the_shim_ends_the_run_in_order(lab, runner):
    runner.ensure_started("a.1", 1, lab.spec(f"trap 'exit 8' TERM; {mark('a')}; {wait_for('never')}"))
    until(lambda: starts(lab, "a"))
    os.kill(shim_of(runner, "a.1"), signal.SIGTERM)
    assert ended(runner, "a.1") == ExecutionState(Phase.EXITED, 8)


# -- the folder's disk is full, or the folder is gone


@pytest.fixture
def small(tmp_path: Path) -> Iterator[SubprocessLab]:
    """A lab whose runs are on a small disk; its marks are not."""
    lab = SubprocessLab(tmp_path / "lab")
    with small_disk(lab.place / "runs", "512k") as disk:
        if disk is None:
            pytest.skip("only root may mount a small file system")
        yield lab
        (disk / "ballast").unlink(missing_ok=True)
        lab.clean_up()


@pytest.mark.parametrize("adopted", [False, True], ids=["watched", "adopted"])
def test_a_command_that_ends_while_the_disk_is_full_keeps_its_exit_code(small, starters, adopted):
    (starter,) = starters(small, 1)
    script = f"{mark('a')}; {wait_for('go')}; {mark('done')}; exit 5"
    starter.ask("a.1", 1, script)
    assert starter.answer() == "started"
    until(lambda: starts(small, "a"))
    runner = small.runner()
    fill(runner.folder)
    if adopted:
        starter.kill()
        assert runner.ensure_started("a.1", 1, small.spec(script)) is Start.FOUND
    (small.marks / "go").touch()
    assert ended(runner, "a.1") == ExecutionState(Phase.EXITED, 5)
    assert runner.collect("a.1").code == 5
    assert (starts(small, "a"), starts(small, "done")) == (1, 1)


def test_what_a_command_has_left_is_removed_though_the_disk_is_full(small):
    runner = small.runner()
    runner.ensure_started("a.1", 1, small.spec("head -c 100000 /dev/zero; exit 5"))
    assert ended(runner, "a.1").phase is Phase.EXITED
    fill(runner.folder)
    assert runner.remove("a.1") is True
    assert runner.probe("a.1") == ExecutionState(Phase.TOMBSTONE)
    assert runner.names() == []


def test_a_command_without_room_for_its_exit_code_is_not_started_until_there_is(small):
    runner = small.runner()
    runner.ensure_started("b.1", 1, small.spec("true"))  # so that the folder itself has room for names
    ballast = fill(runner.folder)
    with pytest.raises(OSError, match="No space"):
        runner.ensure_started("a.1", 1, small.spec(mark("a")))
    assert starts(small, "a") == 0
    assert runner.probe("a.1").phase in (Phase.ABSENT, Phase.CREATED)
    ballast.unlink()
    assert runner.ensure_started("a.1", 1, small.spec(mark("a"))) is Start.STARTED
    assert ended(runner, "a.1") == ExecutionState(Phase.EXITED, 0)
    assert starts(small, "a") == 1


def test_a_shim_that_cannot_record_the_end_waits_until_it_can(lab, runner):
    """As after a disk has failed: the command has ended, and counts as running."""
    runner.ensure_started("a.1", 1, lab.spec(f"{mark('a')}; {wait_for('go')}; exit 5"))
    until(lambda: starts(lab, "a"))
    (runner.folder / "a.1" / "room").unlink()
    (runner.folder / "a.1" / "room").mkdir()
    (lab.marks / "go").touch()
    until(lambda: not is_alive(lab, "a"))
    assert runner.probe("a.1") == ExecutionState(Phase.RUNNING)
    assert runner.tombstone("a.1") == ExecutionState(Phase.RUNNING)
    (runner.folder / "a.1" / "room").rmdir()
    assert ended(runner, "a.1") == ExecutionState(Phase.EXITED, 5)


@pytest.mark.parametrize("gone", ["its folder", "all folders", "its files"])
def test_a_command_whose_folder_is_deleted_is_not_taken_for_ended(lab, runner, gone):
    script = f"{mark('a')}; {wait_for('go')}; echo 7 > $LEASEHOLD_RESULT; echo late; exit 5"
    runner.ensure_started("a.1", 2, lab.spec(script))
    until(lambda: starts(lab, "a"))
    site = runner.site
    delete(runner, gone)
    assert runner.ensure_started("a.1", 3, lab.spec(script)) is Start.FOUND
    assert runner.tombstone("a.1") == ExecutionState(Phase.RUNNING)
    until(lambda: (runner.folder / "a.1" / "started").exists())
    assert runner.probe("a.1") == ExecutionState(Phase.RUNNING)
    assert lab.runner().site == site
    (lab.marks / "go").touch()
    assert ended(runner, "a.1") == ExecutionState(Phase.EXITED, 5)
    left = runner.collect("a.1")
    assert (left.result, left.stdout.tail) == ("7\n", "late\n")
    assert starts(lab, "a") == 1


@pytest.mark.parametrize("gone", ["its folder", "all folders"])
def test_a_command_that_ends_without_its_folder_records_its_end(lab, runner, gone):
    runner.ensure_started("a.1", 1, lab.spec(f"{mark('a')}; {wait_for('go')}; exit 5"))
    until(lambda: starts(lab, "a"))
    shim = shim_of(runner, "a.1")
    os.kill(shim, signal.SIGSTOP)  # it finds its folder gone only when the command has ended
    delete(runner, gone)
    (lab.marks / "go").touch()
    until(lambda: not is_alive(lab, "a"))
    assert runner.tombstone("a.1") == ExecutionState(Phase.RUNNING)
    os.kill(shim, signal.SIGCONT)
    assert ended(runner, "a.1") == ExecutionState(Phase.EXITED, 5)
    assert starts(lab, "a") == 1


def test_a_command_whose_folder_is_deleted_can_be_stopped(lab, runner):
    runner.ensure_started("a.1", 1, lab.spec(f"{mark('a')}; {wait_for('never')}"))
    until(lambda: starts(lab, "a"))
    delete(runner, "all folders")
    runner.stop("a.1", 0.0)
    assert ended(runner, "a.1").phase is Phase.EXITED
    assert not is_alive(lab, "a")


def delete(runner: SubprocessRunner, what: str) -> None:
    if what == "all folders":
        shutil.rmtree(runner.folder)
    elif what == "its folder":
        shutil.rmtree(runner.folder / "a.1")
    else:
        for path in (runner.folder / "a.1").iterdir():
            if path.is_file():
                path.unlink()

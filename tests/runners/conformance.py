"""What every external runner must keep, with real runs, real kills and frozen starters.

A runner's tests inherit from `RunnerConformance` and have a fixture `lab` that makes a `Lab` and cleans it up. Scripts
are POSIX shell; `mark` and `wait_for` are how they talk with the test.
"""

from __future__ import annotations

import itertools
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from leasehold.errors import InvalidInput
from leasehold.runners.contract import ExecutionState, NothingToCollect, Phase, Runner, Start, Stream
from tests.runners.starter import Starter, thaw

_numbers = itertools.count(1)


class Lab(ABC):
    """Where a runner is tried. Starters in other processes make it again from its place."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.marks = place / "marks"
        self.marks.mkdir(parents=True, exist_ok=True)

    @abstractmethod
    def runner(self) -> Runner[Any]:
        """A new one each time, as in another worker of the same site."""

    @abstractmethod
    def spec(self, script: str, output_limit: int = 1024 * 1024) -> Any:
        """A shell script in which $MARKS is the folder `marks`."""

    pace = 1.0
    """How much longer a start takes here than that of a process: the moments of kills and freezes are spread by it."""
    rounds = 8
    """How often starters race and freeze."""

    def is_alive(self, name: str, pid: str) -> bool:
        """Whether a process lives, by the number that it has left in a mark."""
        return Path(f"/proc/{pid}").exists()

    @abstractmethod
    def clean_up(self) -> None:
        """End what a failed test has left running."""


def mark(name: str) -> str:
    return f"echo $$ >> $MARKS/{name}"


def wait_for(name: str) -> str:
    return f"while [ ! -e $MARKS/{name} ]; do sleep 0.02; done"


def until(condition: Callable[[], object], seconds: float = 60.0) -> object:
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)
    return value


def ended(runner: Runner[Any], name: str) -> ExecutionState:
    """Where the run stands once nothing of it is alive."""
    until(lambda: runner.probe(name).phase not in (Phase.CREATED, Phase.RUNNING))
    return runner.probe(name)


class RunnerConformance:
    @pytest.fixture
    def runner(self, lab: Lab) -> Runner[Any]:
        return lab.runner()

    @pytest.fixture
    def name(self) -> str:
        return f"job-{next(_numbers)}.1"

    @pytest.fixture
    def starters(self, lab: Lab) -> Iterator[Callable[[int], list[Starter]]]:
        made: list[Starter] = []

        def make(count: int) -> list[Starter]:
            new = [Starter(type(lab), lab.place) for _ in range(count)]
            made.extend(new)
            return new

        yield make
        for starter in made:
            starter.kill()

    # -- one run

    def test_a_name_that_nobody_has_used_is_absent(self, runner):
        assert runner.probe("job-0.1") == ExecutionState(Phase.ABSENT)

    @pytest.mark.parametrize("code", [0, 7, 255])
    def test_a_run_ends_with_its_exit_code(self, lab, runner, name, code):
        assert runner.ensure_started(name, 1, lab.spec(f"exit {code}")) is Start.STARTED
        assert ended(runner, name) == ExecutionState(Phase.EXITED, code)
        assert runner.collect(name).code == code

    def test_what_a_run_has_written_is_collected(self, lab, runner, name):
        script = "echo to stdout; echo to stderr >&2; printf '[1, 2]' > $LEASEHOLD_RESULT"
        runner.ensure_started(name, 1, lab.spec(script))
        ended(runner, name)
        left = runner.collect(name)
        assert (left.stdout.tail, left.stderr.tail) == ("to stdout\n", "to stderr\n")
        assert (left.stdout.size, left.stdout.is_cut) == (10, False)
        assert left.result == "[1, 2]"
        assert not left.was_stopped

    def test_a_run_without_output_and_result_says_so(self, lab, runner, name):
        runner.ensure_started(name, 1, lab.spec("true"))
        ended(runner, name)
        left = runner.collect(name)
        assert (left.stdout.tail, left.stdout.size, left.stderr.tail, left.result) == ("", 0, "", None)

    def test_of_a_long_output_the_end_is_kept(self, lab, runner, name):
        script = "i=0; while [ $i -lt 3000 ]; do echo line $i; i=$((i+1)); done"
        runner.ensure_started(name, 1, lab.spec(script, output_limit=4000))
        ended(runner, name)
        stdout = runner.collect(name).stdout
        whole = "".join(f"line {number}\n" for number in range(3000))
        assert stdout.is_cut
        assert whole.endswith(stdout.tail)
        assert 200 <= len(stdout.tail) <= 4000
        assert len(stdout.tail) <= stdout.size <= len(whole)

    def test_the_output_of_a_live_run_can_be_followed_by_any_worker(self, lab, runner, name):
        script = f"echo one; echo bad >&2; {mark(name)}; {wait_for('go')}; echo two"
        runner.ensure_started(name, 1, lab.spec(script))
        until((lab.marks / name).exists)
        seen, offset = follow(runner, name, "stdout", 0, until=b"\n")
        assert (seen, offset) == (b"one\n", 4)
        assert runner.read_output(name, "stdout", 4, 100) == (b"", 4)
        (lab.marks / "go").touch()
        ended(runner, name)
        assert follow(lab.runner(), name, "stdout", offset, until=b"\n") == (b"two\n", 8)
        assert runner.read_output(name, "stdout", 1, 5) == (b"ne\ntw", 6)
        assert runner.read_output(name, "stderr", 0, 100) == (b"bad\n", 4)

    def test_who_reads_too_late_goes_on_with_what_is_kept(self, lab, runner, name):
        script = "i=0; while [ $i -lt 3000 ]; do echo line $i; i=$((i+1)); done"
        runner.ensure_started(name, 1, lab.spec(script, output_limit=4000))
        ended(runner, name)
        seen, offset = b"", 0
        while (found := runner.read_output(name, "stdout", offset, 300))[0]:
            assert found[1] > offset
            seen, offset = seen + found[0], found[1]
        assert seen.endswith(b"line 2999\n")
        assert "".join(f"line {number}\n" for number in range(3000)).encode().endswith(seen)
        assert len(seen) <= 4000

    def test_a_run_that_was_never_started_or_was_removed_has_written_nothing(self, lab, runner, name):
        assert runner.read_output(name, "stdout", 0, 100) == (b"", 0)
        runner.ensure_started(name, 1, lab.spec("echo one"))
        ended(runner, name)
        runner.remove(name)
        assert runner.read_output(name, "stdout", 0, 100) == (b"", 0)

    def test_many_runs_are_probed_at_once(self, lab, runner):
        assert runner.probe_many([]) == {}
        runner.ensure_started("a.1", 1, lab.spec("exit 3"))
        runner.ensure_started("b.1", 1, lab.spec(wait_for("go")))
        runner.tombstone("c.1")
        ended(runner, "a.1")
        assert runner.probe_many(["a.1", "b.1", "c.1", "d.1"]) == {
            "a.1": ExecutionState(Phase.EXITED, 3),
            "b.1": ExecutionState(Phase.RUNNING),
            "c.1": ExecutionState(Phase.TOMBSTONE),
            "d.1": ExecutionState(Phase.ABSENT),
        }
        (lab.marks / "go").touch()
        assert ended(runner, "b.1") == ExecutionState(Phase.EXITED, 0)

    @pytest.mark.parametrize("name", ["", "../up", "a/b", ".hidden", "a" * 201, "a\n"])
    def test_a_name_that_could_lead_elsewhere_is_refused(self, runner, name):
        with pytest.raises(InvalidInput, match="name"):
            runner.probe(name)

    # -- once

    def test_a_run_is_started_once_whether_it_runs_or_has_ended(self, lab, runner, name):
        spec = lab.spec(f"{mark(name)}; {wait_for('go')}; exit 3")
        assert runner.ensure_started(name, 1, spec) is Start.STARTED
        until((lab.marks / name).exists)
        assert runner.probe(name) == ExecutionState(Phase.RUNNING)
        assert lab.runner().ensure_started(name, 1, spec) is Start.FOUND
        assert lab.runner().ensure_started(name, 2, spec) is Start.FOUND
        (lab.marks / "go").touch()
        assert ended(runner, name) == ExecutionState(Phase.EXITED, 3)
        assert lab.runner().ensure_started(name, 3, spec) is Start.FOUND
        assert ended(runner, name) == ExecutionState(Phase.EXITED, 3)
        assert starts(lab, name) == 1

    def test_an_older_token_is_fenced(self, lab, runner, name):
        runner.ensure_started(name, 5, lab.spec("true"))
        assert runner.ensure_started(name, 4, lab.spec("true")) is Start.FENCED

    @pytest.mark.parametrize("tokens", [[1] * 6, [1, 2, 3, 4, 5, 6]], ids=["one token", "six tokens"])
    def test_six_racing_starters_start_a_run_once(self, lab, runner, starters, tokens):
        racers = starters(6)
        for number in range(lab.rounds):
            name = f"race-{number}.1"
            for racer, token in zip(racers, tokens, strict=True):
                racer.ask(name, token, f"{mark(name)}; exit 4")
            answers = [racer.answer() for racer in racers]
            assert answers.count("started") == 1
            assert answers[-1] != "fenced"
            assert ended(runner, name) == ExecutionState(Phase.EXITED, 4)
            assert starts(lab, name) == 1

    def test_starters_that_freeze_and_wake_up_start_a_run_once(self, lab, runner, starters):
        racers = starters(6)
        chance = random.Random(15)
        for number in range(lab.rounds):
            name = f"freeze-{number}.1"
            script = f"{mark(name)}; exit 4"
            frozen = []
            for token, racer in enumerate(racers, 1):
                racer.ask(name, token, script)
                time.sleep(chance.random() * 0.06 * lab.pace)
                frozen.append(racer.freeze())
                if token % 2:
                    thaw(frozen.pop(chance.randrange(len(frozen))))
            for processes in frozen:
                thaw(processes)
            answers = [racer.answer() for racer in racers]
            assert answers[-1] in ("started", "found")
            assert ended(runner, name) == ExecutionState(Phase.EXITED, 4)
            assert starts(lab, name) == 1

    # -- adoption

    def test_a_run_outlives_its_starter_and_is_adopted(self, lab, runner, starters, name):
        (starter,) = starters(1)
        script = f"{mark(name)}; {wait_for('go')}; echo done; exit 5"
        starter.ask(name, 1, script)
        assert starter.answer() == "started"
        starter.kill()
        assert runner.ensure_started(name, 2, lab.spec(script)) is Start.FOUND
        assert runner.probe(name) == ExecutionState(Phase.RUNNING)
        (lab.marks / "go").touch()
        assert ended(runner, name) == ExecutionState(Phase.EXITED, 5)
        assert runner.collect(name).stdout.tail == "done\n"
        assert starts(lab, name) == 1

    def test_a_run_that_ended_after_its_starter_was_killed_is_collected(self, lab, runner, starters, name):
        (starter,) = starters(1)
        script = f"{mark(name)}; {wait_for('go')}; echo done; exit 6"
        starter.ask(name, 1, script)
        assert starter.answer() == "started"
        starter.kill()
        (lab.marks / "go").touch()
        assert ended(runner, name) == ExecutionState(Phase.EXITED, 6)
        assert lab.runner().collect(name).stdout.tail == "done\n"
        assert starts(lab, name) == 1

    @pytest.mark.parametrize("moment", [0.0, 0.01, 0.02, 0.04, 0.08])
    def test_a_starter_killed_while_it_starts_leaves_one_run(self, lab, runner, starters, name, moment):
        (starter,) = starters(1)
        script = f"{mark(name)}; exit 7"
        starter.ask(name, 1, script)
        time.sleep(moment * lab.pace)
        starter.kill()
        assert runner.ensure_started(name, 2, lab.spec(script)) in (Start.STARTED, Start.FOUND)
        assert ended(runner, name) == ExecutionState(Phase.EXITED, 7)
        assert starts(lab, name) == 1

    # -- stop

    def test_a_run_may_end_by_itself_when_it_is_stopped(self, lab, runner, name):
        script = f"trap 'echo asked; exit 9' TERM; {mark(name)}; {wait_for('never')}"
        runner.ensure_started(name, 1, lab.spec(script))
        until((lab.marks / name).exists)
        lab.runner().stop(name, 30)
        assert ended(runner, name) == ExecutionState(Phase.EXITED, 9)
        left = runner.collect(name)
        assert (left.stdout.tail, left.was_stopped) == ("asked\n", True)

    def test_a_run_that_ignores_its_stop_is_killed_after_the_grace(self, lab, runner, name):
        runner.ensure_started(name, 1, lab.spec(f"trap '' TERM; {mark(name)}; {wait_for('never')}"))
        until((lab.marks / name).exists)
        requested = time.monotonic()
        runner.stop(name, 0.7)
        assert ended(runner, name) == ExecutionState(Phase.EXITED, -9)
        assert 0.6 < time.monotonic() - requested < 30

    def test_a_later_stop_shortens_the_grace(self, lab, runner, name):
        script = f"trap 'echo asked > $MARKS/asked' TERM; {mark(name)}; {wait_for('never')}"
        runner.ensure_started(name, 1, lab.spec(script))
        until((lab.marks / name).exists)
        runner.stop(name, 600)
        until((lab.marks / "asked").exists)
        runner.stop(name, 0)
        assert ended(runner, name) == ExecutionState(Phase.EXITED, -9)

    def test_a_run_that_was_stopped_before_its_start_never_starts(self, lab, runner, name):
        runner.stop(name, 1)
        assert runner.probe(name) == ExecutionState(Phase.TOMBSTONE)
        assert runner.ensure_started(name, 1, lab.spec(mark(name))) is Start.FENCED
        assert starts(lab, name) == 0

    def test_nothing_of_a_run_is_alive_when_it_has_ended(self, lab, runner, name):
        child = f"{mark('children')}; {wait_for('never')}"
        script = f"sh -c '{child}' & setsid sh -c '{child}' & {until_lines('children', 2)}; exit 0"
        runner.ensure_started(name, 1, lab.spec(script))
        assert ended(runner, name) == ExecutionState(Phase.EXITED, 0)
        pids = (lab.marks / "children").read_text().split()
        assert len(pids) == 2
        assert [pid for pid in pids if lab.is_alive(name, pid)] == []

    # -- tombstones and removal

    def test_a_tombstone_makes_a_late_start_do_nothing(self, lab, runner, name):
        assert runner.tombstone(name) == ExecutionState(Phase.TOMBSTONE)
        assert lab.runner().ensure_started(name, 9, lab.spec(mark(name))) is Start.FENCED
        assert runner.probe(name) == ExecutionState(Phase.TOMBSTONE)
        assert starts(lab, name) == 0

    def test_starters_that_froze_before_a_tombstone_start_nothing_after_it(self, lab, runner, starters):
        (starter,) = starters(1)
        for number, moment in enumerate([0.0, 0.005, 0.01, 0.02, 0.03, 0.05]):
            name = f"late-{number}.1"
            starter.ask(name, 1, mark(name))
            time.sleep(moment * lab.pace)
            frozen = starter.freeze()
            seen = runner.tombstone(name)
            thaw(frozen)
            answer = starter.answer()
            final = ended(runner, name)
            if seen.phase is Phase.TOMBSTONE:  # it said that nothing would start: then nothing did
                assert (answer, final, starts(lab, name)) == ("fenced", seen, 0)
            else:
                assert final.phase in (Phase.EXITED, Phase.TOMBSTONE)

    def test_a_tombstone_leaves_what_runs_and_what_has_ended(self, lab, runner, name):
        runner.ensure_started(name, 1, lab.spec(f"{wait_for('go')}; exit 2"))
        assert runner.tombstone(name) == ExecutionState(Phase.RUNNING)
        (lab.marks / "go").touch()
        assert ended(runner, name) == ExecutionState(Phase.EXITED, 2)
        assert runner.tombstone(name) == ExecutionState(Phase.EXITED, 2)
        assert runner.collect(name).code == 2

    def test_a_live_run_is_neither_collected_nor_removed(self, lab, runner, name):
        runner.ensure_started(name, 1, lab.spec(wait_for("go")))
        with pytest.raises(NothingToCollect, match="running"):
            runner.collect(name)
        assert runner.remove(name) is False
        (lab.marks / "go").touch()
        assert ended(runner, name) == ExecutionState(Phase.EXITED, 0)

    def test_a_removed_run_has_nothing_to_collect_and_does_not_start_again(self, lab, runner, name):
        runner.ensure_started(name, 1, lab.spec(mark(name)))
        ended(runner, name)
        assert runner.remove(name) is True
        assert runner.remove(name) is True
        with pytest.raises(NothingToCollect, match="tombstone"):
            runner.collect(name)
        assert runner.ensure_started(name, 1, lab.spec(mark(name))) is Start.FENCED
        assert starts(lab, name) == 1

    def test_only_old_removed_names_are_freed(self, lab, runner, name):
        runner.ensure_started(name, 1, lab.spec("true"))
        ended(runner, name)
        assert runner.sweep(-1) == 0
        runner.remove(name)
        assert runner.sweep(3600) == 0
        assert runner.ensure_started(name, 2, lab.spec("true")) is Start.FENCED
        assert runner.sweep(-1) == 1
        assert runner.probe(name) == ExecutionState(Phase.ABSENT)

    def test_workers_of_one_place_have_one_site(self, lab, runner):
        assert runner.site
        assert lab.runner().site == runner.site
        other = type(lab)(lab.place / "other")
        assert other.runner().site != runner.site


def follow(
    runner: Runner[Any], name: str, stream: Stream, offset: int, until: bytes, limit: int = 3
) -> tuple[bytes, int]:
    """What comes from this offset on up to these bytes, and the offset after it."""
    seen, deadline = b"", time.monotonic() + 60
    while not seen.endswith(until):
        assert time.monotonic() < deadline, f"it has written {seen!r} and no more"
        data, offset = runner.read_output(name, stream, offset, limit)
        seen += data
    return seen, offset


def starts(lab: Lab, name: str) -> int:
    """How often the script of a run has begun."""
    path = lab.marks / name
    return len(path.read_text().splitlines()) if path.exists() else 0


def until_lines(name: str, count: int) -> str:
    return f'while [ "$(cat $MARKS/{name} 2>/dev/null | wc -l)" -lt {count} ]; do sleep 0.02; done'

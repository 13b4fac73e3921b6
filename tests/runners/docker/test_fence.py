"""A container starts at most once, whoever freezes where. The fixture `lab` asks the engine's own record."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from leasehold.runners.contract import CannotStart, ExecutionState, NothingToCollect, Phase, Start
from leasehold.runners.docker import runner
from leasehold.runners.docker.engine import Engine, Reply
from leasehold.runners.docker.runner import EXECUTION, SITE, TRY, DockerRunner
from tests.runners.conformance import ended, mark, starts, until, wait_for
from tests.runners.docker.engine import IMAGE
from tests.runners.docker.lab import DockerLab

pytestmark = pytest.mark.xdist_group("docker")


CALLS = {
    "create": ("POST", "/create"),
    "start": ("POST", "/start"),
    "delete": ("DELETE", ""),
    "inspect": ("GET", "/json"),
}


class FreezingEngine(Engine):
    """Freezes before or after its next call of a kind, until it is told to go on; then at the next moment."""

    def __init__(self, host: str, *moments: str) -> None:
        super().__init__(host)
        self.moments = list(moments)
        self.is_frozen, self.may_go_on = threading.Event(), threading.Event()

    def call(self, method: str, path: str, *args: object, **more: object) -> Reply:
        self._freeze_if_meant("before", method, path)
        reply = super().call(method, path, *args, **more)
        self._freeze_if_meant("after", method, path)
        return reply

    def _freeze_if_meant(self, when: str, method: str, path: str) -> None:
        if not self.moments or self.moments[0].split()[0] != when:
            return
        wanted = CALLS[self.moments[0].split()[1]]
        if method == wanted[0] and path.endswith(wanted[1]):
            self.moments.pop(0)
            self.is_frozen.set()
            assert self.may_go_on.wait(100)
            self.may_go_on.clear()


class Frozen:
    """Somebody in the middle of a verb."""

    def __init__(self, engine: FreezingEngine, answer: Future[Any]) -> None:
        self.engine, self._answer = engine, answer

    def thaw_until_the_next_moment(self) -> None:
        self.engine.is_frozen.clear()
        self.engine.may_go_on.set()
        assert self.engine.is_frozen.wait(60)

    def notify_workers(self) -> Any:
        self.engine.may_go_on.set()
        return self._answer.result(60)


@pytest.fixture
def freeze_in(lab: DockerLab) -> Iterator[Callable[..., Frozen]]:
    threads, engines = ThreadPoolExecutor(), []

    def freeze_in(call: Callable[[DockerRunner], Any], *moments: str) -> Frozen:
        runner = lab.runner()
        assert runner.site  # it makes containers too, in a way
        runner.engine = engine = FreezingEngine(runner.engine.host, *moments)
        engines.append(engine)
        answer = threads.submit(call, runner)
        assert engine.is_frozen.wait(60)
        return Frozen(engine, answer)

    yield freeze_in
    for engine in engines:
        engine.moments.clear()
        engine.may_go_on.set()
    threads.shutdown()


@pytest.fixture
def freeze(lab: DockerLab, freeze_in: Callable[..., Frozen]) -> Callable[..., Frozen]:
    def freeze(moment: str, name: str, token: int, script: str) -> Frozen:
        return freeze_in(lambda runner: runner.ensure_started(name, token, lab.spec(script)), moment)

    return freeze


MOMENTS = ["before create", "after create", "before start"]


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("token", [1, 2], ids=["by its own token", "by a newer token"])
def test_a_run_whose_starter_froze_is_started_by_another(lab, runner, freeze, moment, token, monkeypatch):
    monkeypatch.setattr("leasehold.runners.docker.runner.TWIN_PATIENCE", 0.2)
    late = freeze(moment, "a.1", 1, "exit 1")
    assert runner.ensure_started("a.1", token, lab.spec(f"{mark('a')}; exit 4")) is Start.STARTED
    assert ended(runner, "a.1") == ExecutionState(Phase.EXITED, 4)
    assert late.notify_workers() is (Start.FOUND if token == 1 else Start.FENCED)
    assert runner.probe("a.1") == ExecutionState(Phase.EXITED, 4)
    assert starts(lab, "a") == 1


@pytest.mark.parametrize("token", [1, 2], ids=["by its own token", "by a newer token"])
def test_a_starter_and_who_replaces_its_container_do_not_both_start(
    lab, runner, freeze, freeze_in, token, monkeypatch
):
    monkeypatch.setattr("leasehold.runners.docker.runner.TWIN_PATIENCE", 0.0)
    spec = lab.spec(f"{mark('a')}; exit 4")
    late = freeze("before start", "a.1", 1, f"{mark('a')}; exit 4")
    # It has seen twice that the container was not started, and is about to delete it.
    adopter = freeze_in(
        lambda runner: runner.ensure_started("a.1", token, spec), "after inspect", "after inspect"
    )
    adopter.thaw_until_the_next_moment()
    first = late.notify_workers()
    if first is Start.STARTED:  # an exited container is deleted without a word
        ended(runner, "a.1")
    assert [first, adopter.notify_workers()].count(Start.STARTED) == 1
    assert ended(runner, "a.1") == ExecutionState(Phase.EXITED, 4)
    assert starts(lab, "a") == 1


@pytest.mark.parametrize("token", [1, 2], ids=["by its own token", "by a newer token"])
def test_who_froze_before_a_run_that_was_removed_by_hand_does_not_start_it_again(lab, runner, freeze, token):
    late = freeze("before create", "a.1", 1, mark("a"))
    runner.ensure_started("a.1", token, lab.spec(mark("a")))
    ended(runner, "a.1")
    lab.delete_by_hand("a.1")
    assert late.notify_workers() is (Start.FOUND if token == 1 else Start.FENCED)
    assert runner.probe("a.1") == ExecutionState(Phase.VANISHED)
    assert starts(lab, "a") == 1


def test_a_run_whose_container_is_just_being_replaced_has_not_vanished(lab, runner, freeze, freeze_in):
    late = freeze("before start", "a.1", 1, "true")
    prober = freeze_in(lambda runner: runner.probe("a.1"), "before inspect", "after inspect")
    adopter = freeze("before create", "a.1", 2, wait_for("go"))
    assert runner.probe("a.1") == ExecutionState(Phase.CREATED)
    prober.thaw_until_the_next_moment()  # it has seen the mark of the first container, and that there is none
    assert (adopter.notify_workers(), late.notify_workers()) == (Start.STARTED, Start.FENCED)
    assert prober.notify_workers() == ExecutionState(Phase.RUNNING)


def test_a_try_that_was_closed_cannot_be_marked_as_started(tmp_path):
    entry = runner.open_try(tmp_path, 1)
    runner.close(tmp_path, entry)
    assert runner.mark_try_started(tmp_path, entry) is False
    assert runner.read_marks(tmp_path).started == frozenset()


def test_a_starter_that_froze_after_the_start_has_started_it(lab, runner, freeze):
    late = freeze("after start", "a.1", 1, f"{mark('a')}; exit 4")
    assert runner.ensure_started("a.1", 2, lab.spec(mark("a"))) is Start.FOUND
    assert late.notify_workers() is Start.STARTED
    assert ended(runner, "a.1") == ExecutionState(Phase.EXITED, 4)
    assert starts(lab, "a") == 1


@pytest.mark.parametrize("moment", MOMENTS)
def test_who_froze_before_the_run_was_settled_and_removed_starts_nothing(lab, runner, freeze, moment):
    late = freeze(moment, "a.1", 1, mark("late"))
    runner.ensure_started("a.1", 2, lab.spec("exit 4"))
    ended(runner, "a.1")
    assert runner.remove("a.1") is True
    assert late.notify_workers() is Start.FENCED
    assert runner.probe("a.1") == ExecutionState(Phase.TOMBSTONE)
    assert runner.engine.call("GET", "/containers/json", {"all": 1}).json() == []
    assert starts(lab, "late") == 0


@pytest.mark.parametrize("verb", ["stop", "tombstone"])
@pytest.mark.parametrize("moment", MOMENTS)
def test_who_froze_before_a_stop_starts_nothing_after_it(lab, runner, freeze, moment, verb):
    late = freeze(moment, "a.1", 1, mark("late"))
    if verb == "stop":
        runner.stop("a.1", 10)
    else:
        assert runner.tombstone("a.1") == ExecutionState(Phase.TOMBSTONE)
    assert runner.probe_many(["a.1"]) == {"a.1": ExecutionState(Phase.TOMBSTONE)}
    assert late.notify_workers() is Start.FENCED
    assert runner.probe("a.1") == ExecutionState(Phase.TOMBSTONE)
    assert starts(lab, "late") == 0


# -- removed by hand


def test_a_live_container_removed_by_hand_has_vanished_and_is_not_started_again(lab, runner):
    spec = lab.spec(f"{mark('a')}; {wait_for('never')}")
    runner.ensure_started("a.1", 1, spec)
    until(lambda: starts(lab, "a"))
    lab.delete_by_hand("a.1")
    assert runner.probe("a.1") == ExecutionState(Phase.VANISHED)
    assert runner.probe_many(["a.1"]) == {"a.1": ExecutionState(Phase.VANISHED)}
    assert runner.ensure_started("a.1", 2, spec) is Start.FOUND
    with pytest.raises(NothingToCollect, match="vanished"):
        runner.collect("a.1")
    assert runner.tombstone("a.1") == ExecutionState(Phase.TOMBSTONE)
    assert starts(lab, "a") == 1


def test_an_exited_container_removed_by_hand_has_vanished(lab, runner):
    runner.ensure_started("a.1", 1, lab.spec("true"))
    ended(runner, "a.1")
    lab.delete_by_hand("a.1")
    assert runner.probe("a.1") == ExecutionState(Phase.VANISHED)
    assert runner.remove("a.1") is True
    assert runner.probe("a.1") == ExecutionState(Phase.TOMBSTONE)


def test_a_container_removed_by_hand_before_its_start_is_made_again(lab, runner, freeze):
    late = freeze("before start", "a.1", 1, f"{mark('a')}; exit 4")
    lab.delete_by_hand("a.1")
    assert late.notify_workers() is Start.STARTED
    assert ended(runner, "a.1") == ExecutionState(Phase.EXITED, 4)
    assert starts(lab, "a") == 1


# -- what the engine refuses


@pytest.mark.parametrize(
    ("settings", "reported"),
    [
        ({"image": "no-such-image:1"}, "image"),
        ({"argv": ["no-such-program"], "init": False}, "no-such-program"),
    ],
)
def test_what_the_engine_refuses_has_not_run_and_may_be_tried_again(lab, runner, settings, reported):
    with pytest.raises(CannotStart, match=reported):
        runner.ensure_started("a.1", 1, lab.spec("true", **settings))
    assert runner.probe("a.1") == ExecutionState(Phase.CREATED)
    assert runner.engine.call("GET", "/containers/json", {"all": 1}).json() == []
    assert runner.ensure_started("a.1", 1, lab.spec("exit 4")) is Start.STARTED
    assert ended(runner, "a.1") == ExecutionState(Phase.EXITED, 4)


# -- stop


def test_a_program_that_knows_no_signals_ends_at_once_when_it_is_stopped(lab, runner):
    # The engine says that it runs before the init in front of it hears signals: a program that has begun does.
    runner.ensure_started("a.1", 1, lab.spec(f"{mark('a')}; exec sleep 600"))
    until(lambda: starts(lab, "a"))
    runner.stop("a.1", 60)
    assert ended(runner, "a.1") == ExecutionState(Phase.EXITED, -15)


def test_a_stop_that_the_engine_has_forgotten_is_finished_by_a_later_call(lab, runner):
    runner.ensure_started("a.1", 1, lab.spec(f"trap '' TERM; {mark('a')}; {wait_for('never')}"))
    until(lambda: starts(lab, "a"))
    (runner.folder / "a.1" / "stop").write_text(
        '{"until": 1.0, "is_requested": true}'
    )  # as if it was restarted
    runner.stop("a.1", 60)
    assert ended(runner, "a.1") == ExecutionState(Phase.EXITED, -9)


# -- strangers


def make(runner: DockerRunner, labels: dict[str, str], is_started: bool) -> str:
    body = {"Image": IMAGE, "Cmd": ["sleep", "600"], "Labels": labels, "HostConfig": {"NetworkMode": "none"}}
    made = runner.engine.call("POST", "/containers/create", body=body).json()["Id"]
    if is_started:
        runner.engine.call("POST", f"/containers/{made}/start")
    return made


@pytest.mark.parametrize("is_started", [False, True], ids=["created", "running"])
def test_a_container_that_nobody_looks_after_is_swept(lab, runner, is_started):
    site = (runner.folder / ".site").read_text()
    ours = make(runner, {SITE: site, EXECUTION: "lost.1", TRY: "1.abc"}, is_started)
    others = make(runner, {SITE: "another"}, is_started)
    assert runner.sweep(3600) == 0
    assert runner.sweep(-3600) == 1
    left = [listed["Id"] for listed in runner.engine.call("GET", "/containers/json", {"all": 1}).json()]
    assert left == [others]
    assert ours not in left


def test_a_run_that_is_looked_after_is_not_swept(lab, runner):
    runner.ensure_started("a.1", 1, lab.spec(wait_for("go")))
    runner.ensure_started("b.1", 1, lab.spec("true"))
    ended(runner, "b.1")
    assert lab.runner().sweep(-3600) == 0
    assert runner.probe("a.1") == ExecutionState(Phase.RUNNING)
    assert runner.collect("b.1").code == 0


def test_a_sweep_removes_what_a_worker_killed_while_it_checked_the_engine_has_left(lab):
    runner = lab.runner()
    left = runner.folder / ".seen.0123456789abcdef"
    left.mkdir()
    runner.sweep(3600)
    assert left.exists(), "somebody may be checking"
    runner.sweep(-3600)
    assert not left.exists()
    assert runner.site

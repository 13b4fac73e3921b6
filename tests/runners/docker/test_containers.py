"""What a container gets, what it may, and what it leaves."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from leasehold.errors import InvalidInput
from leasehold.runners.contract import Collected, ExecutionState, Phase, Start
from leasehold.runners.docker.engine import Engine, Reply
from leasehold.runners.docker.runner import EXECUTION, DockerRunner
from leasehold.runners.docker.spec import ContainerSpec, Mount
from tests.runners.conformance import ended, follow, mark, starts, until, wait_for
from tests.runners.docker.engine import PrivateEngine
from tests.runners.docker.lab import DockerLab

pytestmark = pytest.mark.xdist_group("docker")


def run(lab: DockerLab, script: str, **settings: object) -> Collected:
    runner = lab.runner()
    assert runner.ensure_started("a.1", 1, lab.spec(script, **settings)) is Start.STARTED
    assert ended(runner, "a.1").phase is Phase.EXITED
    return runner.collect("a.1")


# -- what it gets


def test_a_container_gets_its_inputs_its_variables_and_no_others(lab, monkeypatch, tmp_path):
    monkeypatch.setenv("SECRET", "s3cret")
    monkeypatch.setenv("PASSED", "yes")
    (tmp_path / "file").write_bytes(b"from a file\n")
    left = run(
        lab,
        "cd $LEASEHOLD_INPUTS; cat text bytes file; env",
        env={"MINE": "ü"},
        pass_env=["PASSED", "MISSING"],
        inputs={"text": "ü\n", "bytes": b"b\n", "file": tmp_path / "file"},
        mounts=[],
    )
    *inputs, env = left.stdout.tail.split("\n", 3)
    assert inputs == ["ü", "b", "from a file"]
    names = dict(line.split("=", 1) for line in env.splitlines())
    assert (names["MINE"], names["PASSED"]) == ("ü", "yes")
    assert "s3cret" not in env
    assert {"SECRET", "MISSING"} & set(names) == set()


def test_labels_are_the_users_and_ours(lab):
    run(lab, "true", labels={"team": "billing"})
    labels = lab.facts("a.1")["Config"]["Labels"]
    assert (labels["team"], labels[EXECUTION]) == ("billing", "a.1")


def test_there_is_no_shell_and_the_entry_point_can_be_chosen(lab):
    left = run(lab, "", entrypoint=["echo", "-n"], argv=["$HOME; $(id) *"])
    assert left.stdout.tail == "$HOME; $(id) *"


# -- what it may


def test_by_default_it_has_no_network_no_new_privileges_and_no_host_files(lab):
    left = run(lab, "ls /sys/class/net; grep -c NoNewPrivs:.1 /proc/self/status; ls /leasehold", mounts=[])
    assert left.stdout.tail.split() == ["lo", "1", "inputs", "outputs"]


def test_its_limits_are_honoured(lab):
    old = "cat memory/memory.limit_in_bytes pids/pids.max cpu/cpu.cfs_quota_us"
    new = "cat memory.max pids.max; cut -d ' ' -f 1 cpu.max"
    script = f"cd /sys/fs/cgroup; if [ -d memory ]; then {old}; else {new}; fi"
    left = run(lab, script, memory="64MB", pids=30, cpus=0.5)
    assert left.stdout.tail.split() == [str(64 * 2**20), "30", "50000"]


def test_a_container_killed_for_memory_says_so_in_words(lab):
    """Whether or not the engine has heard of it: the kernel's word comes by another way than the container's end."""
    left = run(lab, "tail -c 200000000 /dev/zero", memory="16MB")
    assert left.code == -9
    assert left.reason is not None
    assert "more memory than its limit of 16MB" in left.reason
    assert lab.runner().probe_many(["a.1"]) == {"a.1": ExecutionState(Phase.EXITED, -9)}


def test_a_read_only_container_can_write_its_result_and_to_tmp_alone(lab):
    script = "touch /bin/x || echo refused; echo > /tmp/x && echo kept; echo 1 > $LEASEHOLD_RESULT"
    left = run(lab, script, read_only=True)
    assert left.stdout.tail.split() == ["refused", "kept"]
    assert left.result == "1\n"


def test_any_user_can_leave_a_result(lab):
    left = run(lab, "id -u; id -g; pwd; echo 1 > $LEASEHOLD_RESULT", user="1234:2345", cwd="/bin")
    assert left.stdout.tail.split() == ["1234", "2345", "/bin"]
    assert left.result == "1\n"


@pytest.mark.parametrize("network", ["host", "container:x", "bridge"])
def test_a_network_that_the_runner_does_not_allow_is_refused(lab, tmp_path, network):
    runner = DockerRunner(tmp_path / "runs", networks_allowed=["none"])
    with pytest.raises(InvalidInput, match="networks_allowed"):
        runner.ensure_started("a.1", 1, lab.spec("true", network=network))


def test_files_of_the_host_that_the_runner_does_not_allow_are_refused(lab, runner, tmp_path):
    (tmp_path / "way-out").symlink_to("/etc")
    for source in (Path("/etc"), tmp_path / "way-out", tmp_path / "..", Path("/")):
        with pytest.raises(InvalidInput, match="mounts_allowed"):
            runner.ensure_started("a.1", 1, lab.spec("true", mounts=[Mount(source, "/host")]))
    assert runner.probe("a.1") == ExecutionState(Phase.ABSENT)


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"image": ""}, "image"),
        ({"image": "a b"}, "image"),
        ({"argv": "ls -l"}, "argv"),
        ({"argv": ["a\0b"]}, "argv"),
        ({"entrypoint": "sh"}, "entrypoint"),
        ({"env": {"A=B": "c"}}, "env"),
        ({"pass_env": "PATH"}, "pass_env"),
        ({"labels": {"leasehold.execution": "x"}}, "labels"),
        ({"memory": "5MB"}, "memory"),
        ({"memory": "lots"}, "memory"),
        ({"cpus": 0}, "cpus"),
        ({"pids": 0}, "pids"),
        ({"output_limit": 10}, "output_limit"),
        ({"user": "a b"}, "user"),
        ({"cwd": "here"}, "cwd"),
        ({"inputs": {"../up": "x"}}, "inputs"),
        ({"outputs": ["a/b"]}, "outputs"),
        ({"outputs": "report"}, "outputs"),
        ({"mounts": [Mount(Path("/srv"), "srv")]}, "mounts"),
        ({"mounts": [Mount(Path("/srv"), "/leasehold/inputs")]}, "mounts"),
    ],
)
def test_a_spec_that_makes_no_sense_is_refused(settings, field):
    with pytest.raises(InvalidInput, match=field):
        ContainerSpec(**({"image": "x"} | settings))


@pytest.mark.parametrize("name", ["privileged", "cap_add", "devices", "pid_mode", "binds", "security_opt"])
def test_what_is_not_in_the_list_cannot_be_asked_for(name):
    with pytest.raises(TypeError, match=name):
        ContainerSpec(image="x", **{name: True})


def test_an_input_that_is_not_there_is_refused_and_leaves_nothing(lab, runner, tmp_path):
    with pytest.raises(InvalidInput, match="inputs"):
        runner.ensure_started("a.1", 1, lab.spec("true", inputs={"a": tmp_path / "none"}))
    assert [entry.name for entry in (runner.folder / "a.1").iterdir()] == ["token.1"]


# -- what it leaves


def test_named_outputs_are_collected_and_go_with_the_run(lab, runner):
    script = "cd $LEASEHOLD_OUTPUTS; echo one > one.txt; echo two > two.txt; mkdir folder"
    left = run(lab, script, outputs=["one.txt", "missing.txt"])
    assert {name: path.read_text() for name, path in left.files.items()} == {"one.txt": "one\n"}
    assert runner.remove("a.1") is True
    assert not left.files["one.txt"].exists()


@pytest.mark.parametrize(
    ("script", "field"),
    [
        ("ln -s /etc/hostname $LEASEHOLD_RESULT", "result"),
        ("mkfifo $LEASEHOLD_RESULT", "result"),
        ("mkdir $LEASEHOLD_RESULT", "result"),
        ("printf '\\377' > $LEASEHOLD_RESULT", "result"),
        ("ln -s /etc/hostname $LEASEHOLD_OUTPUTS/hostname", "outputs/hostname"),
        ("cd /leasehold; rmdir outputs; ln -s /etc outputs", "outputs/hostname"),
    ],
)
def test_a_link_out_of_the_container_is_not_followed(lab, script, field):
    with pytest.raises(InvalidInput, match=field):
        run(lab, script, outputs=["hostname"])


# -- its output


def test_who_keeps_up_sees_all_that_the_engine_has_dropped_since(lab, runner):
    script = f"""
        n=0; while [ $n -lt 6 ]; do
            i=0; while [ $i -lt 90 ]; do echo round $n line $i; i=$((i+1)); done
            {mark("rounds")}; while [ ! -e $MARKS/go-$n ]; do sleep 0.02; done; n=$((n+1))
        done"""
    runner.ensure_started("a.1", 1, lab.spec(script, output_limit=24_000))
    whole = [f"round {n} line {i}\n".encode() for n in range(6) for i in range(90)]
    seen, offset = b"", 0
    for number in range(6):
        last = whole[90 * number + 89]
        while not seen.endswith(last):
            data, offset = lab.runner().read_output("a.1", "stdout", offset, 700)
            seen += data
        (lab.marks / f"go-{number}").touch()
    assert seen == b"".join(whole)
    assert offset == len(seen)
    ended(runner, "a.1")
    stdout = runner.collect("a.1").stdout
    assert stdout.is_cut
    assert stdout.size == len(seen)
    assert len(stdout.tail) < stdout.size


def test_both_streams_can_be_followed_though_one_of_them_is_mostly_silent(lab, runner):
    script = f"""
        echo first >&2; n=0; while [ $n -lt 2 ]; do
            i=0; while [ $i -lt 90 ]; do echo round $n line $i; i=$((i+1)); done
            echo {"-" * 40} $n >&2
            {mark("rounds")}; while [ ! -e $MARKS/go-$n ]; do sleep 0.02; done; n=$((n+1)); sleep 1.1
        done; echo last >&2"""
    runner.ensure_started("a.1", 1, lab.spec(script))
    ends = {
        "stdout": [b"round %d line 89\n" % n for n in range(2)],
        "stderr": [b"- %d\n" % n for n in range(2)],
    }
    seen, offsets = {"stdout": b"", "stderr": b""}, {"stdout": 0, "stderr": 0}
    for number in range(2):
        for stream, last in ends.items():
            while not seen[stream].endswith(last[number]):
                data, offsets[stream] = runner.read_output("a.1", stream, offsets[stream], 333)
                seen[stream] += data
        for stream in seen:
            assert runner.read_output("a.1", stream, offsets[stream], 333) == (b"", offsets[stream])
        (lab.marks / f"go-{number}").touch()
    ended(runner, "a.1")
    assert runner.read_output("a.1", "stderr", offsets["stderr"], 333)[0] == b"last\n"
    assert seen["stdout"] == b"".join(b"round %d line %d\n" % (n, i) for n in range(2) for i in range(90))
    assert seen["stderr"] == b"first\n" + b"".join(b"-" * 40 + b" %d\n" % n for n in range(2))
    left = runner.collect("a.1")
    assert (left.stdout.size, left.stderr.size) == (len(seen["stdout"]), len(seen["stderr"]) + 5)


def test_long_lines_and_bytes_come_as_they_were_written(lab, runner):
    runner.ensure_started("a.1", 1, lab.spec("head -c 50000 /dev/zero | tr '\\0' x; printf '\\377\\n\\n.'"))
    ended(runner, "a.1")
    whole = b"x" * 50000 + b"\xff\n\n."
    seen, offset = follow(runner, "a.1", "stdout", 0, until=b".", limit=999)
    # The engine's log is JSON: a byte that is no UTF-8 becomes a replacement character in it.
    assert seen == whole.replace(b"\xff", "\N{REPLACEMENT CHARACTER}".encode())
    assert offset == len(seen)


# -- the engine


class CountingEngine(Engine):
    def __init__(self, host: str) -> None:
        super().__init__(host)
        self.calls: list[str] = []

    def call(self, method: str, path: str, *args: object, **more: object) -> Reply:
        self.calls.append(path)
        return super().call(method, path, *args, **more)


def test_many_runs_are_one_question_to_the_engine(lab, runner):
    names = ["a.1", "b.1", "c.1"]
    for name in names:
        runner.ensure_started(name, 1, lab.spec(wait_for("go")))
    runner.engine = engine = CountingEngine(runner.engine.host)
    assert set(runner.probe_many([*names, "d.1"]).values()) == {
        ExecutionState(Phase.RUNNING),
        ExecutionState(Phase.ABSENT),
    }
    assert engine.calls == ["/containers/json"]


def test_a_run_that_ends_with_its_engine_is_not_started_again(lab, runner, docker_engine):
    spec = lab.spec(f"trap 'exit 3' TERM; {mark('a')}; {wait_for('never')}")
    runner.ensure_started("a.1", 1, spec)
    until(lambda: starts(lab, "a"))
    docker_engine.stop()
    try:
        with pytest.raises(OSError, match="cannot be reached"):
            runner.probe("a.1")
    finally:
        docker_engine.start()
    assert ended(runner, "a.1") == ExecutionState(Phase.EXITED, 3)
    assert runner.ensure_started("a.1", 2, spec) is Start.FOUND
    assert starts(lab, "a") == 1


def test_an_engine_that_does_not_see_the_folder_is_refused(tmp_path, docker_engine):
    with_own_files = PrivateEngine(hidden=tmp_path)
    try:
        runner = DockerRunner(tmp_path / "runs", with_own_files.start().host)
        with pytest.raises(InvalidInput, match="does not see"):
            assert runner.site
        with pytest.raises(InvalidInput, match="does not see"):
            runner.ensure_started("a.1", 1, ContainerSpec(image="x"))
    finally:
        with_own_files.close()
    assert os.listdir(tmp_path / "runs") == [".site"]


def test_an_engine_elsewhere_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match=r"host.*another machine"):
        DockerRunner(tmp_path, "tcp://127.0.0.1:2375")


def test_an_engine_that_is_not_there_is_named_by_its_socket(tmp_path):
    with pytest.raises(OSError, match="no-socket"):
        assert DockerRunner(tmp_path, "unix:///no-socket").site


def test_a_container_whose_folder_is_deleted_is_not_started_again(lab):
    """The engine knows how it has ended. What it has written to its folder is gone, and that is told."""
    runner, spec = (
        lab.runner(),
        lab.spec(f"{mark('a')}; {wait_for('go')}; echo 7 > $LEASEHOLD_RESULT; exit 5"),
    )
    assert runner.ensure_started("a.1", 1, spec) is Start.STARTED
    until(lambda: starts(lab, "a"))
    shutil.rmtree(runner.folder / "a.1")
    assert runner.ensure_started("a.1", 2, spec) is Start.FOUND
    (lab.marks / "go").touch()
    assert ended(runner, "a.1") == ExecutionState(Phase.EXITED, 5)
    assert runner.tombstone("a.1") == ExecutionState(Phase.EXITED, 5)
    with pytest.raises(InvalidInput, match="folder of the execution was deleted"):
        runner.collect("a.1")
    assert starts(lab, "a") == 1

"""Launched programs are processes like any others, and none outlives the tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.architecture.sources import ROOT
from tests.launcher import commands_in, launch
from tests.workers import wait_for

SAYS = "import os, sys; print(os.getpid(), os.getcwd(), os.environ['WORD'], sys.argv[1:]); sys.exit(3)"
WAITS = "import sys, time; print('ready', flush=True); time.sleep(600)"
DIES = """
import os, signal, subprocess, sys
from tests.launcher import launch
print(launch([sys.executable, "-c", "import time; time.sleep(600)"]).pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_program_has_its_own_id_folder_environment_arguments_and_exit_code(tmp_path: Path):
    environment = {**os.environ, "WORD": "so it is"}
    process = launch(
        [sys.executable, "-c", SAYS, "one", "two"],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    said, _ = process.communicate(timeout=60)
    assert said == f"{process.pid} {tmp_path} so it is ['one', 'two']\n"
    assert process.returncode == 3


def test_a_program_is_killed_by_its_id_and_says_by_what():
    process = launch([sys.executable, "-c", WAITS], stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout.readline() == "ready\n"
        assert process.poll() is None
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait(60) == -signal.SIGKILL
    assert not is_alive(process.pid)


def test_what_was_launched_ends_with_a_test_process_that_is_killed():
    done = subprocess.run([sys.executable, "-c", DIES], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == -signal.SIGKILL, done.stderr
    wait_for(lambda: not is_alive(int(done.stdout)), "the program to be gone")


def test_commands_of_a_shell_pass_on_words_signals_and_exit_codes(tmp_path: Path):
    commands_in(tmp_path / "bin")
    shell = "import subprocess, sys; sys.exit(subprocess.call(['bash', '-c', sys.argv[1]]))"
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"

    def run(script: str) -> tuple[int, str]:
        environment = {**os.environ, "PATH": path}
        process = launch(
            [sys.executable, "-c", shell, script],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        said, _ = process.communicate(timeout=60)
        return process.returncode, said

    code, said = run("leasehold --version | tr a-z A-Z; python -c 'import sys; sys.exit(7)'")
    assert code == 7
    assert said.strip()
    waits = "import time; open('ready', 'w').close(); time.sleep(600)"
    _, said = run(f'python -c "{waits}" & until [ -e ready ]; do sleep 0.05; done; kill $!; wait $!; echo $?')
    assert said == f"{128 + signal.SIGTERM}\n"

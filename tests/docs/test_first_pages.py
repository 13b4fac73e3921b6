"""The README and the quickstart, walked as a new user does: their files, their commands, in their order."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.docs.pages import blocks, write_files

BIN = Path(sys.executable).parent
PATIENCE = 60


class Terminal:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.env = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}

    def run(self, command: str) -> str:
        done = subprocess.run(
            shlex.split(command, comments=True),
            cwd=self._folder,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    @contextmanager
    def running(self, command: str) -> Iterator[None]:
        process = subprocess.Popen(
            shlex.split(command, comments=True),
            cwd=self._folder,
            env=self.env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        try:
            yield
        finally:
            process.terminate()
            said = process.communicate(timeout=PATIENCE)[1].decode()
        assert process.returncode == 0, said


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    return Terminal(tmp_path)


def commands(page: str) -> list[str]:
    lines = "".join(blocks(page, "console")).splitlines()
    return [line.partition("#")[0].strip().removesuffix("&").strip() for line in lines]


def test_the_readme_walked_word_by_word(terminal: Terminal, tmp_path: Path) -> None:
    assert write_files("../README.md", tmp_path) == ["shop.py"]
    worker, program, jobs, why = (
        next(line for line in commands("../README.md") if line.startswith(beginning))
        for beginning in ("leasehold worker", "python shop.py", "leasehold jobs", "leasehold why")
    )
    with terminal.running(worker):
        assert terminal.run(program) == "5\n['why? (attempt 1)']\n"
    listed = terminal.run(jobs)
    assert listed.count("succeeded") == 2
    job = re.findall(r"^([0-9a-f-]{36}) ", listed, re.MULTILINE)[0]
    assert "it succeeded" in terminal.run(why.replace("JOB_ID", job))


def test_the_quickstart_walked_word_by_word(terminal: Terminal, tmp_path: Path) -> None:
    assert write_files("quickstart.md", tmp_path) == ["mail.py", "enqueue.py", "steer.py"]
    told = commands("quickstart.md")
    enqueue, worker = "python enqueue.py", "leasehold worker mail:app --concurrency 20 --threads 8"
    assert told.index(enqueue) < told.index(worker)
    terminal.run(enqueue)
    with terminal.running(worker):
        said = terminal.run("python steer.py").splitlines()
        assert (said[0], said[1].split()[:3], said[2]) == ("5", ["succeeded", "1", "None"], "4")
        assert "no address: nobody" in said[3]
        name, _, value = (
            next(line for line in told if line.startswith("export")).removeprefix("export ").partition("=")
        )
        terminal.env[name] = value
        look = told[told.index(f"export {name}={value}") + 1 :]
        assert [line.split()[1] for line in look] == ["jobs", "show", "why", "resume", "jobs"]
        listed = terminal.run(look[0])
        (job,) = re.findall(r"^([0-9a-f-]{36}) ", listed, re.MULTILINE)
        assert "no address: nobody" in terminal.run(look[1].replace("JOB_ID", job[:18]))
        assert "failed" in terminal.run(look[2].replace("JOB_ID", job))
        terminal.run(look[3].replace("JOB_ID", job))

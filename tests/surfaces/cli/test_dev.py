"""`leasehold dev` as a process: it serves, works, starts anew with new code, and leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest

from leasehold.surfaces.cli import dev_child, options
from leasehold.surfaces.cli.dev_child import WatchedFiles
from tests.launcher import launch
from tests.surfaces.cli.conftest import PATIENCE, Answer, Cli
from tests.workers import wait_for

TASKS = """
import os, time
from pathlib import Path
from leasehold import Leasehold

app = Leasehold()

@app.task
def answer() -> list[int]:
    return [{number}, os.getpid()]

@app.task(queue="slow")
async def sleep():
    import asyncio
    Path("began").touch()
    await asyncio.sleep(3600)

@app.task(queue="reports")
def report() -> str:
    return "done"
"""


class Dev:
    """A running `leasehold dev`, and what it has said so far."""

    def __init__(self, cli: Cli, *options: str, **environment: str) -> None:
        self._out = cli.folder / "said.txt"
        with self._out.open("w") as out:
            self.process = launch(
                [*_COMMAND, "shop:app", *options],
                cwd=cli.folder,
                env={**os.environ, **cli.environment, **environment},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    @property
    def said(self) -> str:
        return self._out.read_text()

    def wait_for(self, text: str, times: int = 1) -> str:
        def there() -> bool:
            assert self.process.poll() is None or text in self.said, self.said
            return self.said.count(text) >= times

        wait_for(there)
        return self.said

    @property
    def url(self) -> str:
        found = re.search(r"API +(http://\S+)/v1", self.wait_for("/v1\n"))
        assert found
        return found[1]

    def run(self, task: str) -> object:
        """The result of a job of this task. The server may be about to be replaced."""
        made: dict[str, str] = {}

        def requested() -> bool:
            try:
                with httpx2.Client(base_url=self.url, timeout=PATIENCE) as client:
                    if not made:
                        made.update(client.post("/v1/jobs", json={"task": task, "args": {}}).json())
                    reported = client.get(f"/v1/jobs/{made['id']}/result", params={"wait": 30})
            except httpx2.TransportError:
                return False
            made["result"] = reported.json().get("result")
            return reported.status_code == 200 and made["result"] is not None

        wait_for(requested)
        return made["result"]

    def end(self, number: signal.Signals = signal.SIGINT) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)


_COMMAND = [sys.executable, "-m", "leasehold", "dev"]


def write(folder: Path, number: int, more: str = "") -> None:
    folder.joinpath("shop.py").write_text(TASKS.replace("{number}", str(number)) + more)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    write(tmp_path, 1)
    return Cli(tmp_path, {"LEASEHOLD_URL": f"sqlite:///{tmp_path}/dev.db"})


@pytest.fixture
def start(cli: Cli) -> Iterator[Callable[..., Dev]]:
    started: list[Dev] = []

    def make(*options: str, **environment: str) -> Dev:
        if "--port" not in options:
            options = (*options, "--port", "0")
        started.append(Dev(cli, *options, **environment))
        return started[-1]

    yield make
    for dev in started:
        if dev.process.poll() is None:
            dev.process.kill()  # its other half hears of it
        dev.process.wait()


def test_it_serves_and_works_and_new_code_runs_when_a_file_has_changed(
    start: Callable[..., Dev], tmp_path: Path
):
    dev = start()
    banner = dev.wait_for("Ctrl-C")
    assert f"{dev.url}/dashboard/" in banner
    assert f"sqlite:///{tmp_path}/dev.db" in banner
    assert "default, reports, slow" in banner
    assert httpx2.get(f"{dev.url}/livez").status_code == 200
    assert dev.run("report") == "done", "every queue of the app is served"
    number, first = dev.run("answer")
    assert number == 1
    write(tmp_path, 2)
    dev.wait_for("shop.py changed: restarting")
    dev.wait_for("ready again")
    number, second = dev.run("answer")
    assert number == 2
    assert first != second
    assert not is_alive(first)
    assert dev.end() == 0
    assert not is_alive(second)
    assert not is_alive(dev.process.pid)


def test_the_dashboard_is_there(start: Callable[..., Dev]):
    dev = start()
    answer = httpx2.get(f"{dev.url}/dashboard/", timeout=PATIENCE)
    assert answer.status_code == 200, answer.text
    assert dev.end(signal.SIGTERM) == 0


def test_a_broken_file_is_told_once_and_a_mended_one_comes_back(start: Callable[..., Dev], tmp_path: Path):
    write(tmp_path, 1, "import nowhere_to_be_found\n")
    dev = start()
    dev.wait_for("waiting for a change")
    assert dev.said.count("No module named 'nowhere_to_be_found'") == 1
    assert f'File "{tmp_path}/shop.py"' in dev.said
    assert "importlib" not in dev.said, "the way there is of no interest"
    write(tmp_path, 3)
    assert dev.run("answer")[0] == 3
    write(tmp_path, 4, "def broken(:\n")
    dev.wait_for("waiting for a change", times=2)
    assert dev.said.count("SyntaxError") == 1
    write(tmp_path, 5)
    dev.wait_for("ready again")
    assert dev.run("answer")[0] == 5
    assert dev.end() == 0


def test_ctrl_c_ends_it_while_it_waits_for_a_change(start: Callable[..., Dev], tmp_path: Path):
    write(tmp_path, 1, "1 / 0\n")
    dev = start()
    dev.wait_for("waiting for a change")
    assert "ZeroDivisionError" in dev.said
    assert dev.end() == 0


@pytest.mark.slow(13)
def test_a_running_job_is_handed_back_when_the_code_changes(start: Callable[..., Dev], tmp_path: Path):
    dev = start()
    with httpx2.Client(base_url=dev.url, timeout=PATIENCE) as client:
        job = client.post("/v1/jobs", json={"task": "sleep", "args": {}}).json()["id"]
        wait_for(tmp_path.joinpath("began").exists)
    tmp_path.joinpath("began").unlink()
    write(tmp_path, 2)
    dev.wait_for("ready again")
    wait_for(tmp_path.joinpath("began").exists)
    with httpx2.Client(base_url=dev.url, timeout=PATIENCE) as client:
        row = client.get(f"/v1/jobs/{job}").json()
        assert (row["state"], row["failures"], row["crashes"]) == ("running", 0, 0)
    # It does not wait for the job's grace if it is told twice.
    dev.process.send_signal(signal.SIGINT)
    dev.wait_for("draining")
    assert dev.end() == 0


def test_a_killed_one_takes_its_other_half_with_it(start: Callable[..., Dev]):
    dev = start()
    _, pid = dev.run("answer")
    assert pid != dev.process.pid
    dev.process.kill()
    dev.process.wait()
    wait_for(lambda: not is_alive(pid))


def test_the_end_of_its_other_half_is_its_own(start: Callable[..., Dev]):
    dev = start()
    _, pid = dev.run("answer")
    os.kill(pid, signal.SIGKILL)
    assert dev.process.wait(PATIENCE) == 128 + signal.SIGKILL
    assert "restarting" not in dev.said


def test_without_reload_it_is_one_process(start: Callable[..., Dev], tmp_path: Path):
    browser = tmp_path / "browser"
    browser.write_text('#!/bin/sh\necho "$1" > "$SEEN.new" && mv "$SEEN.new" "$SEEN"\n')
    browser.chmod(0o755)
    seen = tmp_path / "seen"
    dev = start(
        "--no-reload", "--queues", "default", "--open", BROWSER=f"{browser} %s", SEEN=str(seen), DISPLAY=":0"
    )
    assert dev.run("answer") == [1, dev.process.pid]
    assert re.search(r"queues +default\n", dev.said)
    assert wait_for(seen.exists)
    assert seen.read_text() == f"{dev.url}/dashboard/\n"
    assert dev.end() == 0


def test_a_port_that_was_asked_for_is_taken_or_refused(here: Callable[..., Answer]):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        refused = here("dev", "nowhere:app", "--port", str(port))
    assert refused.code == 2
    assert f"{port} is in use by another program" in refused.err


def test_the_usual_port_gives_way_to_the_next(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        monkeypatch.setattr(options, "USUAL_PORT", taken)
        assert taken < options.choose_port(None) < taken + options.PORTS_TRIED
    assert f"port {taken} is in use by another program: using" in capsys.readouterr().err


def test_an_app_that_is_not_there_is_told_at_once(cli: Cli):
    answer = cli("dev", "nowhere:app", "--port", "0")
    assert answer.code == 2
    assert "cannot find a module 'nowhere' here" in answer.err


# -- files ------------------------------------------------------------------------------------------------------------
def test_files_that_change_come_and_go_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(dev_child, "WALK_EVERY", 0)
    for folder in ("package", ".hidden", "node_modules", "env"):
        tmp_path.joinpath(folder).mkdir()
        tmp_path.joinpath(folder, "code.py").write_text("1")
    tmp_path.joinpath("env", "pyvenv.cfg").touch()
    tmp_path.joinpath("data.txt").touch()
    files = WatchedFiles(tmp_path)
    assert files.changed() == []
    for name in ("data.txt", ".hidden/code.py", "node_modules/code.py", "env/code.py"):
        tmp_path.joinpath(name).write_text("another text")
    assert files.changed() == []
    code = tmp_path / "package" / "code.py"
    code.write_text("another text")
    assert files.changed() == [str(code)]
    assert files.changed() == []
    new = tmp_path / "new.py"
    new.touch()
    assert files.changed() == [str(new)]
    code.unlink()
    assert files.changed() == [str(code)]
    # What the app has loaded is watched wherever it lies.
    loaded = tmp_path / ".hidden" / "code.py"
    files.learn([str(loaded)])
    assert files.changed() == []
    loaded.write_text("a third text")
    assert files.changed() == [str(loaded)]


def test_a_folder_full_of_data_is_not_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(dev_child, "MOST_FILES", 3)
    for number in range(10):
        tmp_path.joinpath(f"d{number}").mkdir()
        tmp_path.joinpath(f"d{number}", "code.py").touch()
    files = WatchedFiles(tmp_path)
    tmp_path.joinpath("d9", "code.py").write_text("beyond")
    assert files.changed() == []
    tmp_path.joinpath("d0", "code.py").write_text("within")
    assert files.changed() == [str(tmp_path / "d0" / "code.py")]

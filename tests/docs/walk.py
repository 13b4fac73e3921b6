"""Walks a page of the documents as a reader does: every block, in the order of the page, in an empty folder.

    python -m tests.docs.walk docs/concepts/lanes.md

A page runs in a process of its own, on SQLite. What a block's language means, and the comments that steer a walk,
stand in CONTRIBUTING.md ("Pages are run").
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import importlib
import inspect
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests import launcher
from tests.docs.pages import Block, PageError, read_page
from tests.ports import claim_port

COMMAND_ENDS = 120.0
"""Seconds for one command. Only a walk that fails waits that long."""
STARTS = 60.0
STAYS = re.compile(
    r"leasehold (worker|serve|dev|mcp)\b(?!.*(--burst|--help))|.*--follow\b|uvicorn |gunicorn |rq worker"
)
"""What does not end of its own accord stays until the end of the page, with or without an `&`."""
LISTENS = re.compile(r"leasehold (serve|dev)\b|uvicorn |gunicorn |flask .*\brun\b")
LISTENS_BY_DEFAULT = re.compile(r"leasehold (serve|dev)\b")
DRAINS = re.compile(r"leasehold (worker|serve|dev|mcp)\b")
STOPPED = {0, -signal.SIGTERM, 128 + signal.SIGTERM}
"""Ours drain and end with 0; others may die of the signal."""
FILE = re.compile(r"# ([\w/]+\.\w+)\n")
SHOWN_URL = "postgresql://localhost/leasehold"
SHOWN_PORT = re.compile(
    r"(?<=localhost:)\d{4}\b|(?<=127\.0\.0\.1:)\d{4}\b|(?<=--port )\d{4}\b|(?<=\"localhost\", )\d{4}\b"
)
DEFAULT_PORT = "8700"


class Walk:
    def __init__(self, page: Path, resources: ExitStack) -> None:
        self._page = read_page(page)
        self._resources = resources
        self._names: dict[str, Any] = {"__name__": "__page__"}
        self._loop = resources.enter_context(asyncio.Runner())
        self._env = {k: v for k, v in os.environ.items() if not k.startswith(("LEASEHOLD_", "PYTEST_"))}
        self._env |= {
            "PYTHONUNBUFFERED": "1",
            "COLUMNS": "200",
            "NO_COLOR": "1",
            "PYTHONPATH": str(Path.cwd()),
        }
        self._env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{self._env['PATH']}"
        if launcher.ADDRESS in os.environ:
            commands = Path(resources.enter_context(tempfile.TemporaryDirectory(prefix="commands-")))
            launcher.commands_in(commands)
            self._env["PATH"] = f"{commands}{os.pathsep}{self._env['PATH']}"
        self._printed = ""
        self._url: str | None = None
        self._ports: dict[str, str] = {}
        """The ports that the page shows, and those that stand for them here: other walks go on at the same time."""
        self._background: dict[int, subprocess.Popen[bytes]] = {}
        """As a shell numbers its jobs."""
        shown = "".join(block.body for block in self._page.blocks if block.language in ("console", "sh"))
        self._run_by_commands = set(re.findall(r"[\w/]+\.py\b", shown))
        self._imported_by_commands = set(re.findall(r"\b(\w+):\w+\b", shown))

    def go(self) -> int:
        """How many blocks have run."""
        if "postgres" in self._page.wants:
            self._url = self._resources.enter_context(_postgres())
        ways: dict[str, Callable[[str], None]] = {
            "python": self._python,
            "console": self._console,
            "sh": self._command,
            "json": json.loads,
            "toml": tomllib.loads,
            "yaml": _check_yaml,
        }
        ran = 0
        for block in self._page.blocks:
            if block.not_run is not None:
                continue
            with _named(block):
                if block.is_output:
                    check_output(self._real(block.body).splitlines(), self._printed, whole=True)
                elif way := ways.get(block.language):
                    way(self._real(block.body))
                    ran += 1
        return ran

    def _real(self, text: str) -> str:
        if self._url is not None:
            text = text.replace(SHOWN_URL, self._url)
        return SHOWN_PORT.sub(lambda shown: self._port(shown[0]), text)

    def _port(self, shown: str) -> str:
        if shown not in self._ports:
            self._ports[shown] = free_port()
        return self._ports[shown]

    def _python(self, code: str) -> None:
        if found := FILE.match(code):
            self._file(found[1], code)
            return
        program = compile(code, "the block", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        with self._keeping_what_is_printed():
            done = eval(program, self._names)
            if inspect.iscoroutine(done):
                self._loop.run(done)

    def _file(self, name: str, code: str) -> None:
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code, encoding="utf-8")
        if (
            path.suffix != ".py"
            or name in self._run_by_commands
            or path.stem.startswith(("test_", "conftest"))
        ):
            return
        importlib.invalidate_caches()
        module_name = ".".join(path.with_suffix("").parts)
        sys.modules.pop(module_name, None)
        with self._keeping_what_is_printed():
            module = importlib.import_module(module_name)
        self._names |= {name: value for name, value in vars(module).items() if not name.startswith("__")}

    @contextlib.contextmanager
    def _keeping_what_is_printed(self) -> Iterator[None]:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            yield
        self._printed = printed.getvalue()

    def _console(self, text: str) -> None:
        marked = any(line.startswith("$ ") for line in text.splitlines())
        commands: list[tuple[str, list[str]]] = []
        for line in text.replace("\\\n", " ").splitlines():
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            if marked and not line.startswith("$ "):
                if not commands:
                    raise PageError(f"output before the first command: {line}")
                commands[-1][1].append(line)
            else:
                commands.append((line.removeprefix("$ "), []))
        for command, output in commands:
            self._command(command)
            check_output(output, self._printed)

    def _command(self, command: str) -> None:
        for name, value in self._names.items():
            if name.isupper() and isinstance(value, str):
                command = re.sub(rf"\b{name}\b", value, command)
        first = re.sub(r"\s+#\s.*", "", command).strip() if "\n" not in command else command
        if found := re.fullmatch(r"export (\w+)=(\S+)", first):
            self._env[found[1]] = found[2].strip("'\"")
        elif "\n" not in first and (first.endswith("&") or STAYS.match(first)):
            self._stay(first.removesuffix("&").strip())
        else:
            first = re.sub(r"(?<=\s)%(\d+)\b", lambda job: str(self._background[int(job[1])].pid), first)
            done = subprocess.run(
                ["bash", "-euc", first], env=self._env, stdin=subprocess.DEVNULL, capture_output=True,
                text=True, timeout=COMMAND_ENDS,
            )  # fmt: skip
            self._printed = done.stdout + done.stderr
            if done.returncode:
                raise PageError(f"{first}: exit code {done.returncode}\n{self._printed}")

    def _stay(self, command: str) -> None:
        """Returns when it has said something. A server says where it is as soon as it listens."""
        if LISTENS_BY_DEFAULT.match(command) and "--port" not in command:
            port = self._port(DEFAULT_PORT)
            if command.startswith("leasehold dev") and is_taken(port):
                port = free_port()  # as dev does where its usual port is in use
            command += f" --port {port}"
        log = tempfile.NamedTemporaryFile("wb+", delete=False)  # noqa: SIM115 - read until the end of the page
        process = subprocess.Popen(
            ["bash", "-c", f"exec {command}"], env=self._env, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            start_new_session=True,
        )  # fmt: skip
        self._resources.callback(_end, command, process, Path(log.name))
        self._background = {n: job for n, job in self._background.items() if job.poll() is None}
        self._background[max(self._background, default=0) + 1] = process
        waits_for = b"http://" if LISTENS.match(command) else b""
        deadline = time.monotonic() + STARTS
        while process.poll() is None and time.monotonic() < deadline:
            if waits_for in (said := Path(log.name).read_bytes()) and said:
                break
            time.sleep(0.05)
        if process.poll():
            raise PageError(f"{command}: exit code {process.returncode}\n{Path(log.name).read_text()}")
        self._printed = ""


def check_output(lines: list[str], printed: str, *, whole: bool = False) -> None:
    """Each line is found in what was printed, in that order; `…` stands for anything. `whole`: and nothing else."""
    real = [line.rstrip() for line in printed.splitlines()]
    wanted = [line.rstrip() for line in lines]
    if whole and "…" not in wanted and len(real) != len(wanted):
        raise PageError(f"printed {len(real)} lines, and the page shows {len(wanted)}:\n{printed}")
    place = 0
    for line in wanted:
        if line == "…":
            continue
        pattern = re.compile(".*".join(re.escape(part) for part in re.split(r"\s*…\s*", line)))
        found = next((n for n in range(place, len(real)) if pattern.fullmatch(real[n])), None)
        if found is None:
            raise PageError(f"the page shows this line, and it was not printed:\n{line}\nbut:\n{printed}")
        place = found + 1


def free_port() -> str:
    """Of four digits, as the pages show: a table keeps its widths."""
    return str(claim_port(2000, 9999))


def is_taken(port: str) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", int(port))) == 0


def _end(command: str, process: subprocess.Popen[bytes], log: Path) -> None:
    killed = process.poll() == -signal.SIGKILL  # by the page, which says so
    if process.returncode is None:
        process.terminate()
    try:
        code = process.wait(COMMAND_ENDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise PageError(f"{command}: did not end after SIGTERM\n{log.read_text()}") from None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # what it has left behind
    said = log.read_text()
    log.unlink()
    if not killed and code not in ({0} if DRAINS.match(command) else STOPPED):
        raise PageError(f"{command}: exit code {code}\n{said}")


def _check_yaml(text: str) -> None:
    import yaml

    list(yaml.safe_load_all(text))


@contextlib.contextmanager
def _postgres() -> Iterator[str]:
    from tests.servers import PostgresServer

    with PostgresServer(18, fsync=False) as server:
        yield server.create_database("leasehold")


@contextlib.contextmanager
def _named(block: Block) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        error.add_note(f"in line {block.line} of the page, {block.language}:\n{block.body}")
        raise


def main(page: str) -> int:
    path = Path(page).resolve()
    with tempfile.TemporaryDirectory(prefix="page-") as folder, ExitStack() as resources:
        here = Path.cwd()
        sys.path.insert(0, folder)
        walk = Walk(path, resources)
        os.chdir(folder)
        resources.callback(os.chdir, here)
        ran = walk.go()
    print(f"{page}: {ran} blocks ran")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

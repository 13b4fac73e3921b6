"""Runs containers on a Docker engine of this machine, each started at most once: a fence decides who may start one.

The engine keeps a container's state, exit code and log; the execution's folder keeps who may start it, and that it was
started. Read both together: first the folder, then the engine, and the folder again before reporting VANISHED.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import secrets
import shutil
import signal
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from leasehold.domain.checks.numbers import size_text
from leasehold.domain.errors import InvalidInput
from leasehold.domain.frozen import frozen
from leasehold.runners.contract import (
    CannotStart,
    Collected,
    ExecutionState,
    NothingToCollect,
    Phase,
    Runner,
    Start,
    Stream,
)
from leasehold.runners.docker.engine import Engine, Logs
from leasehold.runners.docker.spec import (
    LOG_FILES,
    Allowed,
    ContainerSpec,
    engine_body,
    find_outputs,
    put_inputs,
    read_result,
)
from leasehold.runners.execution_folder import (
    delete_all_but_the_tombstone,
    execution_folder,
    highest_token,
    make_execution_folder,
    names_in,
    open_site,
    sweep_tombstones,
    sync_folder,
    write_durably,
)

START_TIMEOUT = 30.0
TWIN_PATIENCE = 2.0
"""Seconds to wait for another starter with the same token that has made the container and not started it yet."""
SITE, EXECUTION, TRY, OUTPUTS = "leasehold.site", "leasehold.execution", "leasehold.try", "leasehold.outputs"
"""Labels of our containers."""

_EXITED = re.compile(r"Exited \((\d+)\)")
_LIVE = ("running", "paused", "restarting")
_GOING = ("removing", "dead")


@frozen
class Container:
    id: str
    try_id: str
    """The try that made the container: see the fence below."""
    status: str
    """"created" means that it has never run."""
    code: int
    created: float | None = None
    """When the container was made; only lists include it."""


class DockerRunner(Runner[ContainerSpec]):
    """The containers of one folder and one engine. Any number of workers on the machine may share them.

    `host` is the engine's socket; None means $DOCKER_HOST or Docker's usual one. Containers see files of the host only
    below `mounts_allowed`, and join only `networks_allowed`. Nothing is sent to the engine before the first verb.
    """

    def __init__(
        self,
        folder: Path,
        host: str | None = None,
        *,
        mounts_allowed: Collection[Path] = (),
        networks_allowed: Collection[str] = ("none", "bridge"),
    ) -> None:
        self.engine = Engine(host)
        self._logs = Logs(self.engine)
        self.folder, self._folder_id = open_site(folder)
        self._allowed = Allowed([Path(path).resolve() for path in mounts_allowed], networks_allowed)
        self._site: str | None = None

    @property
    def site(self) -> str:
        """The first read queries the engine, and raises InvalidInput if it does not see the worker's folder."""
        if self._site is None:
            self._check_that_the_engine_sees_the_folder()
            self._site = f"{self.engine.call('GET', '/info').json()['ID']}:{self._folder_id}"
        return self._site

    def ensure_started(self, name: str, token: int, spec: ContainerSpec) -> Start:
        self._allowed.check(spec)
        assert self.site
        folder = make_execution_folder(self.folder, self._folder_id, name)
        raise_fence(folder, token)  # raise the fence before looking
        deadline = time.monotonic() + START_TIMEOUT
        twins: dict[str, float] = {}
        while True:
            marks, container = self._look(name)
            phase = _judge(marks, container).phase
            if phase is Phase.TOMBSTONE or highest_token(folder) > token:
                return Start.FENCED
            if phase is not Phase.CREATED:
                return Start.FOUND
            if container is None or container.status in _GOING:
                if self._start(name, token, spec):
                    return Start.STARTED
            else:
                since = twins.setdefault(container.id, time.monotonic())
                if token_of(container.try_id) < token or time.monotonic() > since + TWIN_PATIENCE:
                    self._discard(folder, container)
            if time.monotonic() > deadline:
                raise TimeoutError(f"another start of the execution {name} does not come to an end")
            time.sleep(0.01)

    def probe(self, name: str) -> ExecutionState:
        return _judge(*self._look(name))

    def probe_many(self, names: Sequence[str]) -> dict[str, ExecutionState]:
        before = {name: read_marks(self._folder_of(name)) for name in names}
        found = self._list() if names else {}
        states = {}
        for name, marks in before.items():
            container = found.get(name)
            # A list does not wait for a start under way, and does not show how a container being removed has ended.
            is_sure = container is not None and container.status not in ("created", *_GOING)
            is_sure |= container is None and (marks.has_tombstone or not marks.started)
            states[name] = _judge(marks, container) if is_sure else self.probe(name)
        return states

    def read_output(self, name: str, stream: Stream, offset: int, limit: int) -> tuple[bytes, int]:
        return self._logs.read(self.container_name(name), self._folder_of(name), stream, offset, limit)

    def stop(self, name: str, grace: float) -> None:
        folder = make_execution_folder(self.folder, self._folder_id, name)
        now, earlier = time.time(), _read_stop(folder)
        until = min(now + max(grace, 0.0), earlier["until"]) if earlier else now + max(grace, 0.0)
        is_requested = earlier is not None and earlier["is_requested"] and until >= earlier["until"]
        if earlier is None or until < earlier["until"]:
            write_durably(folder / "stop", {"until": until, "is_requested": False})
        close_all(folder)
        container = self._inspect(self.container_name(name))
        if container is None or container.status not in _LIVE:
            return
        if now >= until:
            self.engine.send("POST", f"/containers/{container.id}/kill", {"signal": "SIGKILL"})
        elif not is_requested:
            # The engine sends the signal, waits and kills by itself. If it restarts meanwhile, it forgets the kill:
            # then a later call finds the time over, and kills.
            self.engine.send("POST", f"/containers/{container.id}/stop", {"t": math.ceil(until - now)})
            write_durably(folder / "stop", {"until": until, "is_requested": True})

    def tombstone(self, name: str) -> ExecutionState:
        folder = make_execution_folder(self.folder, self._folder_id, name)
        write_durably(folder / "tombstone", None)
        close_all(folder)
        return self.probe(name)

    def collect(self, name: str) -> Collected:
        folder = self._folder_of(name)
        facts = self._facts(self.container_name(name))
        container = None if facts is None else _container(facts)
        if facts is None or container is None or container.status != "exited":
            raise NothingToCollect(name, self.probe(name))
        kept = int(facts["HostConfig"]["LogConfig"]["Config"]["max-size"]) * (LOG_FILES - 1)
        home = folder_of_try(folder, container.try_id)
        if home is None:
            raise InvalidInput("result", "is gone: the folder of the execution was deleted", "")
        names = json.loads(facts["Config"]["Labels"][OUTPUTS])
        return Collected(
            code=container.code,
            stdout=self._logs.output(container.id, folder, "stdout", kept),
            stderr=self._logs.output(container.id, folder, "stderr", kept),
            result=read_result(home),
            was_stopped=(folder / "stop").exists(),
            reason=_reason(facts, container.code, stopped=(folder / "stop").exists()),
            files=find_outputs(home, names),
        )

    def remove(self, name: str) -> bool:
        if self.probe(name).phase is Phase.RUNNING or self.tombstone(name).phase is Phase.RUNNING:
            return False
        container = self._inspect(self.container_name(name))
        if container is not None and not self._delete(container):
            return False
        delete_all_but_the_tombstone(self._folder_of(name))
        return True

    def names(self) -> list[str]:
        return names_in(self.folder)

    def sweep(self, age: float) -> int:
        """Also delete containers that no worker will look after, running or not: those whose folder is gone, and those
        that a starter made too late and could not start. Also delete what a killed worker left while it checked the
        engine."""
        freed = 0
        for name, container in self._list().items():
            folder = self._folder_of(name)
            is_stray = not folder.is_dir() or folder_of_try(folder, container.try_id) is None
            if is_stray and container.created is not None and container.created < time.time() - age:
                freed += self._delete(container, force=True)
        for seen in self.folder.glob(".seen.*"):
            with contextlib.suppress(FileNotFoundError):  # another worker sweeps too
                if seen.stat().st_mtime < time.time() - age:
                    seen.rmdir()
        return freed + sweep_tombstones(self.folder, age, keep_if=("started.", "open.", "closed."))

    # -- start

    def _start(self, name: str, token: int, spec: ContainerSpec) -> bool:
        """Make a container and start it, once, by its id. False: another starter was first, or has raised the fence;
        look again."""
        folder = self._folder_of(name)
        try_id = open_try(folder, token)
        home = folder / f"open.{try_id}"
        try:
            put_inputs(home, spec.inputs)
        except (OSError, InvalidInput):
            was_open = is_open(folder, try_id)
            discard(folder, try_id)
            if was_open:
                raise
            return False
        if not may_start(folder, token):
            discard(folder, try_id)
            return False
        labels = {
            SITE: self._folder_id,
            EXECUTION: name,
            TRY: try_id,
            OUTPUTS: json.dumps(list(spec.outputs)),
        }
        body = engine_body(spec, labels, home)
        query = {"name": self.container_name(name)}
        made = self.engine.call("POST", "/containers/create", query, body, allow=range(400, 600))
        if made.status != 201:
            was_open = is_open(folder, try_id)
            discard(folder, try_id)
            if was_open and made.status != 409:  # 409: the name is taken
                raise CannotStart(name, made.message)
            return False
        id_ = made.json()["Id"]
        refusal = None
        if mark_try_started(folder, try_id):
            close_all(folder, but=try_id)  # a starter frozen in another try must not get the name later
            started = self.engine.call("POST", f"/containers/{id_}/start", allow=range(400, 600))
            if started.status < 400:
                return True
            if is_open(folder, try_id) and started.status != 404:  # 404: it was deleted
                refusal = started.message
            close(folder, try_id)
        container = self._inspect(id_)
        if container is not None and container.status in (*_LIVE, "exited"):
            return True  # it was started nevertheless
        discard(folder, try_id)
        if container is not None:
            self._delete(container)
        if refusal is not None:
            raise CannotStart(name, refusal)
        return False

    def _discard(self, folder: Path, made: Container) -> None:
        """Delete a container that its maker has not started, in such a way that it cannot have run."""
        close(folder, made.try_id)
        container = self._inspect(made.id)  # waits for a start under way
        if container is not None and container.status == "created":
            # Remove the mark first: without the container it would mean that the container has run.
            discard(folder, made.try_id)
            self._delete(container)

    def _check_that_the_engine_sees_the_folder(self) -> None:
        """Test it with a mount: the engine checks the source before the image, and the image does not exist."""
        seen = self.folder / f".seen.{secrets.token_hex(8)}"
        seen.mkdir()
        try:
            answers = []
            for source in (seen, self.folder / ".never"):
                mount = {"Type": "bind", "Source": str(source), "Target": "/seen"}
                body = {"Image": f"leasehold-none:{seen.name[6:]}", "HostConfig": {"Mounts": [mount]}}
                answers.append(
                    self.engine.call("POST", "/containers/create", body=body, allow=(400, 404)).status
                )
        finally:
            seen.rmdir()
        if answers == [404, 404]:
            raise InvalidInput(
                "host",
                f"the engine at {self.engine.host} mounts folders that are not there: nothing would keep a container"
                " from a second start",
                "use Docker's own engine, 20.10 or newer",
            )
        if answers != [404, 400]:
            raise InvalidInput(
                "folder",
                f"the engine at {self.engine.host} does not see {self.folder}: it runs on another machine, or in a"
                " container of its own",
                "give a folder that is under the same path for both",
            )

    # -- look

    def _look(self, name: str) -> tuple[Marks, Container | None]:
        """Return what the folder and the engine say at one moment."""
        folder = self._folder_of(name)
        while True:
            marks = read_marks(folder)
            container = self._inspect(self.container_name(name))
            if container is not None or not marks.started:
                return marks, container
            # Another starter may have replaced a container that was not started: then the mark of that try is gone.
            again = read_marks(folder)
            if marks.started & again.started:
                return again, None

    def _inspect(self, container: str) -> Container | None:
        facts = self._facts(container)
        return None if facts is None else _container(facts)

    def _facts(self, container: str) -> dict[str, Any] | None:
        """Return what the engine knows about one of our containers, by name or id. It waits for a start under way."""
        reply = self.engine.call("GET", f"/containers/{container}/json", allow=(404,))
        if reply.status == 404:
            return None
        facts: dict[str, Any] = reply.json()
        return facts if facts["Config"]["Labels"].get(SITE) == self._folder_id else None

    def _list(self) -> dict[str, Container]:
        """Return all containers of this folder by the names of their executions, with one request."""
        filters = json.dumps({"label": [f"{SITE}={self._folder_id}"]})
        found = {}
        for listed in self.engine.call("GET", "/containers/json", {"all": 1, "filters": filters}).json():
            labels, code = listed["Labels"], _EXITED.match(listed["Status"])
            status = listed["State"] if listed["State"] != "exited" or code else "dead"
            found[labels[EXECUTION]] = Container(
                listed["Id"], labels[TRY], status, _exit_code(int(code[1])) if code else 0, listed["Created"]
            )
        return found

    def _delete(self, container: Container, force: bool = False) -> bool:
        query = {"v": 1, "force": int(force)}
        reply = self.engine.call("DELETE", f"/containers/{container.id}", query, allow=(404, 409))
        return reply.status != 409

    def container_name(self, name: str) -> str:
        """Return the engine's name for the container of this execution."""
        return f"leasehold-{name}-{self._folder_id}"

    def _folder_of(self, name: str) -> Path:
        return execution_folder(self.folder, name)


def _judge(marks: Marks, container: Container | None) -> ExecutionState:
    if container is not None and container.status in _LIVE:
        return ExecutionState(Phase.RUNNING)
    if container is not None and container.status == "exited":
        return ExecutionState(Phase.EXITED, container.code)
    if marks.has_tombstone:
        return ExecutionState(Phase.TOMBSTONE)
    if container is None or container.status in _GOING:
        if not marks.exists:
            return ExecutionState(Phase.ABSENT)
        if marks.started:
            return ExecutionState(Phase.VANISHED)
    return ExecutionState(Phase.TOMBSTONE if marks.is_stopped else Phase.CREATED)


def _container(facts: dict[str, Any]) -> Container:
    state, labels = facts["State"], facts["Config"]["Labels"]
    return Container(facts["Id"], labels[TRY], state["Status"], _exit_code(state["ExitCode"]))


def _exit_code(code: int) -> int:
    """Convert the code: the engine reports a signal as a shell does, as 128 plus its number."""
    return 128 - code if 128 < code < 160 else code


def _reason(facts: dict[str, Any], code: int, *, stopped: bool) -> str | None:
    limit = facts["HostConfig"]["Memory"]
    if facts["State"]["OOMKilled"]:
        limit_text = f" than its limit of {size_text(limit)}" if limit else " than the machine has"
        return f"the kernel killed a process of the container: it used more memory{limit_text}"
    if code == -signal.SIGKILL and limit and not stopped:
        # An engine may never learn what the kernel did to a container that is already gone.
        return f"killed, perhaps by the kernel: it used more memory than its limit of {size_text(limit)}"
    return facts["State"]["Error"] or None


def _read_stop(folder: Path) -> dict[str, Any] | None:
    with contextlib.suppress(FileNotFoundError):
        found: dict[str, Any] = json.loads((folder / "stop").read_text())
        return found
    return None


# -- the fence ---------------------------------------------------------------------------------------------------------
# The fence is the folder that a container mounts: without that folder the engine refuses the start.
#
# The files of an execution, besides `token.N`, `tombstone` and `stop`, which mean the same as for the subprocess
# runner:
#
#     open.N.X      what a container made by a starter with token N mounts: its result, inputs and outputs. X is new for
#                   each try, so that closing it closes that try alone
#     closed.N.X    the same folder: its container can no longer be started. One that was started goes on, and writes
#                   here
#     started.N.X   written before that container is started. If the container is gone, this proves that it ran
#
# A starter makes its folder, *then* checks for newer tokens and tombstones, then makes its container; the engine lets
# only one container have the execution's name. Its starter closes all other tries, *then* starts it. A process that
# must prevent a start leaves a mark, a tombstone or a stop, *then* closes all tries. So of any two, one sees the other.

STARTED_MARK = ".started"


@frozen
class Marks:
    exists: bool
    is_stopped: bool
    has_tombstone: bool
    started: frozenset[str]
    """Tries (N.X) that may have started a container."""


def read_marks(folder: Path) -> Marks:
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return Marks(False, False, False, frozenset())
    started = frozenset(name[8:] for name in names if name.startswith("started."))
    return Marks(True, "stop" in names, "tombstone" in names, started)


def raise_fence(folder: Path, token: int) -> None:
    """Block all starters with an older token."""
    (folder / f"token.{token}").touch()


def close_all(folder: Path, but: str = "") -> None:
    """Prevent any further start. The reason for it already exists: a tombstone, a stop, or the container of a try."""
    for name in os.listdir(folder):
        if name.startswith("open.") and name != f"open.{but}":
            close(folder, name[5:])


def may_start(folder: Path, token: int) -> bool:
    """Return whether a start is allowed. Another try's mark blocks it too: its container may have run, and be gone."""
    marks = read_marks(folder)
    is_closed = marks.is_stopped or marks.has_tombstone or bool(marks.started)
    return not is_closed and highest_token(folder) <= token


def open_try(folder: Path, token: int) -> str:
    try_id = f"{token}.{secrets.token_hex(6)}"
    opened = folder / f"open.{try_id}"
    opened.mkdir()
    with contextlib.suppress(FileNotFoundError):  # already closed by another process: it will not pass
        (opened / STARTED_MARK).touch()
        opened.chmod(
            0o777
        )  # the container may have any user; the execution's folder above is closed to other users
    return try_id


def is_open(folder: Path, try_id: str) -> bool:
    return (folder / f"open.{try_id}").is_dir()


def close(folder: Path, try_id: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        (folder / f"open.{try_id}").rename(folder / f"closed.{try_id}")


def discard(folder: Path, try_id: str) -> None:
    """Remove a try whose container was not started, and never will be."""
    close(folder, try_id)
    (folder / f"started.{try_id}").unlink(missing_ok=True)
    shutil.rmtree(folder / f"closed.{try_id}", ignore_errors=True)


def mark_try_started(folder: Path, try_id: str) -> bool:
    """Mark the try as started. False: it was closed. The mark moves out of the folder, which closing renames."""
    try:
        (folder / f"open.{try_id}" / STARTED_MARK).rename(folder / f"started.{try_id}")
    except FileNotFoundError:
        return False
    sync_folder(folder)
    return True


def folder_of_try(folder: Path, try_id: str) -> Path | None:
    """Return the folder of a try, under its present name. None: it was discarded."""
    for state in ("open", "closed", "open"):  # again, because it may have been closed meanwhile
        if (found := folder / f"{state}.{try_id}").is_dir():
            return found
    return None


def token_of(try_id: str) -> int:
    return int(try_id.partition(".")[0])

"""The spec of a container, an allow-list, and the files in the folder that it mounts.

A setting that is not a field here cannot be requested.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path, PurePosixPath
from typing import Any

from leasehold.domain.checks.numbers import Size, size
from leasehold.domain.errors import InvalidInput
from leasehold.domain.frozen import frozen
from leasehold.runners.execution_folder import (
    INPUTS_VARIABLE,
    OUTPUTS_VARIABLE,
    RESULT_LIMIT,
    RESULT_VARIABLE,
    check_result,
)

HOME = "/leasehold"
"""Where a container finds its inputs and leaves its result and outputs."""
OUR_LABELS = "leasehold."
LEAST_MEMORY = 6 * 1024 * 1024
"""The smallest limit that the engine accepts."""
LOG_FILES = 4
"""The engine drops the oldest file: three quarters of `output_limit` are always kept."""

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(:[A-Za-z0-9_][A-Za-z0-9_.-]*)?")


@frozen
class Mount:
    """A folder or file of the host; it must be below a folder that the runner allows (`mounts_allowed`)."""

    source: Path
    """The path on the host."""
    target: str
    """The path in the container."""
    read_only: bool = True
    """Whether the container may only read it."""


@frozen(kw_only=True)
class ContainerSpec:
    """What to run in a container. There is no shell: `argv` goes to the image's entry point, or to `entrypoint`.

    The container finds its inputs in the folder $LEASEHOLD_INPUTS, and may leave its result in the file
    $LEASEHOLD_RESULT and files in the folder $LEASEHOLD_OUTPUTS.
    """

    image: str
    """The image, as `name:tag`."""
    argv: Sequence[str] = ()
    """The arguments. Empty: the image's command."""
    entrypoint: Sequence[str] | None = None
    """The program. None: the image's entry point."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables that the container gets. Anyone with access to the engine can read them, even afterwards."""
    pass_env: Sequence[str] = ()
    """Names of the worker's own variables that the container gets too."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of the container."""
    memory: Size | None = None
    """The memory limit in bytes, or as text such as "512MB". There is no swap beside it."""
    cpus: float | None = None
    """How many CPUs it may use."""
    pids: int | None = None
    """How many processes and threads it may have."""
    network: str = "none"
    """A network that the runner allows (`networks_allowed`); by default those are "none" and "bridge"."""
    read_only: bool = False
    """Whether the image's files are read-only. /tmp is then in memory, and /leasehold can be written to."""
    user: str | None = None
    """"user", "1000" or "1000:1000". None: the image's user. Only root can delete what root writes: a worker that is
    not root gives its own number here."""
    cwd: str | None = None
    """The working directory. None: the image's."""
    init: bool = True
    """Whether a small init process passes signals on. Without it, a program that does not handle SIGTERM never sees it
    and is killed when its grace is over. False for images that have an init."""
    inputs: Mapping[str, str | bytes | Path] = field(default_factory=dict)
    """Input files by name: their text, their bytes, or a path to copy from."""
    outputs: Sequence[str] = ()
    """Names of files that are collected if they exist."""
    mounts: Sequence[Mount] = ()
    """Folders and files of the host."""
    output_limit: int = 8 * 1024 * 1024
    """Bytes of the engine's log of stdout and stderr that are kept, with about 70 bytes for each line. The
    oldest are dropped, never the newest."""

    def __post_init__(self) -> None:
        if not self.image or any(letter.isspace() for letter in self.image):
            raise InvalidInput("image", f"{self.image!r:.80} cannot name an image", 'write "name:tag"')
        self._check_texts()
        self._check_names()
        self._check_limits()
        self._check_user_and_paths()

    def _check_texts(self) -> None:
        for name in ("argv", "entrypoint", "pass_env", "outputs"):
            if isinstance(getattr(self, name), str):
                raise InvalidInput(name, "is text, not a list", 'write ["one", "two"]')
        for text in (*self.argv, *(self.entrypoint or ()), *self.env.values(), *self.labels.values()):
            if "\0" in text:
                raise InvalidInput(
                    "argv, entrypoint, env, labels", f"{text!r:.80} has a NUL in it", "take it out"
                )

    def _check_names(self) -> None:
        for name in (*self.env, *self.pass_env):
            if _VARIABLE.fullmatch(name) is None:
                raise InvalidInput(
                    "env, pass_env", f"{name!r:.80} cannot name a variable", "use letters, digits and _"
                )
        for name in self.labels:
            if not name or name.startswith(OUR_LABELS):
                raise InvalidInput(
                    "labels", f"{name!r:.80} is ours", f"use one without {OUR_LABELS!r} before it"
                )
        for what, names in (("inputs", self.inputs), ("outputs", self.outputs)):
            for name in names:
                if _FILE.fullmatch(name) is None:
                    raise InvalidInput(
                        what,
                        f"{name!r:.80} cannot name a file",
                        "use letters, digits, '.', '_' and '-', no folders",
                    )

    def _check_user_and_paths(self) -> None:
        if self.user is not None and _USER.fullmatch(self.user) is None:
            raise InvalidInput(
                "user", f"{self.user!r:.80} is not a user", 'write "name", "1000" or "1000:1000"'
            )
        for path, what in ((self.cwd, "cwd"), *((mount.target, "mounts") for mount in self.mounts)):
            if path is not None and not PurePosixPath(path).is_absolute():
                raise InvalidInput(what, f"{path!r:.80} is not an absolute path", "begin it with a slash")
        for mount in self.mounts:
            if PurePosixPath(mount.target).is_relative_to(HOME) or ".." in PurePosixPath(mount.target).parts:
                raise InvalidInput(
                    "mounts", f"{mount.target!r} cannot be a target", f"leave {HOME} to us, without .."
                )

    def _check_limits(self) -> None:
        if self.memory is not None:
            size(self.memory, "memory", LEAST_MEMORY)
        if self.cpus is not None and not 0.01 <= self.cpus <= 10_000:
            raise InvalidInput("cpus", f"is {self.cpus}", "give 0.01 or more")
        if self.pids is not None and self.pids < 1:
            raise InvalidInput("pids", f"is {self.pids}", "give 1 or more")
        if self.output_limit < 1024:
            raise InvalidInput("output_limit", f"is {self.output_limit}", "give 1024 or more")


def container_spec(said: object, image: str | None) -> ContainerSpec:
    """Convert the return value of a task's function, for the image that its task names."""
    if isinstance(said, ContainerSpec):
        return said
    if not isinstance(said, Sequence) or isinstance(said, str) or not all(isinstance(x, str) for x in said):
        raise InvalidInput(
            "argv", f"{said!r:.80} is not a list of texts", 'return ["argument"], or a ContainerSpec'
        )
    if image is None:
        raise InvalidInput("image", "is not named", 'write @app.container(image="name:tag")')
    return ContainerSpec(image=image, argv=list(said))


@frozen
class Allowed:
    """The mounts and networks that a runner allows."""

    mounts: Collection[Path]
    networks: Collection[str]

    def check(self, spec: ContainerSpec) -> None:
        if spec.network not in self.networks:
            known = ", ".join(sorted(self.networks)) or "none of them"
            raise InvalidInput(
                "network",
                f"{spec.network!r} is not allowed here",
                f"use {known}, or add it to networks_allowed",
            )
        for mount in spec.mounts:
            source = Path(mount.source).resolve()
            if not any(source.is_relative_to(folder) for folder in self.mounts):
                raise InvalidInput(
                    "mounts",
                    f"{mount.source} is not below a folder that containers may see",
                    "add the folder to the runner's mounts_allowed, or give the file as an input",
                )


def engine_body(spec: ContainerSpec, labels: Mapping[str, str], home: Path) -> dict[str, Any]:
    """Build the engine's request. Every field is set here, so that no image and no default of the engine can change
    it."""
    passed = {name: os.environ[name] for name in spec.pass_env if name in os.environ}
    ours = {
        RESULT_VARIABLE: f"{HOME}/result",
        INPUTS_VARIABLE: f"{HOME}/inputs",
        OUTPUTS_VARIABLE: f"{HOME}/outputs",
    }
    memory = None if spec.memory is None else size(spec.memory, "memory")
    mounts = [_bind(home, HOME, read_only=False)]
    mounts += [_bind(Path(mount.source).resolve(), mount.target, mount.read_only) for mount in spec.mounts]
    host = {
        "Mounts": mounts,
        "NetworkMode": spec.network,
        "Privileged": False,
        "SecurityOpt": ["no-new-privileges:true"],
        "Init": spec.init,
        "ReadonlyRootfs": spec.read_only,
        "Tmpfs": {"/tmp": ""} if spec.read_only else {},
        "RestartPolicy": {"Name": "no"},
        "AutoRemove": False,
        "LogConfig": {
            "Type": "json-file",
            "Config": {"max-size": str(spec.output_limit // LOG_FILES), "max-file": str(LOG_FILES)},
        },
    }
    if memory is not None:
        host |= {"Memory": memory, "MemorySwap": memory}
    if spec.cpus is not None:
        host["NanoCpus"] = int(spec.cpus * 1_000_000_000)
    if spec.pids is not None:
        host["PidsLimit"] = spec.pids
    body: dict[str, Any] = {
        "Image": spec.image,
        "Env": [f"{name}={value}" for name, value in (passed | dict(spec.env) | ours).items()],
        "Labels": dict(spec.labels) | dict(labels),
        "HostConfig": host,
        "Tty": False,
        "OpenStdin": False,
    }
    if spec.argv:
        body["Cmd"] = list(spec.argv)
    if spec.entrypoint is not None:
        body["Entrypoint"] = list(spec.entrypoint)
    if spec.user is not None:
        body["User"] = spec.user
    if spec.cwd is not None:
        body["WorkingDir"] = spec.cwd
    return body


def _bind(source: Path, target: str, read_only: bool) -> dict[str, Any]:
    """Never `Binds`: that creates a missing source, and the fence relies on a missing source."""
    return {"Type": "bind", "Source": str(source), "Target": target, "ReadOnly": read_only}


# -- input and output files --------------------------------------------------------------------------------------------
# The container can put anything there, also a link to a file of the host or a pipe that never ends: links are never
# followed, and only plain files are read.


def put_inputs(home: Path, inputs: Mapping[str, str | bytes | Path]) -> None:
    for name, mode in (("inputs", 0o755), ("outputs", 0o777)):
        (home / name).mkdir()
        (home / name).chmod(mode)
    for name, content in inputs.items():
        path = home / "inputs" / name
        if isinstance(content, Path):
            if not content.is_file():
                raise InvalidInput("inputs", f"{content} is not a file", "give the path of an existing file")
            shutil.copyfile(content, path)
        elif isinstance(content, str):
            path.write_text(content, encoding="utf-8")
        else:
            path.write_bytes(content)
        path.chmod(0o644)


def read_result(home: Path) -> str | None:
    with _opened(home, "result") as descriptor:
        if descriptor is None:
            return None
        with os.fdopen(os.dup(descriptor), "rb") as file:
            return check_result(file.read(RESULT_LIMIT + 1))


def find_outputs(home: Path, names: Iterable[str]) -> dict[str, Path]:
    found = {}
    for name in names:
        with _opened(home, "outputs", name) as descriptor:
            if descriptor is not None:
                found[name] = home / "outputs" / name
    return found


@contextlib.contextmanager
def _opened(home: Path, *parts: str) -> Iterator[int | None]:
    """Open a plain file below this folder, or yield None if there is none."""
    opened: list[int] = []
    try:
        try:
            opened.append(os.open(home, os.O_RDONLY | os.O_DIRECTORY))
            for part in parts[:-1]:
                flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
                opened.append(os.open(part, flags, dir_fd=opened[-1]))
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
            opened.append(os.open(parts[-1], flags, dir_fd=opened[-1]))
            is_plain = stat.S_ISREG(os.fstat(opened[-1]).st_mode)
        except FileNotFoundError:
            yield None
            return
        except PermissionError as error:
            raise InvalidInput(
                "/".join(parts),
                "cannot be read by the worker",
                "give the container the worker's user, or let it make the file readable",
            ) from error
        except OSError:  # a link, a socket, a file where a folder should be
            is_plain = False
        if not is_plain:
            raise InvalidInput("/".join(parts), "is not a plain file", "write a file, not a link or a pipe")
        yield opened[-1]
    finally:
        for descriptor in opened:
            os.close(descriptor)

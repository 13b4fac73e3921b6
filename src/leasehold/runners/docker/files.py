"""Input and output files in the folder that a container mounts.

The container can put anything there, also a link to a file of the host or a pipe that never ends: links are never
followed, and only plain files are read.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from leasehold.domain.errors import InvalidInput
from leasehold.runners.run_folder import RESULT_LIMIT, check_result


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

"""The processes that have a SQLite file open: each may hold a lock that others wait for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

MOST = 5
LONGEST = 80
"""Characters of a command."""


def processes_that_opened(path: str) -> str:
    """In words. Linux shows it, for processes of the same user; elsewhere the text says how to find out."""
    if not Path("/proc/self/fd").exists():
        return f"to see which processes have it open: lsof {path}"
    found = sorted(_holders({path, f"{path}-wal", f"{path}-shm"}))
    if not found:
        return f"no process of this user has it open; as another user: sudo lsof {path}"
    named = ", ".join(_named(pid) for pid in found[:MOST])
    more = f" and {len(found) - MOST} more" if len(found) > MOST else ""
    return f"it is open in process {named}{more}; one of them may hold a transaction open"


def _holders(paths: set[str]) -> Iterator[int]:
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or it is another user's
            if any(_leads_to(fd, paths) for fd in (process / "fd").iterdir()):
                yield int(process.name)


def _leads_to(fd: Path, paths: set[str]) -> bool:
    with suppress(OSError):
        return os.readlink(fd) in paths
    return False


def _named(pid: int) -> str:
    if pid == os.getpid():
        return f"{pid} (this one)"
    with suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        command = " ".join(filter(None, words))
        return f"{pid} ({command[:LONGEST]})"
    return str(pid)

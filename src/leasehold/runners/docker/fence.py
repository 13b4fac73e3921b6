"""Decides who may start a container. The fence is the folder that it mounts: without it the engine refuses the start.

The files of an execution, besides `token.N`, `tombstone` and `stop`, which mean the same as for the subprocess runner:

    open.N.X      what a container made by a starter with token N mounts: its result, inputs and outputs. X is new for
                  each try, so that closing it closes that try alone
    closed.N.X    the same folder: its container can no longer be started. One that was started goes on, and writes here
    started.N.X   written before that container is started. If the container is gone, this proves that it ran

A starter makes its folder, *then* checks for newer tokens and tombstones, then makes its container; the engine lets
only one container have the execution's name. Its starter closes all other tries, *then* starts it. A process that must
prevent a start leaves a mark, a tombstone or a stop, *then* closes all tries. So of any two, one sees the other.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from pathlib import Path

from leasehold.domain.frozen import frozen
from leasehold.runners.run_folder import highest_token, sync_folder

MARK = ".started"


@frozen
class Marks:
    exists: bool
    is_stopped: bool
    is_buried: bool
    started: frozenset[str]
    """Tries (N.X) that may have started a container."""


def read_marks(run: Path) -> Marks:
    try:
        names = os.listdir(run)
    except FileNotFoundError:
        return Marks(False, False, False, frozenset())
    started = frozenset(name[8:] for name in names if name.startswith("started."))
    return Marks(True, "stop" in names, "tombstone" in names, started)


def raise_to(run: Path, token: int) -> None:
    """Block all starters with an older token."""
    (run / f"token.{token}").touch()


def close_all(run: Path, but: str = "") -> None:
    """Prevent any further start. The reason for it already exists: a tombstone, a stop, or the container of a try."""
    for name in os.listdir(run):
        if name.startswith("open.") and name != f"open.{but}":
            close(run, name[5:])


def lets_pass(run: Path, token: int) -> bool:
    """Return whether a start is allowed. Another try's mark blocks it too: its container may have run, and be gone."""
    marks = read_marks(run)
    is_closed = marks.is_stopped or marks.is_buried or bool(marks.started)
    return not is_closed and highest_token(run) <= token


def open_try(run: Path, token: int) -> str:
    entry = f"{token}.{secrets.token_hex(6)}"
    folder = run / f"open.{entry}"
    folder.mkdir()
    with contextlib.suppress(FileNotFoundError):  # already closed by another process: it will not pass
        (folder / MARK).touch()
        folder.chmod(0o777)  # the container may have any user; the folder above is closed to others
    return entry


def is_open(run: Path, entry: str) -> bool:
    return (run / f"open.{entry}").is_dir()


def close(run: Path, entry: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        (run / f"open.{entry}").rename(run / f"closed.{entry}")


def discard(run: Path, entry: str) -> None:
    """Remove a try whose container was not started, and never will be."""
    close(run, entry)
    (run / f"started.{entry}").unlink(missing_ok=True)
    shutil.rmtree(run / f"closed.{entry}", ignore_errors=True)


def mark_started(run: Path, entry: str) -> bool:
    """Mark the try as started. False: it was closed. The mark moves out of the folder, which closing renames."""
    try:
        (run / f"open.{entry}" / MARK).rename(run / f"started.{entry}")
    except FileNotFoundError:
        return False
    sync_folder(run)
    return True


def mounted(run: Path, entry: str) -> Path | None:
    """Return where the folder of a try is now."""
    for state in ("open", "closed", "open"):  # again, because it may have been closed meanwhile
        if (folder := run / f"{state}.{entry}").is_dir():
            return folder
    return None


def token_of(entry: str) -> int:
    return int(entry.partition(".")[0])

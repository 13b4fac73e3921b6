"""Who may start a container. The fence is the folder that it mounts: the engine refuses to start one whose is gone.

The files of a run, beside `token.N`, `tombstone` and `stop`, which mean the same as for the subprocess runner:

    open.N.X      what a container made by a starter with token N mounts: its result, inputs and outputs. X is new for
                  each try, so that whoever closes it closes that try alone
    closed.N.X    the same folder: its container can no longer be started. If it was, it goes on, and writes here
    started.N.X   written before that container is started. If it is gone, this is what says that it has run

A starter makes its folder, *then* looks for newer tokens and tombstones, then makes its container, of which the engine
lets only one have the name of the run. Who has it closes all other tries, *then* starts it. Who may not let anything
start leaves a mark, a tombstone or a stop, *then* closes all tries. So of any two one sees the other.
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
    """Tries that may have started a container: N.X."""


def read_marks(run: Path) -> Marks:
    try:
        names = os.listdir(run)
    except FileNotFoundError:
        return Marks(False, False, False, frozenset())
    started = frozenset(name[8:] for name in names if name.startswith("started."))
    return Marks(True, "stop" in names, "tombstone" in names, started)


def raise_to(run: Path, token: int) -> None:
    """Whoever comes with an older token from now on does not pass."""
    (run / f"token.{token}").touch()


def close_all(run: Path, but: str = "") -> None:
    """Nothing starts from now on. What says so is there already: a tombstone, a stop, or the container of a try."""
    for entry in _open(run):
        if entry != but:
            close(run, entry)


def lets_pass(run: Path, token: int) -> bool:
    """Also not past the mark of another try: its container may have run, and be gone by now."""
    marks = read_marks(run)
    is_closed = marks.is_stopped or marks.is_buried or bool(marks.started)
    return not is_closed and highest_token(run) <= token


def open_try(run: Path, token: int) -> str:
    entry = f"{token}.{secrets.token_hex(6)}"
    folder = run / f"open.{entry}"
    folder.mkdir()
    with contextlib.suppress(FileNotFoundError):  # closed by another already: it will not pass
        (folder / MARK).touch()
        folder.chmod(0o777)  # the container's user may be anybody; the run's folder is closed to others
    return entry


def is_open(run: Path, entry: str) -> bool:
    return (run / f"open.{entry}").is_dir()


def close(run: Path, entry: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        (run / f"open.{entry}").rename(run / f"closed.{entry}")


def discard(run: Path, entry: str) -> None:
    """A try whose container was not started, and never will be."""
    close(run, entry)
    (run / f"started.{entry}").unlink(missing_ok=True)
    shutil.rmtree(run / f"closed.{entry}", ignore_errors=True)


def mark_started(run: Path, entry: str) -> bool:
    """False: the try was closed. The mark is moved out of its folder, which cannot be found under this name then."""
    try:
        (run / f"open.{entry}" / MARK).rename(run / f"started.{entry}")
    except FileNotFoundError:
        return False
    sync_folder(run)
    return True


def mounted(run: Path, entry: str) -> Path | None:
    """Where the folder of a try is by now."""
    for state in ("open", "closed", "open"):  # again, for it may have been closed meanwhile
        if (folder := run / f"{state}.{entry}").is_dir():
            return folder
    return None


def token_of(entry: str) -> int:
    return int(entry.partition(".")[0])


def _open(run: Path) -> list[str]:
    return [name[5:] for name in os.listdir(run) if name.startswith("open.")]

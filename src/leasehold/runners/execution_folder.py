"""The folder of a site's executions, with a subfolder for each: functions that all runners share."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import time
from pathlib import Path

from leasehold.domain.errors import InvalidInput

RESULT_LIMIT = 16 * 1024 * 1024
"""Most bytes of a result. A longer one is refused: it would go into a row."""

RESULT_VARIABLE = "LEASEHOLD_RESULT"
"""The file that a command or container may write its result to, as JSON."""
INPUTS_VARIABLE = "LEASEHOLD_INPUTS"
"""The folder with the input files of a container."""
OUTPUTS_VARIABLE = "LEASEHOLD_OUTPUTS"
"""The folder that a container leaves its output files in."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


def open_site(folder: Path) -> tuple[Path, str]:
    """Return the folder, created if needed, and its id, which is the same for all processes that see the folder."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = folder.resolve()
    _identify(folder, secrets.token_hex(8))
    return folder, (folder / ".site").read_text()


def _identify(folder: Path, site_id: str) -> None:
    path = folder / ".site"
    if not path.exists():
        # Complete it under another name first: another worker may create it at the same time.
        made = folder / f".site.{secrets.token_hex(8)}"
        made.write_text(site_id)
        with contextlib.suppress(FileExistsError):
            os.link(made, path)
        made.unlink()


def make_execution_folder(folder: Path, site_id: str, name: str) -> Path:
    """Return the folder of the execution, created if needed. A site's folder that was deleted is made again: its
    executions may still run, and find their way back."""
    made = execution_folder(folder, name)
    try:
        made.mkdir(mode=0o700, exist_ok=True)
    except FileNotFoundError:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _identify(folder, site_id)
        made.mkdir(mode=0o700, exist_ok=True)
    return made


def execution_folder(folder: Path, name: str) -> Path:
    """Return the folder of the execution, whether it exists or not."""
    if _NAME.fullmatch(name) is None:
        raise InvalidInput(
            "name",
            f"{name!r:.80} cannot name an execution",
            "use up to 200 letters, digits, '.', '_' and '-'",
        )
    return folder / name


def highest_token(folder: Path) -> int:
    """Return the highest token. 0: the tokens were removed meanwhile, and there is a tombstone."""
    return max((int(name[6:]) for name in os.listdir(folder) if name.startswith("token.")), default=0)


def delete_all_but_the_tombstone(folder: Path, first: str = "") -> None:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name != first):
        if entry.name == "tombstone":
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)


def names_in(folder: Path) -> list[str]:
    """Return the executions that have left more than a tombstone."""
    found = []
    for one in folder.iterdir():
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # another worker sweeps too
            if _NAME.fullmatch(one.name) and set(os.listdir(one)) - {"tombstone"}:
                found.append(one.name)
    return sorted(found)


def sweep_tombstones(folder: Path, age: float, keep_if: tuple[str, ...]) -> int:
    """Free the names whose tombstone is older than this, and return how many. Keep those with a file whose name begins
    with one of `keep_if`."""
    freed = 0
    for one in folder.iterdir():
        if one.name.startswith(".gone."):
            shutil.rmtree(one, ignore_errors=True)
        elif _NAME.fullmatch(one.name):
            with contextlib.suppress(FileNotFoundError):  # no tombstone, or another worker sweeps too
                is_old = (one / "tombstone").stat().st_mtime < time.time() - age
                if is_old and not any(entry.startswith(keep_if) for entry in os.listdir(one)):
                    gone = one.rename(folder / f".gone.{secrets.token_hex(8)}")
                    shutil.rmtree(gone, ignore_errors=True)
                    freed += 1
    return freed


def check_result(content: bytes) -> str:
    """Return the text of a result. Pass at most RESULT_LIMIT + 1 bytes of it."""
    if len(content) > RESULT_LIMIT:
        raise InvalidInput(
            "result", f"is longer than {RESULT_LIMIT} bytes", "keep it elsewhere and give its address"
        )
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidInput("result", f"is not UTF-8 ({error.reason})", "write text") from error


def write_durably(path: Path, content: object) -> None:
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with unfinished.open("x") as file:
            json.dump(content, file)
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

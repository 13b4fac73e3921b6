"""Results as files: one folder of one store. A name is made of the job's id and the lease's token and of nothing else,
so that no two runs ever write the same file, and no path comes from outside."""

from __future__ import annotations

import json
import os
import re
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

from leasehold.domain.errors import InvalidInput, ResultMissing

PARTS = 256
"""Subfolders, by the last two digits of the id: its first ones are a time."""

_ID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_NAME = re.compile(rf"(?P<id>{_ID})\.(?P<token>[1-9][0-9]{{0,18}})(?:\.[1-9][0-9]{{0,5}})?\.json")
_UNFINISHED = re.compile(rf"\.{_ID}\.[0-9a-f]+\.tmp")


class ResultFiles:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, job_id: str, token: int, text: str) -> str:
        """The name of the file, when it is surely on the disk. Only the holder of the lease writes under its token; a
        second result of the same run gets a name of its own, for the first may have been settled without its hearing
        of it."""
        name, number = f"{job_id}.{token}.json", 1
        path = self._path(name)
        if not path.parent.is_dir():
            path.parent.mkdir(parents=True, exist_ok=True)
            _sync_folder(path.parent.parent)
        while path.exists():
            number += 1
            name = f"{job_id}.{token}.{number}.json"
            path = path.with_name(name)
        unfinished = path.with_name(f".{job_id}.{secrets.token_hex(8)}.tmp")
        try:
            with unfinished.open("xb") as file:
                file.write(text.encode())
                file.flush()
                os.fsync(file.fileno())
            unfinished.rename(path)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
        _sync_folder(path.parent)
        return name

    def read(self, job_id: str, name: str) -> str:
        """Encoded JSON. Raises ResultMissing."""
        found = _NAME.fullmatch(name)
        if found is None or found["id"] != job_id:
            raise ResultMissing(job_id, name[:200], "is not the name of a file of this job", "")
        path = self._path(name)
        try:
            if not path.resolve().is_relative_to(self.folder.resolve()):
                raise ResultMissing(
                    job_id, str(path), "leads out of the folder for results", "remove the link"
                )
            text = path.read_bytes().decode()
            json.loads(text)
        except FileNotFoundError:
            remedy = "bring the file back, or set LEASEHOLD_RESULTS to the folder that the workers use"
            raise ResultMissing(job_id, str(path), "is not there", remedy) from None
        except OSError as error:
            remedy = "let this process read the folder"
            raise ResultMissing(job_id, str(path), f"cannot be read ({error.strerror})", remedy) from error
        except ValueError as error:
            raise ResultMissing(
                job_id, str(path), f"is damaged ({error})", "bring it back from a backup"
            ) from error
        return text

    def remove(self, name: str) -> bool:
        """What is gone already, or was never ours, is passed over."""
        if _NAME.fullmatch(name) is None:
            return False
        try:
            self._path(name).unlink()
        except FileNotFoundError:
            return False
        return True

    def old(self, part: int, age: float) -> list[tuple[str, str, int]]:
        """The files of one part that were written longer ago than this: name, job and token. What a run has begun to
        write and never finished is removed on the way."""
        found = []
        before = time.time() - age
        for name, written_at in _listed(self.folder / f"{part:02x}"):
            if written_at >= before:
                continue
            if (ours := _NAME.fullmatch(name)) is not None:
                found.append((name, ours["id"], int(ours["token"])))
            elif _UNFINISHED.fullmatch(name) is not None:
                (self.folder / f"{part:02x}" / name).unlink(missing_ok=True)
        return found

    def _path(self, name: str) -> Path:
        job_id = name[:36]
        return self.folder / job_id[-2:] / name


def check_folder(root: str) -> None:
    """Make the folder if it is missing. Raises InvalidInput if it cannot be written to."""
    try:
        Path(root).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(
            "results", f"the folder {root} cannot be made ({error.strerror})", "name another"
        ) from error
    if not os.access(root, os.W_OK | os.X_OK):
        raise InvalidInput("results", f"the folder {root} cannot be written to", "change its rights")


def _listed(folder: Path) -> Iterator[tuple[str, float]]:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                try:
                    yield entry.name, entry.stat(follow_symlinks=False).st_mtime
                except FileNotFoundError:  # another process has just removed it
                    continue
    except FileNotFoundError:
        return


def _sync_folder(folder: Path) -> None:
    """A name is on the disk once its folder is."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

"""Results outside of their rows, written before their attempt is settled: as files, removed after their row is
deleted; or in the database, in pieces, deleted with it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from leasehold.domain.checks.payload import fits_database
from leasehold.domain.errors import (
    NO_RESULTS_FOLDER,
    InvalidInput,
    LeaseLost,
    ResultMissing,
    ResultsUnwritable,
)
from leasehold.stores.verbs.writing import BATCH, Verbs

# -- the folder of one store -------------------------------------------------------------------------------------------
# A file's name is made only of the job's id, the lease's token and a number, so no two attempts ever write
# the same file, and no path comes from outside.

PARTS = 256
"""Subfolders, by the last two digits of the id: its first digits are a time."""

_ID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_NAME = re.compile(rf"(?P<id>{_ID})\.(?P<token>[1-9][0-9]{{0,18}})(?:\.[1-9][0-9]{{0,5}})?\.json")
_UNFINISHED = re.compile(rf"\.{_ID}\.[0-9a-f]+\.tmp")


class ResultFiles:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, job_id: str, token: int, text: str) -> str:
        """Write a file; returns its name once it is safely on disk. Only the lease's holder writes under its token; a
        second result of the attempt gets its own name: the first may be settled although the reply was lost."""
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
        """Read a result as encoded JSON. Raises ResultMissing."""
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
        """Delete a file. False: it is gone already, or the name is not one of ours."""
        if _NAME.fullmatch(name) is None:
            return False
        try:
            self._path(name).unlink()
        except FileNotFoundError:
            return False
        return True

    def old(self, part: int, age: float) -> list[tuple[str, str, int]]:
        """The files of one part that are older than `age` seconds: name, job and token. Unfinished files of
        that age are removed on the way."""
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
    """Sync a folder: a new name in it is on disk only after that."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# -- results -----------------------------------------------------------------------------------------------------------

STRAY_AFTER = 86_400.0


PIECE = 256 * 1024
"""Most characters of a piece: at most 1 MiB. Each is a transaction, so that other writes come in between."""
SWEPT_AT_ONCE = 20

_IN_DATABASE = re.compile(r"database:(?P<token>[1-9][0-9]{0,18})\.(?P<number>[1-9][0-9]{0,8})")


class ResultVerbs(Verbs):
    """Results that are too large for their rows. They go to the folder that is given when the store is opened. Without
    one they go to the database, in pieces; what is too large for that, or is to be a file, goes to a folder beside the
    file on SQLite, and is refused on PostgreSQL."""

    _results_root: str | None = None
    """The absolute path of the folder. Set by the dialect."""
    _results_named = False
    """Whether the folder was configured; else it is the one beside the SQLite file."""
    _result_files: ResultFiles | None = None

    @property
    def results_folder(self) -> str | None:
        """The folder. None: there is none, and a result must fit the database."""
        return self._results_root

    def check_results(self, needed: bool) -> None:
        """Raises InvalidInput, with the remedy, if a folder is needed and missing, or if the given folder is not
        writable."""
        if self._results_root is None:
            if needed:
                raise InvalidInput(
                    "result", "'file' needs a folder, and none is configured", NO_RESULTS_FOLDER
                )
        elif needed or self._results_named:
            check_folder(self._results_root)

    def file_result(self, job_id: str, token: int, text: str, as_file: bool = False) -> str:
        """Write a result (encoded JSON) outside of its row; the result of the call is its name, to be settled with the
        success. When the call returns it is complete and on disk, and no other lease can write it; a result that is
        never settled does no harm, and is swept. `as_file`: however small it is. Raises ResultsUnwritable if the
        folder does not take it, and LeaseLost."""
        if not as_file and not self._results_named and fits_database(text):
            return self.keep_result(job_id, token, text)
        files = self._files()
        if files is None:
            raise InvalidInput("result", "no folder for results is configured", NO_RESULTS_FOLDER)
        try:
            return files.write(job_id, token, text)
        except OSError as error:
            raise ResultsUnwritable(self._results_root or "", error.strerror or str(error)) from error

    def keep_result(self, job_id: str, token: int, text: str) -> str:
        """`file_result`, into the database whatever the settings are. For at most 16 MiB."""
        lease = {"id": job_id, "token": token}
        last = self._tuples("find_last_piece", **lease)
        if not last:
            raise LeaseLost(job_id, token)
        number = last[0][0] + 1
        for piece, start in enumerate(range(0, len(text), PIECE)):
            row = {**lease, "number": number, "piece": piece, "text": text[start : start + PIECE]}
            if not self._database.single(
                lambda session, row=row: session.tuples("insert_piece", **row),  # type: ignore[misc] # mypy cannot infer a lambda with a default
                idempotent=True,
            ):
                raise LeaseLost(job_id, token)
        return f"database:{token}.{number}"

    def read_result(self, job_id: str, reference: str) -> str:
        """The text that `file_result` wrote. Raises ResultMissing."""
        if (found := _IN_DATABASE.fullmatch(reference)) is not None:
            token, number = int(found["token"]), int(found["number"])
            pieces = self._tuples("read_pieces", id=job_id, token=token, number=number)
            if not pieces:
                raise ResultMissing(job_id, reference, "is not there", "")
            return "".join(piece[0] for piece in pieces)
        files = self._files()
        if files is None:
            problem = "is in a folder that is not configured here"
            raise ResultMissing(job_id, reference, problem, NO_RESULTS_FOLDER)
        return files.read(job_id, reference)

    def sweep_results(self, age: float = STRAY_AFTER, part: int | None = None) -> int:
        """Delete files older than `age` seconds that no outcome names and no running attempt may still settle: those of
        attempts that lost their lease or died, and of deleted jobs. `part` is one of 256 parts; None covers all. The
        result is the number of files and pieces. Pieces are swept with part 0, and however old they are: no other
        attempt gets their token."""
        removed = 0 if part is not None and part % PARTS else self._sweep_pieces()
        files = self._files()
        if files is None:
            return removed
        for one in range(PARTS) if part is None else [part % PARTS]:
            old = files.old(one, age)
            for start in range(0, len(old), BATCH):
                removed += self._sweep(files, old[start : start + BATCH])
        return removed

    def _sweep_pieces(self) -> int:
        removed = 0
        while True:
            swept = self._database.single(lambda session: session.tuples("sweep_pieces", limit=SWEPT_AT_ONCE))
            removed += len(swept)
            if len(swept) < SWEPT_AT_ONCE:
                return removed

    def _sweep(self, files: ResultFiles, old: list[tuple[str, str, int]]) -> int:
        """Delete files that neither an outcome names nor an attempt with its lease may still settle. One
        snapshot reads both: an attempt that is settled in between is seen in one of the two places."""
        ids = sorted({job_id for _, job_id, _ in old})
        rows = self._rows("find_filed", ids=ids)
        needed = {row["id"]: (row["result_ref"], row["token"]) for row in rows}
        stray = [name for name, job_id, token in old if not _is_needed(name, token, needed.get(job_id))]
        return sum(files.remove(name) for name in stray)

    def _remove_results(self, names: Sequence[str]) -> None:
        """Delete files after the commit that has deleted their rows. Files that a crash leaves are swept later."""
        files = self._files() if names else None
        if files is not None:
            for name in names:
                with contextlib.suppress(OSError):
                    files.remove(name)

    def _forget_result_files(self) -> None:
        """Forget the folder: the store has another database file now, and so another folder."""
        self._result_files = None

    def _files(self) -> ResultFiles | None:
        """This store's own folder in the configured one, which another store may share: files whose jobs are
        not found in this store would be taken for strays."""
        if self._result_files is None and self._results_root is not None:
            born = self._tuples("store_birth")[0][0]
            own = hashlib.sha256(str(born).encode()).hexdigest()[:12]
            self._result_files = ResultFiles(Path(self._results_root) / own)
        return self._result_files


def _is_needed(name: str, token: int, found: tuple[str | None, int | None] | None) -> bool:
    return found is not None and (found[0] == name or found[1] == token)

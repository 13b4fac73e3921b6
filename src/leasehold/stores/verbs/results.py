"""Results that are kept as files beside the rows: written before their run is settled, removed after their row is."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from leasehold.domain.errors import NO_RESULTS_FOLDER, InvalidInput, ResultMissing
from leasehold.stores.database.result_files import PARTS, ResultFiles, check_folder
from leasehold.stores.verbs.writing import BATCH, Verbs

STRAY_AFTER = 86_400.0


class ResultVerbs(Verbs):
    """Results kept as files, in a folder that is given when the store is opened; without one, SQLite keeps them beside
    its file."""

    _results_root: str | None = None
    """Absolute. Set by the dialect."""
    _results_named = False
    """The folder was configured; else it is the one beside the SQLite file."""
    _result_files: ResultFiles | None = None

    @property
    def results_folder(self) -> str | None:
        """The folder. None: there is none, and a result must fit its row."""
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

    def file_result(self, job_id: str, token: int, text: str) -> str:
        """Write a result (encoded JSON) to a file of this lease; the result is its name, to be settled with the
        success. When the call returns the file is complete and on disk, and no other lease can write it."""
        files = self._files()
        if files is None:
            raise InvalidInput("result", "no folder for results is configured", NO_RESULTS_FOLDER)
        return files.write(job_id, token, text)

    def read_result(self, job_id: str, reference: str) -> str:
        """The text that `file_result` wrote. Raises ResultMissing."""
        files = self._files()
        if files is None:
            problem = "is in a folder that is not configured here"
            raise ResultMissing(job_id, reference, problem, NO_RESULTS_FOLDER)
        return files.read(job_id, reference)

    def sweep_results(self, age: float = STRAY_AFTER, part: int | None = None) -> int:
        """Delete files older than `age` seconds that no outcome names and no running attempt may still settle: those of
        attempts that lost their lease or died, and of deleted jobs. `part` is one of 256 parts; None covers all. The
        result is the number of files."""
        files = self._files()
        if files is None:
            return 0
        removed = 0
        for one in range(PARTS) if part is None else [part % PARTS]:
            old = files.old(one, age)
            for start in range(0, len(old), BATCH):
                removed += self._sweep(files, old[start : start + BATCH])
        return removed

    def _sweep(self, files: ResultFiles, old: list[tuple[str, str, int]]) -> int:
        """A file is needed by the outcome that names it, and by a run that holds its lease still and may yet settle.
        Both are read in one snapshot: a run that is settled in between is seen in one of the two places."""
        ids = sorted({job_id for _, job_id, _ in old})
        rows = self._rows("find_filed", ids=ids)
        needed = {row["id"]: (row["result_ref"], row["token"]) for row in rows}
        stray = [name for name, job_id, token in old if not _is_needed(name, token, needed.get(job_id))]
        return sum(files.remove(name) for name in stray)

    def _remove_results(self, names: Sequence[str]) -> None:
        """After the commit that has deleted their rows. What is missed by a crash in between is swept later."""
        files = self._files() if names else None
        if files is not None:
            for name in names:
                files.remove(name)

    def _forget_result_files(self) -> None:
        """The file behind the store is another one now, and so is its folder."""
        self._result_files = None

    def _files(self) -> ResultFiles | None:
        """A store has a folder of its own in the one that is configured: another store may share that, and a file whose
        job is not found here would be taken for a stray."""
        if self._result_files is None and self._results_root is not None:
            born = self._tuples("store_birth")[0][0]
            own = hashlib.sha256(str(born).encode()).hexdigest()[:12]
            self._result_files = ResultFiles(Path(self._results_root) / own)
        return self._result_files


def _is_needed(name: str, token: int, found: tuple[str | None, int | None] | None) -> bool:
    return found is not None and (found[0] == name or found[1] == token)

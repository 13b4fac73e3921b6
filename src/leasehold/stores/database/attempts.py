"""The records of a job's attempts: rows say when and by which worker, the history how failed ones ended."""

from __future__ import annotations

from collections.abc import Sequence

from leasehold.domain.records import AttemptRecord
from leasehold.stores.database.database import Row

_WENT_WRONG = frozenset({"failed", "timed_out", "lost", "crashed", "abandoned", "breached", "snoozed"})
_ENDS = _WENT_WRONG | {"asked", "stopped", "handed_back", "detached"}
"""Events of the history that end a run."""


def records_of(runs: Sequence[Row], history: Sequence[Row]) -> list[AttemptRecord]:
    """By lease, oldest first. What an operator made of the job afterwards is not about the run."""
    ends = {
        entry["token"]: entry
        for entry in history
        if entry["event"] in _ENDS and entry["from_state"] == "running"
    }
    return [_record(run, ends.get(run["token"])) for run in runs]


def _record(run: Row, end: Row | None) -> AttemptRecord:
    if end is None or run["outcome"] == "running":
        return AttemptRecord(
            run["number"], run["worker"], run["started_at"], run["ended_at"], run["outcome"], None
        )
    return AttemptRecord(
        number=run["number"],
        worker=run["worker"] if run["worker"] is not None else end["actor"],
        started_at=run["started_at"],
        ended_at=end["at"],
        outcome=end["event"],
        error=end["detail"] if end["event"] in _WENT_WRONG else None,
    )

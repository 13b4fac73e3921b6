"""Updates: what attempts emit while they run, fenced by their leases, numbered without gaps, written once.

Numbers are assigned while the job's anchor is locked, so a reader that has seen number n never finds a
smaller one later. A row of `stream` stores the job's last number, and the last note written with its lease: a
batch that is sent again after a lost reply is not written twice.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from leasehold.domain.errors import JobNotFound
from leasehold.domain.states import State
from leasehold.domain.stream import (
    LOG,
    LOG_CAP,
    PROGRESS,
    STALLED,
    LogTail,
    Note,
    Progress,
    RunNotes,
    Update,
    UpdatePage,
)
from leasehold.stores.database.database import Records, Row, Session
from leasehold.stores.results import Unwritten
from leasehold.stores.verbs.writing import Verbs

LAST_NUMBER = 2**63 - 1
"""The largest number that every store takes."""


class StreamVerbs(Verbs):
    """What attempts emit while they run: updates, progress, log lines."""

    def write_updates(self, runs: Sequence[RunNotes]) -> Unwritten:
        """Store what the holders of these leases emit, in their order: updates get the job's next numbers, a key that
        is stored already is skipped, progress replaces the previous progress, log lines go to the attempt's tail. A
        note that was written before, by its `number`, is not written again. The result names the lost leases and the
        leases whose rows are locked: the call does not wait for locked rows, and writes nothing for either."""
        # No lease has token 0.
        leased = sorted((run for run in runs if run.token > 0), key=lambda run: run.id)
        leases = Records([{"id": run.id, "token": run.token} for run in leased])

        def work(session: Session) -> set[tuple[str, int]]:
            rows = session.rows("lock_leases_skip_locked", leases=leases)
            workers = {(row["id"], row["token"]): row["worker"] for row in rows}
            held = [run for run in leased if (run.id, run.token) in workers]
            if held:
                _write(session, held, workers)
            return set(workers)

        accepted = self._database.transact(work) if leased else set()
        left = [(run.id, run.token) for run in runs if (run.id, run.token) not in accepted]
        locked = self._still_held(left)
        return Unwritten([lease for lease in left if lease not in locked], sorted(locked))

    def read_stream(self, job_id: str, since: int = 0, limit: int = 500) -> UpdatePage:
        """The job's state and its updates numbered above `since`, read at one moment. The result is final: no smaller
        number appears later. Raises JobNotFound."""
        number = min(max(since, 0), LAST_NUMBER)
        rows = self._rows("read_stream", id=job_id, since=number, limit=limit)
        if not rows:
            raise JobNotFound(job_id)
        updates = [update_of(row) for row in rows if row["seq"] is not None]
        return UpdatePage(State(rows[0]["state"]), rows[0]["attempt"], updates)

    def mark_jobs(self, ids: Sequence[str]) -> dict[str, str]:
        """A text for each job that exists, which changes as soon as the job's state changes, a stop is requested, or
        the job emits something. One read covers all of the jobs."""
        return dict(self._tuples("mark_jobs", ids=sorted(ids)))

    def progress(self, job_id: str) -> Progress | None:
        """The last progress that the job reported."""
        rows = self._rows("read_progress", id=job_id)
        if not rows:
            return None
        return progress_of(rows[0]["data"], rows[0]["at"])

    def logs(self, job_id: str) -> list[LogTail]:
        """The log tails, by attempt."""
        return [LogTail(**row) for row in self._rows("read_logs", id=job_id)]

    def log_mark(self, job_id: str, attempt: int) -> str | None:
        """How far the source of the attempt's log was read when its last lines were stored, as the writer put it
        (`Note.data`). None: the writer gave no mark."""
        rows = self._rows("read_log_mark", id=job_id, attempt=attempt)
        return rows[0]["read_to"] if rows else None


@dataclass(slots=True)
class _Lines:
    """The rows that one transaction writes."""

    updates: list[dict[str, Any]] = field(default_factory=list)
    logs: list[dict[str, Any]] = field(default_factory=list)
    streams: list[dict[str, Any]] = field(default_factory=list)
    history: list[dict[str, Any]] = field(default_factory=list)
    progressed: list[str] = field(default_factory=list)


def _write(session: Session, runs: Sequence[RunNotes], workers: dict[tuple[str, int], str | None]) -> None:
    # A statement of its own, after the lock: a statement that waits for the lock sees older rows.
    marks = {row["job_id"]: row for row in session.rows("read_streams", ids=[run.id for run in runs])}
    fresh = {run.id: _unwritten(run, marks.get(run.id)) for run in runs}
    keys = [
        {"job_id": run.id, "key": note.key} for run in runs for note in fresh[run.id] if note.key is not None
    ]
    taken = (
        {(row["job_id"], row["key"]) for row in session.rows("find_keys", keys=Records(keys))}
        if keys
        else set()
    )
    lines = _Lines()
    for run in runs:
        if fresh[run.id]:
            mark = marks.get(run.id)
            _add(
                lines,
                run,
                fresh[run.id],
                0 if mark is None else mark["last_seq"],
                taken,
                workers[run.id, run.token],
            )
    if lines.progressed:
        session.run("drop_progress", ids=lines.progressed)
    if lines.updates:
        session.run("insert_updates", updates=Records(lines.updates))
    if lines.logs:
        session.run("append_logs", logs=Records(lines.logs), cap=LOG_CAP)
    if lines.history:
        session.run("insert_history", entries=Records(lines.history))
    if lines.streams:
        session.run("write_streams", streams=Records(lines.streams))


def _unwritten(run: RunNotes, mark: Row | None) -> list[Note]:
    """The notes to write: an earlier try may have stored some although its reply was lost."""
    written = mark["last_note"] if mark is not None and mark["token"] == run.token else 0
    return [note for note in run.notes if note.number > written]


def _add(
    lines: _Lines,
    run: RunNotes,
    notes: Sequence[Note],
    last_seq: int,
    taken: set[tuple[str, str]],
    worker: str | None,
) -> None:
    newest = max((note.number for note in notes if note.kind == PROGRESS), default=None)
    if newest is not None:
        lines.progressed.append(run.id)
    seq = last_seq
    for note in notes:
        superseded = note.kind == PROGRESS and note.number != newest
        if note.kind == LOG or superseded or (note.key is not None and (run.id, note.key) in taken):
            continue
        if note.key is not None:
            taken.add((run.id, note.key))
        seq += 1
        update = {"seq": seq, "kind": note.kind, "data": note.data, "key": note.key}
        lines.updates.append({"job_id": run.id, "attempt": run.attempt, **update})
        if note.kind == STALLED:
            lines.history.append(_history(run, note, worker))
    if logged := [note for note in notes if note.kind == LOG]:
        lines.logs.append({"job_id": run.id, "attempt": run.attempt, **_log(logged)})
    last_note = max(note.number for note in notes)
    lines.streams.append({"job_id": run.id, "last_seq": seq, "token": run.token, "last_note": last_note})


def _log(notes: Sequence[Note]) -> dict[str, Any]:
    text, cut = "".join(note.text for note in notes), sum(note.cut for note in notes)
    read_to = next((note.data for note in reversed(notes) if note.data is not None), None)
    return {"text": text, "cut": cut, "read_to": read_to}


def _history(run: RunNotes, note: Note, worker: str | None) -> dict[str, Any]:
    running = State.RUNNING.value
    return {
        "job_id": run.id,
        "event": STALLED,
        "from_state": running,
        "to_state": running,
        "token": run.token,
        "attempt": run.attempt,
        "actor": worker,
        "detail": note.text,
    }


def progress_of(text: str, at: datetime) -> Progress:
    data: dict[str, Any] = json.loads(text)
    return Progress(data["done"], data["total"], data["note"], at)


def update_of(row: Row) -> Update:
    data = None if row["data"] is None else json.loads(row["data"])
    return Update(row["seq"], row["kind"], data, row["key"], row["emitted_in"], row["at"])

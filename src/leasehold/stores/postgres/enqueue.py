"""Plain jobs on PostgreSQL: a single one in a single statement, many by COPY, in two thirds of the time of INSERT."""

from __future__ import annotations

import time
from functools import lru_cache

from leasehold.domain.batch import AlikeJobs
from leasehold.domain.job import NewJob
from leasehold.stores.postgres.database import PostgresSession
from leasehold.stores.verbs.gates import gate_id

ROWS_A_PIECE = 100
"""Rows sent to a COPY while the next are prepared: the server works meanwhile."""
MOST_ENCODING_SECONDS = 1.0
"""Seconds that encoding may take while the COPY is open, by the time of the first ones. Checks are the user's code and
may be slow, and the server ends a statement that hangs for long."""


def insert_plain(session: PostgresSession, job: NewJob, channel: str | None) -> bool:
    """Whether it was made. With a channel, the same commit notifies its listeners."""
    common = _common(job.task, job.queue, job.priority, job.policy.dump(), job.delay, job.lease_seconds)
    notify = "false" if channel is None else "true"
    made = session.quick(
        "insert_plain", id=job.id, args=job.args, notify=notify, channel=channel or "", **common
    )
    return bool(made)


@lru_cache(maxsize=256, typed=True)
def _common(
    task: str, queue: str, priority: int, policy: str | None, delay: float, lease_seconds: float
) -> dict[str, str | None]:
    """What jobs of one task are sent with, as text: made once."""
    return {
        "task": task,
        "queue": queue,
        "gate": str(gate_id(queue, task)),
        "priority": str(priority),
        "policy": policy,
        "delay": str(delay) if delay else None,
        "lease_seconds": str(lease_seconds),
    }


def copy_plain(session: PostgresSession, jobs: AlikeJobs) -> None:
    """Plain jobs that are due now. All of them or, if one cannot be stored, none."""
    began = time.monotonic()
    jobs.encode(ROWS_A_PIECE)
    if (time.monotonic() - began) * len(jobs) / ROWS_A_PIECE > MOST_ENCODING_SECONDS:
        jobs.encode(len(jobs))
    job = jobs.first
    gate = gate_id(job.queue, job.task)
    alike_in_place = {"gate": gate, "priority": job.priority, "lease_seconds": job.lease_seconds}
    now, seqs = session.tuples("ready_many", count=len(jobs), **alike_in_place)[0]
    common = (
        str(gate),
        now,
        str(job.lease_seconds),
        str(job.priority),
        job.task,
        job.queue,
        job.policy.dump(),
    )
    alike = "\t".join(map(_field, common))
    numbers = iter(seqs.split(","))
    pieces = (zip(ids, args, numbers, strict=False) for ids, args in jobs.pieces(ROWS_A_PIECE))
    session.copy(
        "copy_plain",
        (
            "".join([f"{n}\t{job_id}\t{alike}\t{_field(args)}\n" for job_id, args, n in piece])
            for piece in pieces
        ),
    )


def _field(text: str | None) -> str:
    """A column as COPY reads it."""
    if text is None:
        return "\\N"
    if "\\" in text:
        text = text.replace("\\", "\\\\")
    if "\n" in text or "\t" in text or "\r" in text:
        text = text.replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")
    return text

"""Plain jobs on PostgreSQL: a single one in a single statement, many by COPY, in two thirds of the time of INSERT."""

from __future__ import annotations

from collections.abc import Sequence

from leasehold.domain.job import NewJob
from leasehold.stores.enqueue import gate_id, is_plain, shape_of
from leasehold.stores.postgres.database import PostgresSession

WORTH_COPYING = 50


def insert_plain(session: PostgresSession, job: NewJob, channel: str | None) -> bool:
    """Whether it was made. With a channel, those who listen to it are told by the same commit."""
    rows = session.tuples(
        "insert_plain",
        id=job.id,
        kind=job.kind,
        queue=job.queue,
        gate=gate_id(job.queue, job.kind),
        priority=job.priority,
        args=job.args,
        policy=job.policy.dump(),
        delay=job.delay,
        lease_seconds=job.lease_seconds,
        ring=channel is not None,
        channel=channel or "",
    )
    return bool(rows)


def may_be_copied(jobs: Sequence[NewJob]) -> bool:
    """Many plain jobs of one call: they differ in ids and arguments only, and are due now."""
    if len(jobs) < WORTH_COPYING or not is_plain(jobs[0]) or jobs[0].delay:
        return False
    shape = shape_of(jobs[0])
    return all(shape_of(job) == shape and is_plain(job) for job in jobs)


def copy_plain(session: PostgresSession, jobs: Sequence[NewJob]) -> None:
    now = session.tuples("read_clock")[0][0]
    job = jobs[0]
    common = (
        job.kind,
        job.queue,
        str(gate_id(job.queue, job.kind)),
        str(job.priority),
        "queued",
        job.policy.dump(),
        now,
        now,
        str(job.lease_seconds),
    )
    alike = "\t".join(map(_field, common))
    session.copy("copy_plain", "".join([f"{job.id}\t{alike}\t{_field(job.args)}\n" for job in jobs]))


def _field(text: str | None) -> str:
    """A column as COPY reads it."""
    if text is None:
        return "\\N"
    if "\\" in text:
        text = text.replace("\\", "\\\\")
    if "\n" in text or "\t" in text or "\r" in text:
        text = text.replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")
    return text

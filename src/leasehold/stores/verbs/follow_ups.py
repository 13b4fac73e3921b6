"""Follow-ups: jobs that a handler enqueued, made in the transaction that settles its success.

The fence makes them once: a settle that is repeated finds its parent settled, and makes nothing. A follow-up that
cannot be stored must not undo the success, whose effects are done: it is left out, and the parent's history says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from leasehold.domain.job import Job, NewJob
from leasehold.domain.stop import StopMark
from leasehold.stores.database.database import Records, Session
from leasehold.stores.verbs.enqueue import enqueue_in
from leasehold.stores.verbs.groups import held_groups
from leasehold.stores.verbs.named_limits import limit_problems
from leasehold.stores.verbs.stop_marks import Marks, stopped_follow_ups
from leasehold.stores.verbs.writing import bump_groups


def file_follow_ups(
    session: Session, requested_by: Sequence[tuple[Job, NewJob]], groups: Mapping[str, int], marks: Marks
) -> None:
    """Make the follow-ups of jobs that have just succeeded, then notify all groups, once each. `marks` are the stops
    that have met those jobs."""
    if not requested_by:
        bump_groups(session, groups)
        return
    parent_of = {job.id: parent for parent, job in requested_by}
    follow_ups = [replace(job, follow_up_of=parent.id) for parent, job in requested_by]
    refused = _without_parents(session, follow_ups)
    refused |= {job_id: str(problem) for job_id, problem in limit_problems(session, follow_ups).items()}
    refused |= _into_held_groups(session, follow_ups, stopped_follow_ups(follow_ups, marks))
    requested = [job for job in follow_ups if job.id not in refused]
    # A held key would raise, and take the success with it.
    mild = [replace(job, on_duplicate="return") if job.on_duplicate == "raise" else job for job in requested]
    for job, made in zip(requested, enqueue_in(session, mild, groups, marks), strict=True):
        if made.id != job.id and job.on_duplicate == "raise":
            refused[job.id] = f"its unique key {job.unique_key!r} is held by job {made.id}"
    if refused:
        entries = [_entry(parent_of[j.id], j, refused[j.id]) for j in follow_ups if j.id in refused]
        session.run("insert_history", entries=Records(entries))


def _into_held_groups(
    session: Session, follow_ups: Sequence[NewJob], stopped: Mapping[str, StopMark]
) -> dict[str, str]:
    """A hold must not undo the success either. Follow-ups that a stop covers are stored cancelled, hold or not."""
    wanted = [job for job in follow_ups if job.group is not None and job.id not in stopped]
    held = held_groups(session, [job.group or "" for job in wanted]) if wanted else []
    names = {group.name for group in held}
    return {job.id: f"its group {job.group!r} is on hold" for job in wanted if job.group in names}


def _without_parents(session: Session, follow_ups: Sequence[NewJob]) -> dict[str, str]:
    """Follow-ups that would wait for a missing job, or for a follow-up that is left out itself; by id, with the
    reason."""
    there = {job.id for job in follow_ups}
    requested = {parent for job in follow_ups for parent in job.after} - there
    found = {row["id"] for row in session.rows("find_ids", ids=sorted(requested))} if requested else set()
    refused: dict[str, str] = {}
    for job in follow_ups:
        for parent in job.after:
            if parent in refused or (parent not in there and parent not in found):
                refused[job.id] = f"it waits for job {parent}, which does not exist"
    return refused


def _entry(parent: Job, job: NewJob, why: str) -> dict[str, object]:
    return {
        "job_id": parent.id,
        "event": "follow_up_refused",
        "from_state": parent.state.value,
        "to_state": parent.state.value,
        "token": parent.settled_token,
        "attempt": parent.attempt,
        "actor": parent.settled_by,
        "detail": f"{job.task}: {why}",
    }

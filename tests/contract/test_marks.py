"""Marks: a job has another one as soon as something has happened to it, or was told by it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from leasehold.domain.outcome import Failure, Success
from leasehold.domain.questions import QuestionAsked
from leasehold.domain.stream import Note, RunNotes
from leasehold.stores.store import JobStore
from leasehold.testing import ManualClock
from tests.backends import new_id, put
from tests.contract.lives import claim_one, end

Fields = dict[str, object]


@pytest.mark.parametrize("fields", [{}, {"lane": "l"}], ids=["plain", "in a lane"])
def test_every_move_of_a_job_changes_its_mark(store: JobStore, clock: ManualClock, fields: Fields):
    job = put(store, **fields)
    seen = [mark(store, job.id)]

    def moved(what: str, act: Callable[[], object]) -> None:
        clock.advance(1)
        act()
        now = mark(store, job.id)
        assert now not in seen, what
        assert mark(store, job.id) == now, "it is the same while nothing happens"
        seen.append(now)

    moved("pause", lambda: store.pause(job.id, None, None))
    moved("resume", lambda: store.resume(job.id, None, None, False))
    grant = []
    moved("claim", lambda: grant.append(claim_one(store)))
    moved("event", lambda: notify(store, grant[-1], 1))
    moved("progress", lambda: notify(store, grant[-1], 2, "progress", '{"done": 1, "total": 2, "note": ""}'))
    moved("stop asked", lambda: store.pause(job.id, None, None))
    moved("paused", lambda: end(store, grant[-1], Failure("broken")))
    moved("resumed", lambda: store.resume(job.id, None, None, False))
    moved("claimed again", lambda: grant.append(claim_one(store)))
    moved("asks", lambda: end(store, grant[-1], QuestionAsked("go", "May I?")))
    moved("answered", lambda: store.answer(job.id, "go", "true", None))
    moved("claimed for the answer", lambda: grant.append(claim_one(store)))
    moved("succeeded", lambda: end(store, grant[-1], Success("1")))


def test_marks_of_many_are_read_at_once_and_unknown_ones_are_left_out(store: JobStore):
    jobs = [put(store) for _ in range(3)]
    found = store.mark_jobs([*(job.id for job in jobs), new_id()])
    assert found.keys() == {job.id for job in jobs}
    assert store.mark_jobs([]) == {}


def mark(store: JobStore, job_id: str) -> str:
    return store.mark_jobs([job_id])[job_id]


def notify(store: JobStore, grant, number: int, task: str = "word", data: str = "1") -> None:
    assert (
        store.write_updates(
            [RunNotes(grant.id, grant.token, grant.attempt, (Note(number, task, data),))]
        ).lost
        == []
    )

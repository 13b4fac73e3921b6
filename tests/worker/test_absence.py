"""A busy worker does not look for kinds of jobs that were not there a moment ago: for a moment, not for ever."""

from __future__ import annotations

import asyncio
import threading

import pytest

from leasehold import Leasehold
from leasehold.worker import claimer
from leasehold.worker.claimer import ABSENT_FOR, Absence
from tests.workers import until


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(claimer.time, "monotonic", lambda: now[0])  # type: ignore[attr-defined]
    return now


def test_an_absence_ends_however_often_it_is_noted_meanwhile(now: list[float]) -> None:
    absence = Absence()
    assert not absence.noted
    absence.note(True)
    for _ in range(9):
        now[0] += ABSENT_FOR / 10
        assert absence.noted
        absence.note(True)
    now[0] += ABSENT_FOR / 5
    assert not absence.noted


def test_only_an_absence_is_noted(now: list[float]) -> None:
    absence = Absence()
    absence.note(False)
    assert not absence.noted


def test_a_hint_of_work_that_is_passed_over_is_not_lost(
    app: Leasehold, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The threads are full, and there was no async job a moment ago: one that comes now need not wait for the poll."""
    monkeypatch.setattr(claimer, "ABSENT_FOR", 2.0)
    began, goes_on, ran = threading.Event(), threading.Event(), threading.Event()

    @app.task
    def held() -> None:
        began.set()
        goes_on.wait(60)

    @app.task
    async def note() -> None:
        ran.set()

    async def serve() -> None:
        held.enqueue()
        async with app.worker(threads=1, poll=600, retention=None):
            await asyncio.to_thread(began.wait, 60)
            note.enqueue()
            try:
                await until(ran.is_set)  # 20 s; other things wake it after 30
            finally:
                goes_on.set()

    asyncio.run(serve())

"""A busy worker does not look for kinds of jobs that were not there a moment ago: for a moment, not for ever."""

from __future__ import annotations

import pytest

from leasehold.worker import intake
from leasehold.worker.intake import ABSENT_FOR, Absence


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(intake.time, "monotonic", lambda: now[0])
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

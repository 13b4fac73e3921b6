"""Counters survive the workers that count: one that is killed takes no more with it than its last beat."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.faults.harness import Fleet, Place, wait_for


def counted(place: Place) -> Counter[str]:
    found: Counter[str] = Counter()
    for one in place.app.metrics().totals:
        found[one.outcome] += one.attempts
    return found


@pytest.mark.slow(13)
def test_a_killed_worker_loses_a_beat_at_most_and_totals_never_go_down(place: Place, fleet: Fleet) -> None:
    first = fleet.start()
    place.tasks.brief.enqueue(0.0)
    written = wait_for(lambda: counted(place)["succeeded"] and counted(place), "the first one's beat", 60.0)
    assert written == {"succeeded": 1}
    doomed = place.tasks.wait_on_loop.enqueue("take")
    place.wait_for_start(doomed.id, attempt=1)
    done = [place.tasks.brief.enqueue(0.0) for _ in range(20)]
    for job in done:
        place.wait_for_state(job.id, "succeeded")
    first.kill()
    after = counted(place)
    # Some or all of the twenty may have been in its last beat.
    assert written["succeeded"] <= after["succeeded"] <= 21

    second = fleet.start()
    place.wait_for_start(doomed.id, attempt=2)
    place.open_gate("take-2")
    place.wait_for_state(doomed.id, "succeeded")
    second.terminate()
    assert second.wait() == 0
    assert counted(place) == {"succeeded": after["succeeded"] + 1, "lost": 1}

"""What a scrape gets is what Prometheus can read, whatever queues, tasks and slots are called."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from leasehold.domain.metrics import BOUNDS, Histogram, LeaseAge, Metrics, ReadyAge, Rollup, SlotUse
from leasehold.domain.records import QueueCount
from leasehold.domain.states import State
from leasehold.surfaces.prometheus import text_of

EVIL = 'a"} 1\nup{x="\\" 9\r\u2028\x1b[2J,{}=#é'
NAMES = st.one_of(st.just(EVIL), st.text(st.characters(exclude_categories=["Cs"]), max_size=20))


def metrics_of(queue: str, task: str, slot: str) -> Metrics:
    times = Histogram((1, 0, 2, *[0] * (len(BOUNDS) - 3), 4), 20_001.25)
    return Metrics(
        totals=[
            Rollup(queue, task, "failed", 3, times, Histogram()),
            Rollup(queue, task, "succeeded", 7, times, times),
        ],
        jobs=[QueueCount(queue, task, State.QUEUED, 12)],
        ready=[ReadyAge(queue, 61.5)],
        leases=[LeaseAge(queue, task, 3.0, -1e-9)],
        slots=[SlotUse(slot, 1, 2)],
        open_questions=5,
        workers=2,
        draining=1,
        places=28,
    )


def read(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    """By the name of the sample."""
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


@given(NAMES, NAMES, NAMES)
def test_hostile_names_are_labels_and_nothing_else(queue: str, task: str, slot: str):
    found = read(text_of(metrics_of(queue, task, slot)))
    pair = {"queue": queue, "task": task}
    assert found["leasehold_attempts_total"] == [
        ({**pair, "outcome": "failed"}, 3),
        ({**pair, "outcome": "succeeded"}, 7),
    ]
    assert found["leasehold_jobs"] == [({**pair, "state": "queued"}, 12)]
    assert found["leasehold_oldest_ready_seconds"] == [({"queue": queue}, 61.5)]
    assert found["leasehold_slot_used"] == [({"slot": slot}, 1)]
    assert found["leasehold_slot_limit"] == [({"slot": slot}, 2)]
    assert found["leasehold_workers"] == [({"state": "serving"}, 2), ({"state": "draining"}, 1)]
    assert set(found) == NAMED


NAMED = {
    "leasehold_attempts_total",
    *(
        f"leasehold_{what}_seconds_{part}"
        for what in ("wait", "attempt")
        for part in ("bucket", "sum", "count")
    ),
    "leasehold_jobs",
    "leasehold_oldest_ready_seconds",
    "leasehold_oldest_lease_seconds",
    "leasehold_lease_expires_in_seconds",
    "leasehold_workers",
    "leasehold_worker_places",
    "leasehold_slot_used",
    "leasehold_slot_limit",
    "leasehold_open_questions",
}


def test_histograms_are_added_up_from_the_left_over_all_outcomes():
    found = read(text_of(metrics_of("default", "work", "gpu")))
    waits = {labels["le"]: count for labels, count in found["leasehold_wait_seconds_bucket"]}
    assert list(map(float, waits)) == [*BOUNDS, float("inf")]
    assert list(waits.values()) == [2, 2, *[6] * (len(BOUNDS) - 2), 14]
    assert found["leasehold_wait_seconds_count"][0][1] == 14
    assert found["leasehold_wait_seconds_sum"][0][1] == 40_002.5
    assert found["leasehold_attempt_seconds_count"][0][1] == 7


def test_a_store_without_jobs_tells_its_families_all_the_same():
    text = text_of(Metrics([], [], [], [], [], 0, 0, 0, 0))
    types = {family.name: family.type for family in text_string_to_metric_families(text)}
    assert types["leasehold_attempts"] == "counter"
    assert types["leasehold_wait_seconds"] == types["leasehold_attempt_seconds"] == "histogram"
    assert read(text)["leasehold_workers"] == [({"state": "serving"}, 0), ({"state": "draining"}, 0)]

"""Stop against producers, workers and follow-ups at the same time: nothing in the scope escapes."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence

import pytest

from leasehold.domain.errors import GroupOnHold
from leasehold.domain.outcome import Failure, Success
from leasehold.domain.states import State
from leasehold.domain.stop import StoppedJob, StopRequest
from leasehold.operations.stop import Stop
from leasehold.stores.results import Ending
from tests.backends import Backend, new_job

PRODUCERS = WORKERS = 2


@pytest.mark.parametrize("mode", ["graceful", "immediate"])
def test_after_a_stop_with_a_hold_nothing_of_the_group_is_left_to_run(
    backend: Backend, mode: str, monkeypatch: pytest.MonkeyPatch
):
    """Producers enqueue until they are refused, workers claim, settle with follow-ups or fail, and the stop comes in
    the middle. Whoever was flagged may end; nobody starts anew."""
    # SQLite's lock is no queue: beside writers that never pause, on a slow machine, one may wait for long.
    monkeypatch.setattr("leasehold.stores.sqlite.database.BUSY_SECONDS", 20.0)
    first = backend.open()
    first.enqueue([new_job(group="g") for _ in range(300)])
    refused: list[int] = []
    settled: list[str] = []
    busy = threading.Barrier(PRODUCERS + WORKERS + 1, timeout=60)
    over = threading.Event()
    troubles: list[BaseException] = []

    def produce() -> None:
        store = backend.open()
        busy.wait()
        made = 0
        try:
            while not over.is_set():
                store.enqueue([new_job(group="g") for _ in range(5)])
                made += 5
        except GroupOnHold:
            refused.append(made)

    def work() -> None:
        store = backend.open()
        busy.wait()
        worker = threading.current_thread().name
        while not over.is_set():
            grants = store.claim(worker, ["default"], 5)
            for number, grant in enumerate(grants):
                at_once = new_job(group="g", follow_up_of=grant.id)
                with contextlib.suppress(GroupOnHold):  # the group was held before this run was flagged
                    store.enqueue([at_once])
                follow_up = new_job(group="g")
                outcome = Success("1", None, (follow_up,)) if number % 2 else Failure("broken")
                settled.extend(store.settle([Ending(grant.id, grant.token, outcome)]).accepted)

    def guarded(task: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                task()
            except BaseException as error:
                troubles.append(error)
                raise

        return run

    threads = [threading.Thread(target=guarded(produce)) for _ in range(PRODUCERS)]
    threads += [threading.Thread(target=guarded(work), name=f"worker-{n}") for n in range(WORKERS)]
    for thread in threads:
        thread.start()
    busy.wait()
    seen = first.group_versions(["g"])["g"]
    while first.group_versions(["g"])["g"] < seen + 20 or len(settled) < 10:  # all are at it
        assert not troubles, troubles
    request = StopRequest(group="g", mode=mode, reason="enough", hold=True)
    report = Stop(first, request, {}).begin().wait()
    live = [
        state for state in first.group_status("g").counts["work"] if state in (State.QUEUED, State.PENDING)
    ]
    for producer in threads[:PRODUCERS]:
        producer.join(60)  # one that was on its way back from its last call comes once more, and is refused
    over.set()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert not troubles, troubles
    assert live == [], "when the stop has returned nothing is left that could start"
    assert len(refused) == PRODUCERS, "every producer was refused in the end"
    status = first.group_status("g")
    assert status.live == 0
    # Failed: those that had no try left when they failed.
    assert status.counts["work"].keys() <= {State.SUCCEEDED, State.CANCELLED, State.FAILED}
    assert report.cancelled > 0
    assert backend.query("SELECT count(*) FROM leasehold.job_row WHERE stop_requested IS NOT NULL") == [(0,)]
    print(f"\n{backend.name}, {mode}: {dict(status.counts['work'])}, {sum(refused)} enqueued, {report}")


@pytest.mark.parametrize(
    ("scope", "counted"),
    [({"queue": "default"}, {"work": {State.QUEUED: 1}}), ({"group": "g"}, {})],
    ids=["found by another pass", "cancelled as it was stored"],
)
def test_a_run_that_ends_with_a_follow_up_between_search_and_stop_leaves_none_behind(
    backend: Backend, scope: dict[str, str], counted: dict[str, dict[State, int]]
):
    """The pass that found the job has stopped nothing, and yet it is not the last."""
    store = backend.open()
    store.enqueue([first := new_job(group="g")])
    follow_up = new_job(group="g")

    class Late(Stop):
        def _stop(self, ids: Sequence[str]) -> Sequence[StoppedJob]:
            if first.id in ids:
                (grant,) = store.claim("worker", ["default"], 1)
                store.settle([Ending(grant.id, grant.token, Success("1", None, (follow_up,)))])
            return super()._stop(ids)

    report = Late(store, StopRequest(**scope, mode="full"), {}).begin().wait()
    assert store.get(follow_up.id).state is State.CANCELLED
    assert report.cancelled_counts == counted

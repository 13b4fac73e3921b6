"""The shortest sequence of everything that the machine and its making have found."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from leasehold.domain.errors import DuplicateJob
from leasehold.domain.outcome import Failure, Success
from leasehold.domain.policy import Policy
from leasehold.domain.questions import QuestionAsked
from leasehold.domain.states import State
from leasehold.stores.results import Ending
from leasehold.stores.store import JobStore
from leasehold.testing import ManualClock
from tests.backends import Backend, new_job, put


def claim(store: JobStore) -> list[str]:
    return [grant.id for grant in store.claim("w", ["default"], 100)]


def run(store: JobStore, job_id: str, outcome: object) -> int:
    """Claim the job, end its run, and tell the token."""
    (grant,) = [grant for grant in store.claim("w", ["default"], 100) if grant.id == job_id]
    store.settle([Ending(job_id, grant.token, outcome)])
    return grant.token


@pytest.mark.parametrize("ranks", [(0, 5), (5, 0)])
def test_one_claim_brings_the_head_whatever_the_ranks_in_its_lane(
    store: JobStore, ranks: tuple[int, int]
) -> None:
    first, second = (put(store, lane="a", priority=rank) for rank in ranks)
    assert claim(store) == [first.id]
    (held,) = store.find_leases_of("w")
    store.settle([Ending(held.id, held.token, Success())])
    assert claim(store) == [second.id]


def test_a_lane_job_released_before_its_time_runs_when_it_is_due(store: JobStore, clock: ManualClock) -> None:
    job = put(store, lane="a", hold=True, delay=10.0)
    store.release(job.id)
    assert claim(store) == []
    clock.advance(11)
    assert claim(store) == [job.id]


def test_a_delayed_lane_job_that_is_resumed_is_due_now(store: JobStore) -> None:
    job = put(store, lane="a", delay=100.0)
    store.pause(job.id)
    store.resume(job.id)
    assert claim(store) == [job.id]


def test_replace_never_leaves_the_key_without_a_live_job(store: JobStore) -> None:
    holder = put(store, unique_key="k", unique_for="ever")
    (answer,) = store.enqueue([new_job(unique_key="k", on_duplicate="replace")])
    assert store.get(answer.id).state == "queued"
    assert answer.created == (answer.id != holder.id)


def test_a_late_ending_in_the_same_batch_does_not_fence_its_successor(
    store: JobStore, clock: ManualClock
) -> None:
    job = put(store)
    stale = run(store, job.id, Failure("first"))
    clock.advance(5)
    (grant,) = store.claim("w", ["default"], 1)
    store.settle([Ending(job.id, grant.token, Failure("second")), Ending(job.id, stale, Failure("late"))])
    assert (store.get(job.id).state, store.get(job.id).error) == ("queued", "second")


def test_an_answer_to_a_paused_job_moves_its_groups_version(store: JobStore) -> None:
    job = put(store, group="g")
    run(store, job.id, QuestionAsked("q", "?"))
    store.pause(job.id)
    before = store.group("g")
    store.answer(job.id, "q", "1")
    assert store.group("g") != before


def test_a_job_that_succeeded_has_no_open_question(store: JobStore) -> None:
    job = put(store)
    run(store, job.id, QuestionAsked("q", "?"))
    store.pause(job.id)
    store.resume(job.id)
    run(store, job.id, Success())
    assert store.questions(job.id)[0].closed_at is not None


def test_the_look_of_a_claim_by_id_says_whether_others_shared_the_process(
    store: JobStore, clock: ManualClock
) -> None:
    job, _ = put(store), put(store)
    claim(store)
    clock.advance(31)
    denied = store.claim_by_id(job.id, "thief")
    assert denied.sighting.alone is False


def test_a_replacement_moves_the_groups_version_once(store: JobStore) -> None:
    put(store, group="g", unique_key="k")
    put(store, group="g", unique_key="k", on_duplicate="replace")
    assert store.group("g").version == 2


def test_another_jobs_sighting_is_no_first_look(store: JobStore, clock: ManualClock) -> None:
    one, other = put(store), put(store)
    claim(store)
    clock.advance(31)
    sightings = {sighting.id: sighting for sighting in store.sight_overdue()}
    clock.advance(11)
    store.claim_by_id(one.id, "thief", sighting=sightings[other.id])
    assert store.get(one.id).worker == "w"


def test_two_sightings_of_one_lease_are_reaped_once(store: JobStore, clock: ManualClock) -> None:
    job = put(store)
    claim(store)
    clock.advance(31)
    early = store.sight_overdue()
    clock.advance(5)
    late = store.sight_overdue()
    clock.advance(11)
    assert [reaped.id for reaped in store.reap(early + late)] == [job.id]


def test_resume_of_an_endless_pause_says_that_there_was_one(store: JobStore) -> None:
    """SQLite 3.40 takes `x IS NULL` for false in a RETURNING of a table without rowid."""
    store.pause_scope("queue", "default")
    assert store.resume_scope("queue", "default") is True


def test_lane_heads_come_in_order_whatever_stands_behind_them(store: JobStore) -> None:
    first = put(store, lane="a")
    put(store, lane="a", priority=5)
    put(store, lane="b")
    assert [grant.id for grant in store.claim("w", ["default"], 1)] == [first.id]


def test_a_batch_with_a_replacement_is_stored_in_the_order_given(store: JobStore) -> None:
    put(store, unique_key="k")
    first, second = new_job(unique_key="k", on_duplicate="replace"), new_job()
    store.enqueue([first, second])
    assert claim(store) == [first.id, second.id]


def test_replacements_in_groups_and_settles_do_not_wait_for_each_other_in_a_circle(
    store: JobStore, backend: Backend
) -> None:
    """Jobs are locked before groups, by everybody."""
    if backend.name == "sqlite":
        before = 0
    else:
        ((before,),) = backend.query(
            "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        )
    stores = [backend.open() for _ in range(2)]
    stop = threading.Event()

    def produce() -> None:
        while not stop.is_set():
            stores[0].enqueue(
                [new_job(unique_key=f"k{n}", group=f"g{n % 3}", on_duplicate="replace") for n in range(20)]
            )

    def consume() -> None:
        while not stop.is_set():
            grants = stores[1].claim("w", ["default"], 10)
            stores[1].settle([Ending(grant.id, grant.token, Success()) for grant in grants])

    with ThreadPoolExecutor(2) as pool:
        working = [pool.submit(produce), pool.submit(consume)]
        stop.wait(3.0)
        stop.set()
        for one in working:
            one.result()
    if backend.name == "postgres":
        backend.query("SELECT pg_stat_force_next_flush()")
        ((after,),) = backend.query(
            "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        )
        assert after == before


def test_a_repeated_enqueue_takes_no_key_from_anybody(store: JobStore) -> None:
    """A repeat after a lost reply makes no job: cancelling the holder would leave the key without one."""
    first = new_job(unique_key="k", on_duplicate="replace")
    store.enqueue([first])
    store.cancel(first.id)
    holder = put(store, unique_key="k")
    (answer,) = store.enqueue([first])
    assert (answer.id, answer.created) == (first.id, False)
    assert store.get(holder.id).state == "queued"


@pytest.mark.parametrize("leaves", ["succeeds", "fails", "is cancelled"])
def test_a_lane_ranks_by_its_next_job_whatever_the_rank_of_the_one_that_left(
    store: JobStore, leaves: str
) -> None:
    """Left under the rank of the job that went, the lane would stand behind every plain job of the next one's rank."""
    left = put(store, lane="a", priority=-3, policy=Policy(on_failure="skip"))
    after = put(store, lane="a", priority=5)
    if leaves == "is cancelled":
        store.cancel(left.id)
    else:
        (grant,) = store.claim("w", ["default"], 1)
        outcome = Success() if leaves == "succeeds" else Failure("no", final=True)
        store.settle([Ending(grant.id, grant.token, outcome)])
    put(store, lane="b")
    put(store)
    assert [grant.id for grant in store.claim("w", ["default"], 1)] == [after.id]


def test_a_connection_that_has_rolled_back_still_stores_single_jobs(backend: Backend) -> None:
    """After a rollback psycopg throws away every prepared statement of the connection, ours too."""
    store = backend.open().another()  # with a single connection
    put(store)
    for _ in range(10):  # often enough for the driver to prepare something of its own
        store.count()
    with pytest.raises(DuplicateJob):
        store.enqueue([new_job(unique_key="k", on_duplicate="raise") for _ in range(2)])
    store.count()  # it does so before the next statement of its own
    put(store)
    assert store.count()[State.QUEUED] == 2
    store.close()

"""Many jobs by one call: 5,000 in a transaction, and as many transactions as it takes."""

from __future__ import annotations

import pickle
import tracemalloc
from typing import Any

import pytest

from leasehold import State, SyncContext, errors
from leasehold.domain.job import Grant
from leasehold.domain.outcome import Success
from leasehold.errors import InvalidArguments, InvalidInput
from leasehold.stores.results import Ending
from leasehold.stores.verbs import settle
from tests.backends import new_job
from tests.contract.lives import run
from tests.workers import burst

AT_ONCE = 5_000


@pytest.fixture
def app_settings() -> dict[str, Any]:
    """On the database's own clock, as users run it: PostgreSQL takes many plain jobs by COPY."""
    return {}


@pytest.fixture(params=["plain", "keyed"])
def note(app, request):
    """A keyed job is stored another way than a plain one."""

    @app.task(unique="{number}" if request.param == "keyed" else None)
    def note(number: int) -> None: ...

    return note


def stored(backend) -> int:
    return backend.query("SELECT count(*) FROM leasehold.job")[0][0]


def test_a_long_list_is_stored_in_pieces_while_it_is_read(backend, note):
    seen: list[int] = []

    def calls():
        for number in range(2 * AT_ONCE + 10):
            if number % AT_ONCE == 0:
                seen.append(stored(backend))
            yield {"number": number}

    jobs = note.enqueue_many(calls())
    assert seen == [0, AT_ONCE, 2 * AT_ONCE]
    assert len(jobs) == stored(backend) == 2 * AT_ONCE + 10
    assert [jobs[n].args["number"] for n in (0, AT_ONCE, -1)] == [0, AT_ONCE, 2 * AT_ONCE + 9]
    seqs = backend.query("SELECT id, seq FROM leasehold.job ORDER BY seq")
    assert [str(job_id) for job_id, _ in seqs] == [job.id for job in jobs], "in the order given"


def test_a_wrong_call_in_a_later_piece_says_how_many_are_stored(backend, note):
    calls = [{"number": n} for n in range(AT_ONCE + 200)]
    calls[AT_ONCE + 100] = {"number": "many"}
    with pytest.raises(errors.PartlyStored, match="first 5,000 jobs are stored") as caught:
        note.enqueue_many(calls)
    error = caught.value
    assert (error.stored, len(error.ids), stored(backend)) == (AT_ONCE, AT_ONCE, AT_ONCE)
    assert "number: task 'note' refused" in error.cause
    assert isinstance(error.__cause__, InvalidArguments)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.stored, list(again.ids)) == (str(error), error.stored, list(error.ids))
    calls[AT_ONCE + 100] = {"number": AT_ONCE + 100}
    note.enqueue_many(calls[error.stored :])
    assert stored(backend) == len(calls)


def test_a_wrong_call_in_the_first_piece_is_raised_as_it_is_and_nothing_is_stored(backend, note):
    calls = [{"number": n} for n in range(AT_ONCE + 200)]
    calls[AT_ONCE - 1] = {"number": "many"}
    with pytest.raises(InvalidArguments):
        note.enqueue_many(calls)
    assert stored(backend) == 0


def test_what_the_callers_own_generator_raises_is_told_the_same_way(backend, note):
    def calls():
        yield from ({"number": n} for n in range(AT_ONCE))
        raise KeyError("file ended")

    with pytest.raises(errors.PartlyStored, match="file ended") as caught:
        note.enqueue_many(calls())
    assert isinstance(caught.value.__cause__, KeyError)
    assert caught.value.stored == stored(backend) == AT_ONCE


def test_leases_are_renewed_between_the_pieces(backend, app, note):
    """By another connection, as another process would: while SQLite writes, nobody else can."""
    other = backend.open()
    grant = run(other)
    assert isinstance(grant, Grant)
    renewed: list[str] = []

    def calls():
        for number in range(2 * AT_ONCE + 1):
            if number and number % AT_ONCE == 0:
                assert stored(backend) == number + 1, "the piece before is committed"
                renewed.extend(one.id for one in other.renew({grant.id: grant.token}) if one.extended)
            yield {"number": number}

    note.enqueue_many(calls())
    assert renewed == [grant.id, grant.id]


def test_the_answer_reads_like_a_list_of_handles(app):
    @app.task(unique="{number}")
    def note(number: int) -> None: ...

    first = note.enqueue(1)
    jobs = note.enqueue_many({"number": n} for n in range(4))
    assert len(jobs) == 4
    assert [job.created for job in jobs] == [True, False, True, True]
    assert jobs[1] == first
    assert first in jobs
    assert jobs[-1].args == {"number": 3}
    assert [job.args["number"] for job in jobs[1:3]] == [1, 2]
    assert [job.id for job in reversed(jobs)] == list(jobs.ids)[::-1]
    with pytest.raises(IndexError):
        jobs[4]
    assert not note.enqueue_many([])


@pytest.mark.slow
def test_memory_stays_flat_for_a_generator(app):
    """What Python holds; the database's own cache grows to its limit."""

    @app.task
    def note(number: int, text: str) -> None: ...

    def peak(number: int) -> int:
        tracemalloc.start()
        try:
            jobs = note.enqueue_many({"number": n, "text": f"{n:0400}"} for n in range(number))
            assert len(jobs) == number
            assert jobs[-1].created
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    few, many = peak(6_000), peak(30_000)
    assert many < 1.25 * few, f"{few:,} bytes for 6,000 jobs, {many:,} for 30,000"


# -- what must be one transaction --------------------------------------------------------------------------------------


def test_a_chain_longer_than_a_transaction_is_refused_with_the_remedy(app, backend):
    @app.task
    def link() -> None: ...

    with pytest.raises(InvalidInput, match=r"5,001 jobs are more than one transaction makes .*in parts"):
        app.chain(*[link.bind()] * (AT_ONCE + 1)).enqueue()
    assert stored(backend) == 0


@pytest.mark.slow
def test_more_follow_ups_than_a_transaction_makes_are_refused_with_the_remedy(app, backend):
    @app.task
    def leaf(n: int) -> None: ...

    @app.task
    def breed(ctx: SyncContext, number: int) -> None:
        for n in range(number):
            ctx.enqueue(leaf.using(queue="later"), n)

    few, many = breed.enqueue(AT_ONCE), breed.enqueue(AT_ONCE + 1)
    burst(app)
    assert few.refresh().state is State.SUCCEEDED
    assert many.refresh().state is State.FAILED
    assert "task.using(immediately=True)" in many.error
    assert stored(backend) == AT_ONCE + 2


def test_runs_that_end_together_do_not_make_more_in_one_transaction(backend, monkeypatch):
    store = backend.open()
    sizes: list[int] = []
    real = settle.settle_in

    def counted(session, endings, wait):
        sizes.append(sum(len(ending.outcome.follow_ups) for ending in endings))
        return real(session, endings, wait)

    monkeypatch.setattr(settle, "settle_in", counted)
    grants = [run(store) for _ in range(3)]
    endings = [
        Ending(grant.id, grant.token, Success("1", None, tuple(new_job() for _ in range(2_000))))
        for grant in grants
    ]
    assert len(store.settle(endings).accepted) == 3
    assert sizes == [4_000, 2_000]
    assert stored(backend) == 6_003


@pytest.mark.parametrize(
    ("args", "reported"),
    [
        (None, "NoneType is not a list"),
        ({"number": 1}, "dict is not a list"),
        ([1, 2], "int is not a mapping"),
        ("ab", "str is not a mapping"),
    ],
)
def test_what_is_no_list_of_arguments_is_refused_with_the_remedy(backend, note, args, reported):
    with pytest.raises(InvalidInput, match=rf"args: {reported}.*give a list") as caught:
        note.enqueue_many(args)
    assert caught.value.field == "args"
    assert stored(backend) == 0

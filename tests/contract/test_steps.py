"""Steps, checkpoints and transactions of a handler: under the fence, and gone with their job."""

from __future__ import annotations

import sqlite3
import threading
import time

import psycopg
import pytest

from leasehold.domain.errors import InvalidState, LeaseLost, TransactionTooLong
from leasehold.domain.job import Grant
from leasehold.domain.outcome import Failure, HandedBack, Success
from leasehold.domain.states import State
from leasehold.stores.results import Ending
from tests.backends import put
from tests.contract.lives import claim_one, end, lose, run


def test_steps_are_kept_by_name_and_found_by_the_next_run(store):
    grant = run(store)
    assert store.load_steps(grant.id) == {}
    assert store.save_steps(grant.id, grant.token, {"a": "1", "b": '{"x":[null]}'})
    assert store.save_steps(grant.id, grant.token, {"c": '"ü"'})
    end(store, grant, HandedBack())
    assert store.load_steps(grant.id) == {"a": "1", "b": '{"x":[null]}', "c": '"ü"'}


def test_the_same_steps_again_do_no_harm(store, backend):
    grant = run(store)
    for _ in range(2):
        assert store.save_steps(grant.id, grant.token, {"a": "1"}, state="[1]")
    assert store.load_steps(grant.id) == {"a": "1"}
    assert backend.query("SELECT attempt FROM leasehold.step") == [(1,)]


def test_no_steps_are_no_write(store):
    assert store.save_steps(run(store).id, 1, {})


@pytest.mark.parametrize("state", [None, "7"])
def test_a_stale_token_saves_nothing(store, clock, state):
    grant = run(store)
    assert store.save_steps(grant.id, grant.token, {"a": "1"}, state="6")
    lose(store, clock, grant)
    assert not store.save_steps(grant.id, grant.token, {"a": "2", "b": "3"}, state=state)
    newer = claim_one(store)
    assert not store.save_steps(grant.id, grant.token, {"a": "2", "b": "3"}, state=state)
    assert not store.save_steps(grant.id, newer.token + 1, {"a": "2"}, state=state)
    assert store.load_steps(grant.id) == {"a": "1"}
    assert store.load_checkpoint(grant.id) == "6"
    assert store.save_steps(newer.id, newer.token, {"a": "2"})


def test_a_late_holder_that_nobody_has_reaped_may_still_save(store, clock):
    grant = run(store)
    clock.advance(grant.lease_seconds + 1)
    assert store.save_steps(grant.id, grant.token, {"a": "1"})


def test_the_last_checkpoint_counts(store):
    grant = run(store)
    assert store.load_checkpoint(grant.id) is None
    for state in ("null", '{"page":2}'):
        assert store.save_steps(grant.id, grant.token, {}, state=state)
        assert store.load_checkpoint(grant.id) == state


def test_resume_keeps_steps_and_a_fresh_one_forgets_them(store):
    grant = run(store)
    store.save_steps(grant.id, grant.token, {"a": "1"}, state="2")
    end(store, grant, Failure("no", final=True))
    store.resume(grant.id)
    assert store.load_steps(grant.id) == {"a": "1"}
    end(store, claim_one(store), Failure("no", final=True))
    store.resume(grant.id, fresh=True)
    assert store.load_steps(grant.id) == {}
    assert store.load_checkpoint(grant.id) is None


def test_steps_of_a_running_job_are_not_forgotten_under_it(store):
    grant = run(store)
    store.save_steps(grant.id, grant.token, {"a": "1"})
    store.pause(grant.id)
    with pytest.raises(InvalidState, match="under it"):
        store.resume(grant.id, fresh=True)
    assert store.load_steps(grant.id) == {"a": "1"}
    assert store.get(grant.id).stop_requested == "pause"


def test_steps_and_checkpoints_go_with_their_job(store, clock, backend):
    grant, other = run(store), run(store)
    for lease in (grant, other):
        store.save_steps(lease.id, lease.token, {"a": "1"}, state="2")
    end(store, grant, Success())
    clock.advance(10)
    assert store.prune(5).deleted == 1
    assert backend.query("SELECT count(*) FROM leasehold.step") == [(1,)]
    assert backend.query("SELECT count(*) FROM leasehold.checkpoint") == [(1,)]
    assert store.load_steps(other.id) == {"a": "1"}


# --- transactions ---------------------------------------------------------------------------------------------------


@pytest.fixture
def effects(backend):
    """A table of the user's: a way to write into it, and to see what is there."""
    backend.query("DROP TABLE IF EXISTS leasehold.effect")
    backend.query("CREATE TABLE leasehold.effect (n integer)")
    name = "leasehold_effect" if backend.name == "sqlite" else f'"{backend.schema}".effect'

    class Effects:
        def write(self, connection, n: int) -> None:
            connection.execute(f"INSERT INTO {name} VALUES ({n})")

        def seen(self) -> list[int]:
            return sorted(n for (n,) in backend.query("SELECT n FROM leasehold.effect"))

    yield Effects()
    backend.query("DROP TABLE leasehold.effect")


def test_a_transaction_commits_a_write_and_its_step_together(store, effects):
    grant = run(store)
    with store.transaction(grant.id, grant.token, 5) as tx:
        effects.write(tx.connection, 1)
        tx.save_steps({"a": "1"})
        assert tx.load_steps() == {"a": "1"}
        assert (effects.seen(), store.load_steps(grant.id)) == ([], {})
    assert (effects.seen(), store.load_steps(grant.id)) == ([1], {"a": "1"})


def test_an_exception_undoes_a_transaction(store, effects):
    grant = run(store, lane="l")

    def block() -> None:
        with store.transaction(grant.id, grant.token, 5) as tx:
            effects.write(tx.connection, 1)
            tx.save_steps({"a": "1"})
            tx.succeed(Success("1"))
            raise KeyError

    with pytest.raises(KeyError):
        block()
    assert (effects.seen(), store.load_steps(grant.id)) == ([], {})
    assert store.get(grant.id).lease_token == grant.token
    # The connection is free again, and clean.
    with store.transaction(grant.id, grant.token, 5) as tx:
        effects.write(tx.connection, 2)
    assert effects.seen() == [2]


def test_a_transaction_under_a_stale_token_is_not_opened(store, clock, effects):
    grant = run(store)
    lose(store, clock, grant)
    with pytest.raises(LeaseLost), store.transaction(grant.id, grant.token, 5) as tx:
        effects.write(tx.connection, 1)
    assert effects.seen() == []


def test_success_in_a_transaction_is_the_success_of_settle(store, effects, clock):
    """Lane, group, questions, flag: the rows are the same whichever way a job ended well."""

    def live(lane: str) -> Grant:
        put(store, lane=lane, group=f"g {lane}")
        put(store, lane=lane)
        grant = claim_one(store)
        assert grant.lane == lane
        store.pause(grant.id)
        return grant

    plain, own = live("plain"), live("own")
    store.settle([Ending(plain.id, plain.token, Success('{"n":1}'))])
    with store.transaction(own.id, own.token, 5) as tx:
        effects.write(tx.connection, 1)
        tx.succeed(Success('{"n":1}'))

    def reported(grant) -> dict:
        job = store.get(grant.id)
        names = (
            "state",
            "result",
            "settled_by",
            "settled_token",
            "worker",
            "lease_token",
            "stop_requested",
        )
        return {name: getattr(job, name) for name in (*names, "finished_at", "reason", "error", "failures")}

    assert reported(own) == reported(plain)
    assert reported(own)["state"] is State.SUCCEEDED
    assert store.group("g own").version == store.group("g plain").version
    assert {grant.lane for grant in store.claim("w", ["default"], 10)} == {"plain", "own"}
    assert store.read_settlements({own.id: own.token}, own_owner(store, own)) == {own.id: "done"}


def own_owner(store, grant) -> str:
    return store.get(grant.id).settled_by


def test_a_transaction_holds_the_row_against_others_until_it_ends(store, backend):
    """A verb of an operator waits for it, and then meets what it has left."""
    grant = run(store)
    other = backend.open()
    answers = []

    def cancel() -> None:
        try:
            answers.append(other.cancel(grant.id))
        except InvalidState as refused:
            answers.append(refused.state)

    thread = threading.Thread(target=cancel)
    with store.transaction(grant.id, grant.token, 30) as tx:
        thread.start()
        thread.join(0.3)
        assert answers == []
        tx.succeed(Success())
    thread.join(60)
    assert answers == ["succeeded"]


def test_a_transaction_is_not_ended_inside_its_block(store, backend, effects):
    grant = run(store)

    def block() -> None:
        with store.transaction(grant.id, grant.token, 5) as tx:
            effects.write(tx.connection, 1)
            tx.connection.commit()

    with pytest.raises(sqlite3.DatabaseError if backend.name == "sqlite" else psycopg.ProgrammingError):
        block()
    assert effects.seen() == []


def test_a_lease_is_renewed_while_its_transaction_is_open_and_its_end_waits(store, backend):
    if backend.name == "sqlite":
        return  # it has one writer: whoever renews waits for the block
    grant = run(store)
    other, settled = backend.open(), []
    with store.transaction(grant.id, grant.token, 20) as tx:
        (renewal,) = other.renew({grant.id: grant.token})
        assert renewal.extended
        ending = Ending(grant.id, grant.token, Success("1"))
        thread = threading.Thread(target=lambda: settled.append(other.settle([ending])))
        thread.start()
        while not backend.query("SELECT 1 FROM pg_locks WHERE NOT granted"):
            time.sleep(0.01)
        tx.save_steps({"a": "1"})
        assert settled == []
    thread.join()
    assert settled[0].accepted == [grant.id]
    assert store.load_steps(grant.id) == {"a": "1"}


# A block that takes too long is over for others at that time, whatever it does.


@pytest.mark.slow
@pytest.mark.parametrize("how", ["idle", "busy"])
def test_a_transaction_that_takes_too_long_is_undone_while_its_block_still_hangs(
    store, backend, effects, how
):
    grant = run(store)
    other = backend.open()
    waited = []
    limit = 3.0  # a machine that stands still for a moment must not end it before the block has begun

    def block() -> None:
        with store.transaction(grant.id, grant.token, limit) as tx:
            effects.write(tx.connection, 1)
            began = time.monotonic()
            if how == "busy":
                keep_busy(backend, tx.connection)
            # Another writer comes through, and the block has not ended yet.
            other.pause(grant.id)
            waited.append(time.monotonic() - began)
            effects.write(tx.connection, 2)

    began = time.monotonic()
    with pytest.raises(TransactionTooLong) as reported:
        block()
    assert time.monotonic() - began < 45
    assert (reported.value.job_id, reported.value.seconds) == (grant.id, limit)
    assert "rolled back" in str(reported.value)
    assert len(waited) == (1 if how == "idle" else 0)
    assert all(seconds > 0.3 for seconds in waited)
    assert effects.seen() == []
    with store.transaction(grant.id, grant.token, 30) as tx:
        effects.write(tx.connection, 3)
    assert effects.seen() == [3]


def keep_busy(backend, connection) -> None:
    if backend.name == "sqlite":
        connection.execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000000) SELECT max(i) FROM n"
        ).fetchall()
    else:
        connection.execute("SELECT pg_sleep(60)")


def test_a_block_that_ends_too_late_commits_nothing(store, effects):
    """Many short statements, each of them in time."""
    grant = run(store)

    def block() -> None:
        with store.transaction(grant.id, grant.token, 0.4) as tx:
            began = time.monotonic()
            while time.monotonic() - began < 0.6:
                effects.write(tx.connection, 1)
            tx.succeed(Success())

    with pytest.raises(TransactionTooLong):
        block()
    assert effects.seen() == []
    assert store.get(grant.id).state is State.RUNNING

"""A store that is used in a forked child opens connections of its own, and the parent's stay usable."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable

from leasehold.domain.outcome import Success
from leasehold.stores.results import Ending
from leasehold.stores.store import JobStore
from tests.backends import Backend, new_job, put


def in_child(work: Callable[[], None]) -> int:
    """The exit status of a forked child that does the work and leaves without any cleaning up."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def run_one(store: JobStore, worker: str) -> str:
    (grant,) = store.claim(worker, ["default"], 1)
    assert store.settle([Ending(grant.id, grant.token, Success())]).accepted == [grant.id]
    return grant.id


def test_a_forked_child_and_its_parent_both_go_on(backend: Backend) -> None:
    store = backend.open()
    before = put(store)
    made_by_child = new_job()

    def work() -> None:
        assert store.get(before.id).state == "queued"
        assert run_one(store, "child") == before.id
        store.enqueue([made_by_child])

    assert in_child(work) == 0
    assert store.get(before.id).settled_by == "child"
    assert run_one(store, "parent") == made_by_child.id
    assert store.get(made_by_child.id).settled_by == "parent"


def test_a_child_that_leaves_does_not_take_the_parents_connections_along(backend: Backend) -> None:
    """Also one that closes the store it has inherited, used or not."""
    store = backend.open()
    store.count()

    def use_and_close() -> None:
        put(store)
        store.close()

    assert in_child(store.close) == 0
    assert in_child(use_and_close) == 0
    assert in_child(lambda: None) == 0
    assert store.count()["queued"] == 1
    assert run_one(store, "parent")


def test_several_children_write_at_once(backend: Backend) -> None:
    store = backend.open()
    put(store)
    pids = []
    for _ in range(3):
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                for _ in range(20):
                    put(store)
                status = 0
            finally:
                os._exit(status)
        pids.append(pid)
    for _ in range(20):
        put(store)
    assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids] == [0, 0, 0]
    assert store.count()["queued"] == 81

"""A flow is all that is tied to a job, from wherever one looks, at one read a level."""

from __future__ import annotations

import itertools

import pytest

from leasehold.domain.dependencies import Flow
from leasehold.domain.errors import InvalidInput, JobNotFound
from leasehold.domain.outcome import Failure, Success
from leasehold.domain.states import State
from leasehold.operations import search as operations_on_flow
from leasehold.operations.operations import Operations
from leasehold.stores.store import JobStore
from leasehold.testing import ManualClock
from tests.backends import new_id, new_job, put
from tests.contract.lives import end, run
from tests.plans.traced import Traced


@pytest.fixture
def operations(store: JobStore) -> Operations:
    return Operations(lambda: store)


def edges(flow: Flow) -> set[tuple[str, str, str, bool | None]]:
    return {(edge.from_id, edge.to_id, edge.relation, edge.met) for edge in flow.edges}


def test_the_whole_flow_is_told_from_each_of_its_jobs(store: JobStore, operations: Operations):
    grant = run(store, task="first")
    left, right = (put(store, task=name, after=(grant.id,)) for name in ("left", "right"))
    last = put(store, task="last", after=(left.id, right.id))
    follow_up = new_job(task="verify")
    end(store, grant, Success("1", None, (follow_up,)))
    put(store, task="stranger")
    expected = {
        (grant.id, left.id, "waits_for", True),
        (grant.id, right.id, "waits_for", True),
        (left.id, last.id, "waits_for", False),
        (right.id, last.id, "waits_for", False),
        (grant.id, follow_up.id, "follow_up", None),
    }
    for job_id in (grant.id, left.id, right.id, last.id, follow_up.id):
        flow = operations.read_flow(job_id)
        assert (flow.job_id, flow.nodes[0].id, flow.cut) == (job_id, job_id, False)
        assert edges(flow) == expected
        assert len(flow.edges) == len(expected)
        assert {(node.id, node.task, node.state) for node in flow.nodes} == {
            (grant.id, "first", State.SUCCEEDED),
            (left.id, "left", State.QUEUED),
            (right.id, "right", State.QUEUED),
            (last.id, "last", State.PENDING),
            (follow_up.id, "verify", State.QUEUED),
        }


def test_a_job_tells_the_first_line_of_its_error(store: JobStore, operations: Operations):
    grant = run(store)
    child = put(store, after=(grant.id,))
    end(store, grant, Failure("ValueError: no\n  File x", final=True))
    for job_id in (grant.id, child.id):
        reported = {node.id: (node.state, node.error) for node in operations.read_flow(job_id).nodes}
        assert reported[grant.id] == (State.FAILED, "ValueError: no")
        assert reported[child.id][0] is State.CANCELLED


def test_a_job_without_ties_is_a_flow_of_its_own(store: JobStore, operations: Operations):
    job = put(store)
    flow = operations.read_flow(job.id)
    assert ([node.id for node in flow.nodes], flow.edges, flow.cut) == ([job.id], [], False)


def test_a_hundred_jobs_in_ten_levels_cost_a_read_a_level(store: JobStore, operations: Operations):
    levels: list[list[str]] = [[new_id() for _ in range(10)] for _ in range(10)]
    store.enqueue([new_job(id=job_id) for job_id in levels[0]])
    for above, level in itertools.pairwise(levels):
        store.enqueue([new_job(id=job_id, after=tuple(above)) for job_id in level])
    with Traced(store) as calls:
        flow = operations.read_flow(levels[0][0])
    assert [call.statement for call in calls] == ["get_job", *["list_ties"] * 10]
    assert (len(flow.nodes), len(flow.edges), flow.cut) == (100, 900, False)


def test_of_more_jobs_than_asked_for_the_nearest_are_told(store: JobStore, operations: Operations):
    first = put(store)
    second = put(store, after=(first.id,))
    third = put(store, after=(second.id,))
    flow = operations.read_flow(first.id, 2)
    assert [node.id for node in flow.nodes] == [first.id, second.id]
    assert edges(flow) == {(first.id, second.id, "waits_for", False)}
    assert flow.cut
    whole = operations.read_flow(first.id, 3)
    assert ([node.id for node in whole.nodes], whole.cut) == ([first.id, second.id, third.id], False)


def test_of_a_job_with_very_many_ties_some_are_read(
    store: JobStore, operations: Operations, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(operations_on_flow, "MOST_TIES", 1)
    parent = put(store)
    store.enqueue([new_job(after=(parent.id,)) for _ in range(20)])
    flow = operations.read_flow(parent.id, 5)
    assert (len(flow.nodes), len(flow.edges), flow.cut) == (5, 4, True)


def test_pruned_jobs_are_left_out(store: JobStore, operations: Operations, clock: ManualClock):
    grant = run(store)
    child = new_job()
    end(store, grant, Success("1", None, (child,)))
    assert len(operations.read_flow(child.id).nodes) == 2
    clock.advance(60)
    assert store.prune(1.0).deleted == 1
    assert [node.id for node in operations.read_flow(child.id).nodes] == [child.id]


def test_a_job_that_is_not_there_has_no_flow(operations: Operations):
    for job_id in (new_id(), "nonsense"):
        with pytest.raises(JobNotFound):
            operations.read_flow(job_id)
    with pytest.raises(InvalidInput, match="limit"):
        operations.read_flow(new_id(), 501)

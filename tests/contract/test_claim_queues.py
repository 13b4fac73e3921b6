"""Several queues in one claim: equal shares in turn, or strictly one after the other; and what many of them cost."""

from __future__ import annotations

from collections import Counter

import pytest

from leasehold.domain.outcome import Success
from leasehold.stores.results import Ending
from leasehold.worker.claimer import QueueRotation
from tests.backends import new_job, put
from tests.contract.lives import OWNER
from tests.plans.traced import Traced


def claim(store, queues, limit, order):
    return store.claim(OWNER, queues, limit, order=order)


def fill(store, queue, number, **fields):
    return [made.id for made in store.enqueue([new_job(queue=queue, **fields) for _ in range(number)])]


WAYS = {
    "plain": lambda n: {},
    "lanes": lambda n: {"lane": f"lane-{n}"},
    "limited": lambda n: {"slots": (("browser", 1),)},
}


@pytest.mark.parametrize("way", WAYS)
def test_in_turns_a_full_queue_leaves_each_other_one_its_share(store, clock, way):
    store.set_slot("browser", 100)
    for n in range(40):
        put(store, queue="full", priority=5, **WAYS[way](n))
    clock.advance(1)
    for n in range(8):
        put(store, queue="b", **WAYS[way](100 + n))
        put(store, queue="c", **WAYS[way](200 + n))
    got = Counter(grant.queue for grant in claim(store, ["b", "full", "c"], 12, "turns"))
    assert got == {"b": 4, "full": 4, "c": 4}


@pytest.mark.parametrize("way", WAYS)
def test_in_turns_who_has_more_gets_what_the_others_leave(store, way):
    store.set_slot("browser", 100)
    for n in range(40):
        put(store, queue="full", **WAYS[way](n))
    put(store, queue="b", **WAYS[way](100))
    got = Counter(grant.queue for grant in claim(store, ["b", "empty", "full"], 12, "turns"))
    assert got == {"b": 1, "full": 11}


@pytest.mark.parametrize("way", WAYS)
def test_strictly_a_queue_is_served_when_those_before_it_have_nothing(store, way):
    store.set_slot("browser", 100)
    for n in range(3):
        put(store, queue="first", **WAYS[way](n))
        put(store, queue="second", priority=9, **WAYS[way](100 + n))
        put(store, queue="third", priority=9, **WAYS[way](200 + n))
    got = [Counter(g.queue for g in claim(store, ["first", "second", "third"], 4, "strict")) for _ in "123"]
    assert got == [{"first": 3, "second": 1}, {"second": 2, "third": 2}, {"third": 1}]


def test_in_turns_the_order_inside_a_queue_is_its_own(store, clock):
    low, high = fill(store, "a", 1, priority=-1), fill(store, "a", 2, priority=7, task="other")
    clock.advance(1)
    middle = fill(store, "a", 2)
    other = fill(store, "b", 5)
    grants = claim(store, ["a", "b"], 6, "turns")
    assert {grant.id for grant in grants} == {*high, middle[0], *other[:3]}
    assert {grant.id for grant in claim(store, ["a", "b"], 6, "turns")} == {middle[1], *low, *other[3:]}


def test_lanes_whose_next_head_is_unknown_are_served_by_their_own_queue(store):
    """Whose turn it is is known when the head is: strictly, the other queue's must wait."""
    for queue in ("late", "early"):
        for _ in range(3):
            put(store, queue=queue, lane=f"{queue} lane")
    order = []
    while grants := claim(store, ["early", "late"], 1, "strict"):
        (grant,) = grants
        order.append(grant.queue)
        store.settle([Ending(grant.id, grant.token, Success(), grant.seq, grant.special)])
    assert order == ["early"] * 3 + ["late"] * 3


def test_turns_go_on_after_the_last_queue_that_was_served(store):
    turns = QueueRotation([f"q{n}" for n in range(10)], strict=False)
    for n in range(10):
        fill(store, f"q{n}", 3)
    seen = Counter()
    for _ in range(10):
        grants = claim(store, turns.queues, 3, "turns")
        turns.served(grants)
        seen.update(grant.queue for grant in grants)
        assert max(seen.values()) - min(seen[f"q{n}"] for n in range(10)) <= 1
    assert seen == {f"q{n}": 3 for n in range(10)}


# -- what many cost ----------------------------------------------------------------------------------------------------

JOBS, MANY, ROOM = 1_000, 500, 20


def cost(store, queues, order):
    """Statements and reads until nothing is left, as a worker asks."""
    turns = QueueRotation(queues, strict=False)
    left = JOBS
    with Traced(store) as calls:
        while grants := store.claim(OWNER, turns.queues, ROOM, order=order):
            turns.served(grants)
            left -= len(grants)
    assert left == 0
    return len(calls)


@pytest.mark.parametrize("what", ["queues", "tasks"])
def test_many_queues_or_kinds_cost_a_few_times_the_statements_of_one(store, what):
    fill(store, "one", JOBS)
    one = cost(store, ["one"], "mixed")
    names = [f"{what}-{n}" for n in range(MANY)]
    if what == "queues":
        store.enqueue([new_job(queue=names[n % MANY]) for n in range(JOBS)])
        many = cost(store, names, "turns")
    else:
        store.enqueue([new_job(task=names[n % MANY], queue="many kinds") for n in range(JOBS)])
        many = cost(store, ["many kinds"], "mixed")
    assert many <= 5 * one, (many, one)

"""What the machine's rules draw from: small pools, so that jobs meet on lanes, keys and groups."""

from __future__ import annotations

from typing import Any

from leasehold.domain import outcome as o
from leasehold.domain.policy import Policy
from leasehold.domain.questions import QuestionAsked
from tests.stores.draws import Draw, booleans, builds, integers, just, lists, one_of, sampled_from

QUEUES = ["default", "low"]
KINDS = ["work", "mail"]
LANES = ["a", "b", "c"]
GROUPS = ["g", "h"]
SITES = ["east", "west"]
OWNERS = ["w1", "w2", "w3"]
KEYS = ["k1", "k2"]
QUESTIONS = ["q1", "q2"]
STEPS = [0.0, 1.0, 5.0, 10.0, 31.0]

PICK = one_of(integers(0, 5), integers(0, 40))
"""Which of the things seen so far, counted from the late"""
PICKS = lists(PICK, 1, 4)
OWNER = sampled_from(OWNERS)
HOW = sampled_from(["cancel", "cancel", "run"])
"""What a job does when one that it waits for ends without success."""
SCOPE = sampled_from([("queue", name) for name in QUEUES] + [("task", name) for name in KINDS])
SOME_QUEUES = sampled_from([QUEUES, QUEUES, *([name] for name in QUEUES)])
SOME_KINDS = sampled_from([None, None, ["work"], ["mail"], KINDS])
SOME_SITES = sampled_from([["east"], ["west"], SITES])

POLICY = builds(
    Policy,
    max_attempts=integers(1, 3),
    max_crashes=sampled_from([None, None, 2]),
    backoff=sampled_from([0.0, 2.0]),
    on_lost=sampled_from(["retry", "fail", "adopt", "adopt"]),
    count_lost=booleans(),
    on_failure=sampled_from(["halt", "skip"]),
    on_breach=sampled_from(["fail", "pause"]),
)


def job_fields(**more: Draw[Any]) -> Draw[dict[str, Any]]:
    """A NewJob's fields but for its id."""
    common: dict[str, Draw[Any]] = {
        "task": sampled_from(KINDS),
        "queue": sampled_from(QUEUES),
        "priority": sampled_from([0, 0, 5, -3]),
        "delay": sampled_from([0.0] * 6 + [4.0, 20.0]),
        "hold": sampled_from([False] * 7 + [True]),
        "group": sampled_from([None, *GROUPS]),
        "lease_seconds": sampled_from([30.0, 6.0]),
        "policy": POLICY,
    }
    return builds(dict, **common | more)


PLAIN = job_fields()
LANED = job_fields(lane=sampled_from(LANES))
KEYED = job_fields(
    lane=sampled_from([None, None, *LANES]),
    unique_key=sampled_from(KEYS),
    unique_for=sampled_from(["live", "live", "ever"]),
    on_duplicate=sampled_from(["return", "replace", "raise"]),
)

OUTCOME: Draw[o.Outcome] = one_of(
    builds(o.Success, sampled_from([None, '{"n": 1}', '"text"'])),
    builds(o.Failure, sampled_from(["broken", "late"]), booleans()),
    just(o.AttemptTimedOut("too slow")),
    just(o.DeadlinePassed("past its deadline")),
    builds(o.Stopped, just("drained"), booleans()),
    builds(o.HandedBack, just("no handler"), sampled_from([0.0, 30.0])),
    just(o.Detached("drained")),
    builds(o.Lost, booleans()),
    builds(o.Crashed, just("signal 9"), booleans()),
    builds(o.Snoozed, sampled_from([0.0, 4.0]), sampled_from([None, "not yet"])),
    builds(QuestionAsked, sampled_from(QUESTIONS), just("which?")),
    just(QuestionAsked("q1", "this?", beside=(QuestionAsked("q2", "that?"),))),
    just(o.Breached("over budget")),
)

"""No lane falls asleep and no lane runs two jobs, whatever commits while a claim decides on its old snapshot."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.protocol.explorer import Exploration, explore
from tests.protocol.record import walk_on_record
from tests.protocol.ticket_model import GUARDS, SETUPS, SOAK_SETUPS, LaneSetup, TicketModel

BY_NAME = {setup.name: setup for setup in (*SETUPS, *SOAK_SETUPS)}

# Where the absence of each guard shows soonest.
CAUGHT_IN = {
    "settle writes a ticket without looking": "enqueued late",
    "a retry writes a ticket": "two jobs, retried",
    "a retry's ticket is due with its job": "two jobs, retried",
    "cancel writes a ticket": "two jobs",
    "resume writes a ticket": "two jobs",
    "skip writes a ticket": "two jobs",
    "enqueue writes a ticket": "enqueued late",
    "claim deletes only tickets it has locked": "two jobs",
    "claim keeps the ticket of a head it could not take": "two jobs",
    "claim takes the head or nobody": "two jobs",
    "claim looks at the row again under its lock": "two jobs",
    "claim compares the token under the lock": "resumed behind another",
    "claim sees who blocks the lane": "two jobs",
    "a head in backoff is the head": "resolved and resumed",
    "a started job is the head": "enqueued late",
    "the unique index covers running": "enqueued late",
    "the unique index covers whoever holds the lane": "enqueued late",
}


def walk(setup: LaneSetup) -> Exploration:
    return explore(TicketModel(setup))


@pytest.mark.parametrize("name", [setup.name for setup in SETUPS])
def test_a_free_lane_with_a_due_head_always_has_a_ticket(
    name: str, record_property: Callable[[str, object], None]
) -> None:
    found = walk(BY_NAME[name])
    record_property("states", found.states)
    print(f"{name}: {found}")
    assert found.sound, str(found)


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", [setup.name for setup in SOAK_SETUPS])
def test_a_free_lane_with_a_due_head_always_has_a_ticket_with_more_in_flight(
    name: str, record_property: Callable[[str, object], None]
) -> None:
    found = walk_on_record("ticket", name, lambda: walk(BY_NAME[name]))
    record_property("states", found.states)
    print(f"{name}: {found}")
    assert found.sound, str(found)


@pytest.mark.parametrize("guard", GUARDS)
def test_a_lane_sleeps_or_breaks_its_order_when_a_guard_is_taken_away(guard: str) -> None:
    found = walk(replace(BY_NAME[CAUGHT_IN[guard]], without=frozenset({guard})))
    print(f"without '{guard}' ({GUARDS[guard]}): {found}")
    assert not found.sound, f"nobody misses the guard '{guard}'"

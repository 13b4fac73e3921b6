"""No crowd of callers can deadlock, and each rule of the lock order is needed for that."""

from collections.abc import Callable

import pytest

from tests.protocol.place_locks import MUTANTS, walk_crowds


def test_no_crowd_of_two_or_three_callers_can_deadlock(
    record_property: Callable[[str, object], None],
) -> None:
    found = walk_crowds()
    record_property("states", found.states)
    print(found)
    assert not found.deadlock, f"these can wait for each other: {found.deadlock}"


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_deadlock_shows_when_a_rule_of_the_lock_order_is_broken(mutant: str) -> None:
    found = walk_crowds(mutant)
    print(f"{mutant}: {found}")
    assert MUTANTS[mutant] in found.deadlock

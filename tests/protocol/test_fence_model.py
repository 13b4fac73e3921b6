"""A run starts once, and never beside the next attempt, whoever freezes where; and each guard is needed for that."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.protocol.explorer import Exploration, explore
from tests.protocol.fence_model import FenceModel
from tests.protocol.fence_setups import BY_NAME, SETUPS, SOAK_SETUPS
from tests.protocol.fence_state import DOCKER_GUARDS, GUARDS, REDUNDANT_GUARDS, SHIM_GUARDS, Setup
from tests.protocol.record import walk_on_record

TWICE = "two starts under one name"
OLDER = "an older token started after a newer one was there"
SETTLED = "a settled attempt was started"
CANCELLED = "a cancelled attempt was started"
LIVES = "attempt n is alive though it was settled"
LEFT_ALIVE = "an attempt was settled as never started while it was alive"
FOR_NOTHING = "an attempt was given up though only its claimants had failed"
STUCK = None
"""It does not come to an end."""

# Where the absence of each guard shows soonest, and which promise is broken then.
CAUGHT_IN = {
    ("shim", "the place is stored before the start"): ("frozen", LIVES),
    ("shim", "the start is stored after the start"): ("frozen", FOR_NOTHING),
    ("shim", "a failed start is buried"): ("frozen and refused", SETTLED),
    ("shim", "a burial looks again"): ("frozen and refused", SETTLED),
    ("shim", "a stop buries what was not started"): ("endless", STUCK),
    ("shim", "what has run is never started"): ("frozen", TWICE),
    ("shim", "remove keeps the tombstone"): ("frozen and cancelled", CANCELLED),
    ("shim", "a token has a mark of its own"): ("frozen", OLDER),
    ("shim", "a starter marks, then looks"): ("frozen", OLDER),
    ("shim", "the shim holds a lock"): ("frozen", TWICE),
    ("shim", "the shim looks under its lock"): ("frozen", OLDER),
    ("shim", "`started` is written before the run"): ("frozen and killed", TWICE),
    ("shim", "a tombstone is above every token"): ("frozen and refused", SETTLED),
    ("shim", "the exit is written before the lock is let go"): ("frozen", FOR_NOTHING),
    ("docker", "the place is stored before the start"): ("frozen", LIVES),
    ("docker", "the start is stored after the start"): ("frozen", FOR_NOTHING),
    ("docker", "a failed start is buried"): ("frozen and refused", SETTLED),
    ("docker", "a burial looks again"): ("frozen and refused", LEFT_ALIVE),
    ("docker", "a stop buries what was not started"): ("endless", STUCK),
    ("docker", "what has run is never started"): ("frozen and killed", STUCK),
    ("docker", "remove keeps the tombstone"): ("frozen and cancelled", CANCELLED),
    ("docker", "a stored start that never was is buried"): ("frozen and killed", STUCK),
    ("docker", "a try opens its folder, then looks"): ("frozen", TWICE),
    ("docker", "a try looks for the marks of others"): ("frozen and killed", TWICE),
    ("docker", "a tombstone found is raised again"): ("frozen and refused", SETTLED),
    ("docker", "who has the name closes the other tries"): ("frozen and killed", TWICE),
    ("docker", "a tombstone closes the tries"): ("frozen and refused", SETTLED),
    ("docker", "a try has a folder of its own"): ("frozen and killed", TWICE),
    ("docker", "a container is started by its id"): ("frozen", TWICE),
    ("docker", "a container's start is marked before"): ("frozen and killed", TWICE),
    ("docker", "the mark lies in the folder"): ("frozen", FOR_NOTHING),
    ("docker", "a container is looked at once its try is closed"): ("frozen", TWICE),
    ("docker", "a discarded container loses its mark first"): ("frozen", FOR_NOTHING),
}
ALL_GUARDS = {("shim", guard): told for guard, told in (GUARDS | SHIM_GUARDS).items()} | {
    ("docker", guard): told for guard, told in (GUARDS | DOCKER_GUARDS).items()
}


def walk(setup: Setup) -> Exploration:
    return explore(FenceModel(setup))


def check(name: str, found: Exploration, record_property: Callable[[str, object], None]) -> None:
    record_property("states", found.states)
    print(f"{name}: {found}")
    assert found.sound, str(found)


@pytest.mark.parametrize("name", [setup.name for setup in SETUPS])
def test_a_run_starts_once_and_never_beside_the_next_attempt(
    name: str, record_property: Callable[[str, object], None]
) -> None:
    check(name, walk(BY_NAME[name]), record_property)


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", [setup.name for setup in SOAK_SETUPS])
def test_a_run_starts_once_with_more_faults_at_once(
    name: str, record_property: Callable[[str, object], None]
) -> None:
    found = walk_on_record("fence", name, lambda: walk(BY_NAME[name]))
    check(name, found, record_property)


@pytest.mark.parametrize(("runner", "guard"), ALL_GUARDS)
def test_the_promise_named_breaks_when_a_guard_is_taken_away(runner: str, guard: str) -> None:
    faults, promise = CAUGHT_IN[runner, guard]
    found = walk(replace(BY_NAME[f"{runner}, {faults}"], without=frozenset({guard})))
    print(f"without '{guard}' ({ALL_GUARDS[runner, guard]}): {found}")
    assert not found.sound, f"nobody misses the guard '{guard}'"
    assert found.violation == promise, str(found)


@pytest.mark.slow(5)
@pytest.mark.parametrize(("runner", "guard"), REDUNDANT_GUARDS)
def test_a_guard_called_redundant_is_missed_by_no_promise(runner: str, guard: str) -> None:
    for setup in SETUPS:
        if setup.runner == runner:
            found = walk(replace(setup, without=frozenset({guard})))
            assert found.sound, f"not redundant after all ({REDUNDANT_GUARDS[runner, guard]}): {found}"

"""The lease protocol keeps its promises in every reachable state, and each of its guards is needed for that."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest

from tests.protocol.explorer import Exploration, explore
from tests.protocol.lease_model import LeaseModel
from tests.protocol.lease_setups import BY_NAME, SETUPS, SOAK_SETUPS
from tests.protocol.lease_state import GUARDS, REDUNDANT_GUARDS
from tests.protocol.record import walk_on_record
from tests.protocol.settle_table import EXPECTED

# Every verb of semantics.md section 5 and section 2, every fault, and every answer a worker can get. A verb that is
# taken by no setup would be a promise that nobody has checked.
VERBS = {
    # grants
    *("claim", "adopt", "steal, claim", "steal, adopt"),
    # the beat
    *("renew", "renew: lost", "give up"),
    # endings
    *("keep", "keep: lost"),
    *("run ends", "settle", "settle: lost", "let go", "look", "reap"),
    # replies that do not come
    *("claim, reply lost", "adopt, reply lost", "steal, claim, reply lost", "steal, adopt, reply lost"),
    *("find unheld", "settle, reply lost", "settle, on its way"),
    *("settle arrives late", "settle arrives late: lost"),
    *("read: settled", "read: still mine", "read: overwritten", "read: fenced"),
    # external executions
    *("store the site", "store the site: lost", "start", "start: name taken"),
    *("mark the start", "mark the start: lost", "probe", "see the end", "attempt time-out"),
    *(
        "see the stop request",
        "stop",
        "stop: no longer alive",
        "stop before the site",
        "stop before the start",
    ),
    *("tombstone", "tombstone: name taken"),
    *("execution exits well", "execution exits badly", "execution vanishes"),
    # operators
    *("release", "release of a paused job", "cancel", "cancel a running job", "finish a running job"),
    *("pause", "pause a running job", "resume", "resume a running job", "resume after failure"),
    *("skip", "answer", "answer a paused job"),
    # time and faults
    *("becomes due", "lease runs out", "holder stalls", "clock leaps", "crash", "drain", "restart"),
}

# Where the absence of each guard shows soonest.
CAUGHT_IN = {
    "settle checks the token": "every outcome, cancelled",
    "renew checks the token": "every outcome, cancelled",
    "hand-back checks the token": "replies lost at drain",
    "detach checks the token": "external, drained at two sites",
    "the site write checks the token": "external",
    "the start mark checks the token": "external",
    "what a run keeps checks the token": "lost while it goes on",
    "progress sets the crashes back": "lost while it goes on",
    "settle takes the lease away": "replies lost",
    "reap takes the lease away": "lost and retried",
    "detach takes the lease away": "external, drained, replies lost",
    "claim moves the token on": "lost and retried",
    "adopt moves the token on": "external, stalled and cancelled",
    "the token is never reset": "lost and retried",
    "an ending carries the token": "lost and retried",
    "claim takes queued rows only": "lost and retried",
    "adopt takes orphans only": "external",
    "adopt serves its own site only": "external, two sites",
    "reap looks twice": "clock leaps",
    "reap compares the expiry": "clock leaps",
    "reap decides under the lock": "lost and retried",
    "reap reads the flag under the lock": "lost and retried",
    "reap spares orphans": "external",
    "reap does not sign as settler": "replies lost",
    "settle reads the flag under the lock": "every outcome, paused",
    "settle clears the flag": "every outcome, paused",
    "a cancelled run is not retried": "every outcome, cancelled",
    "a paused run is not retried": "every outcome, paused",
    "a lost run with a flag is not requeued": "lost and retried",
    "a lost external run becomes an orphan": "external, on_lost=retry",
    "an adopted loss costs nothing": "external",
    "a lost external run is not failed": "external, on_lost=fail",
    "a lost external run without a site is requeued": "external, crashed and cancelled",
    "a drained external run becomes an orphan": "external, drained at two sites",
    "the site is stored before the start": "external",
    "a start occupies the name": "external",
    "a vanished run gets a tombstone": "external",
    "a stop of an absent run leaves a tombstone": "external",
    "a settled name stays taken": "external",
    "a cancelled orphan is adopted": "external, crashed and cancelled",
    "resume refuses final states": "lost and retried",
    "resume clears a pause only": "lost and retried",
    "resume keeps the hold": "on hold",
    "release reaches a paused job": "on hold",
    "resolve lets the lane go on": "lane that halts",
    "answer requeues": "every outcome, paused",
    "cancel closes the question": "every outcome, cancelled",
    "an orphan holds its lane": "lane of external runs",
    "a halting failure holds its lane": "lane that halts",
    "a paused job holds its lane": "lane that halts",
    "a waiting job holds its lane": "lane with backoff and questions",
    "a head in backoff holds its lane": "lane with backoff and questions",
    "a started job keeps its lane": "lane that skips",
    "the stronger flag wins": "lost and retried",
    "owner names are never shared": "replies lost",
    "a lost reply is read by token": "replies lost",
    "a lost reply is read by owner": "replies lost",
    "a refused repeat is read again": "replies lost",
    "renew spares the settle queue": "replies lost",
    "an overwritten settle is not called a loss": "replies lost",
    "a run given up is not found again": "replies lost",
}

HARMLESS_IN = {
    "renew ignores the expiry": "lost and failed",
    "a lost claim is found": "stolen and retried",
    "a vanished run is not started again": "external, two stalls",
}


# In one process, which then walks every setup once and not twice.
WALKS = pytest.mark.xdist_group("walks")


@cache
def walk(name: str) -> tuple[Exploration, frozenset[tuple[str, str]]]:
    """What was found, and which cells of the settle table were used on the way."""
    model = LeaseModel(BY_NAME[name])
    return explore(model), frozenset(model.store.cells_used)


def walk_without(guard: str, name: str) -> Exploration:
    return explore(LeaseModel(replace(BY_NAME[name], without=frozenset({guard}))))


@pytest.mark.slow(6)
@WALKS
@pytest.mark.parametrize("name", [setup.name for setup in SETUPS])
def test_every_promise_holds_and_every_job_can_come_to_rest(
    name: str, record_property: Callable[[str, object], None]
) -> None:
    found, _ = walk(name)
    record_property("states", found.states)
    print(f"{name}: {found}")
    assert found.sound, str(found)


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", [setup.name for setup in SOAK_SETUPS])
def test_every_promise_holds_under_more_faults_at_once(
    name: str, record_property: Callable[[str, object], None]
) -> None:
    found = walk_on_record("lease", name, lambda: walk(name)[0])
    record_property("states", found.states)
    print(f"{name}: {found}")
    assert found.sound, str(found)


@pytest.mark.parametrize("guard", GUARDS)
def test_a_broken_promise_shows_when_a_guard_is_taken_away(guard: str) -> None:
    found = walk_without(guard, CAUGHT_IN[guard])
    print(f"without '{guard}' ({GUARDS[guard]}): {found}")
    assert not found.sound, f"nobody misses the guard '{guard}'"


@pytest.mark.parametrize("guard", REDUNDANT_GUARDS)
def test_a_guard_called_redundant_is_missed_by_no_promise(guard: str) -> None:
    found = walk_without(guard, HARMLESS_IN[guard])
    assert found.sound, f"not redundant after all ({REDUNDANT_GUARDS[guard]}): {found}"


@pytest.mark.slow(6)
@WALKS
def test_every_verb_and_every_cell_of_the_settle_table_is_taken_somewhere_and_no_verb_is_unlisted() -> None:
    """Together, because every walk of every setup is needed for either."""
    walks = [walk(setup.name) for setup in SETUPS]
    assert set().union(*(explored.verbs for explored, _ in walks)) == VERBS
    assert set().union(*(cells for _, cells in walks)) == set(EXPECTED)

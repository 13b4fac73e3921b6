"""A job is in exactly one place in every reachable state, and each guard of the place protocol is needed for that."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest

from tests.protocol.explorer import Exploration, explore
from tests.protocol.place_model import PlaceModel
from tests.protocol.place_setups import BY_NAME, SETUPS, SOAK_SETUPS
from tests.protocol.place_state import GUARDS
from tests.protocol.record import walk_on_record

# Every verb, every answer it can get, and every fault. One that no setup takes would be a promise nobody has checked.
VERBS = {
    # grants
    *("claim looks", "claim", "claim: gone or locked", "claim, reply lost", "find held"),
    *("steal begins", "steal", "steal: first look", "steal: left alone", "steal: denied"),
    *("steal obeys the flag", "claim by id", "adopt begins", "adopt"),
    # the beat
    *("renew", "renew: lost"),
    # endings
    *("run ends", "settle looks", "settle: none", "settle: skipped", "tied settle"),
    *("succeed begins", "succeed", "succeed: fenced", "fail begins", "fail", "fail for good", "fail: fenced"),
    *("handback begins", "handback", "detach begins", "detach", "detach: fenced"),
    *("reaper looks", "reap begins", "reap", "reap: left alone", "reap: not found"),
    # replies that do not come
    *("succeed, reply lost", "fail, reply lost", "fail for good, reply lost"),
    *("settle, on its way", "settle lands late", "settle lands late: none"),
    *("read: done", "read: mine", "read: fenced", "read: pruned"),
    # finding a job
    *("probe", "probe: gone", "lock", "job not found"),
    # operators
    *("cancel begins", "cancel", "cancel: refused", "pause begins", "pause", "pause: refused", "flag"),
    *("resume begins", "resume", "resume a running job", "resume: refused", "resume: key taken"),
    # side rows
    *("child begins", "child", "child of an ended job"),
    *("step begins", "step", "step: lost", "step: not found"),
    # the unique key
    *("insert the key", "enqueue", "enqueue rolled back", "enqueue: key in use", "end"),
    *("replace begins", "replace", "replace: holder runs"),
    # retention
    *("pruner looks", "prune begins", "prune", "prune: not found"),
    # time and faults
    *("lease runs out", "a dead holder's lease runs out", "crash"),
}

# Where the absence of each guard shows soonest.
CAUGHT_IN = {
    "settle asks for special": "pruned",
    "special is asked again under the lock": "pruned",
    "a move carries special": "keyed, replaced",
    "the parent's place is marked": "pruned",
    "an attempt filed raises special": "pruned with steps",
    "a step raises special": "pruned with steps",
    "an ended parent is marked": "pruned",
    "claim inserts only what it deleted": "pruned with steps",
    "probes go in the order of life": "pruned",
    "each probe has its own snapshot": "pruned",
    "moves back hold the anchor": "keyed",
    "verbs hold the anchor": "pruned",
    "claim moves the token on": "pruned with steps",
    "steal moves the token on": "stolen",
    "adoption moves the token on": "external",
    "the token is carried to ready": "pruned with steps",
    "the token is carried to parked": "external",
    "the token is carried to outcome": "pruned with steps",
    "settle asks for the token": "pruned with steps",
    "decided settle asks for the token": "pruned with steps",
    "renew asks for the token": "stalled",
    "a run's write asks for the token": "pruned with steps",
    "a run's write locks its lease row": "pruned with steps",
    "reap asks again under the lock": "stalled",
    "steal asks again under the lock": "stolen",
    "the flag is read under the lock": "stalled",
    "an orphan keeps its flag": "external",
    "what was skipped is settled with care": "pruned with steps",
    "a requeue files its attempt": "replies lost",
    "resume files the attempt that the outcome told": "replies lost",
    "a refused repeat is read again": "replies lost",
    "a lost reply is read in one snapshot": "replies lost",
    "a lost reply is read by owner": "replies lost, reaped",
    "a lost reply is read by token": "replies lost",
    "reap does not sign as settler": "replies lost, reaped",
    "a pruned job is not called lost": "pruned, replies lost",
    "prune holds the anchor": "pruned",
    "prune deletes only a job whose outcome it deleted": "pruned",
    "a tied end deletes the key": "keyed",
    "a decided end deletes the key": "keyed",
    "a key is deleted by its holder only": "keyed",
    "the key's row is the guard": "keyed",
    "resume takes the key again": "keyed",
    "resume is refused while another has the key": "keyed",
    "replace takes the key over": "keyed, replaced",
}

# In one process, which then walks every setup once and not twice.
WALKS = pytest.mark.xdist_group("place walks")


@cache
def walk(name: str) -> Exploration:
    return explore(PlaceModel(BY_NAME[name]))


@pytest.mark.slow(5)
@WALKS
@pytest.mark.parametrize("name", [setup.name for setup in SETUPS])
def test_a_job_is_in_one_place_and_can_always_come_to_rest(
    name: str, record_property: Callable[[str, object], None]
) -> None:
    found = walk(name)
    record_property("states", found.states)
    print(f"{name}: {found}")
    assert found.sound, str(found)


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", [setup.name for setup in SOAK_SETUPS])
def test_a_job_is_in_one_place_under_more_faults_at_once(
    name: str, record_property: Callable[[str, object], None]
) -> None:
    found = walk_on_record("place", name, lambda: walk(name))
    record_property("states", found.states)
    print(f"{name}: {found}")
    assert found.sound, str(found)


@pytest.mark.parametrize("guard", GUARDS)
def test_a_place_breaks_its_promise_when_a_guard_is_taken_away(guard: str) -> None:
    found = explore(PlaceModel(replace(BY_NAME[CAUGHT_IN[guard]], without=frozenset({guard}))))
    print(f"without '{guard}' ({GUARDS[guard]}): {found}")
    assert not found.sound, f"nobody misses the guard '{guard}'"


@pytest.mark.slow(5)
@WALKS
def test_every_verb_is_taken_somewhere_and_no_verb_is_unlisted() -> None:
    assert set().union(*(walk(setup.name).verbs for setup in SETUPS)) == VERBS

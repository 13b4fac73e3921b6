"""The configurations of the place model: each small enough to be walked whole, together covering every careful verb
against every hot statement.
"""

from tests.protocol.place_state import Budget, Setup

# Every test run walks these.
SETUPS = (
    Setup("operator", Budget(cancel=1, pause=1, resume=1, fail=1, handback=1)),
    Setup("child", Budget(child=1, cancel=1, fail=1, pause=1, resume=1)),
    Setup("stalled", Budget(expire=1, renew=1, fail=1, cancel=1, crash=1)),
    Setup("stolen", Budget(expire=1, renew=1, steal=2, cancel=1)),
    Setup("external", Budget(detach=1, expire=1, cancel=1), external=True),
    Setup("replies lost", Budget(lost=1, fail=1, resume=1), fails_for_good=True),
    Setup("replies lost, reaped", Budget(lost=1, fail=1, expire=1, cancel=1)),
    Setup("steps", Budget(step=1, expire=1, fail=1, cancel=1)),
    Setup("settle waits", Budget(child=1, pause=1, resume=1, expire=1), settle_waits=True),
    Setup("pruned", Budget(prune=1, resume=1, fail=1, child=1), fails_for_good=True),
    Setup("pruned, replies lost", Budget(prune=1, lost=1, fail=1)),
    Setup("pruned with steps", Budget(prune=1, step=1, expire=1)),
    Setup("keyed", Budget(rival=1, resume=1, fail=1, cancel=1), keyed=True, fails_for_good=True),
    Setup("keyed, replaced", Budget(rival=1, pause=1, resume=1, expire=1), keyed=True, replaces=True),
)

# The same with more faults at once: a minute or two in all.
SOAK_SETUPS = (
    Setup("stalled twice", Budget(expire=2, renew=1, fail=1, cancel=1, crash=1)),
    Setup("stolen twice", Budget(expire=2, renew=1, steal=2, crash=1, cancel=1)),
    Setup(
        "external, every verb",
        Budget(detach=1, expire=1, cancel=1, crash=1, pause=1, resume=1),
        external=True,
    ),
    Setup(
        "replies lost, every ending",
        Budget(lost=1, fail=2, handback=1, resume=1, expire=1),
        fails_for_good=True,
    ),
    Setup(
        "everything once",
        Budget(cancel=1, resume=1, child=1, expire=1, fail=1, detach=1),
        external=True,
    ),
    Setup(
        "settle waits, every verb",
        Budget(child=1, cancel=1, pause=1, resume=1, expire=1, handback=1),
        settle_waits=True,
    ),
    Setup(
        "pruned, every side row",
        Budget(prune=1, resume=1, fail=1, child=1, step=1, cancel=1),
        fails_for_good=True,
    ),
    Setup(
        "keyed, every verb",
        Budget(rival=2, resume=1, fail=1, cancel=1, expire=1, prune=1),
        keyed=True,
        replaces=True,
        fails_for_good=True,
    ),
)

BY_NAME = {setup.name: setup for setup in (*SETUPS, *SOAK_SETUPS)}

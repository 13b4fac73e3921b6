"""What is walked of the fence, for both runners: each setup small enough to be walked whole."""

from tests.protocol.fence_state import Budget, Setup

RUNNERS = ("shim", "docker")

FAULTS = {
    "frozen": Budget(losses=1),
    "dead": Budget(deaths=2, cancels=1),
    "frozen and cancelled": Budget(losses=1, cancels=1),
    "frozen and killed": Budget(losses=1, kills=1),
    "frozen and refused": Budget(losses=1, refusals=1),
}
SOAK_FAULTS = {
    "frozen twice": Budget(losses=2),
    "frozen twice and cancelled": Budget(losses=2, cancels=1),
    "frozen twice and killed": Budget(losses=2, kills=1),
    "frozen, dead and killed": Budget(losses=1, deaths=1, kills=1),
    "frozen, refused and cancelled": Budget(losses=1, refusals=1, cancels=1),
    "frozen, refused and killed": Budget(losses=1, refusals=1, kills=1),
    "frozen and refused twice": Budget(losses=1, refusals=2),
}

SETUPS = (
    *(Setup(f"{runner}, {name}", runner, budget) for runner in RUNNERS for name, budget in FAULTS.items()),
    *(Setup(f"{runner}, endless", runner, Budget(losses=1, cancels=1), endless=True) for runner in RUNNERS),
)
SOAK_SETUPS = tuple(
    Setup(f"{runner}, {name}", runner, budget) for runner in RUNNERS for name, budget in SOAK_FAULTS.items()
)

BY_NAME = {setup.name: setup for setup in (*SETUPS, *SOAK_SETUPS)}

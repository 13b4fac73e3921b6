"""The configurations that are walked: each small enough to be walked whole, together covering every verb of
semantics.md section 5 under every on_lost. A fault or an operator's verb is bounded by the budget; everything
that ends by itself is not.
"""

from tests.protocol.lease_state import Budget, Setup

BOTH = (0, 1)
WHIMS = (
    "attempt time-out",
    "whole-job deadline",
    "snooze",
    "retry in",
    "question",
    "pause raised",
    "budget breach, on_breach=failed",
    "budget breach, on_breach=paused",
)

# Every test run walks these.
SETUPS = (
    Setup("every outcome, paused", Budget(pauses=1, whims=1, revivals=1), whims=WHIMS),
    Setup("every outcome, cancelled", Budget(stalls=1, cancels=1, finishes=1, whims=1), whims=WHIMS),
    Setup("lost and retried", Budget(crashes=2, stalls=1, cancels=1, pauses=1), reapers=BOTH),
    Setup(
        "lost and failed",
        Budget(crashes=1, stalls=1, cancels=1, pauses=1, revivals=1),
        on_lost="fail",
        reapers=BOTH,
    ),
    Setup("clock leaps", Budget(crashes=1, stalls=1, jumps=2), reapers=BOTH),
    Setup("replies lost", Budget(crashes=1, stalls=1, lost_replies=2), reapers=BOTH),
    Setup("replies lost at drain", Budget(stalls=1, lost_replies=1, drains=1), reapers=BOTH),
    Setup("stolen and retried", Budget(crashes=1, stalls=1, lost_replies=1), reapers=BOTH, steals=True),
    Setup("stolen and failed", Budget(stalls=1, pauses=1), on_lost="fail", steals=True),
    Setup("on hold", Budget(stalls=1, releases=1, pauses=1, cancels=1), starts_on_hold=True),
    Setup(
        "external",
        Budget(crashes=1, stalls=1, vanishes=1, cancels=1),
        on_lost="adopt",
        external=True,
    ),
    Setup("external, two stalls", Budget(stalls=2, cancels=1), on_lost="adopt", external=True),
    Setup(
        "external, paused",
        Budget(stalls=1, pauses=1, whims=1),
        on_lost="adopt",
        external=True,
        whims=("attempt time-out",),
        max_attempts=1,
    ),
    Setup(
        "external, two sites",
        Budget(crashes=1, stalls=1, drains=1),
        on_lost="adopt",
        external=True,
        sites=(0, 1),
    ),
    Setup(
        "external, drained",
        Budget(lost_replies=1, stalls=1, drains=1),
        on_lost="adopt",
        external=True,
        max_attempts=1,
    ),
    Setup("external, stolen", Budget(crashes=1, stalls=1), on_lost="adopt", external=True, steals=True),
    Setup(
        "lane that halts",
        Budget(stalls=1, pauses=1, cancels=1, revivals=1),
        jobs=2,
        halts=True,
        max_attempts=1,
    ),
    Setup(
        "lane with backoff and questions",
        Budget(crashes=1, pauses=1, whims=1, cancels=1),
        jobs=2,
        halts=True,
        backoff=True,
        whims=("snooze", "question"),
    ),
    Setup(
        "lane that skips",
        Budget(crashes=1, releases=1, cancels=1, revivals=1),
        jobs=2,
        backoff=True,
        starts_on_hold=True,
    ),
    Setup(
        "lane of external runs",
        Budget(crashes=1, stalls=1, cancels=1),
        jobs=2,
        on_lost="adopt",
        external=True,
        halts=True,
        max_attempts=1,
    ),
)

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

EXTERNAL = {"external": True, "on_lost": "adopt"}

# Every test run walks these.
SETUPS = (
    Setup("every outcome, paused", Budget(pauses=1, whims=1, revivals=1), whims=WHIMS),
    Setup("every outcome, cancelled", Budget(stalls=1, cancels=1, finishes=1, whims=1), whims=WHIMS),
    Setup("lost and retried", Budget(crashes=2, stalls=1, cancels=1, pauses=1)),
    Setup("lost while it goes on", Budget(crashes=2, stalls=1, keeps=2)),
    Setup("lost and retried, two reapers", Budget(crashes=1, stalls=1, finishes=1), reapers=BOTH),
    Setup("lost and failed", Budget(crashes=1, stalls=1, pauses=1, revivals=1), on_lost="fail"),
    Setup("lost and failed under a flag", Budget(crashes=1, cancels=1, finishes=1), on_lost="fail"),
    Setup("clock leaps", Budget(crashes=1, stalls=1, jumps=2), reapers=BOTH),
    Setup("replies lost", Budget(stalls=1, lost_replies=2), reapers=BOTH),
    Setup("replies lost at drain", Budget(stalls=1, lost_replies=1, drains=1), max_attempts=1, reapers=BOTH),
    Setup("stolen and retried", Budget(crashes=1, stalls=1, lost_replies=1), reapers=BOTH, steals=True),
    Setup("stolen and failed", Budget(stalls=1, pauses=1), on_lost="fail", steals=True),
    Setup("on hold", Budget(stalls=1, releases=1, pauses=1, cancels=1), starts_on_hold=True),
    Setup("external, crashed and cancelled", Budget(crashes=1, cancels=1, vanishes=1), **EXTERNAL),
    Setup("external", Budget(crashes=1, stalls=1, vanishes=1, cancels=1), **EXTERNAL),
    Setup("external, two stalls", Budget(stalls=2, vanishes=1), max_attempts=1, **EXTERNAL),
    Setup("external, stalled and cancelled", Budget(stalls=2, cancels=1), max_attempts=1, **EXTERNAL),
    Setup(
        "external, paused",
        Budget(stalls=1, pauses=1, whims=1),
        whims=("attempt time-out",),
        max_attempts=1,
        **EXTERNAL,
    ),
    Setup("external, two sites", Budget(crashes=1, stalls=1), sites=(0, 1), **EXTERNAL),
    Setup("external, drained at two sites", Budget(stalls=1, drains=1), sites=(0, 1), **EXTERNAL),
    Setup(
        "external, drained under a flag",
        Budget(drains=1, cancels=1, pauses=1, finishes=1),
        max_attempts=1,
        **EXTERNAL,
    ),
    Setup("external, lost under a flag", Budget(crashes=1, pauses=1, finishes=1), max_attempts=1, **EXTERNAL),
    Setup("external, drained, replies lost", Budget(lost_replies=1, drains=1), **EXTERNAL),
    Setup("external, stolen", Budget(stalls=1, lost_replies=1), steals=True, max_attempts=1, **EXTERNAL),
    Setup("external, on_lost=retry", Budget(crashes=1, stalls=1), external=True),
    Setup("external, on_lost=fail", Budget(crashes=1, stalls=1), external=True, on_lost="fail"),
    Setup("lane that halts", Budget(pauses=1, cancels=1, revivals=1), jobs=2, halts=True, max_attempts=1),
    Setup("lane that is lost", Budget(stalls=1, cancels=1), jobs=2, halts=True, backoff=True, max_crashes=1),
    Setup(
        "lane with backoff and questions",
        Budget(pauses=1, whims=1, cancels=1),
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
        "lane of external runs", Budget(crashes=1, stalls=1), jobs=2, halts=True, max_attempts=1, **EXTERNAL
    ),
    Setup(
        "lane of external runs, cancelled", Budget(stalls=1, cancels=1), jobs=2, max_attempts=1, **EXTERNAL
    ),
)

# The same with more faults at once: minutes, not seconds.
SOAK_SETUPS = (
    Setup(
        "every outcome and verb",
        Budget(stalls=1, cancels=1, pauses=1, finishes=1, whims=1, revivals=1),
        whims=WHIMS,
    ),
    Setup("replies lost, crashed", Budget(crashes=1, stalls=1, lost_replies=2, drains=1), reapers=BOTH),
    Setup(
        "stolen and paused", Budget(crashes=1, stalls=1, lost_replies=1, pauses=1), reapers=BOTH, steals=True
    ),
    Setup("external, every fault", Budget(crashes=1, stalls=2, vanishes=1, cancels=1), **EXTERNAL),
    Setup("external, paused and drained", Budget(stalls=1, pauses=1, drains=1), **EXTERNAL),
    Setup("external, drained and stalled", Budget(stalls=1, lost_replies=1, drains=1), **EXTERNAL),
    Setup(
        "lane that halts and is lost", Budget(stalls=1, pauses=1, cancels=1, revivals=1), jobs=2, halts=True
    ),
    Setup("lane of external runs, every fault", Budget(crashes=1, stalls=1, cancels=1), jobs=2, **EXTERNAL),
)

BY_NAME = {setup.name: setup for setup in (*SETUPS, *SOAK_SETUPS)}

"""The table of semantics.md section 4 as literal data: outcome × stop flag → the state the row must end in.

Written from the text and from nothing else, so that the domain's `settle()` and the protocol model can both be
held against it. A cell that the text gives in words is decided here, with its reason:

- "attempt time-out" under a pause flag reads "as left": the cell to its left, timed_out.
- Lost with on_lost=retry is retried while failures < max_attempts and crashes < max_crashes; when these are used
  up it is the row "failure, exhausted".
- Lost with on_lost=adopt, and a drain, keep an external run only if its site is stored. Without a site nothing
  can have been started (the site is written, fenced, before any start), so the row "lost, on_lost=retry" or
  "handed back" rules instead.
- A Pause raised by the handler, and a drain with on_drain=pause, are "stopped" under max(flag, pause).
- Snooze and RetryIn cost no failure.
- A budget breach under a pause flag goes by `on_breach`.
"""

FLAGS = ("none", "finish", "pause", "cancel")  # in order of strength: the stronger wins

PENDING, QUEUED, RUNNING, WAITING = "pending", "queued", "running", "waiting"
PAUSED, FAILED, TIMED_OUT = "paused", "failed", "timed_out"
SUCCEEDED, CANCELLED = "succeeded", "cancelled"
ORPHAN = "orphan"  # running, with no owner; the flag is kept

# fmt: off
_ROWS: dict[str, tuple[str, str, str, str]] = {
    # outcome                            no flag    finish     pause      cancel
    "success":                          (SUCCEEDED, SUCCEEDED, SUCCEEDED, SUCCEEDED),
    "failure, retries left":            (QUEUED,    CANCELLED, PAUSED,    CANCELLED),
    "failure, exhausted":               (FAILED,    FAILED,    FAILED,    CANCELLED),
    "attempt time-out, retries left":   (QUEUED,    TIMED_OUT, TIMED_OUT, CANCELLED),
    "attempt time-out, exhausted":      (TIMED_OUT, TIMED_OUT, TIMED_OUT, CANCELLED),
    "whole-job deadline":               (TIMED_OUT, TIMED_OUT, TIMED_OUT, CANCELLED),
    "stopped":                          (QUEUED,    CANCELLED, PAUSED,    CANCELLED),
    "handed back":                      (QUEUED,    CANCELLED, PAUSED,    CANCELLED),
    "lost, on_lost=retry":              (QUEUED,    CANCELLED, PAUSED,    CANCELLED),
    "lost, on_lost=fail":               (FAILED,    FAILED,    FAILED,    CANCELLED),
    "lost, on_lost=adopt":              (ORPHAN,    ORPHAN,    ORPHAN,    ORPHAN),
    "external run at drain":            (ORPHAN,    ORPHAN,    ORPHAN,    ORPHAN),
    "snooze":                           (QUEUED,    CANCELLED, PAUSED,    CANCELLED),
    "retry in":                         (QUEUED,    CANCELLED, PAUSED,    CANCELLED),
    "question":                         (WAITING,   CANCELLED, PAUSED,    CANCELLED),
    "budget breach, on_breach=failed":  (FAILED,    FAILED,    FAILED,    CANCELLED),
    "budget breach, on_breach=paused":  (PAUSED,    FAILED,    PAUSED,    CANCELLED),
}
# fmt: on

OUTCOMES = tuple(_ROWS)

EXPECTED: dict[tuple[str, str], str] = {
    (outcome, flag): state
    for outcome, states in _ROWS.items()
    for flag, state in zip(FLAGS, states, strict=True)
}

# Only a question leaves one behind: open where the job may still be answered, closed where it may not.
QUESTION_STAYS_OPEN: dict[str, bool] = {"none": True, "finish": False, "pause": True, "cancel": False}

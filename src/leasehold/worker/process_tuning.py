"""Tunes a process that belongs to the worker alone."""

from __future__ import annotations

import gc
import sys


def tune_process() -> None:
    """Tune garbage collection and thread switching. A job makes a dozen short-lived objects and no cycles: by default
    the collector would scan all live objects for them repeatedly, a sixth of the time of a cheap job. And a thread that
    has the database's reply would wait 5 ms for the loop to let it run, as long as a claim takes."""
    gc.freeze()
    gc.set_threshold(20_000, 50, 100)
    sys.setswitchinterval(0.0005)

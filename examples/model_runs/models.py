"""The interface for models, and the mock model: it sleeps N seconds and returns random stats."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from typing import Protocol

Stats = dict[str, float]
Sleep = Callable[[float], object]
"""A sleep that ends early, by an exception, when the run is cancelled or has lost its lease."""


class Retriable(Exception):
    """What may go better the next time: the run goes back to PENDING. Any other exception ends it as FAILED."""


class Model(Protocol):
    def run(self, seconds: float, attempt: int, sleep: Sleep) -> Stats: ...


class MockModel:
    def run(self, seconds: float, attempt: int, sleep: Sleep) -> Stats:
        sleep(seconds)
        sample = [random.gauss(0.0, 1.0) for _ in range(1000)]
        return {"mean": statistics.fmean(sample), "stdev": statistics.stdev(sample), "attempt": attempt}


class BlockingModel(MockModel):
    """Code that cannot be stopped. Should its lease be lost, it goes on, and its result comes too late."""

    def run(self, seconds: float, attempt: int, sleep: Sleep) -> Stats:
        return super().run(seconds, attempt, time.sleep)


class FlakyModel(MockModel):
    """Its first attempt meets an error that may pass."""

    def run(self, seconds: float, attempt: int, sleep: Sleep) -> Stats:
        if attempt == 1:
            raise Retriable("the licence server is busy")
        return super().run(seconds, attempt, sleep)


class BrokenModel:
    def run(self, seconds: float, attempt: int, sleep: Sleep) -> Stats:
        raise ValueError("the matrix is singular")


MODELS: dict[str, Model] = {
    "mock": MockModel(),
    "blocking": BlockingModel(),
    "flaky": FlakyModel(),
    "broken": BrokenModel(),
}

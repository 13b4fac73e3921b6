"""The health file: exists and is touched every few seconds while its worker is healthy. A probe checks its age."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from leasehold.worker.service import Service

TOUCH_EVERY = 5.0


class HealthFile(Service):
    def __init__(self, path: Path, is_well: Callable[[], bool]) -> None:
        super().__init__("health file", self.beat)
        self._path = path
        self._is_well = is_well

    def stop(self) -> None:
        super().stop()
        self._path.unlink(missing_ok=True)

    def beat(self) -> float:
        if self._is_well():
            self._path.touch()
        else:
            self._path.unlink(missing_ok=True)
        return TOUCH_EVERY

"""The tenants of the jobs whose leases this process holds."""

from __future__ import annotations

import threading
from collections.abc import Iterable

RECENT = 10_000
"""How many jobs are remembered after their leases ended: an attempt's spending may arrive after its end."""

Name = str | None
"""The name of a tenant; None: the app's own store."""


class JobIndex:
    """Shared by the claims, the settles and the lease keeper of a worker."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[str, Name] = {}
        self._recent: dict[str, Name] = {}
        self._counts: dict[Name, int] = {}

    def hold(self, job_id: str, name: Name) -> bool:
        """False: a job with that id is held for another tenant, as when a tenant's file was copied."""
        with self._lock:
            if job_id in self._held:
                return self._held[job_id] == name
            self._recent.pop(job_id, None)
            self._held[job_id] = name
            self._counts[name] = self._counts.get(name, 0) + 1
            return True

    def let_go(self, ids: Iterable[str]) -> None:
        with self._lock:
            for job_id in ids:
                if job_id in self._held:
                    name = self._held.pop(job_id)
                    self._counts[name] -= 1
                    self._remember(job_id, name)

    def note(self, job_id: str, name: Name) -> None:
        """Remember where the job was found."""
        with self._lock:
            self._remember(job_id, name)

    def knows(self, job_id: str) -> bool:
        return job_id in self._held or job_id in self._recent

    def of(self, job_id: str) -> Name:
        """The tenant of a known job."""
        with self._lock:
            return self._held[job_id] if job_id in self._held else self._recent[job_id]

    def count(self, name: Name) -> int:
        return self._counts.get(name, 0)

    def _remember(self, job_id: str, name: Name) -> None:
        self._recent[job_id] = name
        while len(self._recent) > RECENT:
            del self._recent[next(iter(self._recent))]

"""What the environment says. All processes of one installation must be told the same."""

from __future__ import annotations

import os
from dataclasses import dataclass


def _number(name: str, default: float) -> float:
    return float(os.environ.get(name) or default)


@dataclass(frozen=True)
class Settings:
    queue_enabled: bool
    """RUNNER_QUEUE_ENABLED. False: no queue and no workers; a request runs its tool at once, or is rejected."""
    max_concurrency: int
    """RUNNER_MAX_CONCURRENCY: the cap, when there is no queue."""
    runner: str
    """RUNNER: `docker`, or `subprocess` where there is no Docker engine."""
    image: str
    """RUNNER_IMAGE: must be on the machine, it is not pulled."""
    lease_ttl: float
    """RUNNER_LEASE_TTL_SECONDS. A heartbeat renews the lease three times in this time."""
    timeout: float
    """RUNNER_TIMEOUT_SECONDS: of one container, unless a request says otherwise."""
    backoff: float
    """RUNNER_RETRY_BACKOFF_SECONDS: before the second attempt; it doubles with each further one."""
    worker_runs: int
    """RUNNER_WORKER_RUNS: how many containers one worker watches."""

    @staticmethod
    def from_environment() -> Settings:
        return Settings(
            queue_enabled=os.environ.get("RUNNER_QUEUE_ENABLED", "true").lower() not in ("false", "0", "no"),
            max_concurrency=int(_number("RUNNER_MAX_CONCURRENCY", 4)),
            runner=os.environ.get("RUNNER", "docker"),
            image=os.environ.get("RUNNER_IMAGE", "busybox:latest"),
            lease_ttl=_number("RUNNER_LEASE_TTL_SECONDS", 30),
            timeout=_number("RUNNER_TIMEOUT_SECONDS", 600),
            backoff=_number("RUNNER_RETRY_BACKOFF_SECONDS", 5),
            worker_runs=int(_number("RUNNER_WORKER_RUNS", 50)),
        )

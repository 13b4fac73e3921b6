"""A waiter in another process is woken by what happens here, on both stores."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from typing import Any

import pytest

from leasehold import Leasehold
from leasehold.domain.outcome import Success
from leasehold.stores.results import Ending
from tests.backends import Backend, new_job
from tests.faults.harness import ROOT
from tests.launcher import launch

CHANGES = 30


@pytest.mark.timeout(120)
def test_a_waiter_in_another_process_is_woken_within_250_ms(app: Leasehold, backend: Backend) -> None:
    app.__internals__.store.enqueue([new_job(group="g") for _ in range(CHANGES + 1)])
    config = {"url": backend.url, "schema": backend.schema, "group": "g", "since": 1}
    waiter = launch(
        [sys.executable, "-m", "tests.faults.group_waiter_main", json.dumps(config)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert _next(waiter)["version"] == 1, "it is there"
        late = []
        for number in range(CHANGES):
            (grant,) = app.__internals__.store.claim("worker-1", ["default"], 1)
            app.__internals__.store.settle([Ending(grant.id, grant.token, Success("1"))])
            changed_at = time.monotonic()
            app.__internals__.store.notify_watchers()
            seen = _next(waiter)
            assert seen["version"] == number + 2
            late.append(seen["at"] - changed_at)
    finally:
        waiter.kill()
        waiter.wait(30)
        for stream in (waiter.stdin, waiter.stdout):
            if stream is not None:
                stream.close()
    median = statistics.median(late)
    print(f"\n{backend.name}: median {median * 1000:.1f} ms, longest {max(late) * 1000:.1f} ms", flush=True)
    assert median < 0.25


def _next(waiter: subprocess.Popen[str]) -> dict[str, Any]:
    assert waiter.stdout is not None
    line = waiter.stdout.readline()
    assert line, "the waiter has ended"
    found: dict[str, Any] = json.loads(line)
    return found

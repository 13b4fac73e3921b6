"""`python -m examples.model_runs.show`: everything once, with real processes, on SQLite and a Valkey of its own."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from time import monotonic
from typing import Any

import redis
import rq
from rq.serializers import JSONSerializer

from .client import Client
from .processes import Processes, until

QUICK = {"LEASE_SECONDS": "4", "POLL_SECONDS": "0.5", "RETRY_SECONDS": "0.5"}
"""So that nobody has to wait for a minute to see a lease stolen."""


def show(processes: Processes) -> str:
    queue_url = processes.start_redis()
    client = Client(processes.start_api())
    processes.start_deliver()
    processes.start_worker("worker-1")
    server = redis.Redis.from_url(queue_url)
    queue = rq.Queue("model_runs", connection=server, serializer=JSONSerializer)

    say("trigger a run")
    first = client.trigger(seconds=2)
    notify(client.wait(first, "RUNNING"))
    say("the same id comes twice more")
    for _ in range(2):
        queue.enqueue("examples.model_runs.worker.execute_run", first)
    run = notify(client.wait(first, "SUCCEEDED"))
    results = list((processes.folder / "results").rglob(f"*{run['result_ref']}*"))
    assert len(results) == 1, "its result is a file"
    until(lambda: "Lease acquisition failed" in processes.log("worker-1"), "the doubles are turned away")
    assert client.run(first)["attempt_count"] == 1

    say("a model that meets an error that may pass, and one that is broken")
    flaky, broken = client.trigger("flaky", 0.1), client.trigger("broken")
    assert notify(client.wait(flaky, "SUCCEEDED"))["attempt_count"] == 2
    assert notify(client.wait(broken, "FAILED"))["attempt_count"] == 1

    say("FLUSHALL in mid-run: Redis forgets every message")
    lost = [client.trigger(seconds=2), *(client.trigger(seconds=0.1) for _ in range(3))]
    client.wait(lost[0], "RUNNING")
    server.flushall()
    assert [notify(client.wait(run, "SUCCEEDED"))["attempt_count"] for run in lost] == [1] * 4

    say("SIGKILL of worker-1 in mid-run; worker-2 is there")
    stolen = client.trigger(seconds=2)
    before = notify(client.wait(stolen, "RUNNING"))
    killed_at = monotonic()
    processes.kill("worker-1")
    processes.start_worker("worker-2")
    after = notify(client.wait(stolen, "SUCCEEDED"))
    assert after["attempt_count"] == 2
    assert after["started_at"] == before["started_at"], "kept from the first start"
    return (
        f"{3 + len(lost) + 1} runs, none lost, one holder at a time: doubled messages, FLUSHALL, SIGKILL"
        f" (stolen and done after {monotonic() - killed_at:.0f} s), a retry"
    )


def say(text: str) -> None:
    print(f"-- {text}", flush=True)


def notify(run: dict[str, Any]) -> dict[str, Any]:
    shown = ("status", "lease_owner", "attempt_count", "result_ref")
    error = (run["last_error"] or "").partition("\n")[0]
    facts = [f"{name}={run[name]}" for name in shown if run[name] is not None]
    print(f"   {run['id'][-6:]} {' '.join(facts)}{' last_error=' + error if error else ''}", flush=True)
    return run


def main() -> int:
    with (
        tempfile.TemporaryDirectory(prefix="model_runs-") as folder,
        Processes(Path(folder), LEASEHOLD_URL=f"sqlite:///{folder}/model_runs.db", **QUICK) as processes,
    ):
        try:
            summary = show(processes)
        except Exception:
            for log in sorted(Path(folder).glob("*.log")):
                print(f"--- {log.name}\n{log.read_text(errors='replace')[-3000:]}", file=sys.stderr)
            raise
    print(summary)
    return 0


if __name__ == "__main__":
    sys.exit(main())

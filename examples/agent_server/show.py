"""`python -m examples.agent_server.show`: two servers on one SQLite file, driven from outside, through a kill and a
drain. Ends with 0 only if everything was as the document says."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from examples.agent_server.outside import Fleet, Server, fleet, until

LONG = {"text": "a long answer", "tokens": 100, "seconds": 600}
SHORT = {"text": "a short answer", "tokens": 100}
began = time.monotonic()
seen: list[str] = []


def notify(text: str) -> None:
    print(f"{time.monotonic() - began:5.1f} s  {text}", flush=True)


def check(holds: bool, what: str) -> None:
    if not holds:
        raise AssertionError(f"not so: {what}")
    seen.append(what)
    notify(what)


def held_back(server: Server, target: str, job: str) -> bool:
    """Something that came later, for another target, is done, and this is still QUEUED."""
    server.wait_for(f"after-{target}", server.create(f"after-{target}", SHORT), "SUCCESS")
    return bool(server.job(target, job)["status"] == "QUEUED")


def interrupt_and_resume(one: Server, two: Server) -> None:
    job = one.create("robot", SHORT, LONG)
    behind = one.create("robot", SHORT)
    other = one.create("robot", SHORT, tenant="globex")
    row = one.wait_for("robot", job, "RUNNING")
    notify(f"acme/robot: RUNNING, lease_owner {row['lease_owner']}")
    check(
        one.wait_for("robot", other, "SUCCESS", tenant="globex") != {},
        "globex/robot: SUCCESS, its queue is its own",
    )

    holder, elsewhere = (one, two) if row["lease_owner"] == one.worker_id else (two, one)
    until(lambda: one.job("robot", job)["token_usage"] == 200, lambda: "it should have used 200 tokens")
    elsewhere.post("robot", job, "cancel")
    paused = elsewhere.wait_for("robot", job, "PAUSED")
    check(
        (paused["message"], paused["cancel_requested"], paused["token_usage"])
        == ("Job was interrupted by user", False, 200),
        f"acme/robot: PAUSED from the other process: {paused['message']!r}, 200 tokens used",
    )
    check(
        held_back(one, "robot", behind), "acme/robot: halted, the job behind it stays QUEUED for both servers"
    )

    elsewhere.post("robot", job, "resume")
    again = elsewhere.wait_for("robot", job, "RUNNING")
    until(lambda: elsewhere.job("robot", job)["token_usage"] == 200, lambda: "it should have used 200 tokens")
    check(again["attempt"] == 2, "acme/robot: resumed, RUNNING again; its tokens are counted anew")
    holder.post("robot", job, "cancel")
    holder.wait_for("robot", job, "PAUSED")
    check(
        holder.post("robot", job, "cancel")["status"] == "CANCELED", "acme/robot: the PAUSED job is CANCELED"
    )
    check(one.wait_for("robot", behind, "SUCCESS") != {}, "acme/robot: its queue goes on: SUCCESS")


def exceed_the_limit(one: Server) -> None:
    equal = one.create("writer", {"tokens": 1000})
    check(
        one.wait_for("writer", equal, "SUCCESS")["token_usage"] == 1000,
        "acme/writer: 1000 of 1000 tokens: SUCCESS",
    )
    over = one.create("writer", {"tokens": 1000}, {"tokens": 1})
    behind = one.create("writer", SHORT)
    message = one.wait_for("writer", over, "ERROR")["message"]
    check("TOKEN_LIMIT" in message, f"acme/writer: one more: ERROR: {message!r}")
    check(held_back(one, "writer", behind), "acme/writer: halted")
    one.post("writer", over, "resolve")
    check(
        one.wait_for("writer", behind, "SUCCESS") != {}, "acme/writer: resolved, the queue goes on: SUCCESS"
    )


def kill(one: Server, two: Server) -> Server:
    """The one that holds a lease. Gives back the other."""
    job = one.create("crawler", {"seconds": 600})
    owner = one.wait_for("crawler", job, "RUNNING")["lease_owner"]
    victim, left = (one, two) if owner == one.worker_id else (two, one)
    victim.kill()
    notify(f"kill -9 of {victim.worker_id}, which runs acme/crawler")
    check(
        left.wait_for("crawler", job, "ERROR")["lease_owner"] is None,
        f"acme/crawler: ERROR, noticed by the other: {left.job('crawler', job)['message']!r}",
    )
    left.post("crawler", job, "resolve")
    return left


def drain(servers: Fleet, left: Server) -> None:
    slow = left.create("b", SHORT, LONG)
    greedy = left.create("c", {"tokens": 1001, "seconds": 600})
    left.wait_for("b", slow, "RUNNING")
    until(lambda: left.job("c", greedy)["token_usage"] > 1000, lambda: "c should be over its limit")
    quick, behind = left.create("a", {"seconds": 2}), left.create("a", SHORT)
    left.wait_for("a", quick, "RUNNING")
    left.terminate()
    left.wait()
    notify("SIGTERM, with a grace of 4 s: the server has ended")
    new = servers.start()
    check(new.wait_for("a", quick, "SUCCESS")["attempt"] == 1, "acme/a: SUCCESS, it ended within the grace")
    check(new.job("b", slow)["message"] == "Job was interrupted by user", "acme/b: PAUSED, it did not")
    check(
        new.job("c", greedy)["status"] == "ERROR",
        "acme/c: ERROR, it was over the token limit when it was stopped",
    )
    check(
        new.wait_for("a", behind, "SUCCESS") != {},
        "acme/a: what was QUEUED meanwhile runs after the next start",
    )
    new.terminate()
    new.wait()


def main() -> int:
    with (
        tempfile.TemporaryDirectory() as folder,
        fleet(Path(folder), TOKEN_LIMIT="1000", SHUTDOWN_GRACE_PERIOD_SECONDS="4") as servers,
    ):
        one, two = servers.start(WORKER_ID="one"), servers.start(WORKER_ID="two")
        notify(f"two servers on one file: {one.worker_id} and {two.worker_id}")
        interrupt_and_resume(one, two)
        exceed_the_limit(one)
        drain(servers, kill(one, two))
    print(
        f"{len(seen)} statements seen to hold: two servers, two tenants, interrupt, resume, token limit, resolve,"
        " kill -9, drain"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())

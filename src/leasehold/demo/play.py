"""The scenes of `leasehold demo`: a temporary database, real worker processes, a real crash; nothing is left behind."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from leasehold.surfaces.cli.problems import Exit

if TYPE_CHECKING:
    from leasehold.demo.stage import Stage


MAKE_VARIABLE = "MAKELEVEL"
"""Set by make: `leasehold demo` then says how to go on with make."""


def play() -> int:
    """Run the demo. Returns the exit code: 1 if a check of the demo failed."""
    import signal
    import tempfile

    # SIGTERM ends the demo as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="leasehold-demo-") as folder:
        return _play(Path(folder))


def _play(folder: Path) -> int:
    os.environ["LEASEHOLD_URL"] = f"sqlite:///{folder}/demo.db"
    from leasehold.demo.stage import stage
    from leasehold.demo.tasks import app

    with app, stage(app, folder) as play:
        play.scene("Leasehold: jobs in your database, leases on them, nothing else to run")
        play.say(f"database: {app.__internals__.store.label}")
        pids = (play.start_worker(), play.start_worker())
        play.check(play.workers_are_up(2), f"two workers are up: processes {pids[0]} and {pids[1]}")
        if not play.broken:
            _work_and_retries(play)
            _a_lane_that_halts(play, folder)
            _a_worker_that_dies(play)
            _the_end(play)
    return _verdict(play.broken)


def _work_and_retries(play: Stage) -> None:
    from leasehold.demo import tasks

    play.scene("1. Long work, and a service that is down at first")
    flaky = tasks.fetch_prices.enqueue(shop="example.org")
    agent = tasks.research.enqueue(question="Who keeps the lease?")
    done = play.wait(agent, lambda row: row.state == "succeeded")
    play.check(done, "the research has run to its end")
    done = play.wait(flaky, lambda row: row.state == "succeeded")
    events = play.history(flaky)
    play.check(
        done and flaky.attempt == 3 and events == ["failed", "failed"],
        "the flaky call failed twice, was retried by itself, and succeeded",
    )


def _a_lane_that_halts(play: Stage, folder: Path) -> None:
    from leasehold.demo import tasks

    play.scene("2. A lane: target-1 is visited one page at a time, in order")
    pages = [tasks.visit_page.enqueue(target=1, page=page) for page in ("home", "account", "orders")]
    _, account, orders = pages
    failed = play.wait(account, lambda row: row.state == "failed")
    lanes = {lane.lane: lane for lane in play.app.lanes.list()}
    halted = "target-1" in lanes and lanes["target-1"].job_id == account.id
    play.check(failed and halted, "the lane stands still behind the page that failed")
    play.why(orders)
    play.check(orders.refresh().state == "queued", "the page after it waits")
    folder.joinpath("logged-in").touch()
    play.say("someone logs in again, and resumes the lane:")
    play.show_command(
        "lanes resume target-1", str(getattr(play.app.lanes.resume("target-1", actor="demo"), "id", None))
    )
    done = play.wait(orders, lambda row: row.state == "succeeded")
    ends = [page.refresh().__row__.finished_at for page in pages]
    order = [end for end in ends if end is not None]
    play.check(
        done and len(order) == len(pages) and order == sorted(order), "all three pages were visited, in order"
    )


def _a_worker_that_dies(play: Stage) -> None:
    from leasehold.demo import tasks
    from leasehold.demo.stage import pid_of

    play.scene(f"3. A worker is killed; its lease of {tasks.LEASE:g} s runs out; another takes the job over")
    job = tasks.crawl.enqueue(site="example.org")
    play.wait(job, lambda row: row.state == "running" and _age(row.started_at) > 1.2)
    victim = pid_of(job.__row__)
    play.check(victim is not None and play.kill(victim), f"kill -9 {victim}: the worker is gone")
    play.why(job)
    taken = play.wait(job, lambda row: row.attempt == 2 and row.state == "running")
    successor = pid_of(job.__row__)
    play.check(taken and successor not in (None, victim), f"worker {successor} has taken the job over")
    done = play.wait(job, lambda row: row.state == "succeeded")
    play.check(
        done and play.history(job) == ["lost"], "it ran to its end, and its history says why it ran twice"
    )


def _the_end(play: Stage) -> None:
    play.scene("4. SIGTERM: the worker that is left drains and leaves")
    play.check(play.drain(), "it left with exit code 0")
    counts = {state.value: count for state, count in play.app.count().items() if count}
    play.check(counts == {"succeeded": 6}, f"in the database: {counts}")


def _age(since: datetime | None) -> float:
    return 0.0 if since is None else (datetime.now(UTC) - since).total_seconds()


def _verdict(broken: list[str]) -> int:
    if broken:
        print(f"\nThe demo did not go as planned: {len(broken)} of its checks failed.")
        return Exit.JOB_FAILED
    print("\nThat was all of it: one file and two processes, both gone again. Next: leasehold --help")
    print(f"In a browser: {_dashboard_command()}")
    return Exit.OK


def _dashboard_command() -> str:
    """Return the command, in the form in which the demo was started: by make, which installs what is missing, or
    directly."""
    if os.environ.get(MAKE_VARIABLE):
        return "make demo ARGS=--dashboard"
    return "leasehold demo --dashboard (it needs: pip install 'leasehold[server]')"

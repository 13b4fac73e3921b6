"""Schedules among workers that are killed: every tick has its job, and no tick has two."""

from __future__ import annotations

import json
import time
from datetime import datetime, timedelta

import pytest

from tests.faults.harness import Fleet, Place, wait_for

SETTINGS = {"module": "tests.faults.schedule_main"}
SECONDS = 9.0


def ticks(place: Place) -> list[datetime]:
    """In the order in which their jobs were made. Read as text: psycopg would decode JSON by itself."""
    rows = place.query("SELECT CAST(args AS text) FROM leasehold.job WHERE task = 'second' ORDER BY seq")
    return [datetime.fromisoformat(json.loads(row[0])["tick"]) for row in rows]


@pytest.mark.slow(11)
def test_every_tick_has_one_job_though_workers_are_killed(place: Place, fleet: Fleet) -> None:
    fleet.start_many(3, **SETTINGS)
    wait_for(lambda: ticks(place), "the first tick")
    over = time.monotonic() + SECONDS
    fleet.kill_until(
        lambda: time.monotonic() >= over and fleet.kills >= 3,
        "the time to be over",
        every=2.5,
        seconds=SECONDS + 30,
        **SETTINGS,
    )
    found = wait_for(lambda: len(ticks(place)) >= SECONDS - 2 and ticks(place), "the last ticks", 30)
    first = found[0]
    assert found == [first + timedelta(seconds=n) for n in range(len(found))], (
        "none twice, none left out, in order"
    )
    last = place.query("SELECT id FROM leasehold.job WHERE task = 'second' ORDER BY seq DESC LIMIT 1")[0][0]
    place.wait_for_state(str(last), "succeeded")
    assert fleet.unexpected() == []


@pytest.mark.slow(6)
def test_ticks_of_an_outage_are_made_up_for(place: Place, fleet: Fleet) -> None:
    worker = fleet.start(**SETTINGS)
    wait_for(lambda: ticks(place), "the first tick")
    worker.kill()
    before = len(ticks(place))
    time.sleep(3.0)  # the outage itself
    fleet.start(**SETTINGS)
    found = wait_for(lambda: len(ticks(place)) >= before + 3 and ticks(place), "the ticks of the outage")
    assert found == [found[0] + timedelta(seconds=n) for n in range(len(found))]

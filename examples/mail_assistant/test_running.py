"""How the application runs, from outside: notifications, a shutdown, lost notifications, and ticks that overlap."""

from __future__ import annotations

import base64
import json
import socket
from typing import Any

import pytest

from examples.mail_assistant.demo import ADDRESS
from examples.mail_assistant.outside import Outside, outside
from examples.mail_assistant.processes import wait_for
from tests.ports import claim_port

pytestmark = pytest.mark.slow
EVERYTHING, HISTORY = "/", "/history"
THREE_SECONDS = {"GMA_SYNC_FALLBACK_INTERVAL_MINUTES": "0.05"}


def test_a_notification_and_a_sync_by_hand(url: str) -> None:
    with outside(url) as place:
        place.processes.start_assistant()
        wait_for(lambda: place.db.row("SELECT 1 AS x FROM sync_state"), "watch renewal at start, and a push")
        assert place.post("/webhook", json={"message": {"data": "!"}}).status_code == 400
        stranger = {"emailAddress": "who@example.org", "historyId": 1}
        assert place.post("/webhook", json=_envelope(stranger)).json() == {"status": "ignored"}
        notice = {"emailAddress": ADDRESS, "historyId": 77}
        answer = place.post("/webhook", json=_envelope(notice)).json()
        assert answer["status"] == "ok"
        wait_for(lambda: answer["job_id"] in place.ids("completed"), "the notification's sync")
        assert place.post("/api/sync", params={"user_id": "nobody"}).status_code == 404
        (job_id,) = place.post("/api/sync", params={"user_id": "1"}).json()["job_ids"]
        wait_for(lambda: job_id in place.ids("completed"), "the sync by hand")


def _envelope(notice: dict[str, Any]) -> dict[str, Any]:
    return {"message": {"data": base64.b64encode(json.dumps(notice).encode()).decode()}}


def test_a_shutdown_waits_for_the_current_jobs_and_begins_no_other(url: str) -> None:
    """SIGTERM while the three threads are inside of Gmail: their jobs complete in that process. What the engine has
    claimed ahead goes back without having begun, so its first attempt is `handed_back` and nothing is done twice."""
    with outside(url, GMA_LEASE_SECONDS="30") as place:
        threads = place.world.fill(60)  # the first sync asks for all of it at once
        assistant = place.processes.start_assistant()
        wait_for(lambda: place.completed() >= 5, "work is under way")
        place.world.control("/hold", {EVERYTHING: True})
        wait_for(lambda: place.world.held(EVERYTHING) == 3, "three jobs are inside of Gmail")
        assistant.terminate()
        wait_for(lambda: not _answers(place.processes.web_port), "the server takes no more requests")
        wait_for(lambda: len(place.ids("running")) == 3, "what was claimed ahead is back")
        assert assistant.poll() is None  # it waits
        current = place.ids("running")
        place.world.control("/hold", {EVERYTHING: False})
        assert assistant.wait(120) in (0, -15)  # uvicorn ends itself with the signal that it was sent
        assert current <= place.ids("completed")
        assert place.ids("running") == set()
        assert place.ids("pending") != set()

        place.processes.start_assistant()
        wait_for(lambda: place.at_rest() and not place.world.wrong(threads), "the rest is done")
        for job in place.jobs_at_rest():
            *before, last = place.outcomes(str(job["id"]))
            assert last == "succeeded"
            assert set(before) <= {"handed_back"}
        assert _repeated_calls(place) == []


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _repeated_calls(place: Outside) -> list[dict[str, Any]]:
    """Jobs that have asked the model for the same thing twice. An agent asks again and again, by design."""
    return place.db.rows(
        "SELECT job_id, call_type, COUNT(*) AS times FROM llm_calls WHERE call_type <> 'agent'"
        " GROUP BY job_id, call_type HAVING COUNT(*) > 1"
    )


def test_lost_notifications_are_made_up_for_by_the_fallback_sync(url: str) -> None:
    """Nobody pushes; the interval is three seconds here."""
    with outside(url, **THREE_SECONDS) as place:
        place.processes.start_assistant(claim_port())
        wait_for(lambda: place.db.row("SELECT 1 AS x FROM sync_state"), "a first sync")
        threads = place.world.fill(8)
        wait_for(lambda: place.at_rest() and not place.world.wrong(threads), "labels and drafts")
        assert {payload.get("history_id") for payload in _syncs(place)} == {""}


def test_a_tick_that_is_due_while_the_last_sync_still_runs_makes_no_second_one(url: str) -> None:
    """Gmail keeps a sync waiting while two more ticks pass. The scheduler goes on, and the user has one sync."""
    with outside(url, GMA_LEASE_SECONDS="30", **THREE_SECONDS) as place:
        place.processes.start_assistant(claim_port())
        wait_for(lambda: place.db.row("SELECT 1 AS x FROM sync_state"), "a first sync")
        place.world.control("/hold", {HISTORY: True})
        wait_for(lambda: place.world.held(HISTORY) == 1, "a sync that does not end")
        (running,) = place.ids("running")
        ticks, syncs = _ticks(place), len(_syncs(place))
        threads = place.world.fill(3)
        wait_for(lambda: _ticks(place) >= ticks + 2, "two more ticks")
        assert place.ids("running") == {running}
        assert place.ids("pending") == set()
        assert len(_syncs(place)) == syncs
        place.world.control("/hold", {HISTORY: False})
        wait_for(lambda: not place.world.wrong(threads), "what came meanwhile is found")


def _syncs(place: Outside) -> list[dict[str, Any]]:
    rows = place.db.rows("SELECT payload FROM jobs WHERE job_type = 'sync'")
    return [json.loads(row["payload"]) if isinstance(row["payload"], str) else row["payload"] for row in rows]


def _ticks(place: Outside) -> int:
    """Runs of the schedule `fallback_sync` that have ended."""
    return len(place.engine.jobs(task="fallback_sync", state="succeeded", limit=100).jobs)

"""What is due by itself, the two ways of a sync, and the clean-up."""

from __future__ import annotations

import json

import pytest

from examples.mail_assistant.conftest import Office
from examples.mail_assistant.demo import KINDS
from examples.mail_assistant.schedules import JobRepository, WatchManager
from examples.mail_assistant.settings import settings
from examples.mail_assistant.tasks import classify, sync

DINNER = KINDS[0]


def test_the_schedules_are_the_documents(office: Office) -> None:
    assert settings.sync_fallback_interval_minutes == 15
    assert settings.sync_full_sync_interval_hours == 1
    assert settings.sync_full_sync_days == 10
    office.box.drain()
    office.box.clock.advance(3600)
    office.box.drain()
    payloads = [json.loads(job["payload"]) for job in office.jobs("sync")]
    assert {"user_id": "1", "history_id": ""} in payloads
    assert {"user_id": "1", "history_id": "", "force_full": True} in payloads
    office.box.clock.advance(86_400)
    office.box.drain()
    assert office.db.row("SELECT watch_expiration FROM users WHERE watch_expiration IS NOT NULL")


def test_a_watch_that_fails_is_logged_and_the_others_are_renewed(
    office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    values = ("0", "gone@example.org", "gone@example.org", 1, "{}", "{}", None)
    office.db.write("INSERT INTO users VALUES (?, ?, ?, ?, ?, ?, ?)", *values)
    assert WatchManager(office.shared).renew_all_watches() == 1
    assert "the watch of user 0 was not renewed" in caplog.text


def test_full_sync_finds_what_incremental_sync_has_missed(office: Office) -> None:
    office.run(sync)
    thread_id = office.receive(DINNER)["threadId"]
    # The checkpoint is moved past the message: as if it had come while nobody watched and the history had gone.
    office.db.write("UPDATE sync_state SET last_history_id = ?", office.world.history_id())
    office.run(sync, history_id="")
    assert office.world.labels_of(thread_id) == set()
    office.run(sync, history_id="", force_full=True)
    assert office.world.labels_of(thread_id) == {"Outbox"}


def test_running_everything_twice_changes_nothing(office: Office) -> None:
    threads = office.world.fill(16)
    office.run(sync)
    assert office.world.wrong(threads) == []
    office.run(sync)
    before = office.snapshot()
    for force_full in (True, False, True):
        office.run(sync, force_full=force_full)
    for job in [*office.box.enqueued("classify"), *office.box.enqueued("draft")]:
        job.retry()
    office.box.drain()
    assert office.snapshot() == before


def test_jobs_that_ended_a_week_ago_are_purged(office: Office) -> None:
    place = office.receive(DINNER)
    office.run(classify, message_id=place["id"], thread_id=place["threadId"])
    office.box.clock.advance(6 * 86_400)
    assert JobRepository.cleanup_old(days=7) == 0
    office.box.clock.advance(2 * 86_400)
    assert JobRepository.cleanup_old(days=7) == 2
    assert office.jobs("classify") == []
    assert office.email(place["threadId"])["status"] == "drafted"

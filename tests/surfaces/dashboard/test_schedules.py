"""Schedules: when they are due, and the verbs on them."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from leasehold import Leasehold
from leasehold.domain.schedules import Schedule, cron_in_words
from leasehold.surfaces.dashboard.pages.schedules import line_of
from tests.surfaces.dashboard.conftest import Dashboard, Viewer

HOSTILE = "<script>alert(1)</script>\u202e\"'/&"
ODD = "a\x1b\r\n\u2028b"


def last_audit(app: Leasehold) -> tuple[str, str | None, str | None]:
    entry = app.audit(limit=1).entries[0]
    return entry.verb, entry.target, entry.actor


def test_the_list_tells_when_each_is_due(app: Leasehold, viewer: Viewer):
    assert "No schedules" in viewer.page("/schedules")
    hour = (datetime.now(ZoneInfo("Europe/Berlin")).hour + 12) % 24  # never the next to come
    app.schedules.set("nightly", "add", {"a": 1}, cron=f"0 {hour} * * *", tz="Europe/Berlin")
    app.schedules.set("often", "fail", every="90s")
    text = viewer.page("/schedules")
    assert f"At {hour:02}:00 every day" in text
    assert f"0 {hour} * * *" in text
    assert "Europe/Berlin" in text
    assert "Every 1 min 30 s" in text
    assert "Coming up" in text
    assert "/do/schedule" not in text
    assert text.index(">often<") < text.index(">nightly<"), "the next first"


def test_one_is_shown_closely_with_its_next_ten_runs_in_both_zones(app: Leasehold, viewer: Viewer):
    row = app.schedules.set("nightly", "add", {"a": 41}, cron="30 12 * * *", tz="Asia/Kolkata")
    text = viewer.page("/schedules", name="nightly")
    shown = text.partition('id="chosen"')[2].partition("</section>")[0]
    assert "Next 10 runs" in shown
    for days in range(10):
        tick = row.next_at + timedelta(days=days)
        assert f"{tick:%Y-%m-%d} 07:00:00" in shown
        assert f"{tick:%a %Y-%m-%d} 12:30:00 IST" in shown
    assert "41" in shown
    assert viewer.get("/schedules", name="nobody").status_code == 404


def test_it_is_paused_and_resumed(app: Leasehold, viewer: Viewer, operator: Viewer):
    app.schedules.set("nightly", "add", {"a": 1}, every="24h")
    for verb in ("schedule.pause", "schedule.resume", "schedule.run"):
        assert viewer.do(verb, name="nightly").status_code == 403
    assert "/do/schedule.resume" not in operator.page("/schedules")
    operator.do("schedule.pause", name="nightly", reason="holiday")
    assert last_audit(app) == ("schedule.pause", "nightly", "dashboard:token 1")
    text = operator.page("/schedules", name="nightly")
    assert "paused</span>" in text
    assert "holiday" in text
    assert "dashboard:token 1" in text
    assert "None while paused" in text
    assert "/do/schedule.pause" not in text
    assert (
        operator.reported(operator.do("schedule.resume", name="nightly"))
        == "The schedule nightly is resumed."
    )
    assert app.schedules.get("nightly").paused is False
    assert "no schedule" in operator.reported(operator.do("schedule.pause", name="nobody")).lower()


def test_it_is_run_now(app: Leasehold, operator: Viewer):
    app.schedules.set("nightly", "add", {"a": 1}, every="24h")
    reported = operator.reported(operator.do("schedule.run", name="nightly"))
    job = app.get(app.schedules.get("nightly").last_job or "")
    assert (job.task, job.args["a"]) == ("add", 1)
    assert job.id in reported
    assert last_audit(app) == ("schedule.run", "nightly", "dashboard:token 0")
    assert f"/jobs/{job.id}" in operator.page("/schedules")


def test_one_whose_task_is_not_known_here_says_so(app: Leasehold, operator: Viewer):
    store = app.__internals__.store
    store.register_schedules("host:1", [Schedule(name="theirs", task="elsewhere", every=60.0)])
    assert "no task is named" in operator.reported(operator.do("schedule.run", name="theirs"))


def test_an_orphan_is_marked_and_deleted_by_an_admin_alone(
    app: Leasehold, viewer: Viewer, operator: Viewer, admin: Viewer
):
    store = app.__internals__.store
    store.register_schedules("host:1", [Schedule(name="old", task="gone", every=60.0)])
    assert "/do/schedule.delete" not in admin.page("/schedules", name="old"), "a live worker declares it"
    assert "is deleted" not in admin.reported(admin.do("schedule.delete", name="old"))
    store.leave_schedules("host:1")
    text = admin.page("/schedules", name="old")
    assert "orphaned</span>" in text
    assert "no live worker has this schedule in its code" in text
    assert "/do/schedule.delete" in text
    for one in (viewer, operator):
        assert "/do/schedule.delete" not in one.page("/schedules", name="old")
        assert one.do("schedule.delete", name="old").status_code == 403
    reported = admin.reported(admin.do("schedule.delete", name="old", back="/schedules?name=old"))
    assert reported == "The schedule old is deleted. Its jobs stay."
    assert last_audit(app) == ("schedule.delete", "old", "dashboard:token 2")
    assert app.schedules.list() == []


def test_a_tick_that_nobody_deals_with_is_late(app: Leasehold):
    row = app.schedules.set("nightly", "add", {"a": 1}, every="24h")
    assert line_of(row, row.now).look.word == "on"
    assert line_of(row, row.next_at + timedelta(hours=1)).look.word == "late"


def test_a_zone_that_is_not_known_here_spoils_no_page(app: Leasehold):
    row = app.schedules.set("nightly", "add", {"a": 1}, cron="0 3 * * *")
    line = line_of(replace(row, tz="Mars/Olympus"), row.now)
    assert line.ticks == ()
    assert "is not a time zone" in line.trouble


@pytest.mark.parametrize("name", [HOSTILE, ODD], ids=["hostile", "odd"])
def test_names_are_shown_and_do_nothing(app: Leasehold, operator: Viewer, name: str):
    app.schedules.set(name, "fail", {"text": HOSTILE}, every="1h")
    app.schedules.pause(name, HOSTILE)
    for text in (operator.page("/schedules"), operator.page("/schedules", name=name)):
        assert "<script>alert" not in text
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text


def test_a_token_of_some_queues_is_refused(app: Leasehold, dashboard: Dashboard):
    app.schedules.set("nightly", "add", {"a": 1}, every="24h")
    one = dashboard.viewer("admin", queues=["agents"])
    assert one.get("/schedules").status_code == 403
    for verb in ("pause", "resume", "run", "delete"):
        assert one.do(f"schedule.{verb}", name="nightly").status_code == 403
    assert app.schedules.get("nightly").paused is False


def test_a_cron_is_told_in_words():
    assert cron_in_words("0 3 * * *") == "At 03:00 every day"
    assert cron_in_words("no cron") == ""

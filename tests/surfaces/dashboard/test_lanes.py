"""Lanes that halt: seen by everybody, set going by those who may."""

from __future__ import annotations

import html

from leasehold import Leasehold
from leasehold.domain.outcome import Failure
from tests.surfaces.dashboard.conftest import Dashboard, Viewer
from tests.surfaces.http.test_jobs import settle

HOSTILE = "<script>alert(1)</script>\"'/é"
ODD = "a\x1b\r\nb"
"""What a page or a browser would change on its way through a form."""


def halted(app: Leasehold, lane: str, error: str = "out of paper") -> str:
    job = app.enqueue("greet", {"name": lane})
    settle(app, Failure(error, final=True))
    return job.id


def last_audit(app: Leasehold) -> tuple[str, str | None, str | None]:
    entry = app.audit(limit=1).entries[0]
    return entry.verb, entry.target, entry.actor


def test_halted_lanes_stand_before_busy_ones(app: Leasehold, viewer: Viewer):
    app.enqueue("greet", {"name": "a busy one"})
    (grant,) = app.__internals__.store.claim("worker-1", ["agents"], 1)
    failed = halted(app, "z halted")
    app.enqueue("greet", {"name": "z halted"})
    paused = app.enqueue("greet", {"name": "papers"}).pause("customs papers")
    text = viewer.page("/lanes")
    before, _, after = text.partition('id="busy"')
    assert before.index("out of paper") > before.index("z halted")
    assert f"/jobs/{failed}" in before
    assert "customs papers" in before
    assert f"/jobs/{paused.id}" in before
    assert "worker-1" in after
    assert f"/jobs/{grant.id}" in after
    assert "/jobs?lane=z+halted&amp;state=queued" in before, "one waits behind it"


def test_a_lane_is_resumed_resolved_and_its_job_cancelled(app: Leasehold, operator: Viewer):
    resumed, resolved, cancelled = (halted(app, name) for name in ("one", "two", "three"))
    text = operator.page("/lanes")
    for verb in ("lane.resume", "job.skip", "job.cancel"):
        assert f'action="/do/{verb}"' in text
    reported = operator.reported(operator.do("lane.resume", lane="one", back="/lanes"))
    assert reported == "The lane continues with the job that halted it, greet."
    assert last_audit(app) == ("lane.resume", "one", "dashboard:token 0")
    assert app.get(resumed).state == "queued"
    assert operator.reported(operator.do("lane.resume", lane="one")) == "This lane is no longer halted."
    operator.do("job.skip", id=resolved, reason="known", back="/lanes")
    operator.do("job.cancel", id=cancelled, reason="enough", back="/lanes")
    assert (app.get(resolved).state, app.get(cancelled).state) == ("failed", "cancelled")
    assert app.get(resolved).history()[-1].detail == "known"
    assert "No lane is halted." in operator.page("/lanes")


def test_who_may_only_look_has_no_buttons(app: Leasehold, viewer: Viewer, dashboard: Dashboard):
    job = halted(app, "one")
    assert "/do/" not in viewer.page("/lanes").partition("<main")[2]
    assert viewer.do("lane.resume", lane="one").status_code == 403
    assert app.get(job).state == "failed"
    limited = dashboard.viewer("read", "operate", queues=["default"])
    assert limited.get("/lanes").status_code == 403
    assert limited.do("lane.resume", lane="one").status_code == 403


def test_a_name_can_be_anything(app: Leasehold, operator: Viewer):
    first, second = halted(app, HOSTILE, error=HOSTILE), halted(app, ODD)
    text = operator.page("/lanes")
    assert "<script>alert" not in text
    assert html.escape(HOSTILE, quote=False)[:20] in text
    assert "\x1b" not in text
    operator.do("lane.resume", lane=HOSTILE)
    assert app.get(first).state == "queued"
    operator.do("lane.resume", **{"lane*": '"a\\u001b\\r\\nb"'})
    assert app.get(second).state == "queued"
    assert '"a\\u001b\\r\\nb"' in html.unescape(text), "so the page sends it"

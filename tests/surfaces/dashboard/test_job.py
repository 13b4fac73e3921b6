"""One job: everything that is known of it, and the verbs that it takes as it stands."""

from __future__ import annotations

import html
import re

import pytest

from leasehold import Leasehold, SyncContext
from leasehold.domain.outcome import Failure, Outcome, Success
from leasehold.domain.states import State, Trigger, allowed
from leasehold.stores.results import Ending
from tests.surfaces.dashboard.conftest import Dashboard, Viewer


def settle(app: Leasehold, job_id: str, outcome: Outcome | None) -> None:
    """None: it is only begun."""
    store = app.__internals__.store
    (grant,) = (grant for grant in store.claim("worker-1", ["default"], 50) if grant.id == job_id)
    if outcome is not None:
        store.settle([Ending(grant.id, grant.token, outcome)])


def in_state(app: Leasehold, state: State):
    """A job that has come there by itself, or by a verb."""
    job = app.enqueue("add", {"a": 1}, **({"hold": True} if state is State.PENDING else {}))
    match state:
        case State.RUNNING:
            settle(app, job.id, None)
        case State.SUCCEEDED:
            settle(app, job.id, Success("2"))
        case State.FAILED:
            settle(app, job.id, Failure("ValueError: broken", final=True))
        case State.PAUSED:
            job.pause()
        case State.CANCELLED:
            job.cancel()
    return job.refresh()


STATES = [
    State.PENDING,
    State.QUEUED,
    State.RUNNING,
    State.PAUSED,
    State.FAILED,
    State.SUCCEEDED,
    State.CANCELLED,
]
EVENTS = {
    "resume": Trigger.RESUME,
    "retry": Trigger.RETRY,
    "pause": Trigger.PAUSE,
    "cancel": Trigger.CANCEL,
    "release": Trigger.RELEASE,
    "snooze": Trigger.SNOOZE,
}


@pytest.mark.parametrize("state", STATES)
def test_it_offers_every_legal_verb_and_no_others(app: Leasehold, operator: Viewer, state: State):
    job = in_state(app, state)
    assert job.state is state
    offered = set(re.findall(r'action="/do/job\.(\w+)"', operator.page(f"/jobs/{job.id}")))
    legal = {verb for verb, event in EVENTS.items() if allowed(state, event)}
    if state is State.RUNNING:
        legal -= {"resume"}  # nobody has asked it to pause
    assert offered == legal
    for verb in EVENTS:
        other = in_state(app, state)
        answer = operator.do(f"job.{verb}", id=other.id, **({"until": "2h"} if verb == "snooze" else {}))
        refused = 'class="notice refused"' in operator.client.get(answer.headers["location"]).text
        assert refused == (verb not in offered), verb


def test_a_job_is_snoozed_for_a_while_or_until_a_time(app: Leasehold, operator: Viewer):
    job = app.enqueue("add", {"a": 1})
    before = job.available_at
    operator.do("job.snooze", id=job.id, until="2h", reason="later")
    assert 7000 < (job.refresh().available_at - before).total_seconds() < 7400
    operator.do("job.snooze", id=job.id, until="2100-01-01 12:00")
    assert job.refresh().available_at.isoformat() == "2100-01-01T12:00:00+00:00"
    answer = operator.do("job.snooze", id=job.id, until="soon")
    assert "neither a time nor a span" in operator.client.get(answer.headers["location"]).text


def test_a_verb_is_written_down_with_who_asked_and_why(app: Leasehold, operator: Viewer):
    job = app.enqueue("add", {"a": 1})
    back = f"/jobs/{job.id}?attempt=1"
    answer = operator.do("job.cancel", id=job.id, reason="not needed", back=back)
    assert answer.headers["location"] == back
    assert operator.reported(answer) == "The job is cancelled now."
    entry = job.history()[-1]
    assert entry.actor is not None
    assert entry.actor.startswith("dashboard:token")
    assert entry.detail == "not needed"
    assert 'class="notice' not in operator.page(f"/jobs/{job.id}"), "the notice is told once"


def test_a_job_goes_on_with_other_arguments(app: Leasehold, operator: Viewer):
    job = in_state(app, State.PAUSED)
    assert "is not JSON" in html.unescape(
        operator.reported(operator.do("job.resume", id=job.id, args="{oops"))
    )
    assert "a: " in html.unescape(operator.reported(operator.do("job.resume", id=job.id, args='{"a": "x"}')))
    assert job.refresh().state == "paused"
    operator.do("job.resume", id=job.id, args='{"a": 7}')
    assert (job.refresh().state, job.args) == ("queued", {"a": 7})


def test_hidden_arguments_are_not_shown_and_cannot_be_overwritten_by_their_stars(
    app: Leasehold, operator: Viewer
):
    job = app.enqueue("greet", {"name": "x", "key": "very-secret"})
    job.pause()
    page = operator.page(f"/jobs/{job.id}")
    assert "very-secret" not in page
    assert 'class="secret"' in page
    assert 'name="args"' not in page
    reported = operator.reported(
        operator.do("job.resume", id=job.id, args='{"name": "x", "key": "[hidden]"}')
    )
    assert "hidden" in reported
    assert job.refresh().state == "paused"


def test_a_retry_leads_to_the_new_job(app: Leasehold, operator: Viewer):
    job = in_state(app, State.SUCCEEDED)
    answer = operator.do("job.retry", id=job.id)
    new = answer.headers["location"].rpartition("/")[2]
    assert app.get(new).__row__.retry_of == job.id


def test_it_tells_why_a_job_does_not_run(app: Leasehold, viewer: Viewer):
    job = app.enqueue("add", {"a": 1})
    app.queues.pause("default", reason="deploy at noon")
    page = html.unescape(viewer.page(f"/jobs/{job.id}"))
    assert "Why it isn’t running" in page
    assert "deploy at noon" in page
    assert all(hold.detail in page for hold in job.explain())


def test_its_runs_steps_progress_events_log_result_and_ties_are_there(app: Leasehold, viewer: Viewer):
    from tests.workers import burst

    seen = {}

    @app.task(name=f"story-{id(seen)}")
    def story(ctx: SyncContext) -> dict[str, str]:
        import logging

        logging.getLogger("story").warning("a line of log")
        ctx.progress(3, 4, "nearly there")
        ctx.emit("chapter", {"title": "The lease"})
        return {"end": "happy", "first": ctx.step("load", lambda: "loaded")}

    job = story.using(group="books").enqueue()
    burst(app)
    page = html.unescape(viewer.page(f"/jobs/{job.id}"))
    for text in ("a line of log", "nearly there", "The lease", "happy", "loaded", "1 · succeeded", "books"):
        assert text in page, text


def test_the_beginning_of_an_id_is_enough(app: Leasehold, viewer: Viewer):
    job = app.enqueue("add", {"a": 1})
    assert job.id in viewer.page(f"/jobs/{job.id[:13]}")
    assert viewer.get("/jobs/0000ffff").status_code == 404
    assert viewer.get("/jobs/nonsense").status_code == 404


def test_it_can_be_copied_as_a_command_a_request_and_a_call(
    app: Leasehold, viewer: Viewer, dashboard: Dashboard
):
    job = app.enqueue("fail", {"text": "it's"})
    page = html.unescape(viewer.page(f"/jobs/{job.id}"))
    assert f"leasehold jobs show {job.id}" in page
    assert """'{"text":"it'"'"'s"}'""" in page.replace(": ", ":")
    assert f"{dashboard.url}/v1/jobs/{job.id}" in page
    assert f"app.get('{job.id}')" in page


def test_relatives_in_other_queues_are_not_shown_to_a_token_of_some(app: Leasehold, dashboard: Dashboard):
    foreign = app.enqueue("add", {"a": 1})
    job = app.enqueue("greet", {"name": "x"}, after=[foreign])
    assert foreign.id in dashboard.viewer("read").page(f"/jobs/{job.id}")
    assert foreign.id not in dashboard.viewer("read", queues=["agents"]).page(f"/jobs/{job.id}")

"""`runs` lists what lives outside of the workers; `abandon` gives up what is gone, and asks first."""

from __future__ import annotations

from leasehold.domain.outcome import Detached
from leasehold.domain.policy import Policy
from tests.contract.lives import end, run_external

ADOPT = Policy(on_lost="adopt")


def leave(app, **fields):
    store = app.__internals__.store
    grant = run_external(store, "host:1:aa", policy=ADOPT, **fields)
    return end(store, grant, Detached("drained"))


def test_what_runs_outside_is_listed_with_who_watches_it(app, here):
    assert here("executions", "--json").lines == []
    watched = run_external(app.__internals__.store, "host:1:aa", policy=ADOPT)
    left = leave(app, site="machine-2")
    first, second = here("executions", "--json").lines
    assert (first["job_id"], first["worker"], first["site"]) == (watched.id, "host:1:aa", "machine-1")
    assert (second["job_id"], second["worker"], second["site"]) == (left.id, None, "machine-2")
    shown = here("executions").out
    assert "no worker" in shown
    assert "machine-2" in shown


def test_an_execution_is_given_up_only_with_yes_where_nobody_can_be_asked(app, here):
    left = leave(app)
    refused = here("executions", "abandon", left.id)
    assert refused.code == 2
    assert "--yes" in refused.err
    assert "machine-1" in refused.err
    assert app.__internals__.store.get(left.id).orphan
    done = here("executions", "abandon", left.id, "--yes", "--reason", "burnt", "--actor", "ann")
    assert (done.code, done.out.strip()) == (0, f"{left.id} queued")
    entry = app.get(left.id).history()[-1]
    assert (entry.event, entry.actor) == ("abandoned", "ann")
    assert "burnt" in (entry.detail or "")


def test_what_somebody_watches_is_not_given_up(app, here):
    watched = run_external(app.__internals__.store, "host:1:aa", policy=ADOPT)
    refused = here("executions", "abandon", watched.id, "--yes")
    assert refused.code == 4
    assert "cancel the job" in refused.err

"""Names that were replaced before the first release do nothing: a caller who still has one hears of it at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from leasehold import Leasehold, errors

ADD = {"args": {"a": 1}}


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/kinds"),
        ("POST", "/v1/kinds/add/pause"),
        ("POST", "/v1/kinds/add/resume"),
        ("POST", "/v1/jobs/{id}/resolve"),
        ("GET", "/v1/jobs/{id}/events"),
    ],
)
def test_an_old_path_is_not_found(app: Leasehold, admin: httpx2.Client, method: str, path: str):
    job = app.enqueue("add", ADD["args"])
    assert admin.request(method, path.format(id=job.id)).status_code == 404


@pytest.mark.parametrize(
    ("path", "name", "known"),
    [
        ("/v1/jobs", "kind", "cursor, group, lane, limit, queue, state, tag, task"),
        ("/v1/jobs", "before", "cursor, group, lane, limit, queue, state, tag, task"),
        ("/v1/questions", "kind", "group, limit, queue, task"),
        ("/v1/groups/g", "kinds", "noted, partial, since, tasks, wait"),
        ("/v1/workers", "kind", ""),
    ],
)
def test_an_unknown_name_in_the_query_is_refused_with_those_that_are_known(
    app: Leasehold, admin: httpx2.Client, path: str, name: str, known: str
):
    app.enqueue("add", ADD["args"])
    answer = admin.get(path, params={name: "add"})
    (fault,) = answer.json()["errors"]
    assert (answer.status_code, answer.json()["code"], fault["pointer"]) == (
        422, "invalid-request", f"/query/{name}",
    )  # fmt: skip
    assert fault["detail"] == f"is unknown; {f'known: {known}' if known else 'there are none here'}"


def test_an_argument_of_a_verb_belongs_into_the_body(app: Leasehold, admin: httpx2.Client):
    job = app.enqueue("add", ADD["args"])
    answer = admin.post(f"/v1/jobs/{job.id}/cancel", params={"reason": "enough"})
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/query/reason")
    assert job.refresh().state == "queued"


def test_a_probe_may_be_asked_with_any_words(admin: httpx2.Client):
    assert admin.get("/livez?verbose").status_code == 200


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/jobs", {"kind": "add", **ADD}),
        ("/v1/jobs/batch", {"jobs": [{"kind": "add", **ADD}]}),
        ("/v1/jobs/bulk", {"verb": "resolve", "everything": True}),
        ("/v1/jobs/bulk", {"verb": "cancel", "kind": "add"}),
        ("/v1/jobs/bulk", {"verb": "snooze", "task": "add", "snooze_until": "2100-01-01T00:00:00Z"}),
        ("/v1/stop", {"kinds": ["add"]}),
        ("/v1/groups/g/stop", {"kinds": ["add"]}),
    ],
)
def test_an_old_name_in_the_body_is_refused(
    app: Leasehold, admin: httpx2.Client, path: str, body: dict[str, Any]
):
    assert admin.post(path, json=body).status_code == 422
    assert admin.get("/v1/jobs").json()["jobs"] == []


@pytest.mark.parametrize(
    "call",
    [
        lambda app: app.worker(grace=5),
        lambda app: app.worker(strict=True),
        lambda app: app.worker(executions=5),
        lambda app: app.enqueue("add", {"a": 1}, now=True),
        lambda app: app.jobs(kind="add"),
        lambda app: app.jobs(before="x"),
        lambda app: app.bulk.cancel(kind="add"),
    ],
)
def test_an_old_name_in_python_is_refused(app: Leasehold, call: Callable[[Any], Any]):
    with pytest.raises((TypeError, errors.InvalidInput)):
        call(app)
    assert app.jobs().jobs == []


def test_old_names_of_errors_are_gone():
    assert not [name for name in ("Refused", "Unstorable") if hasattr(errors, name)]

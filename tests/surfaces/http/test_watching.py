"""Following a job over HTTP: what changes is told at once, whoever waits holds no thread and costs no read."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest

from leasehold import Leasehold
from leasehold.domain.outcome import Failure, Success
from leasehold.domain.stream import Note, RunNotes
from leasehold.operations import tokens
from leasehold.stores.results import Ending
from leasehold.surfaces.http import handwritten
from tests.surfaces.http.test_jobs import settle
from tests.surfaces.serving import PATIENCE, Server
from tests.workers import wait_for


def waiters(app: Leasehold) -> int:
    watch = app.__internals__.operations._job_watch
    return 0 if watch is None else len(watch._waiters)


def test_what_is_as_it_was_is_not_sent_again(app: Leasehold, admin: httpx2.Client):
    job = app.enqueue("add", {"a": 1})
    first = admin.get(f"/v1/jobs/{job.id}")
    tag = first.headers["etag"]
    same = admin.get(f"/v1/jobs/{job.id}", headers={"If-None-Match": tag})
    assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", tag)
    job.pause()
    changed = admin.get(f"/v1/jobs/{job.id}", headers={"If-None-Match": tag})
    assert (changed.status_code, changed.json()["state"]) == (200, "paused")
    assert changed.headers["etag"] != tag


def test_a_long_poll_is_answered_as_soon_as_the_job_changes(app: Leasehold, admin: httpx2.Client):
    job = app.enqueue("add", {"a": 1})
    tag = admin.get(f"/v1/jobs/{job.id}").headers["etag"]
    with ThreadPoolExecutor() as threads:
        requested = threads.submit(
            admin.get, f"/v1/jobs/{job.id}", params={"wait": 60}, headers={"If-None-Match": tag}
        )
        wait_for(lambda: waiters(app) == 1)
        assert not requested.done()
        began = time.monotonic()
        job.pause("look")
        answer = requested.result(PATIENCE)
    assert time.monotonic() - began < 30
    assert (answer.status_code, answer.json()["state"]) == (200, "paused")
    assert waiters(app) == 0


def test_a_long_poll_in_vain_says_that_nothing_has_changed(app: Leasehold, admin: httpx2.Client):
    job = app.enqueue("add", {"a": 1})
    tag = admin.get(f"/v1/jobs/{job.id}").headers["etag"]
    answer = admin.get(f"/v1/jobs/{job.id}", params={"wait": 0.3}, headers={"If-None-Match": tag})
    assert answer.status_code == 304
    assert admin.get(f"/v1/jobs/{job.id}", params={"wait": 0.3}).json()["state"] == "queued"
    assert admin.get(f"/v1/jobs/{job.id}", params={"wait": 61}).status_code == 422


def test_a_result_is_waited_for(app: Leasehold, admin: httpx2.Client):
    job = app.enqueue("add", {"a": 1})
    assert admin.get(f"/v1/jobs/{job.id}/result", params={"wait": 0.3}).status_code == 202
    with ThreadPoolExecutor() as threads:
        requested = threads.submit(admin.get, f"/v1/jobs/{job.id}/result", params={"wait": 60})
        wait_for(lambda: waiters(app) == 1)
        settle(app, Success("3"))
        assert requested.result(PATIENCE).json()["result"] == 3


def test_one_reader_serves_all_who_wait(app: Leasehold, server: Server, monkeypatch: pytest.MonkeyPatch):
    """Far more of them than there are threads to wait in."""
    job = app.enqueue("add", {"a": 1})
    client = server.client("read")
    store, reads = app.__internals__.store, []
    read = type(store).mark_jobs
    monkeypatch.setattr(type(store), "mark_jobs", lambda self, ids: reads.append(len(ids)) or read(self, ids))
    many = 80
    with ThreadPoolExecutor(many) as threads:
        requested = [
            threads.submit(client.get, f"/v1/jobs/{job.id}/result", params={"wait": 60}) for _ in range(many)
        ]
        wait_for(lambda: waiters(app) == many)
        reads.clear()
        wait_for(lambda: len(reads) >= 3)
        assert set(reads) == {1}, "one job, asked for once a look"
        settle(app, Success("3"))
        assert {one.result(PATIENCE).json()["result"] for one in requested} == {3}


class Stream:
    """Reads a stream of events in a thread."""

    def __init__(self, client: httpx2.Client, url: str, **headers: str) -> None:
        self.events: list[dict[str, str]] = []
        self.ended = threading.Event()
        self.status = 0
        self._thread = threading.Thread(target=self._read, args=(client, url, headers), daemon=True)
        self._thread.start()

    def _read(self, client: httpx2.Client, url: str, headers: dict[str, str]) -> None:
        with client.stream("GET", url, headers=headers) as answer:
            self.status = answer.status_code
            self.kind = answer.headers["content-type"]
            event: dict[str, str] = {}
            for line in answer.iter_lines():
                if line:
                    name, _, value = line.partition(": ")
                    event[name] = value
                elif event:
                    self.events.append(event)
                    event = {}
        self.ended.set()

    def reported(self) -> Iterator[tuple[str, object]]:
        for event in list(self.events):
            yield event["event"], json.loads(event["data"])["data"]


def emit(app: Leasehold, grant, *notes: Note) -> None:
    assert (
        app.__internals__.store.write_updates([RunNotes(grant.id, grant.token, grant.attempt, notes)]).lost
        == []
    )


def test_a_stream_tells_everything_in_order_and_ends_with_the_job(app: Leasehold, admin: httpx2.Client):
    job = app.enqueue("add", {"a": 1})
    stream = Stream(admin, f"/v1/jobs/{job.id}/watch")
    wait_for(lambda: len(stream.events) == 1)
    (grant,) = app.__internals__.store.claim("w", ["default"], 1)
    emit(app, grant, Note(1, "word", '"hello"'), Note(2, "word", '"world"'))
    wait_for(lambda: ("word", "world") in list(stream.reported()))
    app.__internals__.store.settle([Ending(grant.id, grant.token, Success("3"))])
    assert stream.ended.wait(PATIENCE)
    assert stream.kind.startswith("text/event-stream")
    reported = list(stream.reported())
    assert [data for kind, data in reported if kind == "word"] == ["hello", "world"]
    states = [data["state"] for kind, data in reported if kind == "state"]
    assert (states[0], states[-1]) == ("queued", "succeeded")
    assert [event["id"] for event in stream.events if event["event"] == "word"] == ["1", "2"]


def test_a_stream_goes_on_behind_the_last_event_that_was_seen(app: Leasehold, admin: httpx2.Client):
    job = app.enqueue("add", {"a": 1})
    (grant,) = app.__internals__.store.claim("w", ["default"], 1)
    emit(app, grant, *[Note(n, "word", str(n)) for n in range(1, 6)])
    app.__internals__.store.settle([Ending(grant.id, grant.token, Failure("broken", final=True))])
    stream = Stream(admin, f"/v1/jobs/{job.id}/watch", **{"Last-Event-ID": "3"})
    assert stream.ended.wait(PATIENCE)
    assert [data for kind, data in stream.reported() if kind == "word"] == [4, 5]
    page = admin.get(f"/v1/jobs/{job.id}/updates", params={"since": 3, "limit": 1}).json()
    assert [event["seq"] for event in page["updates"]] == [4]
    assert admin.get(f"/v1/jobs/{job.id}/watch", headers={"Last-Event-ID": "x"}).status_code == 422


def test_a_stream_ends_when_the_caller_wants_it_to(app: Leasehold, admin: httpx2.Client):
    job = app.enqueue("add", {"a": 1})
    stream = Stream(admin, f"/v1/jobs/{job.id}/watch?wait=0.2")
    assert stream.ended.wait(15)
    assert [data["state"] for _, data in stream.reported()] == ["queued"]
    assert admin.get(f"/v1/jobs/{job.id}/watch", params={"wait": 61}).status_code == 422


def test_a_stream_of_an_unknown_job_is_a_problem(admin: httpx2.Client):
    answer = admin.get("/v1/jobs/nothing/watch")
    assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")


def test_a_stream_ends_when_its_token_is_revoked(
    app: Leasehold, server: Server, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(handwritten, "CHECK_EVERY", 0.0)
    job = app.enqueue("add", {"a": 1})
    (grant,) = app.__internals__.store.claim("w", ["default"], 1)
    stream = Stream(server.client("read"), f"/v1/jobs/{job.id}/watch")
    emit(app, grant, Note(1, "word", '"before"'))
    wait_for(lambda: ("word", "before") in list(stream.reported()))
    (row,) = app.__internals__.operations.call(tokens.list_tokens)
    app.__internals__.operations.call(tokens.revoke_token, row.token.name)
    emit(app, grant, Note(2, "word", '"after"'))
    assert stream.ended.wait(PATIENCE), "the job runs on; whoever comes back is told why"

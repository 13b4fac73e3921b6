"""Connections that are lost, servers that are away, waits that are longer than a request may be."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest
from fastapi import FastAPI
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse
from starlette.responses import Response

from leasehold import Job, Leasehold, State
from leasehold.domain.outcome import Success
from leasehold.domain.stream import Note, RunNotes
from leasehold.errors import InvalidInput, PartlyStored, RemoteError, RemoteUnreachable, StoreError
from leasehold.remote import Remote, operator
from leasehold.stores.results import Ending
from tests.remote.conftest import claim, settle
from tests.remote.cutter import Cutter
from tests.surfaces.serving import Server, listening
from tests.workers import wait_for

SECRET = "lh_must-not-be-told"


@pytest.fixture
def cutter(server: Server) -> Iterator[Cutter]:
    with Cutter(urlsplit(server.url).port or 0) as cutter:
        yield cutter


@pytest.fixture
def through(server: Server, cutter: Cutter, connect: Callable[..., Remote]) -> Remote:
    """A client behind the proxy."""
    return connect(server.token("admin"), cutter.url, timeout=20)


def test_an_enqueue_whose_answer_was_lost_is_repeated_and_makes_one_job(
    app: Leasehold, cutter: Cutter, through: Remote
):
    cutter.lose_answers(1)
    job = through.enqueue("add", {"a": 1})
    cutter.lose_answers(1)
    jobs = through.enqueue_many([{"task": "add", "args": {"a": n}} for n in range(3)])
    cutter.lose_answers(1)
    other = asyncio.run(through.aenqueue("add", {"a": 1}))
    made = [job, *jobs, other]
    assert [one.created for one in made] == [True] * 5
    assert {one.id for one in app.jobs().jobs} == {one.id for one in made}


def test_an_enqueue_that_nobody_answers_twice_is_the_callers_to_repeat(
    app: Leasehold, cutter: Cutter, through: Remote
):
    cutter.lose_answers(2)
    with pytest.raises(RemoteUnreachable):
        through.enqueue("add", {"a": 1}, idempotency_key="order-17")
    again = through.enqueue("add", {"a": 1}, idempotency_key="order-17")
    assert [one.id for one in app.jobs().jobs] == [again.id]


def test_a_verb_whose_answer_was_lost_is_not_repeated(app: Leasehold, cutter: Cutter, through: Remote):
    job = through.enqueue("add", {"a": 1}).cancel()
    cutter.lose_answers(1)
    with pytest.raises(RemoteUnreachable):
        job.retry()
    assert len(app.jobs().jobs) == 2, "it was done, and once"
    cutter.lose_answers(1)
    assert job.refresh().state is State.CANCELLED, "who only looks may look twice"


def test_only_the_dry_run_of_a_bulk_verb_is_repeated(app: Leasehold, cutter: Cutter, through: Remote):
    through.enqueue("add", {"a": 1}).cancel()
    requested = {"task": "add", "state": "cancelled"}
    cutter.lose_answers(1)
    assert through.bulk.retry(**requested, dry_run=True).matched == 1
    cutter.lose_answers(1)
    with pytest.raises(RemoteUnreachable):
        through.bulk.retry(**requested)
    assert len(app.jobs().jobs) == 2, "it was done, and once"


def test_a_top_up_whose_answer_was_lost_is_not_repeated(app: Leasehold, cutter: Cutter, through: Remote):
    made = app.__internals__.named_task("add", {"budget": {"tokens": 10}}).enqueue(a=1)
    job = through.get(made.id)
    cutter.lose_answers(1)
    with pytest.raises(RemoteUnreachable):
        job.top_up(tokens=5)
    assert [line.limit for line in job.budget()] == [15]
    cutter.lose_answers(1)
    assert [line.limit for line in through.group("g").budget(tokens=7)] == [7], "set twice is set once"


def test_a_server_that_is_not_there_is_named_and_the_token_is_not():
    with Remote("http://127.0.0.1:1/jobs/", token=SECRET) as api:
        for ask in (lambda: api.enqueue("add"), api.jobs, api.queues.list):
            with pytest.raises(StoreError, match=r"cannot reach http://127\.0\.0\.1:1/jobs: ") as caught:
                ask()
            assert isinstance(caught.value, RemoteUnreachable)
            assert SECRET not in str(caught.value) + repr(caught.value.__cause__) + repr(api)
        with pytest.raises(RemoteUnreachable):
            asyncio.run(api.ajobs())


@pytest.mark.parametrize(
    ("url", "more", "field"),
    [
        ("127.0.0.1:8700", {}, "url"),
        ("ftp://127.0.0.1", {}, "url"),
        ("http://ann:secret@127.0.0.1:8700", {}, "url"),
        ("http://127.0.0.1:8700?token=secret", {}, "url"),
        ("http://127.0.0.1", {"token": f"{SECRET}\r\nX: y"}, "token"),
        ("http://127.0.0.1", {"token": f"{SECRET}…"}, "token"),
        ("http://127.0.0.1", {"tenant": "Not a tenant"}, "tenant"),
        ("http://127.0.0.1", {"timeout": 0}, "timeout"),
    ],
)
def test_what_cannot_be_a_server_is_refused_at_once_and_no_secret_is_told(url, more, field):
    with pytest.raises(InvalidInput) as caught:
        Remote(url, **more)
    assert caught.value.field == field
    assert SECRET not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_what_is_no_leasehold_says_so():
    other = FastAPI()
    answers = {
        "html": HTMLResponse("<p>welcome"),
        "list": JSONResponse([1]),
        "elsewhere": RedirectResponse("/html/v1/jobs"),
        "down": HTMLResponse("<p>bad gateway", 502),
        "missing": JSONResponse({"detail": "Not Found"}, 404),
    }
    other.add_api_route("/{name}/v1/jobs", lambda name: answers[name], response_model=None)
    app = Leasehold("sqlite:///nothing.db")
    with listening(app, other) as server:
        for name, reported in {
            "html": (200, "unexpected-answer"),
            "list": (200, "unexpected-answer"),
            "elsewhere": (307, "unexpected-answer"),
            "down": (502, "unknown"),
            "missing": (404, "unknown"),
        }.items():
            with Remote(f"{server.url}/{name}") as api, pytest.raises(RemoteError) as caught:
                api.jobs()
            assert (caught.value.status, caught.value.code) == reported, name


# -- streams -------------------------------------------------------------------------------------------------------
def notify(app: Leasehold, grant, place: int) -> None:
    note = Note(place, "word", str(place))
    app.__internals__.store.write_updates([RunNotes(grant.id, grant.token, grant.attempt, (note,))])


STRANGE = {
    "a page instead of a stream": ("text/html", b"<p>sign in"),
    "an unknown state": (
        "text/event-stream",
        b'data: {"seq":1,"kind":"state","data":{"state":"new"},"key":null,"attempt":1,"at":null}\n\n',
    ),
    "no state": (
        "text/event-stream",
        b'data: {"seq":1,"kind":"state","data":[],"key":null,"attempt":1,"at":null}\n\n',
    ),
}


@pytest.mark.parametrize("case", STRANGE)
def test_a_stream_that_is_none_of_ours_is_not_asked_for_again_and_again(case: str):
    task, content = STRANGE[case]
    api, requested = FastAPI(), []

    @api.get("/v1/jobs/{id}/watch")
    def watch(id: str) -> Response:
        requested.append(id)
        return Response(content, media_type=task)

    with listening(None, api) as server, Remote(server.url, token=SECRET) as remote:
        found = Job("019a7c1e-5b0c-7d11-9a3e-0f2d6c4b8a10", remote._operator, remote._find_task)
        with pytest.raises(RemoteError, match="not one of Leasehold's"):
            list(found.watch(timeout=30))
        assert len(requested) == 1

        async def follow() -> None:
            async for _ in found.awatch(timeout=30):
                pass

        with pytest.raises(RemoteError, match="not one of Leasehold's"):
            asyncio.run(follow())
        assert len(requested) == 2


@pytest.mark.parametrize("content", [b"[" * 100_000, b"no gzip"], ids=["too deep", "no gzip"])
def test_an_answer_that_cannot_be_read_is_an_error_of_ours(content: bytes):
    api = FastAPI()
    packed = {"Content-Encoding": "gzip"} if content == b"no gzip" else {}
    api.get("/v1/count")(lambda: Response(content, headers=packed, media_type="application/json"))
    with listening(None, api) as server, Remote(server.url, token=SECRET) as remote:
        with pytest.raises((RemoteError, RemoteUnreachable)):
            remote.count()
        with pytest.raises((RemoteError, RemoteUnreachable)):
            asyncio.run(remote.acount())


def test_a_watcher_whose_connection_is_lost_goes_on_and_misses_nothing(
    app: Leasehold, cutter: Cutter, through: Remote
):
    job = through.enqueue("add", {"a": 1})
    grant = claim(app)
    notify(app, grant, 1)
    watch = job.watch(timeout=60)
    seen = [next(watch).data, next(watch).data]
    for place in (2, 3):
        before = cutter.connections
        cutter.cut()
        notify(app, grant, place)
        seen.append(next(watch).data)
        assert cutter.connections > before
    app.__internals__.store.settle([Ending(grant.id, grant.token, Success("2"))])
    seen += [event.data for event in watch]
    running, succeeded = ({"state": state, "attempt": 1} for state in ("running", "succeeded"))
    assert seen == [1, running, 2, 3, succeeded], "each once, and the state only when it is another"


def test_an_async_watcher_goes_on_as_well(app: Leasehold, cutter: Cutter, through: Remote):
    job = through.enqueue("add", {"a": 1})
    grant = claim(app)
    notify(app, grant, 1)

    async def watch() -> list[object]:
        seen = []
        async with through:
            async for event in job.awatch(timeout=60):
                seen.append(event.data)
                if event.data == 1:
                    cutter.cut()
                    notify(app, grant, 2)
                if event.data == 2:
                    app.__internals__.store.settle([Ending(grant.id, grant.token, Success("2"))])
        return [one for one in seen if isinstance(one, int)]

    assert asyncio.run(watch()) == [1, 2]


def test_a_watcher_gives_up_when_the_server_stays_away(
    app: Leasehold, server: Server, cutter: Cutter, connect: Callable[..., Remote]
):
    job = connect(server.token("admin"), cutter.url, timeout=3).get(app.enqueue("add", {"a": 1}).id)
    watch = job.watch()
    assert next(watch).data["state"] == "queued"
    cutter.close()
    with pytest.raises(RemoteUnreachable):
        next(watch)


# -- waits ---------------------------------------------------------------------------------------------------------
@pytest.fixture
def short_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a minute were over after a fifth of a second."""
    monkeypatch.setattr(operator, "LONGEST_WAIT", 0.2)


@pytest.mark.usefixtures("short_polls")
def test_a_wait_may_be_longer_than_one_request(app: Leasehold, remote: Remote):
    work = remote.enqueue("add", {"a": 1}, group="g")
    timer = threading.Timer(1.0, settle, (app, Success("2")))
    timer.start()
    assert remote.group("g").status(wait=60).succeeded == 1
    assert work.result(timeout=60) == 2
    timer.join()


@pytest.mark.usefixtures("short_polls")
def test_a_stop_may_wait_longer_than_one_request(app: Leasehold, remote: Remote):
    running = remote.enqueue("add", {"a": 1}, group="g")
    grant = claim(app)

    def end_after_the_first_request() -> None:
        wait_for(lambda: app.get(running.id).__row__.stop_requested)
        time.sleep(1.0)  # too short on a slow machine: then the first request waits for it, and nothing fails
        app.__internals__.store.settle([Ending(grant.id, grant.token, Success("2"))])

    with ThreadPoolExecutor(1) as threads:
        ended = threads.submit(end_after_the_first_request)
        report = remote.group("g").stop(wait=60)
        ended.result()
    assert (report.still_running, report.flagged) == ([], {"add": 1})
    assert running.refresh().state is State.SUCCEEDED


# -- many ----------------------------------------------------------------------------------------------------------
def test_many_go_in_pieces_and_it_is_told_how_far_it_went(app: Leasehold, remote: Remote):
    good = [{"task": "add", "args": {"a": n}, "group": "g"} for n in range(1000)]
    with pytest.raises(PartlyStored) as caught:
        remote.enqueue_many([*good, {"task": "add", "args": {}}], idempotency_key="k")
    assert (caught.value.stored, len(caught.value.ids)) == (1000, 1000)
    assert "InvalidArguments" in caught.value.cause
    made = remote.enqueue_many([*good, {"task": "work", "args": {"target": "t"}}], idempotency_key="k")
    assert [one.id for one in made[:1000]] == caught.value.ids, "the first piece came again under its key"
    assert (len(made), made[-1].task, app.group("g").status().total) == (1001, "work", 1000)
    with pytest.raises(InvalidInput, match="cannot be set over HTTP"):
        remote.enqueue_many([{"task": "add", "args": {"a": 1}, "retry": 1}])  # type: ignore[typeddict-unknown-key]
    with pytest.raises(InvalidInput):
        remote.enqueue("add", {"a": 1}, idempotency_key="é")
    assert remote.enqueue_many([]) == []

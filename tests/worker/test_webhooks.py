"""Webhooks: posted once there is a webhook, signed, tried again, and never to an address behind our own doors."""

from __future__ import annotations

import asyncio
import functools
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from leasehold import Leasehold
from leasehold.domain.hooks import (
    WEBHOOK_TASK,
    PendingNotification,
    is_public,
    key_of,
    new_secret,
    signed_headers,
    verified,
)
from leasehold.domain.records import Filter
from leasehold.domain.states import State
from leasehold.errors import InvalidInput, InvalidSignature
from leasehold.operations import jobs, webhooks
from leasehold.webhooks import verify
from leasehold.worker import hooks
from leasehold.worker.hooks import Refusal, post
from tests.workers import until

SECRET = new_secret(b"0123456789abcdef01234567")


class Receiver:
    """A web server on loopback that keeps what comes, and answers as it is told."""

    def __init__(self) -> None:
        self.got: list[tuple[str, dict[str, str], bytes]] = []
        self.answers: list[tuple[int, dict[str, str]]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.got.append((self.path, dict(self.headers), body))
                status, headers = receiver.answers.pop(0) if receiver.answers else (204, {})
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook?a=1"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


def serve(app: Leasehold, condition: Callable[[], object]) -> None:
    async def work() -> None:
        async with app.worker(retention=None):
            await until(condition)

    asyncio.run(work())


def deliveries(app: Leasehold, *states: State) -> list[Any]:
    store = app.__internals__.store
    return [store.get(one.id) for one in store.list_jobs(Filter(tuple(states), task=WEBHOOK_TASK)).jobs]


def cancel_one(app: Leasehold) -> str:
    @app.task
    def work() -> None: ...

    job = work.enqueue()
    job.cancel("no need")
    return job.id


def test_a_receiver_verifies_what_was_posted_and_a_repeat_has_the_same_id(app: Leasehold, receiver: Receiver):
    receiver.answers = [(500, {})]
    operations = app.__internals__.operations
    operations.call(
        webhooks.set_webhook, "mine", receiver.url, ["cancelled"], secret=SECRET, allow_private=True
    )
    job_id = cancel_one(app)
    serve(app, lambda: deliveries(app, State.SUCCEEDED))
    assert [path for path, _, _ in receiver.got] == ["/hook?a=1"] * 2
    events = [verify(headers, body, SECRET) for _, headers, body in receiver.got]
    assert events[0] == events[1]
    assert (events[0]["type"], events[0]["data"]["job_id"], events[0]["data"]["detail"]) == (
        "cancelled", job_id, "no need",
    )  # fmt: skip
    assert {headers["webhook-id"] for _, headers, _ in receiver.got} == {events[0]["id"]}
    (delivery,) = deliveries(app)
    assert SECRET not in delivery.args


def test_a_webhook_of_the_code_is_registered_when_a_worker_starts(app: Leasehold, receiver: Receiver):
    app.webhook(receiver.url, name="mine", events=["succeeded"], secret=SECRET, allow_private=True)

    @app.task
    async def work() -> None: ...

    job = work.enqueue()
    serve(app, lambda: receiver.got)
    assert verify(receiver.got[0][1], receiver.got[0][2], SECRET)["data"]["job_id"] == job.id
    assert SECRET not in repr(app.__internals__.store.list_webhooks())


def test_deliveries_to_a_receiver_that_hangs_take_no_places_of_jobs(
    app: Leasehold, monkeypatch: pytest.MonkeyPatch
):
    """No delivery ends before the test lets go of the receiver: a job that needs the end of one would never start."""
    monkeypatch.setattr(hooks, "post", functools.partial(post, seconds=600))
    store, operations = app.__internals__.store, app.__internals__.operations
    ran: list[int] = []

    @app.task
    async def on_loop(n: int) -> None:
        ran.append(n)

    @app.task
    def in_thread(n: int) -> None:
        ran.append(n)

    async def work() -> None:
        # It accepts connections, and never answers.
        receiver = socket.create_server(("127.0.0.1", 0), backlog=300)
        url = f"http://127.0.0.1:{receiver.getsockname()[1]}/"
        operations.call(webhooks.set_webhook, "mine", url, ["cancelled"], secret=SECRET, allow_private=True)
        happened = PendingNotification("cancelled", None, "on_loop", "default", 1, None, "no need", {})
        store.notify_listeners([happened] * 200)
        async with app.worker(retention=None, concurrency=20, threads=1):
            try:
                await until(lambda: len(deliveries(app, State.RUNNING)) >= hooks.WEBHOOK_PLACES)
                jobs = [*(on_loop.enqueue(n) for n in range(40)), in_thread.enqueue(40)]
                await until(lambda: all(job.refresh().state is State.SUCCEEDED for job in jobs))
                under_way = deliveries(app, State.RUNNING)
                assert (len(under_way), {one.attempt for one in under_way}) == (hooks.WEBHOOK_PLACES, {1})
            finally:
                receiver.close()

    asyncio.run(work())
    assert sorted(ran) == list(range(41))


def test_deliveries_are_not_told_of(app: Leasehold, receiver: Receiver):
    @app.task
    def work() -> None: ...

    receiver.answers = [(410, {})]
    every = ["succeeded", "failed", "requeued"]
    operations = app.__internals__.operations
    operations.call(webhooks.set_webhook, "mine", receiver.url, every, secret=SECRET, allow_private=True)
    job = operations.call(webhooks.try_webhook, "mine")
    serve(app, lambda: operations.call(jobs.get, job.id).state is State.FAILED)
    operations.call(webhooks.try_webhook, "mine")
    serve(app, lambda: deliveries(app, State.SUCCEEDED))
    assert [json.loads(body)["type"] for _, _, body in receiver.got] == ["test", "test"]
    assert len(deliveries(app)) == 2


def test_a_private_address_is_refused(app: Leasehold, receiver: Receiver):
    operations = app.__internals__.operations
    secure = receiver.url.replace("http://", "https://")
    operations.call(webhooks.set_webhook, "mine", secure, ["cancelled"], secret=SECRET)
    cancel_one(app)
    serve(app, lambda: deliveries(app, State.FAILED))
    (delivery,) = deliveries(app)
    assert "127.0.0.1, which is not an address of the Internet" in (delivery.error or "")
    assert receiver.got == []


def test_a_redirect_is_not_followed(app: Leasehold, receiver: Receiver):
    other = Receiver()
    receiver.answers = [(302, {"location": other.url})]
    operations = app.__internals__.operations
    operations.call(
        webhooks.set_webhook, "mine", receiver.url, ["cancelled"], secret=SECRET, allow_private=True
    )
    cancel_one(app)
    serve(app, lambda: deliveries(app, State.FAILED))
    other.close()
    assert "redirects are not followed" in (deliveries(app)[0].error or "")
    assert (len(receiver.got), other.got) == (1, [])


def test_a_name_that_changes_its_address_is_asked_once_and_looked_at_each_time(
    monkeypatch: pytest.MonkeyPatch,
):
    public = "93.184.215.14"
    answers = [[public], ["127.0.0.1"], [public, "10.0.0.7"], ["::ffff:169.254.169.254"]]
    requested: list[str] = []
    dialled: list[str] = []

    def resolve(host: str, port: int, **_: object) -> list[Any]:
        requested.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in answers.pop(0)]

    def connect(address: tuple[str, int], **_: object) -> socket.socket:
        dialled.append(address[0])
        raise ConnectionRefusedError

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(socket, "create_connection", connect)
    with pytest.raises(ConnectionRefusedError):
        post("https://flips.example/", b"{}", {}, allow_private=False)
    assert (requested, dialled) == (["flips.example"], [public])
    for _ in range(3):
        with pytest.raises(Refusal):
            post("https://flips.example/", b"{}", {}, allow_private=False)
    assert dialled == [public]


def test_a_server_that_never_ends_its_answer_is_cut_off():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(Exception, match=r".*"):
            post(f"http://127.0.0.1:{port}/", b"{}", {}, allow_private=True, seconds=0.3)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1",
        "255.255.255.255", "::1", "::", "fe80::1%eth0", "fd00:ec2::254", "ff02::1", "::ffff:127.0.0.1",
        "::ffff:10.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "no address",
    ],
)  # fmt: skip
def test_an_address_behind_our_own_doors_is_not_public(address: str):
    assert not is_public(address)


@pytest.mark.parametrize(
    "address", ["93.184.215.14", "2606:2800:21f:cb07:6820:80da:af6b:8b2c", "::ffff:8.8.8.8"]
)
def test_an_address_of_the_internet_is_public(address: str):
    assert is_public(address)


def test_what_was_changed_or_is_old_or_signed_by_another_is_not_verified():
    body = b'{"type": "failed"}'
    headers = signed_headers("id-1", body, SECRET, 1000.0)
    assert verified(headers, body, SECRET, 1000.0) == {"id": "id-1", "type": "failed"}
    two = headers | {"webhook-signature": f"v1,bm90 {headers['webhook-signature']}"}
    assert verified({name.title(): value for name, value in two.items()}, body.decode(), SECRET, 1000.0)
    for changed, raw, secret, now in (
        (headers, body + b" ", SECRET, 1000.0),
        (headers, body, SECRET, 1301.0),
        (headers, body, SECRET, 699.0),
        (headers, body, "another secret, long enough", 1000.0),
        (headers | {"webhook-id": "id-2"}, body, SECRET, 1000.0),
        ({}, body, SECRET, 1000.0),
    ):
        with pytest.raises(InvalidSignature):
            verified(changed, raw, secret, now)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("http://example.com/", "https"),
        ("ftp://example.com/", "web server"),
        ("https:///path", "web server"),
        ("https://user:pw@example.com/", "password"),
        ("https://example.com/#here", "fragment"),
        ("https://example.com:99999/", "port"),
        ("https://example.com/a b", "web server"),
    ],
)
def test_a_url_that_cannot_be_posted_to_is_refused_with_the_remedy(app: Leasehold, url: str, problem: str):
    with pytest.raises(InvalidInput, match=problem) as refused:
        app.webhook(url, name="mine", events=["failed"], secret=SECRET)
    assert refused.value.field == "url"


@pytest.mark.parametrize("secret", ["short", "whsec_bm90", "whsec_!!!"])
def test_a_weak_secret_is_refused(secret: str):
    with pytest.raises(InvalidInput, match="secret"):
        key_of(secret)


def test_a_name_with_many_dead_addresses_has_no_more_time_than_one(monkeypatch: pytest.MonkeyPatch):
    now, waits = [1000.0], []

    def never(address: tuple[str, int], timeout: float) -> socket.socket:
        waits.append(timeout)
        now[0] += timeout
        raise TimeoutError

    dead = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"8.8.8.{n}", 443)) for n in range(1, 41)]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: dead)
    monkeypatch.setattr(socket, "create_connection", never)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with pytest.raises(TimeoutError):
        post("https://many.example/", b"{}", {}, allow_private=False)
    assert len(waits) == 40, "each is tried"
    assert sum(waits) == pytest.approx(hooks.POST_SECONDS)

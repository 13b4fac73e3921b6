"""Transport to a server: connections, a second try when one is lost, and streams that resume."""

from __future__ import annotations

import asyncio
import os
import ssl
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import httpx2
from pydantic import TypeAdapter

from leasehold.domain.checks.times import Duration, seconds
from leasehold.domain.errors import RemoteError, WaitTimedOut
from leasehold.domain.frozen import frozen
from leasehold.domain.poll import Poll
from leasehold.domain.states import ENDED, State
from leasehold.domain.stream import STATE, Update
from leasehold.errors import InvalidInput, LeaseholdError, RemoteUnreachable
from leasehold.remote.exchange import LONGEST_WAIT, Exchange, Request, Response, parse_response, unexpected

T = TypeVar("T")

_LOST = (httpx2.NetworkError, httpx2.RemoteProtocolError)
"""The connection broke: the server may or may not have got the request."""


class Connections:
    """Connections to one server. Threads share a client, made at first use and anew after a fork. Under asyncio each
    exchange has a client of its own, because connections belong to their event loop; `keep` holds one open for a
    loop."""

    def __init__(self, url: str, token: str | None, timeout: Duration) -> None:
        self.url = _checked_url(url)
        self.timeout = seconds(timeout, "timeout", positive=True)
        self._headers = {} if token is None else {"Authorization": f"Bearer {_checked_token(token)}"}
        self._tls: ssl.SSLContext | None = None
        self._client: httpx2.Client | None = None
        self._pid = 0
        self._lock = threading.Lock()
        self._kept: tuple[asyncio.AbstractEventLoop, httpx2.AsyncClient] | None = None

    def client(self) -> httpx2.Client:
        with self._lock:
            if self._client is None or self._pid != os.getpid():
                self._client, self._pid = httpx2.Client(**self._settings()), os.getpid()
            return self._client

    @asynccontextmanager
    async def aclient(self) -> AsyncIterator[httpx2.AsyncClient]:
        if self._kept is not None and self._kept[0] is asyncio.get_running_loop():
            yield self._kept[1]
        else:
            async with httpx2.AsyncClient(**self._settings()) as client:
                yield client

    async def keep(self) -> None:
        self._kept = asyncio.get_running_loop(), httpx2.AsyncClient(**self._settings())

    def close(self) -> None:
        with self._lock:
            client, self._client = self._client, None
        if client is not None and self._pid == os.getpid():
            client.close()

    async def aclose(self) -> None:
        kept, self._kept = self._kept, None
        if kept is not None and kept[0] is asyncio.get_running_loop():
            await kept[1].aclose()
        self.close()

    def _settings(self) -> dict[str, Any]:
        if self._tls is None and self.url.startswith("https"):
            self._tls = httpx2.create_ssl_context()
        return {"base_url": self.url, "headers": self._headers, "verify": self._tls or True}


@frozen
class Transport:
    """Sends the requests of all handles: to one server, for the jobs of one tenant."""

    connections: Connections
    tenant: str | None = None

    def run(self, exchange: Exchange[T]) -> T:
        reply: Response | LeaseholdError | None = None
        client = self.connections.client()
        while True:
            try:
                request = _advance(exchange, reply)
            except StopIteration as done:
                found: T = done.value
                return found
            try:
                reply = self._send(client, request)
            except LeaseholdError as error:
                reply = error

    async def arun(self, exchange: Exchange[T]) -> T:
        reply: Response | LeaseholdError | None = None
        async with self.connections.aclient() as client:
            while True:
                try:
                    request = _advance(exchange, reply)
                except StopIteration as done:
                    found: T = done.value
                    return found
                try:
                    reply = await self._asend(client, request)
                except LeaseholdError as error:
                    reply = error

    def _send(self, client: httpx2.Client, request: Request) -> Response:
        for last in (not request.repeat, True):
            try:
                response = client.request(request.method, request.path, **self._sent(request))
            except httpx2.RequestError as error:
                if last or not isinstance(error, _LOST):
                    raise self._unreachable(error) from error
            else:
                return parse_response(response.status_code, response.content)
        raise AssertionError("the last try has answered or raised")

    async def _asend(self, client: httpx2.AsyncClient, request: Request) -> Response:
        for last in (not request.repeat, True):
            try:
                response = await client.request(request.method, request.path, **self._sent(request))
            except httpx2.RequestError as error:
                if last or not isinstance(error, _LOST):
                    raise self._unreachable(error) from error
            else:
                return parse_response(response.status_code, response.content)
        raise AssertionError("the last try has answered or raised")

    def follow(self, following: Following) -> Iterator[Update]:
        """Yield a job's updates, over as many connections as it takes."""
        while not following.over:
            request = following.request()
            try:
                with self.connections.client().stream(
                    request.method, request.path, **self._sent(request)
                ) as stream:
                    if not is_stream(stream.status_code, stream.headers.get("content-type", "")):
                        parse_response(stream.status_code, stream.read())
                    following.opened()
                    for message in httpx2.EventSource(stream, max_event_size=None):
                        if (update := following.received(message.data)) is not None:
                            yield update
            except httpx2.RequestError as error:
                following.lost(self._unreachable(error))
            except LeaseholdError as error:
                following.lost(error)
            if not following.over:
                time.sleep(following.pause())

    async def afollow(self, following: Following) -> AsyncIterator[Update]:
        async with self.connections.aclient() as client:
            while not following.over:
                request = following.request()
                try:
                    async with client.stream(request.method, request.path, **self._sent(request)) as stream:
                        if not is_stream(stream.status_code, stream.headers.get("content-type", "")):
                            parse_response(stream.status_code, await stream.aread())
                        following.opened()
                        async for message in httpx2.EventSource(stream, max_event_size=None):
                            if (update := following.received(message.data)) is not None:
                                yield update
                except httpx2.RequestError as error:
                    following.lost(self._unreachable(error))
                except LeaseholdError as error:
                    following.lost(error)
                if not following.over:
                    await asyncio.sleep(following.pause())

    def _sent(self, request: Request) -> dict[str, Any]:
        headers = dict(request.headers)
        if self.tenant is not None:
            headers["Leasehold-Tenant"] = self.tenant
        if request.body is not None:
            headers["Content-Type"] = "application/json"
        usual = self.connections.timeout
        return {
            "params": request.query,
            "content": request.content,
            "headers": headers,
            "timeout": httpx2.Timeout(usual, read=usual + request.wait),
        }

    def _unreachable(self, error: httpx2.RequestError) -> RemoteUnreachable:
        # The text of a connection error may be empty. It never contains a header, and so never the token.
        cause = str(error) or type(error).__name__
        if isinstance(error, httpx2.TimeoutException):
            cause = f"no answer within {self.connections.timeout:g} s"
        return RemoteUnreachable(self.connections.url, cause)


def _advance(exchange: Exchange[T], reply: Response | LeaseholdError | None) -> Request:
    if reply is None:
        return next(exchange)
    if isinstance(reply, LeaseholdError):
        return exchange.throw(reply)
    return exchange.send(reply)


def _checked_url(url: str) -> str:
    try:
        found = httpx2.URL(url)
    except (httpx2.InvalidURL, TypeError):
        raise InvalidInput("url", "is not a URL", "give that of the server: http://127.0.0.1:8700") from None
    if found.scheme not in ("http", "https") or not found.host:
        raise InvalidInput("url", f"{url!r} is not the URL of a server", "begin it with http:// or https://")
    if found.userinfo or found.query or found.fragment:
        raise InvalidInput(
            "url",
            "has more in it than an address",
            "leave out user, query and fragment; give the token as token=",
        )
    return url.rstrip("/")


def _checked_token(token: str) -> str:
    """Check and strip a token, which may end with a newline if it was read from a file. The error must not quote it."""
    text = token.strip()
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise InvalidInput("token", "is not a token", "give what `leasehold tokens create` printed")
    return text


# -- one watcher's position in a stream --------------------------------------------------------------------------------

_UPDATE = TypeAdapter(Update)
RECONNECT_FIRST_AFTER, RECONNECT_SLOWEST_EVERY = 0.1, 2.0
LOST_AFTER = 30.0
"""Seconds of silence after which a connection counts as lost; the server sends a sign of life every 15."""


def is_stream(status: int, content_type: str) -> bool:
    """Whether the response is a stream; if not, it reports a problem. Raises RemoteError for a page of a proxy, which
    would look like a lost stream: the client would request it again and again."""
    if status == 200 and not content_type.lower().startswith("text/event-stream"):
        raise unexpected(status, "it is not an event stream")
    return status == 200


class Following:
    """Follows one job. `patience`: seconds that the server may be unreachable after a first connection."""

    def __init__(self, job_id: str, since: int, timeout: float | None, patience: float) -> None:
        self._job_id = job_id
        self._since = since
        self._timeout = timeout
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._patience = patience
        self._connected = False
        self._away: Poll | None = None
        self._state = State.QUEUED
        self._reported: object = None
        self._pause = RECONNECT_FIRST_AFTER
        self.over = False
        """Whether the job has ended and every update was delivered."""

    def request(self) -> Request:
        """Request the stream after the last update. With a time-out, the server ends the stream in time."""
        left = None if self._deadline is None else max(0.01, self._deadline - time.monotonic())
        return Request(
            "GET",
            f"/v1/jobs/{self._job_id}/watch",
            {"wait": None if left is None else min(left, LONGEST_WAIT)},
            headers={"Last-Event-ID": str(self._since)},
            wait=LOST_AFTER,
        )

    def opened(self) -> None:
        self._connected, self._away, self._pause = True, None, RECONNECT_FIRST_AFTER

    def received(self, data: str) -> Update | None:
        """Read one update. None: a state that was delivered before the connection was lost."""
        update = parse_response(200, data.encode()).read(_UPDATE)
        self._since = update.seq
        if update.kind != STATE:
            return update
        if update.data == self._reported:
            return None
        self._reported = update.data
        self._state = _state_of(update)
        self.over = self._state in ENDED
        return update

    def lost(self, error: LeaseholdError) -> None:
        """Plan the next try; raise the error if it is permanent, or if no stream was open before."""
        temporary = isinstance(error, RemoteUnreachable) or (
            isinstance(error, RemoteError) and error.status >= 500
        )
        if not self._connected or not temporary:
            raise error
        if self._away is None:
            self._away = Poll(RECONNECT_FIRST_AFTER, RECONNECT_SLOWEST_EVERY, time.monotonic, self._patience)
        pause = self._away.pause()
        if pause is None:
            raise error
        self._pause = pause

    def pause(self) -> float:
        """Seconds until the next try. Raises WaitTimedOut."""
        if self._deadline is None:
            return self._pause
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise WaitTimedOut(self._job_id, self._timeout or 0.0, self._state.value)
        return min(self._pause, left)


def _state_of(update: Update) -> State:
    """Return the state that a state update reports."""
    try:
        return State(update.data["state"])
    except (ValueError, KeyError, TypeError) as error:
        raise unexpected(200, f"{update.data!r} has no state") from error

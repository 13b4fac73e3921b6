"""Client of the Docker engine's HTTP interface over its socket: as much of it as the runner needs.

One connection per call: any thread may call, nothing stays open over a fork, and a restart of the engine does no harm.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
from collections.abc import Collection, Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any, cast
from urllib.parse import urlencode

from leasehold.domain.errors import InvalidInput
from leasehold.domain.frozen import frozen

DEFAULT_HOST = "unix:///var/run/docker.sock"
HOST_VARIABLE = "DOCKER_HOST"
"""The socket of the Docker engine, for runners that name none; by default `unix:///var/run/docker.sock`."""
NEWEST = (1, 47)
"""The newest version of the interface to request: a newer one may behave differently."""
REPLY_WITHIN = 60.0

Query = Mapping[str, object]


class EngineError(OSError):
    """The engine answered with an unexpected error: its effect is unknown."""

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        self.message = message
        super().__init__(f"the Docker engine answered {status}: {message}")


@frozen
class Reply:
    status: int
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def message(self) -> str:
        """The message of an error."""
        try:
            return str(self.json()["message"])
        except (ValueError, KeyError, TypeError):
            return self.body.decode(errors="replace")[:500]


class Engine:
    def __init__(self, host: str | None = None) -> None:
        self.host = host or os.environ.get(HOST_VARIABLE) or DEFAULT_HOST
        if not self.host.startswith("unix://"):
            raise InvalidInput(
                "host",
                f"{self.host!r} may be another machine: the fence against second starts is a folder that the worker"
                " and the engine must both see",
                "run the worker where the engine is, and give its socket (unix:///var/run/docker.sock)",
            )
        self._version: str | None = None

    def call(
        self,
        method: str,
        path: str,
        query: Query | None = None,
        body: object = None,
        allow: Collection[int] = (),
    ) -> Reply:
        """Send a request and return the reply. Raises EngineError for an error status not in `allow`."""
        with self._requested(method, path, query, body) as connection:
            answer = connection.getresponse()
            reply = Reply(answer.status, answer.read())
        if reply.status >= 400 and reply.status not in allow:
            raise EngineError(reply.status, reply.message)
        return reply

    def send(self, method: str, path: str, query: Query | None = None) -> None:
        """Send a request without waiting for the reply: the engine continues on its own."""
        with self._requested(method, path, query, None):
            pass

    def frames(self, path: str, query: Query) -> Generator[tuple[int, bytes]]:
        """Yield what a container has written, message by message: the stream's number (1: stdout, 2: stderr) and the
        text. Yields nothing if there is no such container. Stopping early closes the connection."""
        with self._requested("GET", path, query, None) as connection:
            answer = connection.getresponse()
            if answer.status in (404, 409):  # 409: it is just being removed
                return
            if answer.status >= 400:
                raise EngineError(answer.status, Reply(answer.status, answer.read()).message)
            while len(header := answer.read(8)) == 8:
                yield header[0], answer.read(int.from_bytes(header[4:], "big"))

    @contextmanager
    def _requested(
        self, method: str, path: str, query: Query | None, body: object
    ) -> Iterator[http.client.HTTPConnection]:
        if self._version is None:
            self._version = self._agree()
        url = f"/v{self._version}{path}?{urlencode(query or {})}"
        with self._connection() as connection:
            if body is None:
                connection.request(method, url)
            else:
                headers = {"Content-Type": "application/json"}
                connection.request(method, url, json.dumps(body).encode(), headers)
            yield connection

    def _agree(self) -> str:
        with self._connection() as connection:
            connection.request("GET", "/_ping")
            answer = connection.getresponse()
            answer.read()
        theirs = answer.getheader("Api-Version", "1.41").partition(".")
        major, minor = min(NEWEST, (int(theirs[0]), int(theirs[2])))
        return f"{major}.{minor}"

    @contextmanager
    def _connection(self) -> Iterator[http.client.HTTPConnection]:
        with closing(Connection(self.host.removeprefix("unix://"))) as connection:
            try:
                yield connection
            except http.client.HTTPException as error:  # the connection ended in the middle of a reply
                raise ConnectionError(f"the Docker engine has not answered: {error!r}") from error


class Connection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("docker", timeout=REPLY_WITHIN)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(cast("float", self.timeout))
        try:
            self.sock.connect(self.path)
        except OSError as error:
            self.close()
            raise type(error)(
                error.errno, f"the Docker engine cannot be reached: {error.strerror}", self.path
            ) from None

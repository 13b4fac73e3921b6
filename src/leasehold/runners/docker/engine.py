"""Client of the Docker engine's HTTP interface over its socket, as much of it as the runner needs, logs included.

One connection per call: any thread may call, nothing stays open over a fork, and a restart of the engine does no harm.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import secrets
import socket
import time
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlencode

from leasehold.domain.errors import InvalidInput
from leasehold.domain.frozen import frozen
from leasehold.runners.contract import Output, Stream

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


# -- logs --------------------------------------------------------------------------------------------------------------
# The engine has no offsets, and does not say how much it has dropped: it returns the last messages, or those since a
# given time. So a reader leaves a log mark in the execution's folder, "everything up to this message ends at that
# offset", and the next reader, perhaps another worker, counts from there.

LOG_TAIL = 64 * 1024
"""Bytes of stdout and of stderr that `collect` returns."""
GLANCE = 32
"""How many messages to read first: usually they include all new ones. The engine finds the last messages without
reading the whole log; for those since a given time it reads all of it."""
GLANCE_LASTS = 0.2
"""Seconds for which the messages read for one stream serve the other too. It halves the cost of following."""
LOG_SETTLED_AFTER = 1_000_000_000
"""Nanoseconds after which no older message arrives. The engine stamps a message before it writes it, and may write one
of the other stream in between."""
MESSAGE_OVERHEAD = 70
"""Bytes that the engine adds to a message."""

_STREAMS: Mapping[int, Stream] = {1: "stdout", 2: "stderr"}


@frozen
class Message:
    stream: Stream
    at: int
    """Nanoseconds since 1970, by the engine's clock."""
    text: bytes


@frozen
class LogMark:
    """The offset at which the stream ends, up to this time and including the first `nth` messages of this time."""

    end: int
    at: int
    nth: int

    def newer(self, messages: Iterable[Message]) -> Iterator[Message]:
        """Yield the messages after the mark. If the mark's message was dropped, all kept messages are newer."""
        to_skip = self.nth
        for message in messages:
            if message.at == self.at and to_skip:
                to_skip -= 1
            elif message.at >= self.at:
                yield message


LOG_BEGIN = LogMark(0, 0, 0)


class Logs:
    """Reads the logs of one engine's containers."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._glance: tuple[str, Stream, float, list[Message]] | None = None

    def read(
        self, container: str, folder: Path, stream: Stream, offset: int, limit: int
    ) -> tuple[bytes, int]:
        """Read part of a stream. `container` is a name or id, and `folder` the one that holds the log marks."""
        mark = _read_mark(folder, stream)
        messages = self._from(container, stream, mark, offset)
        if offset < mark.end:
            older = [message for message in messages if message.stream == stream]
            newer = list(mark.newer(older))
            at = mark.end - _length(older[: len(older) - len(newer)])
            data, offset, _ = _cut(older, at, offset, limit)
            return data, offset
        seen = list(_until_full(messages, stream, mark, offset + limit))
        newer = list(mark.newer(message for message in seen if message.stream == stream))
        data, after, whole = _cut(newer, mark.end, offset, limit)
        moved = _move(mark, whole)
        if len(whole) == len(newer) and seen:
            moved = _move_with_the_other(moved, max(message.at for message in seen) - LOG_SETTLED_AFTER)
        if moved != mark:
            _leave_mark(folder, stream, moved)
        return data, after

    def output(self, container: str, folder: Path, stream: Stream, limit: int) -> Output:
        """Return the output at the end. `limit` is what the engine keeps of the log before it drops its oldest file."""
        everything = list(self._messages(container, {}))
        own = [message for message in everything if message.stream == stream]
        mark = _read_mark(folder, stream)
        size = mark.end + _length(mark.newer(own))
        tail = b"".join(message.text for message in own)[-LOG_TAIL:]
        may_be_cut = _length(everything) + MESSAGE_OVERHEAD * len(everything) >= limit
        return Output(tail.decode(errors="replace"), size, is_cut=len(tail) < size or may_be_cut)

    def _from(self, container: str, stream: Stream, mark: LogMark, offset: int) -> Iterable[Message]:
        """Return all messages from the mark on; if the offset is before the mark, all messages."""
        if offset < mark.end:
            return self._messages(container, {})
        glance = self._take_glance(container, stream)
        # With fewer messages, this is the whole log. An older message of the stream, or a much older one of the other,
        # shows that nothing after the mark is missing.
        is_enough = len(glance) < GLANCE or glance[0].at < mark.at - LOG_SETTLED_AFTER
        if is_enough or any(message.at < mark.at for message in glance if message.stream == stream):
            return glance
        since = f"{mark.at // 10**9}.{mark.at % 10**9:09}"
        return self._messages(container, {"since": since} if mark.at else {})

    def _take_glance(self, container: str, stream: Stream) -> list[Message]:
        last, self._glance = self._glance, None
        now = time.monotonic()
        if (
            last is not None
            and (last[0], now - last[2] < GLANCE_LASTS) == (container, True)
            and last[1] != stream
        ):
            return last[3]
        glance = list(self._messages(container, {"tail": GLANCE}))
        self._glance = (container, stream, now, glance)
        return glance

    def _messages(self, container: str, query: Mapping[str, object]) -> Iterator[Message]:
        parameters = {"stdout": 1, "stderr": 1, "timestamps": 1, **query}
        with contextlib.closing(self._engine.frames(f"/containers/{container}/logs", parameters)) as frames:
            for number, content in frames:
                at, _, text = content.partition(b" ")
                yield Message(_STREAMS[number], _nanoseconds(at.decode()), text)


def _until_full(messages: Iterable[Message], stream: Stream, mark: LogMark, end: int) -> Iterator[Message]:
    """Yield only as many messages as it takes to reach this offset: the rest is not fetched."""
    at = mark.end
    for message in messages:
        yield message
        if message.stream == stream and message.at > mark.at:
            at += len(message.text)
            if at >= end:
                return


def _cut(messages: Iterable[Message], at: int, offset: int, limit: int) -> tuple[bytes, int, list[Message]]:
    """Return the bytes from this offset on, of messages of which the first begins at `at`; the offset after them; and
    the messages that were read to their end."""
    data, whole = b"", []
    offset = max(offset, at)
    for message in messages:
        end = at + len(message.text)
        if end > offset + len(data):
            data += message.text[max(offset - at, 0) :][: limit - len(data)]
        if end > offset + len(data):
            break
        whole.append(message)
        at = end
    return data, offset + len(data), whole


def _move(mark: LogMark, whole: list[Message]) -> LogMark:
    """Return the mark after these messages."""
    if not whole:
        return mark
    at = whole[-1].at
    nth = sum(message.at == at for message in whole) + (mark.nth if at == mark.at else 0)
    return LogMark(mark.end + _length(whole), at, nth)


def _move_with_the_other(mark: LogMark, at: int) -> LogMark:
    """Move a silent stream's mark with the other stream: otherwise every read would search the whole log."""
    return LogMark(mark.end, at, 0) if at > mark.at else mark


def _length(messages: Iterable[Message]) -> int:
    return sum(len(message.text) for message in messages)


def _read_mark(folder: Path, stream: Stream) -> LogMark:
    try:
        return LogMark(*json.loads((folder / f"log_mark.{stream}").read_text()))
    except FileNotFoundError:
        return LOG_BEGIN


def _leave_mark(folder: Path, stream: Stream, mark: LogMark) -> None:
    with contextlib.suppress(
        OSError
    ):  # the execution was removed, or the disk is full: read on from the last mark
        unfinished = folder / f".log_mark.{secrets.token_hex(6)}"
        unfinished.write_text(json.dumps([mark.end, mark.at, mark.nth]))
        unfinished.rename(folder / f"log_mark.{stream}")


def _nanoseconds(at: str) -> int:
    """Parse a time in UTC with nine digits after the second."""
    return int(datetime.fromisoformat(f"{at[:19]}+00:00").timestamp()) * 10**9 + int(at[20:-1] or 0)

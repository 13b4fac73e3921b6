"""A request, its answer, and an exchange of several of them. No I/O: `transport.py` sends them, from threads or
asyncio, so that every verb is written once."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping
from dataclasses import field
from typing import Any, Literal, TypeVar
from urllib.parse import quote

from pydantic import TypeAdapter, ValidationError

from leasehold.domain.frozen import frozen
from leasehold.errors import RemoteError
from leasehold.remote.problems import error_of

T = TypeVar("T")

LONGEST_WAIT = 60.0
"""Seconds that one request may wait for a change: the server's limit."""


@frozen
class Request:
    method: Literal["GET", "POST", "PUT"]
    path: str
    params: Mapping[str, Any] = field(default_factory=dict)
    """Parameters that are None are not sent."""
    body: Mapping[str, Any] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    wait: float = 0.0
    """Seconds that the server may take beyond the usual time-out."""
    repeat: bool = False
    """Whether the request may be sent twice: after a lost connection it is."""

    @property
    def query(self) -> dict[str, Any]:
        return {name: value for name, value in self.params.items() if value is not None}

    @property
    def content(self) -> bytes | None:
        return None if self.body is None else json.dumps(self.body, allow_nan=False).encode()


@frozen
class Response:
    status: int
    data: Any

    def read(self, values: TypeAdapter[T]) -> T:
        try:
            return values.validate_python(self.data)
        except ValidationError as error:
            raise unexpected(self.status, str(error)) from error

    def of(self, name: str) -> Any:
        """Return one field of the JSON object."""
        if not isinstance(self.data, dict) or name not in self.data:
            raise unexpected(self.status, f"{name} is not in it")
        return self.data[name]


Exchange = Generator[Request, Response, T]
"""Yields requests, gets their answers, and returns the result."""


def get(path: str, wait: float = 0.0, **params: Any) -> Request:
    return Request("GET", path, params if not wait else {**params, "wait": wait}, wait=wait, repeat=True)


def post(path: str, body: Mapping[str, Any] | None = None, wait: float = 0.0) -> Request:
    return Request("POST", path, body=body, wait=wait)


def once(request: Request, read: Callable[[Response], T]) -> Exchange[T]:
    """An exchange of one request."""
    return read((yield request))


def part(name: str) -> str:
    """Quote a name as one part of a path."""
    return quote(name, safe="").replace(".", "%2E")


def parse_response(status: int, content: bytes) -> Response:
    """Parse a response. Raises the error that the server reported."""
    try:
        data = json.loads(content) if content else None
    except (ValueError, RecursionError):
        data = None
        if status < 400:
            raise unexpected(status, "it is no JSON") from None
    if status >= 400:
        raise error_of(status, data)
    if status >= 300 and status != 304:
        raise unexpected(status, "it is a redirect")
    return Response(status, data)


def unexpected(status: int, problem: str) -> RemoteError:
    return RemoteError(
        status, "unexpected-answer", f"the answer is not one of Leasehold's: {problem}; check the URL"
    )

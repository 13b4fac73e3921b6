"""What a worker answers its child, as JSON: values by the type of the verb's result, our errors as themselves."""

from __future__ import annotations

import functools
import json
from typing import Any

from pydantic import TypeAdapter

from leasehold.domain import errors, signals
from leasehold.domain.errors import StoreError
from leasehold.domain.pickling import Portable, rebuilt
from leasehold.worker.process.rpc_server import CALLS

STOP = b"{}"
"""Asks the child to stop."""


def write_answer(number: int, verb: str, value: object) -> bytes:
    return b'{"number": %d, "verb": "%s", "value": %s}' % (
        number,
        verb.encode(),
        _adapter(verb).dump_json(value),
    )


def write_error(number: int, error: BaseException) -> bytes:
    message = {"name": type(error).__name__, "args": error.args, "facts": vars(error), "text": str(error)}
    return json.dumps({"number": number, "error": message}, default=str).encode()


def read_answer(frame: bytes) -> tuple[int, Any, BaseException | None]:
    """Return the number of the request (0: none, a stop), and the value or the error."""
    if frame == STOP:
        return 0, None, None
    message = json.loads(frame)
    if "error" in message:
        return message["number"], None, _error(**message["error"])
    return message["number"], _adapter(message["verb"]).validate_python(message["value"], strict=False), None


@functools.cache
def _adapter(verb: str) -> TypeAdapter[Any]:
    return TypeAdapter(CALLS[verb].returns)


def _error(name: str, args: list[Any], facts: dict[str, Any], text: str) -> BaseException:
    kind = getattr(errors, name, None) or getattr(signals, name, None)
    if not (isinstance(kind, type) and issubclass(kind, Portable)):
        return StoreError(f"{name}: {text}")
    return rebuilt(kind, tuple(args), facts)

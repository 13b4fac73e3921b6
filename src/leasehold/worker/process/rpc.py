"""Calls between a worker and the process of a job: the channel, the server in the worker, the client in the process."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import select
import socket
import struct
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from typing import Any, NamedTuple, NoReturn

from pydantic import TypeAdapter

from leasehold.domain import errors, signals
from leasehold.domain.budgets import BudgetLine, Spend, Spending
from leasehold.domain.errors import InvalidInput, LeaseLost, Portable, StoreError, rebuilt
from leasehold.domain.limits import DefaultLimit
from leasehold.domain.questions import Question
from leasehold.domain.records import ParentResult, Relative
from leasehold.domain.signals import StopRequested
from leasehold.domain.stream import LOG
from leasehold.run.attempt import Attempt
from leasehold.run.context import SyncContext
from leasehold.run.state import Emitter, RunStream
from leasehold.run.stream import CHECK_STOP_EVERY
from leasehold.stores.results import Acquired

_LENGTH = struct.Struct("!Q")
CHECK_EVERY = 1.0
"""Seconds between two checks: a thread that waits for a socket does not notice that its own process has closed it."""


class Channel:
    """One end of the channel. Several threads may send; one receives."""

    def __init__(self, end: socket.socket, shield: AbstractContextManager[object] | None = None) -> None:
        self._end = end
        self._sending = threading.Lock()
        self._shield = shield or nullcontext()
        """Entered around each send: half a frame would spoil all that follow."""
        self._process = os.getpid()
        self._file = os.fstat(end.fileno()).st_ino
        self._readable = select.poll()
        self._readable.register(end, select.POLLIN)

    def fileno(self) -> int:
        return self._end.fileno()

    def send(self, frame: bytes) -> None:
        """Block until the frame is sent. Raises OSError if the other end is gone."""
        if os.getpid() != self._process:
            raise RuntimeError("ctx belongs to the process that the worker has started, not to a fork of it")
        with self._shield, self._sending:
            self._check()
            self._end.sendall(_LENGTH.pack(len(frame)))
            self._end.sendall(frame)

    def receive(self) -> bytes | None:
        """Return the next frame; None if one of the ends is closed, perhaps in the middle of a frame."""
        head = self._exactly(_LENGTH.size)
        return None if head is None else self._exactly(_LENGTH.unpack(head)[0])

    def close(self) -> None:
        self._end.close()

    def _check(self) -> None:
        """A handler may have closed all its files, and opened others under their numbers."""
        if os.fstat(self._end.fileno()).st_ino != self._file:
            raise OSError("the channel was closed")

    def _exactly(self, count: int) -> bytes | None:
        data = bytearray()
        while len(data) < count:
            try:
                self._check()
                if not self._readable.poll(1000 * CHECK_EVERY):
                    continue
                piece = self._end.recv(min(count - len(data), 1 << 20))
            except OSError:
                return None
            if not piece:
                return None
            data += piece
        return bytes(data)


# -- the server --------------------------------------------------------------------------------------------------------


class Call(NamedTuple):
    """A verb of the store that a child may call. The worker fills in the first arguments from the child's own grant,
    so that a child cannot name another job."""

    first: tuple[str, ...]
    """Fields of the grant."""
    returns: Any
    """The type as which the child decodes the result."""


FLUSH = "flush"
"""A call that is not a verb of the store: waits until everything that the child has emitted is stored."""
CALLS: dict[str, Call] = {
    "load_steps": Call(("id",), dict[str, str]),
    "save_steps": Call(("id", "token"), bool),
    "save_spent_steps": Call(("id", "token", "attempt"), list[BudgetLine] | None),
    "load_checkpoint": Call(("id",), str | None),
    "spend": Call(("id", "token", "attempt"), list[BudgetLine]),
    "budget": Call(("id", "attempt"), list[BudgetLine]),
    "spending": Call(("id",), list[Spending]),
    "acquire": Call(("id", "token"), Acquired),
    "release_slot": Call(("id", "attempt"), int),
    "notify_workers": Call((), None),
    "read_question": Call(("id",), Question | None),
    "parent_results": Call(("id",), list[ParentResult]),
    "relatives": Call(("id",), list[Relative]),
    "read_result": Call((), str),
    FLUSH: Call((), None),
}


class RpcServer:
    """Answers the calls of one child."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._journal = attempt.needed_journal()
        self._store = self._journal.store

    def call(self, verb: str, args: list[Any]) -> object:
        if verb == FLUSH:
            SyncContext(self._attempt).flush()
            return None
        first = [getattr(self._attempt.grant, name) for name in CALLS[verb].first]
        try:
            answer = getattr(self._store, verb)(*first, *_decoded(verb, args))
        except LeaseLost:
            self._journal.lost(self._attempt)
            raise
        if (verb == "save_steps" and not answer) or (verb == "save_spent_steps" and answer is None):
            self._journal.lost(self._attempt)
        if isinstance(answer, Acquired):
            self._attempt.holds_slots |= answer.granted and answer.what == "slot"
        return answer

    def emit(self, kind: str, data: str | None, key: str | None, text: str) -> None:
        """Pass on an update. Blocks while too many updates wait for the database, and soon the child blocks too."""
        attempt = self._attempt
        if kind == LOG:
            attempt.log_line(text.removesuffix("\n"))
            return
        with contextlib.suppress(StopRequested):  # the attempt ends; its updates are dropped
            while not attempt.emit(kind, data, key):
                if attempt.writer is not None and attempt.stream is not None:
                    attempt.writer.wait_for_room(attempt.stream, CHECK_STOP_EVERY)
                attempt.raise_if_stopped()


def _decoded(verb: str, args: list[Any]) -> list[Any]:
    match verb, args:
        case "spend" | "save_spent_steps", [*before, spends]:
            return [*before, [Spend(**one) for one in spends]]
        case "acquire", [name, units, dict(default)]:
            return [name, units, DefaultLimit(**default)]
    return args


# -- answers -----------------------------------------------------------------------------------------------------------

STOP_REQUEST = b"{}"
"""The frame that requests the child to stop."""


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
    if frame == STOP_REQUEST:
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


# -- the client --------------------------------------------------------------------------------------------------------

CUT_OFF = 74
"""The exit code of a child that cannot reach its worker any more."""


class Link:
    """The child's end of the channel: sends requests, and receives answers and the stop."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Future[Any]] = {}
        self._stop_requested = False
        self._on_stop: Callable[[], None] | None = None
        self._lock = threading.Lock()

    def open(self) -> None:
        threading.Thread(target=self._receive, name="leasehold-worker-link", daemon=True).start()

    def on_stop(self, call: Callable[[], None]) -> None:
        """Call `call` in the link's thread when the stop arrives; at once, if it has arrived."""
        with self._lock:
            self._on_stop = call
            stopping = self._stop_requested
        if stopping:
            call()

    def send(self, message: Mapping[str, Any]) -> None:
        self._channel.send(json.dumps(message, default=asdict).encode())

    def ask(self, verb: str, *args: Any) -> Any:
        number = next(self._numbers)
        answer = self._waiting[number] = Future[Any]()
        self.send({"ask": number, "verb": verb, "args": args})
        return answer.result()

    def _receive(self) -> None:
        while (frame := self._channel.receive()) is not None:
            number, answer, error = read_answer(frame)
            if number == 0:
                self._stop()
            elif error is not None:
                self._waiting.pop(number).set_exception(error)
            else:
                self._waiting.pop(number).set_result(answer)
        # The worker is gone, or cannot be reached: no result would arrive.
        os._exit(CUT_OFF)

    def _stop(self) -> None:
        with self._lock:
            self._stop_requested, call = True, self._on_stop
        if call is not None:
            call()


class RemoteStore:
    """The child's store: the verbs in `CALLS`, and what else an attempt uses. The worker fills in the first arguments
    (id, token, attempt): they are not sent."""

    def __init__(self, link: Link, has_folder: bool) -> None:
        self._ask = link.ask
        self.results_folder = "the worker's" if has_folder else None

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        if verb not in CALLS:
            raise AttributeError(verb)
        own = len(CALLS[verb].first)
        return lambda *args: self._ask(verb, *args[own:])

    def refuse_inside(self) -> None:
        """There is no lent transaction here."""

    def inside_transaction(self) -> AbstractContextManager[None]:
        return nullcontext()

    def transaction(self, job_id: str, token: int, seconds: float) -> NoReturn:
        raise InvalidInput(
            "run_in",
            "ctx.complete and steps with tx=True write over the worker's own connection, and this task runs in a "
            "process of its own",
            "return the result and let a follow-up write, or run the task in its worker",
        )


class RemoteWriter:
    """Sends an attempt's updates over the channel, in order; the worker batches them."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def stream_of(self, attempt: Emitter) -> RunStream:
        if attempt.stream is None:
            attempt.stream = RunStream(attempt.grant)
        return attempt.stream

    def put(
        self, stream: RunStream, kind: str, data: str | None = None, key: str | None = None, text: str = ""
    ) -> bool:
        self._link.send({"emit": [kind, data, key, text]})
        return True

    def wait_for_room(self, stream: RunStream, seconds: float) -> None:
        """There is always room: a full channel makes `put` wait."""

    def wait_until_taken(self, stream: RunStream, upto: int, seconds: float) -> bool:
        self._link.ask(FLUSH)
        return True

    def write(self, streams: Iterable[RunStream]) -> set[RunStream]:
        self._link.ask(FLUSH)
        return set()

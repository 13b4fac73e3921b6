"""The store as a child sees it: its worker, which holds the lease and the connections, runs every verb."""

from __future__ import annotations

import itertools
import json
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from typing import Any, NoReturn

from leasehold.domain.errors import InvalidInput
from leasehold.run.stream_buffer import Emitter, RunStream
from leasehold.worker.process.answers import read_answer
from leasehold.worker.process.channel import Channel
from leasehold.worker.process.rpc_server import CALLS, FLUSH

CUT_OFF = 74
"""The exit code of a child that cannot reach its worker any more."""


class Link:
    """The child's end of the channel: sends requests, and receives answers and the stop."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._numbers = itertools.count(1)
        self._request: dict[int, Future[Any]] = {}
        self._stop_requested = False
        self._on_stop: Callable[[], None] | None = None
        self._lock = threading.Lock()

    def open(self) -> None:
        threading.Thread(target=self._receive, name="leasehold-worker-link", daemon=True).start()

    def on_stop(self, call: Callable[[], None]) -> None:
        """Call it in the link's thread when the stop arrives; at once, if it has arrived."""
        with self._lock:
            self._on_stop = call
            stopping = self._stop_requested
        if stopping:
            call()

    def send(self, message: Mapping[str, Any]) -> None:
        self._channel.send(json.dumps(message, default=asdict).encode())

    def ask(self, verb: str, *args: Any) -> Any:
        number = next(self._numbers)
        answer = self._request[number] = Future[Any]()
        self.send({"ask": number, "verb": verb, "args": args})
        return answer.result()

    def _receive(self) -> None:
        while (frame := self._channel.receive()) is not None:
            number, answer, error = read_answer(frame)
            if number == 0:
                self._stop()
            elif error is not None:
                self._request.pop(number).set_exception(error)
            else:
                self._request.pop(number).set_result(answer)
        # The worker is gone, or cut off: no result would arrive.
        os._exit(CUT_OFF)

    def _stop(self) -> None:
        with self._lock:
            self._stop_requested, call = True, self._on_stop
        if call is not None:
            call()


class RemoteStore:
    """The verbs in `CALLS`, and what an attempt needs besides. The worker fills in the first arguments (id, token,
    attempt): they are not sent."""

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
    """An attempt's updates go over the channel, in order; the worker batches them."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def stream_of(self, run: Emitter) -> RunStream:
        if run.stream is None:
            run.stream = RunStream(run.grant)
        return run.stream

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

"""The store as a child sees it: every verb is asked of its worker, which holds the lease and the connections."""

from __future__ import annotations

import itertools
import json
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from typing import Any, NoReturn

from leasehold.domain.budgets import Spend
from leasehold.domain.errors import InvalidInput
from leasehold.domain.limits import DefaultLimit
from leasehold.run.stream_buffer import RunStream, Teller
from leasehold.worker.process.answers import read_answer
from leasehold.worker.process.channel import Channel

CUT_OFF = 74
"""The exit code of a child that cannot reach its worker any more."""


class Link:
    """The child's end of the channel: asks, and is told to stop."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._numbers = itertools.count(1)
        self._asked: dict[int, Future[Any]] = {}
        self._told_to_stop = False
        self._on_stop: Callable[[], None] | None = None
        self._lock = threading.Lock()

    def open(self) -> None:
        threading.Thread(target=self._hear, name="leasehold-worker-link", daemon=True).start()

    def on_stop(self, call: Callable[[], None]) -> None:
        """In the link's thread; here, if it was told before."""
        with self._lock:
            self._on_stop = call
            told = self._told_to_stop
        if told:
            call()

    def send(self, message: Mapping[str, Any]) -> None:
        self._channel.send(json.dumps(message).encode())

    def ask(self, verb: str, *args: Any) -> Any:
        number = next(self._numbers)
        answer = self._asked[number] = Future[Any]()
        self.send({"ask": number, "verb": verb, "args": args})
        return answer.result()

    def _hear(self) -> None:
        while (frame := self._channel.receive()) is not None:
            number, answer, error = read_answer(frame)
            if number == 0:
                self._stop()
            elif error is not None:
                self._asked.pop(number).set_exception(error)
            else:
                self._asked.pop(number).set_result(answer)
        # The worker is gone, or cut off: nobody would take a result.
        os._exit(CUT_OFF)

    def _stop(self) -> None:
        with self._lock:
            self._told_to_stop, call = True, self._on_stop
        if call is not None:
            call()


class RemoteStore:
    """What a run asks of the store, and no more. Ids and tokens stay here: the worker knows whose child it serves."""

    def __init__(self, link: Link, has_folder: bool) -> None:
        self._ask = link.ask
        self.results_folder = "the worker's" if has_folder else None

    def load_steps(self, job_id: str) -> Any:
        return self._ask("load_steps")

    def save_steps(self, job_id: str, token: int, steps: Mapping[str, str], state: str | None = None) -> Any:
        return self._ask("save_steps", dict(steps), state)

    def save_spent_steps(
        self, job_id: str, token: int, attempt: int, steps: Mapping[str, str], spends: Sequence[Spend]
    ) -> Any:
        return self._ask("save_spent_steps", dict(steps), _told(spends))

    def load_checkpoint(self, job_id: str) -> Any:
        return self._ask("load_checkpoint")

    def spend(self, job_id: str, token: int, attempt: int, spends: Sequence[Spend]) -> Any:
        return self._ask("spend", _told(spends))

    def budget(self, job_id: str, attempt: int | None = None) -> Any:
        return self._ask("budget")

    def spending(self, job_id: str) -> Any:
        return self._ask("spending")

    def acquire(
        self, job_id: str, token: int, name: str, units: int = 1, default: DefaultLimit | None = None
    ) -> Any:
        return self._ask("acquire", name, units, None if default is None else asdict(default))

    def release_slot(self, job_id: str, attempt: int, name: str) -> Any:
        return self._ask("release_slot", name)

    def wake(self) -> None:
        self._ask("wake")

    def read_question(self, job_id: str, key: str) -> Any:
        return self._ask("read_question", key)

    def parent_results(self, job_id: str) -> Any:
        return self._ask("parent_results")

    def relatives(self, job_id: str, limit: int = 500) -> Any:
        return self._ask("relatives", limit)

    def read_result(self, job_id: str, reference: str) -> Any:
        return self._ask("read_result", job_id, reference)

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
    """What a run tells goes over the channel, in order; the worker batches it."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def stream_of(self, run: Teller) -> RunStream:
        if run.stream is None:
            run.stream = RunStream(run.grant)
        return run.stream

    def put(
        self, stream: RunStream, kind: str, data: str | None = None, key: str | None = None, text: str = ""
    ) -> bool:
        self._link.send({"tell": [kind, data, key, text]})
        return True

    def wait_for_room(self, stream: RunStream, seconds: float) -> None:
        """There is always room: a full channel makes `put` wait."""

    def wait_until_taken(self, stream: RunStream, upto: int, seconds: float) -> bool:
        self._link.ask("flush")
        return True

    def write(self, streams: Iterable[RunStream]) -> set[RunStream]:
        self._link.ask("flush")
        return set()


def _told(spends: Sequence[Spend]) -> list[tuple[str, str, int]]:
    return [(spend.key, spend.unit, spend.amount) for spend in spends]

"""The executions that a worker watches: one poll for all of them, threads for the runners, output to the jobs' logs.

A runner's verbs block, and an outside system may take its time. So they are called in their own threads: neither the
loop nor the writes of handlers wait for them.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import json
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar, get_args

from leasehold.runners.contract import ExecutionState, Phase, Runner, Stream

logger = logging.getLogger("leasehold.worker")

T = TypeVar("T")

THREADS = 16
SHORTEST_POLL, LONGEST_POLL = 0.2, 1.0
"""Seconds between two polls: more with more executions, so that polling costs a worker only a few per cent."""
POLL_PER_EXECUTION = 0.02


class Watched(Protocol):
    @property
    def runner(self) -> Runner[Any]: ...

    execution: str
    is_over: bool
    ending_not_stored: bool

    @property
    def cause(self) -> str | None:
        """Why the attempt was stopped."""

    def read_output(self) -> None:
        """Pass on the execution's new output. Runs in a thread."""


class Executions:
    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="leasehold-runner")
        self._watched: dict[Watched, asyncio.Future[ExecutionState]] = {}
        self._looking: asyncio.Task[None] | None = None
        self._removing: set[asyncio.Task[None]] = set()

    async def call(self, verb: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, verb)

    async def ended(self, attempt: Watched, woken: asyncio.Event) -> ExecutionState | None:
        """Wait until no process of the execution is alive, and return its state. None: `woken` was set first."""
        loop = asyncio.get_running_loop()
        found = self._watched[attempt] = loop.create_future()
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look(), name="leasehold executions")
        waking = asyncio.ensure_future(woken.wait())
        try:
            await asyncio.wait([found, waking], return_when=asyncio.FIRST_COMPLETED)
            return found.result() if found.done() else None
        finally:
            waking.cancel()
            self._watched.pop(attempt, None)

    def remove_when_settled(self, attempt: Watched) -> None:
        """Delete what the execution has left, if it is over and the attempt's ending is stored, or can never be."""
        # A lost lease has another holder, who needs what is left. A dropped tenant's job has none.
        needed = attempt.ending_not_stored and attempt.cause != "dropped"
        if not attempt.is_over or needed or not attempt.execution:
            return
        task = asyncio.ensure_future(self._remove(attempt))
        self._removing.add(task)
        task.add_done_callback(self._removing.discard)

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        if self._removing:
            await asyncio.wait(self._removing, timeout=5.0)
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _remove(self, attempt: Watched) -> None:
        try:
            await self.call(lambda: attempt.runner.remove(attempt.execution))
        except Exception as error:
            logger.warning("could not remove the leftovers of %s: %s", attempt.execution, error)

    async def _look(self) -> None:
        trouble = False
        while self._watched:
            await asyncio.sleep(
                min(max(SHORTEST_POLL, POLL_PER_EXECUTION * len(self._watched)), LONGEST_POLL)
            )
            try:
                await self._look_once()
                trouble = False
            except Exception as error:
                if not trouble:
                    logger.warning("cannot check on executions for now: %s", error)
                trouble = True
                await asyncio.sleep(LONGEST_POLL)

    async def _look_once(self) -> None:
        by_runner: dict[Runner[Any], list[Watched]] = {}
        for attempt in self._watched:
            by_runner.setdefault(attempt.runner, []).append(attempt)
        for runner, attempts in by_runner.items():
            names = [attempt.execution for attempt in attempts]
            states = await self.call(lambda runner=runner, names=names: runner.probe_many(names))  # type: ignore[misc] # mypy cannot infer a lambda with a default
            alive = []
            for attempt in attempts:
                found = self._watched.get(attempt)
                # Not CREATED: it is watched once its start is stored, and after that no worker starts it.
                if states[attempt.execution].phase is Phase.RUNNING:
                    alive.append(attempt)
                elif found is not None and not found.done():
                    found.set_result(states[attempt.execution])
            await self.call(lambda alive=alive: _read(alive))  # type: ignore[misc] # mypy cannot infer a lambda with a default


def _read(attempts: list[Watched]) -> None:
    for attempt in attempts:
        with contextlib.suppress(OSError):  # the next poll tries again
            attempt.read_output()


# -- output ------------------------------------------------------------------------------------------------------------
# Each piece of the log is stored together with how far the output was read. So a worker that adopts the execution
# continues from there: the log has what was written while no worker watched, and nothing twice.

CHUNK = 64 * 1024
MOST_BYTES_A_POLL = 1024 * 1024
"""Most bytes of each stream that one poll passes on; a log keeps only the end of them anyway."""


class Logged(Protocol):
    execution: str

    @property
    def runner(self) -> Runner[Any]: ...

    def log_line(self, line: str, read_to: str | None = None) -> None: ...


class OutputReader:
    def __init__(self, attempt: Logged) -> None:
        self._attempt = attempt
        self._streams = {name: _Tail(attempt, name, self._log) for name in get_args(Stream)}

    def go_on_from(self, mark: str | None) -> None:
        """Continue where the previous worker stopped. None: nothing was passed on."""
        for name, offset in json.loads(mark or "{}").items():
            self._streams[name].offset = offset

    def read(self) -> None:
        for stream in self._streams.values():
            stream.read()

    def finish(self) -> None:
        """Pass on the rest, and lines without a line end."""
        for stream in self._streams.values():
            while stream.read():
                pass
            stream.end()

    def _log(self, text: str) -> None:
        mark = {name: stream.passed_on for name, stream in self._streams.items()}
        self._attempt.log_line(text, json.dumps(mark))


class _Tail:
    def __init__(self, attempt: Logged, name: Stream, log: Callable[[str], None]) -> None:
        self._attempt = attempt
        self._name = name
        self._log = log
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._line = b""
        """The beginning of a line that has no end yet."""
        self.offset = 0

    @property
    def passed_on(self) -> int:
        return self.offset - len(self._line)

    def read(self) -> bool:
        """Pass on new output; returns whether there may be more by now."""
        read = 0
        while read < MOST_BYTES_A_POLL:
            data, self.offset = self._attempt.runner.read_output(
                self._attempt.execution, self._name, self.offset, CHUNK
            )
            if not data:
                return False
            read += len(data)
            whole, end, self._line = (self._line + data).rpartition(b"\n")
            lines = whole.decode(errors="replace").split("\n") if end else []
            if len(self._line) > CHUNK:
                lines.append(self._decoder.decode(self._line))
                self._line, _ = self._decoder.getstate()  # the first bytes of a character
                self._decoder.reset()
            if lines:
                # As one note: a command that writes fast would keep the worker busy with its lines.
                self._log("\n".join(line.rstrip("\r") for line in lines))
        return True

    def end(self) -> None:
        if self._line:
            text, self._line = self._line.decode(errors="replace"), b""
            self._log(text)

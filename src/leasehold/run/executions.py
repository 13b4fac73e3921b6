"""The executions that a worker watches: one poll for all of them, and threads for the runners.

A runner's verbs block, and an outside system may take its time. So they are called in their own threads: neither the
loop nor what handlers write waits for them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

from leasehold.runners.contract import Phase, Runner, State

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
    refused: bool

    def read_output(self) -> None:
        """Pass on what it has written since. Runs in a thread."""


class Executions:
    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="leasehold-runner")
        self._watched: dict[Watched, asyncio.Future[State]] = {}
        self._looking: asyncio.Task[None] | None = None
        self._removing: set[asyncio.Task[None]] = set()

    async def call(self, verb: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, verb)

    async def ended(self, run: Watched, woken: asyncio.Event) -> State | None:
        """Wait until none of its processes is alive, and return its state. None: it was woken before."""
        loop = asyncio.get_running_loop()
        found = self._watched[run] = loop.create_future()
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look(), name="leasehold executions")
        waking = asyncio.ensure_future(woken.wait())
        try:
            await asyncio.wait([found, waking], return_when=asyncio.FIRST_COMPLETED)
            return found.result() if found.done() else None
        finally:
            waking.cancel()
            self._watched.pop(run, None)

    def settled(self, run: Watched) -> None:
        """The attempt has left the books. If its ending is stored, delete what the execution has left."""
        if not run.is_over or run.refused or not run.execution:
            return
        task = asyncio.ensure_future(self._remove(run))
        self._removing.add(task)
        task.add_done_callback(self._removing.discard)

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        if self._removing:
            await asyncio.wait(self._removing, timeout=5.0)
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _remove(self, run: Watched) -> None:
        try:
            await self.call(lambda: run.runner.remove(run.execution))
        except Exception as error:
            logger.warning("could not remove the leftovers of %s: %s", run.execution, error)

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
        for run in self._watched:
            by_runner.setdefault(run.runner, []).append(run)
        for runner, runs in by_runner.items():
            names = [run.execution for run in runs]
            states = await self.call(lambda runner=runner, names=names: runner.probe_many(names))  # type: ignore[misc] # mypy cannot infer a lambda with a default
            alive = []
            for run in runs:
                found = self._watched.get(run)
                # Not CREATED: it is watched once its start is stored, and after that no worker starts it.
                if states[run.execution].phase is Phase.RUNNING:
                    alive.append(run)
                elif found is not None and not found.done():
                    found.set_result(states[run.execution])
            await self.call(lambda alive=alive: _read(alive))  # type: ignore[misc] # mypy cannot infer a lambda with a default


def _read(runs: list[Watched]) -> None:
    for run in runs:
        with contextlib.suppress(OSError):  # the next poll tries again
            run.read_output()

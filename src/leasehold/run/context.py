"""What a handler learns about its own run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from leasehold.domain.checks.durations import Duration
from leasehold.domain.errors import InvalidInput
from leasehold.domain.job import Grant, NewJob
from leasehold.domain.signals import StopRequested
from leasehold.domain.views import Relative
from leasehold.run.acquire import Acquiring, release
from leasehold.run.follow_ups import Bindable, FollowUp, FollowUps
from leasehold.run.parents import parents_of, results_of
from leasehold.run.stream import Telling, TellingInThread, TellingOnLoop
from leasehold.stores.contract import Store
from leasehold.worker.stream_writer import EventWriter

if TYPE_CHECKING:
    from leasehold.run.complete import SyncTransaction, Transaction
    from leasehold.run.journal import Durable
    from leasehold.run.spending import Purse
    from leasehold.run.steps import Durability, Steps
    from leasehold.tasks.definition import Retry

T = TypeVar("T")
P = ParamSpec("P")


class StopSignal:
    """An event whose lock is made only when somebody waits for it: most runs are never told to stop."""

    __slots__ = ("_event", "_set")

    def __init__(self) -> None:
        self._set = False
        self._event: threading.Event | None = None

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        # First the flag, then the look for an event; `wait` does it the other way round, so neither misses the other.
        self._set = True
        if self._event is not None:
            self._event.set()

    def wait(self, seconds: float) -> bool:
        event = self._event
        if event is None:
            event = self._event = threading.Event()
        if self._set:
            event.set()
        return event.wait(seconds)


class RunFacts(Telling):
    """One run of one job. `stop_requested` is set from another thread when the run shall end."""

    _steps: Steps | None = None
    """Made when the handler first asks for it."""
    _completed = False
    """The handler has settled its job itself; what it does from then on changes nothing."""
    _follow_ups: FollowUps | None = None
    """Made with the first: most runs have none."""
    _holds_slots = False
    """It has taken units inside the run: its end may let others go on."""

    def __init__(
        self,
        grant: Grant,
        resources: Any = None,
        durable: Durable | None = None,
        events: EventWriter | None = None,
    ) -> None:
        self._grant = grant
        self._durable = durable
        self._events = events
        self._stopped = StopSignal()
        self.resources = resources
        """What the app's lifespan has yielded."""

    @property
    def job_id(self) -> str:
        return self._grant.id

    @property
    def kind(self) -> str:
        return self._grant.kind

    @property
    def queue(self) -> str:
        return self._grant.queue

    @property
    def attempt(self) -> int:
        """1 for the first run."""
        return self._grant.attempt

    @property
    def lease_token(self) -> int:
        """Names this lease and no other: a resource that remembers the highest token it has seen can refuse a run
        that has lost its lease."""
        return self._grant.token

    @property
    def lane(self) -> str | None:
        return self._grant.lane

    @property
    def group(self) -> str | None:
        return self._grant.group_name

    @property
    def stop_requested(self) -> bool:
        """The run shall end: cancelled, paused, drained, timed out, or its lease is lost."""
        return self._stopped.is_set()

    def raise_if_stopped(self) -> None:
        if self._stopped.is_set():
            raise StopRequested

    @property
    def saved(self) -> Any:
        """What the last `checkpoint` of this job stored, as plain JSON; None if there was none."""
        return self._book().saved

    def left(self, unit: str) -> int | None:
        """What the job may still spend of this unit: the smaller rest of its own budget and its group's, never below
        0; None without a limit. Others of the group may spend at the same time."""
        return self._purse().left(unit)

    def spent(self, unit: str) -> int:
        """What the job has spent of this unit, in all its runs."""
        return self._purse().spent(unit)

    def _purse(self) -> Purse:
        return self._book().purse

    def _ask_for(self, task: Bindable[P], args: Any, kwargs: Any) -> FollowUp:
        if self._follow_ups is None:
            self._follow_ups = FollowUps()
        follow_up = FollowUp(self._grant.id, task.bind(*args, **kwargs), self._follow_ups)
        self._follow_ups.append(follow_up)
        return follow_up

    @property
    def _reader(self) -> Store | None:
        """None outside of a worker."""
        return None if self._durable is None else self._durable.store

    def _unstored(self) -> tuple[NewJob, ...]:
        """The follow-ups that go with the success."""
        return () if self._follow_ups is None else self._follow_ups.unstored()

    def _acquiring(self, name: str, units: int, timeout: Duration | None) -> Acquiring:
        return Acquiring(self, self._workshop(), name, units, timeout)

    def _book(self) -> Steps:
        if self._steps is None:
            self._steps = self._workshop().open_book(self)
        return self._steps

    def _workshop(self) -> Durable:
        if self._durable is None:
            raise InvalidInput(
                "ctx", "belongs to no worker", "run the job, in tests with leasehold.testing.sandbox"
            )
        return self._durable

    def _stop_waiting(self) -> None:
        self.raise_if_stopped()


class Context(RunFacts, TellingOnLoop):
    """The context of an async handler."""

    def enqueue(self, task: Bindable[P], /, *args: P.args, **kwargs: P.kwargs) -> FollowUp:
        """Ask for a follow-up. It is stored with this job's success, in one transaction, and not at all if the job
        does not succeed. `task.using(now=True)` stores it when it is awaited: `await ctx.enqueue(…)`."""
        return self._ask_for(task, args, kwargs)

    async def results(self) -> dict[str, Any]:
        """What the jobs that this one waited for have returned, by their ids, in the order of `after`. Those that did
        not succeed are left out."""
        return await asyncio.to_thread(results_of, self._reader, self._grant.id)

    async def parents(self) -> list[Relative]:
        """The jobs that this one waited for, with their states."""
        return await asyncio.to_thread(parents_of, self._reader, self._grant.id)

    @overload
    async def step(
        self,
        name: str,
        fn: Callable[..., Awaitable[T]],
        /,
        *args: Any,
        durable: Durability = "each",
        retry: Retry | None = None,
        tx: bool = False,
    ) -> T: ...

    @overload
    async def step(
        self,
        name: str,
        fn: Callable[..., T],
        /,
        *args: Any,
        durable: Durability = "each",
        retry: Retry | None = None,
        tx: bool = False,
    ) -> T: ...

    async def step(
        self,
        name: str,
        fn: Callable[..., Any],
        /,
        *args: Any,
        durable: Durability = "each",
        retry: Retry | None = None,
        tx: bool = False,
    ) -> Any:
        """Call `fn(*args)` once in the life of the job: its result is stored under `name` when it returns, and later
        runs get the stored one. A plain function runs in a thread.

        `durable="each"` has stored the result when this returns. `"batch"` stores it with the next step that is
        stored at once, after 100 steps or after a second: for cheap ones, which a crash may cause to run again.
        `retry` tries it again within this run. With `tx=True` the function, a plain one, gets the database connection
        as its first argument, and what it writes there is committed with the step; it has 5 seconds.
        """
        return await self._workshop().run_step_async(self._book(), name, fn, args, durable, retry, tx)

    async def checkpoint(self, state: Any) -> None:
        """Store where this job has come to (JSON); `ctx.saved` gives it back, in this run and in later ones."""
        await self._workshop().call(self._book().checkpoint, state)

    async def acquire(self, name: str, units: int = 1, *, timeout: Duration | None = None) -> None:
        """Wait for a token of a rate, or for units of a slot, which this run then holds until it ends or gives them
        back with `release`. Shared with all workers. Raises AcquireTimedOut after `timeout`."""
        acquiring = self._acquiring(name, units, timeout)
        while (pause := await self._workshop().call(acquiring.try_once)) is not None:
            await asyncio.sleep(pause)

    async def release(self, name: str) -> None:
        """Give back what this run has acquired of a slot."""
        await self._workshop().call(release, self, self._workshop(), name)

    def complete(self, result: Any = None) -> AbstractAsyncContextManager[Transaction]:
        """The last act: `async with ctx.complete(result) as tx:` opens a transaction in which
        `await tx.execute(sql, parameters)` and `await tx.run(function)` write. At the end of the block they are
        committed together with the success of the job; an exception undoes them, and the run fails with it. The block
        has 5 seconds. What the handler returns afterwards is ignored."""
        return self._workshop().complete_async(self, result)

    async def spend(self, *, key: str | None = None, **amounts: int) -> None:
        """Record what was spent, by unit: `await ctx.spend(tokens=1200, key="call-3")`. It is recorded in any case,
        once per key, also when the lease is lost; inside a step it is committed with the step. Then raises OverBudget
        if the job or its group has spent more than it may, unless `on_breach="cap"`."""
        await self._workshop().call(self._book().purse.spend, amounts, key)

    @overload
    async def ask(
        self, key: str, text: str, schema: type[T], secret: bool = False, timeout: Duration | None = None
    ) -> T: ...

    @overload
    async def ask(
        self, key: str, text: str, schema: Any = None, secret: bool = False, timeout: Duration | None = None
    ) -> Any: ...

    async def ask(
        self, key: str, text: str, schema: Any = None, secret: bool = False, timeout: Duration | None = None
    ) -> Any:
        """Ask a person, and get the answer. Until it is there the job waits without a worker: this leaves the
        handler, and a later run of it comes here again, with what its steps have stored.

        `schema`, a type or a JSON schema, is what the answer must fit. A `secret` answer is shown nowhere. When
        nobody has answered within `timeout`, this raises QuestionExpired."""
        ask = self._workshop().make_ask(key, text, schema, secret, timeout)
        return await self._workshop().call(ask.find, self)

    async def _load_budget(self) -> None:
        await self._workshop().call(self._book().purse.load)

    async def _load_saved(self) -> None:
        await self._workshop().call(self._book().load_saved)


class SyncContext(RunFacts, TellingInThread):
    """The context of a plain handler, which runs in a thread."""

    def step(
        self,
        name: str,
        fn: Callable[..., T],
        /,
        *args: Any,
        durable: Durability = "each",
        retry: Retry | None = None,
        tx: bool = False,
    ) -> T:
        """As `Context.step`, blocking; the function runs in the handler's own thread."""
        answer: T = self._workshop().run_step(self._book(), name, fn, args, durable, retry, tx)
        return answer

    def checkpoint(self, state: Any) -> None:
        """As `Context.checkpoint`, blocking."""
        self._book().checkpoint(state)

    def acquire(self, name: str, units: int = 1, *, timeout: Duration | None = None) -> None:
        """As `Context.acquire`, blocking; a stop ends the wait."""
        acquiring = self._acquiring(name, units, timeout)
        while (pause := acquiring.try_once()) is not None:
            self.wait(pause)

    def release(self, name: str) -> None:
        """Give back what this run has acquired of a slot."""
        release(self, self._workshop(), name)

    def _purse(self) -> Purse:
        purse = self._book().purse
        purse.load()
        return purse

    def spend(self, *, key: str | None = None, **amounts: int) -> None:
        """As `Context.spend`, blocking."""
        self._book().purse.spend(amounts, key)

    @overload
    def ask(
        self, key: str, text: str, schema: type[T], secret: bool = False, timeout: Duration | None = None
    ) -> T: ...

    @overload
    def ask(
        self, key: str, text: str, schema: Any = None, secret: bool = False, timeout: Duration | None = None
    ) -> Any: ...

    def ask(
        self, key: str, text: str, schema: Any = None, secret: bool = False, timeout: Duration | None = None
    ) -> Any:
        """As `Context.ask`: it does not block the thread until the answer is there, it leaves the handler."""
        return self._workshop().make_ask(key, text, schema, secret, timeout).find(self)

    def complete(self, result: Any = None) -> AbstractContextManager[SyncTransaction]:
        """As `Context.complete`: `with ctx.complete(result) as tx:`, with `tx.execute` and `tx.connection`."""
        return self._workshop().complete(self, result)

    def enqueue(self, task: Bindable[P], /, *args: P.args, **kwargs: P.kwargs) -> FollowUp:
        """Ask for a follow-up. It is stored with this job's success, in one transaction, and not at all if the job
        does not succeed. `task.using(now=True)` is stored before this returns."""
        follow_up = self._ask_for(task, args, kwargs)
        if follow_up.now:
            follow_up.store()
        return follow_up

    def results(self) -> dict[str, Any]:
        """What the jobs that this one waited for have returned, by their ids, in the order of `after`. Those that did
        not succeed are left out."""
        return results_of(self._reader, self._grant.id)

    def parents(self) -> list[Relative]:
        """The jobs that this one waited for, with their states."""
        return parents_of(self._reader, self._grant.id)

    def wait(self, seconds: float) -> None:
        """Sleep, but not longer than until a stop is requested; then raise."""
        self._stopped.wait(seconds)
        self.raise_if_stopped()

"""The contexts of handlers: what `ctx` offers to async and plain handlers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from leasehold.domain.checks.times import Duration, seconds
from leasehold.domain.errors import AcquireTimedOut, InvalidInput, LeaseLost
from leasehold.domain.limits import brought_rate, checked_limit_name, checked_number
from leasehold.domain.poll import Poll
from leasehold.domain.records import ParentResult, Relative
from leasehold.run.budgets import RunSpending
from leasehold.run.complete import SyncTransaction, Transaction, complete, complete_async
from leasehold.run.follow_ups import FollowUp
from leasehold.run.handler_state import HandlerState
from leasehold.run.journal import Journal
from leasehold.run.questions import Ask, Asks, CheckedAsk, checked_asks
from leasehold.run.state import RunState
from leasehold.run.steps import Durability, Step
from leasehold.run.stream import AsyncReports, Reports, SyncReports, track, track_async
from leasehold.tasks.call import Bindable, J
from leasehold.tasks.definition import AsyncHandlerContext, SyncHandlerContext
from leasehold.tasks.settings import Retry
from leasehold.threads import to_thread

if TYPE_CHECKING:
    from leasehold.stores.store import JobStore

# -- results of parents ------------------------------------------------------------------------------------------------
# Read on demand, so a job without parents pays nothing.

MOST_PARENTS = 1_000_000


def results_of(store: JobStore, job_id: str) -> dict[str, Any]:
    """Return the parents' results as plain JSON: the tasks of the parents may be registered elsewhere."""
    return {one.id: _result_of(store, one) for one in store.parent_results(job_id)}


def _result_of(store: JobStore, parent: ParentResult) -> Any:
    text = parent.result
    if parent.result_ref is not None:
        text = store.read_result(parent.id, parent.result_ref)
    return None if text is None else json.loads(text)


def parents_of(store: JobStore, job_id: str) -> list[Relative]:
    found = store.relatives(job_id, MOST_PARENTS)
    return [one for one in found if one.relation == "waits_for"]


# -- `ctx.acquire` -----------------------------------------------------------------------------------------------------

FIRST_PAUSE = 0.02
"""Seconds between the first two polls of a slot; later pauses are longer. A rate's reply says when to try again."""


class Acquiring:
    """One call of `ctx.acquire`: `run` blocks, `run_async` awaits."""

    def __init__(
        self,
        attempt: RunState,
        journal: Journal,
        name: str,
        units: int,
        rate: str | None,
        burst: int | None,
        timeout: Duration | None,
    ) -> None:
        self._attempt = attempt
        self._journal = journal
        self._name = checked_limit_name(name, "name")
        self._units = checked_number(units, "units", 1)
        self._default = brought_rate(self._name, rate, burst)
        self._timeout = None if timeout is None else seconds(timeout, "timeout")
        self._waits = journal.waits
        self._poll = Poll(FIRST_PAUSE, self._waits.longest_pause, self._waits.monotonic, self._timeout)
        self._what = ""
        """What it waits for, in words."""
        self._timed = False
        """Whether time alone will bring it, or end the wait."""

    def run(self) -> None:
        """Wait, blocking; a stop ends the wait."""
        pause = self._try_once()
        if pause is None:
            return
        with self._attempt.waiting_for(self._what):
            while pause is not None:
                self._waits.wait(self._attempt, pause, self._timed)
                self._attempt.raise_if_stopped()
                pause = self._try_once()

    async def run_async(self) -> None:
        pause = await self._journal.call(self._try_once)
        if pause is None:
            return
        with self._attempt.waiting_for(self._what):
            while pause is not None:
                await self._waits.wait_async(self._attempt, pause, self._timed)
                pause = await self._journal.call(self._try_once)

    def _try_once(self) -> float | None:
        """Seconds to wait before the next try; None: acquired."""
        grant = self._attempt.grant
        try:
            answer = self._journal.store.acquire(
                grant.id, grant.token, self._name, self._units, self._default
            )
        except LeaseLost:
            self._journal.lost(self._attempt)
            raise
        if answer.granted:
            self._attempt.holds_slots |= answer.what == "slot"
            return None
        self._what = f"{answer.what} {self._name!r}"
        self._timed = answer.wait is not None or self._timeout is not None
        pause = self._poll.pause(None if answer.wait is None else max(answer.wait, 0.001))
        if pause is None:
            raise AcquireTimedOut(self._name, self._units, self._timeout or 0.0)
        return pause


def release(attempt: RunState, journal: Journal, name: str) -> None:
    """Give units back before the attempt ends, and wake the workers whose jobs wait for them."""
    name = checked_limit_name(name, "name")
    if journal.store.release_slot(attempt.grant.id, attempt.grant.attempt, name):
        journal.store.notify_workers()


# -- context -----------------------------------------------------------------------------------------------------------

T = TypeVar("T")
P = ParamSpec("P")


class RunFacts(Reports):
    """The facts of one attempt, as its handler sees them. It has no state."""

    _attempt: HandlerState

    def __init__(self, attempt: HandlerState) -> None:
        self._attempt = attempt

    @property
    def resources(self) -> Any:
        """What the app's lifespan has yielded."""
        return self._attempt.resources

    @property
    def job_id(self) -> str:
        """The job's id."""
        return self._attempt.grant.id

    @property
    def task(self) -> str:
        """The name of the task."""
        return self._attempt.grant.task

    @property
    def queue(self) -> str:
        """The job's queue."""
        return self._attempt.grant.queue

    @property
    def attempt(self) -> int:
        """1 for the first attempt."""
        return self._attempt.grant.attempt

    @property
    def lease_token(self) -> int:
        """Identifies this lease and no other: a resource that remembers the highest token it has seen can refuse an
        attempt that has lost its lease."""
        return self._attempt.grant.token

    @property
    def lane(self) -> str | None:
        """The job's lane, as it is stored."""
        return self._attempt.grant.lane

    @property
    def group(self) -> str | None:
        """The job's group."""
        return self._attempt.grant.group

    @property
    def tenant(self) -> str | None:
        """The tenant that owns the job; None: the app's own store."""
        return self._attempt.grant.tenant

    @property
    def stop_requested(self) -> bool:
        """Whether the attempt should end: it was cancelled, paused, drained or timed out, or its lease is lost."""
        return self._attempt.must_stop

    def raise_if_stopped(self) -> None:
        """Raise `StopRequested` if the attempt should end; see `stop_requested`."""
        self._attempt.raise_if_stopped()

    @property
    def saved(self) -> Any:
        """What the last `checkpoint` of this job stored, as plain JSON; None if there was none."""
        return self._attempt.open_steps().saved

    def left(self, unit: str) -> int | None:
        """What the job (with `budget_for="attempt"`, this attempt) may still spend of this unit: the smaller rest of
        its own budget and its group's, never below 0; None without a limit. The group's other jobs may spend
        meanwhile."""
        return self._spending().left(unit)

    def spent(self, unit: str) -> int:
        """What the job has spent of this unit, in all its attempts; with `budget_for="attempt"`, in this one."""
        return self._spending().spent(unit)

    def _spending(self) -> RunSpending:
        return self._attempt.open_steps().spending

    def _new_follow_up(self, task: Bindable[P, J], args: Any, kwargs: Any) -> FollowUp[J]:
        follow_ups = self._attempt.open_follow_ups()
        follow_up = FollowUp(self._attempt.grant, task.bind(*args, **kwargs), follow_ups)
        follow_ups.append(follow_up)
        return follow_up

    def _acquiring(
        self, name: str, units: int, rate: str | None, burst: int | None, timeout: Duration | None
    ) -> Acquiring:
        return Acquiring(self._attempt, self._attempt.needed_journal(), name, units, rate, burst, timeout)


class Context(RunFacts, AsyncReports, AsyncHandlerContext):
    """The context of an async handler."""

    @overload
    def track(
        self, items: AsyncIterable[T], *, total: float | None = None, description: str = "", start: int = 0
    ) -> AsyncIterator[T]: ...

    @overload
    def track(
        self, items: Iterable[T], *, total: float | None = None, description: str = "", start: int = 0
    ) -> Iterator[T]: ...

    def track(self, items: Any, *, total: float | None = None, description: str = "", start: int = 0) -> Any:
        """Loop over items and report progress: `for page in ctx.track(pages, description="pages")`, or `async for` if
        they come from an async iterator. The total is `len(items)` unless given; without either, only the count is
        reported. A stop ends the loop before the next item. `start` is how many items earlier attempts have done."""
        loop = track_async if isinstance(items, AsyncIterable) else track
        return loop(self, items, total, description, start)

    def enqueue(self, task: Bindable[P, J], /, *args: P.args, **kwargs: P.kwargs) -> FollowUp[J]:
        """Enqueue a follow-up. It is stored with this job's success, in one transaction, and not at all if the job does
        not succeed. `task.using(immediately=True)` stores it when it is awaited: `await ctx.enqueue(…)`."""
        return self._new_follow_up(task, args, kwargs)

    async def results(self) -> dict[str, Any]:
        """What the parents of this job returned, by their ids, in the order of `after`. Parents that did not succeed
        are left out."""
        return await to_thread(results_of, self._attempt.needed_journal().store, self._attempt.grant.id)

    async def parents(self) -> list[Relative]:
        """The jobs that this one waited for, with their states."""
        return await to_thread(parents_of, self._attempt.needed_journal().store, self._attempt.grant.id)

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
        attempts get the stored one. A plain function runs in a thread.

        `durable="each"` has stored the result when this returns. `"batch"` stores it with the next step that is stored
        at once, after 100 steps or after a second: for cheap steps, which may run again after a crash. `retry` tries it
        again within this attempt. With `tx=True` the function, a plain one, gets the database connection as its first
        argument, and what it writes there is committed with the step; it has 5 seconds.
        """
        step, steps = Step(name, fn, args, durable, retry, tx), self._attempt.open_steps()
        steps.begin(step)
        return await steps.run_async(step)

    async def checkpoint(self, state: Any) -> None:
        """Store how far this job has got (JSON); `ctx.saved` returns it, in this attempt and in later ones."""
        await self._attempt.needed_journal().call(self._attempt.open_steps().checkpoint, state)

    async def acquire(
        self,
        name: str,
        units: int = 1,
        *,
        rate: str | None = None,
        burst: int | None = None,
        timeout: Duration | None = None,
    ) -> None:
        """Wait for a token of a rate, or for units of a slot, which this attempt then holds until it ends or gives them
        back with `release`. Shared with all workers. `rate="60/min"`, and `burst`, are the limit that the rate gets if
        it has none yet. Raises AcquireTimedOut after `timeout`."""
        await self._acquiring(name, units, rate, burst, timeout).run_async()

    async def release(self, name: str) -> None:
        """Give back what this attempt has acquired of a slot."""
        journal = self._attempt.needed_journal()
        await journal.call(release, self._attempt, journal, name)

    def complete(self, result: Any = None) -> AbstractAsyncContextManager[Transaction]:
        """Complete the job together with writes of your own: `async with ctx.complete(result) as tx:` opens a
        transaction in which `await tx.execute(sql, parameters)` and `await tx.run(function)` write. It must be the last
        thing that the handler does. At the end of the block the writes are committed together with the success of the
        job; an exception undoes them, and the attempt fails with it. The block has 5 seconds. What the handler returns
        afterwards is ignored."""
        return complete_async(self._attempt, result)

    async def spend(self, *, key: str | None = None, **amounts: int) -> None:
        """Record what was spent, by unit: `await ctx.spend(tokens=1200, key="call-3")`. It is always recorded, once per
        key, also when the lease is lost; inside a step it is committed with the step. Then it raises OverBudget if the
        job or its group has spent more than it may, unless `on_breach="allow"`."""
        await self._attempt.needed_journal().call(self._spending().spend, amounts, key)

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
        """Ask a person, and return the answer. Until it comes the job waits without a worker: this leaves the handler,
        and a later attempt comes here again, with what its steps have stored.

        `schema`, a type or a JSON schema, is what the answer must fit. A `secret` answer is shown nowhere. Without an
        answer within `timeout`, this raises QuestionExpired."""
        call = CheckedAsk(key, Ask(text, schema, secret, timeout))
        return (await self._attempt.open_questions_box().find_async([call]))[key]

    async def ask_all(self, questions: Asks) -> dict[str, Any]:
        """Ask several questions at once: `await ctx.ask_all({"name": "Your name?", "age": ("How old?", int)})`;
        with `Ask(text, schema, secret=…, timeout=…)` of `leasehold.types` each takes all parameters of `ask`. The job
        waits until the last of them is answered or expired, and then this returns the answers by key. If one was not
        answered in time, this raises QuestionExpired for the first such question; `ctx.ask` still returns the answers
        to the others."""
        return await self._attempt.open_questions_box().find_async(checked_asks(questions))


class SyncContext(RunFacts, SyncReports, SyncHandlerContext):
    """The context of a plain handler, which runs in a thread."""

    def track(
        self, items: Iterable[T], *, total: float | None = None, description: str = "", start: int = 0
    ) -> Iterator[T]:
        """Like `Context.track`, for plain loops."""
        return track(self, items, total, description, start)

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
        """Like `Context.step`, blocking; the function runs in the handler's own thread."""
        step, steps = Step(name, fn, args, durable, retry, tx), self._attempt.open_steps()
        if step.is_async:
            raise InvalidInput(
                "step", f"{name!r} is an async function", "make the task async, or the step plain"
            )
        steps.begin(step)
        answer: T = steps.run(step)
        return answer

    def checkpoint(self, state: Any) -> None:
        """Like `Context.checkpoint`, blocking."""
        self._attempt.open_steps().checkpoint(state)

    def acquire(
        self,
        name: str,
        units: int = 1,
        *,
        rate: str | None = None,
        burst: int | None = None,
        timeout: Duration | None = None,
    ) -> None:
        """Like `Context.acquire`, blocking; a stop ends the wait."""
        self._acquiring(name, units, rate, burst, timeout).run()

    def release(self, name: str) -> None:
        """Give back what this attempt has acquired of a slot."""
        release(self._attempt, self._attempt.needed_journal(), name)

    def _spending(self) -> RunSpending:
        spending = self._attempt.open_steps().spending
        spending.load()
        return spending

    def spend(self, *, key: str | None = None, **amounts: int) -> None:
        """Like `Context.spend`, blocking."""
        self._attempt.open_steps().spending.spend(amounts, key)

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
        """Like `Context.ask`: it does not block the thread until the answer comes, it leaves the handler."""
        call = CheckedAsk(key, Ask(text, schema, secret, timeout))
        return self._attempt.open_questions_box().find([call])[key]

    def ask_all(self, questions: Asks) -> dict[str, Any]:
        """Like `Context.ask_all`."""
        return self._attempt.open_questions_box().find(checked_asks(questions))

    def complete(self, result: Any = None) -> AbstractContextManager[SyncTransaction]:
        """Like `Context.complete`: `with ctx.complete(result) as tx:`, with `tx.execute` and `tx.connection`."""
        return complete(self._attempt, result)

    def enqueue(self, task: Bindable[P, J], /, *args: P.args, **kwargs: P.kwargs) -> FollowUp[J]:
        """Enqueue a follow-up. It is stored with this job's success, in one transaction, and not at all if the job does
        not succeed. `task.using(immediately=True)` is stored before this returns."""
        follow_up = self._new_follow_up(task, args, kwargs)
        if follow_up.immediately:
            follow_up.store()
        return follow_up

    def results(self) -> dict[str, Any]:
        """What the parents of this job returned, by their ids, in the order of `after`. Parents that did not succeed
        are left out."""
        return results_of(self._attempt.needed_journal().store, self._attempt.grant.id)

    def parents(self) -> list[Relative]:
        """The jobs that this one waited for, with their states."""
        return parents_of(self._attempt.needed_journal().store, self._attempt.grant.id)

    def wait(self, seconds: float) -> None:
        """Wait in place, at most until a stop is requested; then raise."""
        journal = self._attempt.journal
        if journal is None:
            self._attempt.wait(seconds)
        else:
            with self._attempt.waiting_for("the end of its ctx.wait"):
                journal.waits.wait(self._attempt, seconds)
        self._attempt.raise_if_stopped()

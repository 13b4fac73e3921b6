"""The attempt of a command or a container: places, starts or adopts, watches, stops and collects an execution.

The execution outlives the worker. So only a stop request, its time limit or the end of its tenant ends it; a drain or
a lost lease leaves it alone. And no ending is settled before the execution has ended or can never start: the next
attempt must not run beside it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from leasehold.domain.errors import InvalidInput, LeaseholdError, TenantNotFound
from leasehold.domain.job import Grant
from leasehold.domain.outcome import Crashed, Detached, Failure, Outcome, Stopped, Success
from leasehold.domain.signals import StopRequested
from leasehold.domain.states import Flag
from leasehold.run.attempt import Attempt, Ended, StopCause
from leasehold.run.exceptions import outcome_of, signal_name
from leasehold.run.executions import Executions, OutputReader
from leasehold.run.state import current_run
from leasehold.runners.contract import Collected, ExecutionState, NothingToCollect, Phase, Runner, Start
from leasehold.tasks.external import External

if TYPE_CHECKING:
    from leasehold.stores.store import JobStore

logger = logging.getLogger("leasehold.worker")

T = TypeVar("T")

LEAVING: frozenset[StopCause] = frozenset({"drain", "lost", "late", "unrenewed"})
"""Causes for which this worker lets go of an execution, and leaves it alive."""
START_TIMEOUT = 60.0
"""Seconds for which a start that fails is tried again."""
HANGS_AFTER = 30.0
"""Seconds that an outside system gets beyond every grace to report that an execution has ended."""
AFTER_A_BUG = 5.0
"""Seconds until another worker may adopt it: that one may well meet the same bug, and each adoption is recorded."""
ERROR_TAIL = 2000
_NAME = re.compile(
    r"app-(?P<identity>[0-9a-f]{16})-(?P<job>[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})-[0-9]+"
)


def name_of(grant: Grant, identity: str) -> str:
    """The name of the attempt's execution. `identity`: of the job's database. A copy of the database has the same jobs,
    and perhaps the same folder and engine."""
    return f"{grant.tenant or 'app'}-{identity}-{grant.id}-{grant.attempt}"


def job_of(name: str) -> tuple[str, str] | None:
    """The identity of the database and the id of the app's own job whose execution has this name. None: it is a
    tenant's job, or not a job of ours."""
    found = _NAME.fullmatch(name)
    return None if found is None else (found["identity"], found["job"])


class ExternalAttempt(Attempt):
    external: External
    executions: Executions
    execution = ""
    """The name of the execution at the runner; it is stored before anything is started."""
    is_over = False
    """The execution and the attempt have ended: once the ending is stored, what the execution left can be deleted."""
    _site_recorded = False
    _started = False
    _stopping_since: float | None = None

    def prepare(self, external: External, executions: Executions) -> None:
        """Call this on the loop, before `run`."""
        self.external = external
        self.executions = executions
        self._wake = asyncio.Event()
        self._output = OutputReader(self)

    @property
    def runner(self) -> Runner[Any]:
        return self.external.runner

    # -- the steps -------------------------------------------------------------------------------------------------
    async def run(self, ended: Ended) -> None:
        current_run.set(self)
        outcome: Outcome | None
        try:
            outcome = await self._run()
        except StopRequested:
            outcome = self.unkept or self.outcome_when_stopped()
        except BaseException as error:
            logger.exception(
                "job %s: unexpected error, which is a bug; leaving its execution alone", self.grant.id
            )
            outcome = outcome_of(error, self.definition)
            if self._site_recorded:
                outcome = Detached(str(error))
                self._wake.clear()
                await self._sleep(AFTER_A_BUG)
        self.task = None
        self.is_over = outcome is not None and not isinstance(outcome, Detached)
        ended(self, self.without_secrets(outcome))

    async def _run(self) -> Outcome | None:
        grant = self.grant
        if grant.execution_name is None:
            self.check()
            try:
                spec = await self._spec()
            except Exception as error:
                return outcome_of(error, self.definition)
            if not await self._call_store(self._place, otherwise=False):
                return None
            self._site_recorded = True
            self.raise_if_stopped()
            return await self._start(spec)
        self.execution = grant.execution_name
        self._site_recorded = True
        self._restore_from_grant()
        self._output.go_on_from(
            await self._call_store(lambda store: store.log_mark(grant.id, grant.attempt), otherwise=None)
        )
        if self._started or self.cause is not None:
            return await self._follow()
        try:
            spec = await self._spec()
        except Exception as error:
            return await self._settle_or_follow(outcome_of(error, self.definition))
        return await self._start(spec)

    def _place(self, store: JobStore) -> bool:
        grant = self.grant
        self.execution = name_of(grant, store.identity(grant.id))
        return store.record_site(grant.id, grant.token, self.runner.site, self.execution)

    async def _spec(self) -> Any:
        """Call the task's function, which says what to run."""
        arguments = self.definition.decode_arguments(self.grant.args)
        return self.external.to_spec(await self.definition.handler(**arguments))

    def _restore_from_grant(self) -> None:
        """Take over from the previous worker: when the execution was started, and which stop was requested."""
        grant, now = self.grant, time.monotonic()
        age = grant.execution_age
        self._started = age is not None
        self._begin_time(now - (age or 0.0))
        if grant.stop_requested in (Flag.PAUSE, Flag.CANCEL):
            self.flag = Flag(grant.stop_requested)
            self.stop("requested")
        elif now >= self.usable_until:
            self.stop("late")
        elif self.time_out_at is not None and now >= self.time_out_at:
            self.stop(self.time_out_cause)

    def _begin_time(self, started_at: float) -> None:
        self.started_at = started_at
        self.time_out_at = None
        if self.timeout is not None or self.deadline_at is not None:
            self._limit(started_at, self.timeout)

    async def _start(self, spec: Any) -> Outcome | None:
        gives_up_at = time.monotonic() + START_TIMEOUT
        runner, name, token = self.runner, self.execution, self.grant.token
        start: Start | None = None
        while start is None:
            try:
                start = await self.executions.call(lambda: runner.ensure_started(name, token, spec))
            except Exception as error:
                if isinstance(error, LeaseholdError) or time.monotonic() >= gives_up_at:
                    return await self._settle_or_follow(Failure(f"could not be started: {error}"))
                logger.warning("job %s could not be started; trying again: %s", self.grant.id, error)
                await self._sleep(1.0)
                if self.cause is not None:
                    return await self._follow()
        if (
            start is Start.FENCED
            and (await self._call_runner(lambda: runner.probe(name))).phase is not Phase.TOMBSTONE
        ):
            return None  # a newer lease has the execution
        if start is not Start.FENCED:
            if not await self._call_store(
                lambda store: store.mark_started(self.grant.id, token), otherwise=True
            ):
                return None
            self._started = True
            if start is Start.STARTED:
                self._begin_time(time.monotonic())
        return await self._follow()

    async def _follow(self) -> Outcome | None:
        """Watch the execution until it has ended, and return its outcome; or until another worker has to watch it."""
        runner, name = self.runner, self.execution
        while True:
            self._wake.clear()
            if self.cause in LEAVING:
                return self.outcome_when_stopped()
            state = await self._call_runner(lambda: runner.probe(name))
            if self.cause in LEAVING and state.phase is not Phase.EXITED:
                continue  # the cause came during the probe
            if self.cause is not None and state.phase is not Phase.EXITED:
                await self._stop()
                state = await self._call_runner(lambda: runner.probe(name))
            if state.phase is Phase.RUNNING:
                found = await self._wait()
                if found is None:
                    continue
                state = found
            outcome = await self._judge_end(state)
            if outcome is not None:
                return outcome

    async def _wait(self) -> ExecutionState | None:
        """Wait for the end of the execution. Repeat a stop that has no effect: it may have been lost."""
        if self._stopping_since is None:
            return await self.executions.ended(self, self._wake)
        overdue = self._stopping_since + self.external.grace + 5.0 - time.monotonic()
        try:
            return await asyncio.wait_for(self.executions.ended(self, self._wake), max(overdue, 1.0))
        except TimeoutError:
            await self._call_runner(lambda: self.runner.stop(self.execution, 0.0))
            return None

    async def _stop(self) -> None:
        if self._stopping_since is None:
            grace = self.external.grace
            await self._call_runner(lambda: self.runner.stop(self.execution, grace))
            self._stopping_since = time.monotonic()

    # -- the end ---------------------------------------------------------------------------------------------------
    async def _judge_end(self, state: ExecutionState) -> Outcome | None:
        """Return the outcome of an execution that seems to have ended. None: it has not ended after all."""
        name, runner = self.execution, self.runner
        if state.phase is Phase.EXITED:
            try:
                collected = await self._call_runner(lambda: runner.collect(name))
            except NothingToCollect:
                return None
            except InvalidInput as error:
                return self._unless_stopped(
                    Failure(str(error), final=True)
                )  # it did run: do not pay for it again
            await self.executions.call(self._output.finish)
            if self._stopping_since is not None or collected.was_stopped:
                return self._unless_stopped(Stopped())  # by this worker, or by an earlier one
            return await self._judge_exit(collected)  # a stop request came too late
        # Also if there is a tombstone: its writer may have frozen before it had closed every way to a start.
        state = await self._call_runner(lambda: runner.tombstone(name))
        if state.phase is not Phase.TOMBSTONE:
            return None  # alive after all, or it has exited
        gone = "has vanished: how it ended is unknown" if self._started else "was stopped before it began"
        return self._unless_stopped(Failure(f"its execution {gone}"))

    async def _judge_exit(self, collected: Collected) -> Outcome:
        code, external = collected.code, self.external
        meaning = external.meaning_of(code)
        if meaning == "success":
            try:
                success = Success(await self.executions.call(lambda: self._result(collected)))
                return await self.file(success) if self.leaves_row(success.result) else success
            except LeaseholdError as error:
                return Failure(f"its result cannot be kept: {error}")
            except Exception as error:  # of the user's own `collect`
                return outcome_of(error, self.definition)
        output = _tail(collected)
        if code < 0 and code not in external.exit_codes:
            return Crashed(f"killed by {signal_name(-code)}{output}")
        return Failure(f"exit code {code}{output}", final=meaning == "fail")

    def _result(self, collected: Collected) -> str | None:
        """Make the result of a successful execution. Runs in a thread, because it reads files."""
        if self.external.collect is not None:
            return self.encode_result(self.external.collect(collected))
        text = collected.result
        if self.external.result_from == "last_line":
            lines = [line for line in collected.stdout.tail.splitlines() if line.strip()]
            text = lines[-1] if lines else None
        if text is None or not text.strip():
            return None
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            if self.external.result_from == "file":
                raise InvalidInput(
                    "result", f"is not JSON ({error})", "write JSON to LEASEHOLD_RESULT"
                ) from None
            value = text
        return self.encode_result(value)

    async def _settle_or_follow(self, outcome: Outcome) -> Outcome | None:
        """Return the outcome if no start is possible any more; else follow: another worker may have started it."""
        state = await self._call_runner(lambda: self.runner.tombstone(self.execution))
        return self._unless_stopped(outcome) if state.phase is Phase.TOMBSTONE else await self._follow()

    @property
    def may_write(self) -> bool:
        """False also if the worker lets go of the execution: the next worker finds the result where it is."""
        return self.cause not in LEAVING

    def _unless_stopped(self, outcome: Outcome) -> Outcome | None:
        return outcome if self.cause is None else self.outcome_when_stopped()

    def outcome_when_stopped(self) -> Outcome | None:
        if self.cause in LEAVING and self.cause != "lost" and self._site_recorded:
            return Detached(
                "its worker was stopped" if self.cause == "drain" else "its lease could not be renewed"
            )
        return super().outcome_when_stopped()

    def outcome_when_left_behind(self) -> Outcome | None:
        """Detach the execution, because its runner does not answer: the worker that adopts it goes on with the stop."""
        return (
            Detached("its runner does not answer")
            if self._site_recorded
            else super().outcome_when_left_behind()
        )

    def stop_timeout(self, stop_grace: float) -> float:
        return stop_grace + self.external.grace + HANGS_AFTER

    # -- calls to the runner and the store -------------------------------------------------------------------------
    def wake_handler(self) -> None:
        self._wake.set()

    def read_output(self) -> None:
        self._output.read()

    async def _call_runner(self, verb: Callable[[], T]) -> T:
        """Call the runner until it answers. Raises StopRequested if the execution has to be left alone meanwhile."""
        pause = 0.2
        troubled = False
        while True:
            try:
                answer = await self.executions.call(verb)
                if troubled:
                    logger.info("job %s: the runner of %s answers again", self.grant.id, self.execution)
                return answer
            except LeaseholdError:
                raise
            except Exception as error:
                if not troubled:
                    logger.warning(
                        "job %s: cannot find out the state of %s; trying again: %s",
                        self.grant.id,
                        self.execution,
                        error,
                    )
                troubled = True
            if self.cause in LEAVING:
                raise StopRequested
            await asyncio.sleep(pause)
            pause = min(pause * 2, 10.0)

    async def _call_store(self, call: Callable[[Any], T], otherwise: T) -> T:
        """Call the store; False from a write: the lease is lost. `otherwise` is returned if the database is away when
        the execution has to be stopped. The stop comes first: nothing may be settled while the execution lives."""
        journal = self.needed_journal()
        try:
            # Not in a thread of the runners: those of other tenants' executions must not wait for this tenant.
            return await journal.call(lambda: self.patiently(lambda: call(journal.store)))
        except TenantNotFound:
            self.stop("dropped")  # no worker will ever watch its execution
            return otherwise
        except StopRequested:
            if not self._site_recorded or self.cause in LEAVING:
                raise
            return otherwise

    async def _sleep(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._wake.wait(), seconds)
        except TimeoutError:
            return


def _tail(collected: Collected) -> str:
    output = (collected.stderr.tail.strip() or collected.stdout.tail.strip())[-ERROR_TAIL:]
    reason = "" if collected.reason is None else f" ({collected.reason})"
    return f"{reason}: {output}" if output else reason

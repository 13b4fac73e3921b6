"""The attempts of one worker: the leases it holds, how it stops attempts, and how they ended."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from leasehold.domain.states import Flag
from leasehold.run.attempt import Attempt, StopCause
from leasehold.worker.job_log import say


class Attempts:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        on_freed: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._on_freed = on_freed
        self.held: dict[str, Attempt] = {}
        """Attempts whose lease we hold: running, or ended and not settled yet. The keeper renews all of them."""
        self._awaited: dict[Attempt, Future[None]] = {}
        self.abandoned_on_loop = 0
        self.abandoned_in_threads = 0
        self.ended = self.fenced = self.lost = 0

    def unfinished(self) -> list[Attempt]:
        """Return a copy, so that any thread may call this while the loop changes the dict."""
        return [run for run in list(self.held.values()) if not run.settled_at]

    # -- stop ------------------------------------------------------------------------------------------------------
    def stop(self, run: Attempt, cause: StopCause) -> None:
        """Callable from any thread."""
        run.stop(cause)
        if run.definition.is_async:
            self._loop.call_soon_threadsafe(run.interrupt)

    def stop_all(self, cause: StopCause) -> None:
        for run in self.unfinished():
            self.stop(run, cause)

    def leave_executions(self) -> None:
        """Leave the executions outside this process: they go on."""
        for run in self.unfinished():
            if run.definition.external is not None:
                self.stop(run, "drain")

    def on_flag(self, run: Attempt, flag: Flag) -> None:
        """Called by the keeper, in its thread."""
        if flag is not Flag.FINISH and not run.settled_at:
            say(logging.INFO, run.grant, "%s requested", flag.value)
            self.stop(run, "flag")

    def on_lost(self, run: Attempt) -> None:
        """Called by the keeper, in its thread."""
        if run.cause != "lost":
            say(logging.WARNING, run.grant, "lease %d is lost; stopping the handler", run.grant.token)
            run.cause = None
            self.stop(run, "lost")

    def on_refused(self, job_id: str, token: int) -> None:
        """A handler's own write was refused. Callable from any thread."""
        run = self.held.get(job_id)
        if run is not None and run.grant.token == token:
            self.on_lost(run)

    # -- end -------------------------------------------------------------------------------------------------------
    def settled(self, accepted: Sequence[Attempt], fenced: Sequence[Attempt]) -> None:
        """Record which endings the database accepted, and which it fenced off."""
        held = self.held
        for run in accepted:  # `_let_go`, inlined: this runs for every job
            job_id = run.grant.id
            if held.get(job_id) is run:
                del held[job_id]
        for run in fenced:
            run.refused = True
            self._let_go(run)
            say(
                logging.WARNING,
                run.grant,
                "result of attempt %d refused, lease %d had been lost; its successor's counts",
                run.grant.attempt,
                run.grant.token,
            )
        self.ended += len(accepted)
        self.fenced += len(fenced)
        if self._awaited:
            self._log_ends()
        self._on_freed()

    def drop(self, run: Attempt) -> None:
        """Another worker has the lease: nothing may be written."""
        run.settled_at, run.refused = time.monotonic(), True
        self._let_go(run)
        self.lost += 1
        if self._awaited:
            self._log_ends()

    def end_of(self, run: Attempt) -> Future[None]:
        """Return a future that is done when the attempt has left the books: the database has its ending, or another
        worker has its lease. Call it on the loop; wait for it anywhere."""
        end = self._awaited.setdefault(run, Future())
        self._log_ends()
        return end

    def give_up(self) -> None:
        """End every wait for what the ending worker could not settle."""
        while self._awaited:
            run, end = self._awaited.popitem()
            run.refused = True
            end.set_result(None)

    def _log_ends(self) -> None:
        gone = [run for run in self._awaited if self.held.get(run.grant.id) is not run]
        for run in gone:
            self._awaited.pop(run).set_result(None)

    def _let_go(self, run: Attempt) -> None:
        """Forget this attempt only: we may have claimed the job again before we learned that its last ending was
        stored. Its new lease must stay in the books, or it would not be renewed."""
        job_id = run.grant.id
        if self.held.get(job_id) is run:
            del self.held[job_id]

    # -- attempts that ignore a stop --------------------------------------------------------------------------------
    def abandon(self, run: Attempt) -> None:
        """The handler runs on and keeps its unit of capacity."""
        run.abandoned = True
        self._count_abandoned(run, 1)

    def came_back(self, run: Attempt) -> None:
        say(logging.INFO, run.grant, "the abandoned handler has ended after all")
        self._count_abandoned(run, -1)

    def _count_abandoned(self, run: Attempt, change: int) -> None:
        if run.definition.is_async:
            self.abandoned_on_loop += change
        else:
            self.abandoned_in_threads += change

    @property
    def abandoned(self) -> int:
        return self.abandoned_on_loop + self.abandoned_in_threads

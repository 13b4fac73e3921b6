"""The attempts of one worker: whose leases it holds, how they are told to stop, and how they ended."""

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
        """Leases we hold: running, or ended and not settled yet. The keeper renews them all."""
        self._awaited: dict[Attempt, Future[None]] = {}
        self.abandoned_on_loop = 0
        self.abandoned_in_threads = 0
        self.ended = self.fenced = self.lost = 0

    def unfinished(self) -> list[Attempt]:
        """From any thread: hence a copy, which the loop cannot change meanwhile."""
        return [run for run in list(self.held.values()) if not run.settled_at]

    # -- stop ------------------------------------------------------------------------------------------------------
    def stop(self, run: Attempt, cause: StopCause) -> None:
        """From any thread."""
        run.stop(cause)
        if run.definition.is_async:
            self._loop.call_soon_threadsafe(run.interrupt)

    def stop_all(self, cause: StopCause) -> None:
        for run in self.unfinished():
            self.stop(run, cause)

    def leave_executions(self) -> None:
        """Those outside of this process live on."""
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
        """A handler's own write was refused: from any thread."""
        run = self.held.get(job_id)
        if run is not None and run.grant.token == token:
            self.on_lost(run)

    # -- end -------------------------------------------------------------------------------------------------------
    def settled(self, accepted: Sequence[Attempt], fenced: Sequence[Attempt]) -> None:
        """The database has spoken."""
        held = self.held
        for run in accepted:  # `_let_go`, written out: this is done for every job
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
            self._tell_ends()
        self._on_freed()

    def drop(self, run: Attempt) -> None:
        """Its lease is another's: nothing may be written."""
        run.settled_at, run.refused = time.monotonic(), True
        self._let_go(run)
        self.lost += 1
        if self._awaited:
            self._tell_ends()

    def end_of(self, run: Attempt) -> Future[None]:
        """Done when the run has left the books: the database has taken its ending, or its lease is another's. Asked for
        on the loop, waited for anywhere."""
        end = self._awaited.setdefault(run, Future())
        self._tell_ends()
        return end

    def give_up(self) -> None:
        """The worker ends: nobody shall wait for what it could not settle."""
        while self._awaited:
            run, end = self._awaited.popitem()
            run.refused = True
            end.set_result(None)

    def _tell_ends(self) -> None:
        gone = [run for run in self._awaited if self.held.get(run.grant.id) is not run]
        for run in gone:
            self._awaited.pop(run).set_result(None)

    def _let_go(self, run: Attempt) -> None:
        """Only this run: a job that went back to the queue may have been claimed again, by us, before we heard that
        its last ending was taken. Its new lease must stay in the books, or nobody would renew it."""
        job_id = run.grant.id
        if self.held.get(job_id) is run:
            del self.held[job_id]

    # -- those that do not obey ------------------------------------------------------------------------------------
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

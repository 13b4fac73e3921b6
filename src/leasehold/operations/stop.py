"""Stops all jobs that match, in short transactions. Each pass first flags running jobs, so that none returns to the
queue behind the search, then cancels the others. Passes repeat until one finds nothing. Meanwhile follow-ups in a
group that is stopped are stored as cancelled.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from leasehold.domain.poll import Poll
from leasehold.domain.states import State
from leasehold.domain.stop import StoppedJob, StopReport, StopRequest, cancels

if TYPE_CHECKING:
    from leasehold.stores.store import JobStore

BATCH = 500
"""Jobs of one transaction, which must be short: on SQLite it blocks all other writers."""
MOST_PASSES = 10
"""Bound on the passes if callers enqueue into the scope all the time; `hold` keeps new jobs out."""
MOST_CHECKED = 1000
"""Running jobs that one read checks during the wait."""
FIRST_CHECK_AFTER, SLOWEST_CHECK_EVERY = 0.02, 0.25

OnProgress = Callable[[StopReport], None]


def ignore(report: StopReport) -> None:
    """The default callback: does nothing."""


@dataclass
class Stop:
    """One stop, from its call to its report."""

    store: JobStore
    request: StopRequest
    known: Mapping[str, str]
    """Every known task, with its queue."""
    counts: dict[str, dict[State, int]] = field(default_factory=dict)
    running: dict[str, str] = field(default_factory=dict)
    """The flagged jobs: ids, with the names of their tasks."""
    left: list[str] = field(default_factory=list)
    """The ids of flagged jobs that still run."""

    def begin(self) -> Self:
        """Do everything except the wait."""
        if self.request.dry_run:
            self._count_only()
        else:
            self._act()
        return self

    def _count_only(self) -> None:
        """Count what a stop would do, and change nothing."""
        seen: set[str] = set()
        for running in (True, False):
            for jobs in self._pages(running):
                self._count([job for job in jobs if job.id not in seen])
                seen |= {job.id for job in jobs if job.state is State.RUNNING}
        self.left = list(self.running)

    def _act(self) -> None:
        requested = self.request
        scope = requested.scope
        if scope.group is not None:
            # First: jobs enqueued after it are refused by the hold, or cancelled if they are follow-ups; the passes
            # find those from before.
            self.store.stop_group(
                scope.group, requested.hold, requested.actor, requested.reason, scope, requested.mode
            )
        for _ in range(MOST_PASSES):
            if not self._pass():
                break
        self.left = list(self.running)
        self._end()

    def pauses(self, on_progress: OnProgress = ignore) -> Iterator[float]:
        """Yield how long to sleep before each check, until the flagged jobs have ended or the time is over. The caller
        sleeps, in a thread or on its event loop."""
        if self.request.dry_run or self.request.mode == "immediate":
            return
        poll = Poll(FIRST_CHECK_AFTER, SLOWEST_CHECK_EVERY, time.monotonic, self.request.longest)
        self._check_running()
        settled = not self.running
        while (self.left or not settled) and (pause := poll.pause()) is not None:
            if self.left:
                on_progress(self.report())
            yield pause
            self._check_running()
            if not self.left:
                # A job that has ended may have had an enqueue under way, which its stop could not reach.
                settled = not self._pass()
                self.left = [] if settled else list(self.running)
        self.left = [job for batch in _batches(self.left) for job in self.store.still_running(batch)]
        # A flagged job that has been paused is still in the scope: stop it again.
        ended = self.running.keys() - set(self.left)
        for batch in _batches(sorted(ended)):
            self._count(self._stop(batch))
        self._end()

    def wait(self, on_progress: OnProgress = ignore) -> StopReport:
        for pause in self.pauses(on_progress):
            time.sleep(pause)
        return self.report()

    def report(self) -> StopReport:
        flagged: dict[str, int] = {}
        for task in self.running.values():
            flagged[task] = flagged.get(task, 0) + 1
        return StopReport(
            scope=self.request.scope.as_dict(),
            mode=self.request.mode,
            reason=self.request.reason,
            cancelled_counts={task: dict(self.counts[task]) for task in sorted(self.counts)},
            flagged=dict(sorted(flagged.items())),
            still_running=list(self.left),
            unaffected_tasks=self._unaffected(),
            held=self.request.hold,
            dry_run=self.request.dry_run,
        )

    def _unaffected(self) -> list[str]:
        """Return the tasks that the stop does not affect: those that the scope leaves out, if it names tasks; none for
        a whole group or everything; else tasks that belong to another queue and had no matching job."""
        scope, known = self.request.scope, self.known
        if scope.tasks is not None:
            return sorted(known.keys() - set(scope.tasks))
        if scope.everything or scope.whole_group:
            return []
        seen = {*self.counts, *self.running.values()}
        return sorted(task for task, queue in known.items() if task not in seen and queue != scope.queue)

    def _pass(self) -> bool:
        """Stop the jobs that a search finds. True: it found some; a job that ended first may have left follow-ups."""
        found = False
        for running in (True, False):
            for jobs in self._pages(running):
                wanted = [job.id for job in jobs if job.id not in self.running]
                found = found or bool(wanted)
                for batch in _batches(wanted):
                    self._count(self._stop(batch))
        return found

    def _stop(self, ids: Sequence[str]) -> Sequence[StoppedJob]:
        """Stop these jobs. Notify holders at once, not after the last batch."""
        requested = self.request
        stopped = self.store.stop_jobs(
            ids, requested.scope, requested.mode, requested.actor, requested.reason
        )
        if any(job.state is State.RUNNING for job in stopped):
            self.store.notify_holders()
        return stopped

    def _pages(self, running: bool) -> Iterator[Sequence[StoppedJob]]:
        before: str | None = None
        while True:
            found = self.store.find_stoppable(self.request.scope, before, running)
            yield found.jobs
            before = found.next
            if before is None:
                return

    def _count(self, jobs: Sequence[StoppedJob]) -> None:
        for job in jobs:
            if job.state is State.RUNNING:
                self.running[job.id] = job.task
            if cancels(self.request.mode, job.state):
                states = self.counts.setdefault(job.task, {})
                states[job.state] = states.get(job.state, 0) + 1

    def _check_running(self) -> None:
        """Check which jobs still run, in one bounded read: of very many, only the first."""
        first, rest = self.left[:MOST_CHECKED], self.left[MOST_CHECKED:]
        if first:
            self.left = [*self.store.still_running(first), *rest]

    def _end(self) -> None:
        """Let follow-ups run again. Notify watchers of groups, and workers, because lanes may be free."""
        if self.request.scope.group is not None:
            self.store.end_group_stop(self.request.scope.group)
        self.store.notify_watchers()
        self.store.notify_workers()


def _batches(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    return (ids[start : start + BATCH] for start in range(0, len(ids), BATCH))

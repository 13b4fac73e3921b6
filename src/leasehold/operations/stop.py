"""Stop: the procedure over the store's short verbs. Running jobs are flagged first, so that nothing goes back to the
queue behind the search; then what does not run is cancelled; then the same again, until a pass finds nothing.
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
"""Jobs of one transaction: on SQLite nobody else writes meanwhile."""
PASSES = 10
"""Who goes on enqueueing into the scope all the time is not waited for: that is what `hold` is for."""
LOOK_AT = 1000
"""Running jobs that one look while waiting asks about."""
SOONEST, LATEST = 0.02, 0.25

Watch = Callable[[StopReport], None]


def ignore(report: StopReport) -> None:
    """Who watches the wait."""


@dataclass
class Stop:
    """One stop, from its call to its report."""

    store: JobStore
    request: StopRequest
    known: Mapping[str, str]
    """Every task, with its own queue."""
    counts: dict[str, dict[State, int]] = field(default_factory=dict)
    running: dict[str, str] = field(default_factory=dict)
    """The tasks of flagged jobs, by their ids."""
    left: list[str] = field(default_factory=list)
    """The ids of flagged jobs that still run."""

    def begin(self) -> Self:
        """All but the wait."""
        if self.request.dry_run:
            self._look()
        else:
            self._act()
        return self

    def _look(self) -> None:
        """What it would do; nothing is changed."""
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
            # The hold first: what comes in before it is found by the passes, what comes after is refused.
            self.store.stop_group(
                scope.group, requested.hold, requested.actor, requested.reason, scope, requested.mode
            )
        for _ in range(PASSES):
            if not self._pass():
                break
        self.left = list(self.running)
        self._notify()

    def pauses(self, watch: Watch = ignore) -> Iterator[float]:
        """Until those that were flagged have ended, or the time is over: how long to sleep before the next look. Who
        goes through them sleeps in its own way, with a thread or without."""
        if self.request.dry_run or self.request.mode == "immediate":
            return
        poll = Poll(SOONEST, LATEST, time.monotonic, self.request.longest)
        self._look_at_running()
        while self.left and (pause := poll.pause()) is not None:
            watch(self.report())
            yield pause
            self._look_at_running()
        self.left = [job for batch in _batches(self.left) for job in self.store.still_running(batch)]
        # One that was to be paused is at rest now, and still in the scope.
        ended = self.running.keys() - set(self.left)
        for batch in _batches(sorted(ended)):
            self._count(self._stop(batch))
        self._notify()

    def wait(self, watch: Watch = ignore) -> StopReport:
        for pause in self.pauses(watch):
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
        """The tasks that the stop does not affect: those outside the scope, if it names tasks; none for a stop of a
        group or of everything; else those of other queues of which the stop met no job."""
        scope, known = self.request.scope, self.known
        if scope.tasks is not None:
            return sorted(known.keys() - set(scope.tasks))
        if scope.everything or scope.whole_group:
            return []
        met = {*self.counts, *self.running.values()}
        return sorted(task for task, queue in known.items() if task not in met and queue != scope.queue)

    def _pass(self) -> bool:
        """Whether it found anything. A run that ended before its turn was found too: its follow-ups are not yet."""
        found = False
        for running in (True, False):
            for jobs in self._pages(running):
                wanted = [job.id for job in jobs if job.id not in self.running]
                found = found or bool(wanted)
                for batch in _batches(wanted):
                    self._count(self._stop(batch))
        return found

    def _stop(self, ids: Sequence[str]) -> Sequence[StoppedJob]:
        """Those that run are told at once, not when the last of the others is done."""
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

    def _look_at_running(self) -> None:
        """One bounded read: of very many, the first are asked about until they have ended."""
        first, rest = self.left[:LOOK_AT], self.left[LOOK_AT:]
        if first:
            self.left = [*self.store.still_running(first), *rest]

    def _notify(self) -> None:
        """Whoever watches a group hears of it; workers look for lanes that were freed."""
        self.store.notify_watchers()
        self.store.notify_workers()


def _batches(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    return (ids[start : start + BATCH] for start in range(0, len(ids), BATCH))

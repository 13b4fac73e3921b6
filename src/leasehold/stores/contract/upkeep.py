"""What is read and kept in order around the jobs: lists, pruning, workers, vitals, the schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from leasehold.domain.flow import Tie
from leasehold.domain.job import Job, NewJob
from leasehold.domain.leases import LeasePage
from leasehold.domain.retention import Ages, Retention
from leasehold.domain.search import Found, Search
from leasehold.domain.states import State
from leasehold.domain.views import (
    ALL,
    AttemptRecord,
    ExecutionRow,
    Filter,
    Finding,
    HistoryEntry,
    LaneHolder,
    Page,
    ParentResult,
    QueueCount,
    Relation,
    Relative,
    StepRecord,
    WorkerCard,
)
from leasehold.stores.answers import (
    Failed,
    Pruned,
)
from leasehold.stores.contract.wakeups import Wakeups


class Inspect(Protocol):
    """Jobs as a reader sees them."""

    def get(self, job_id: str) -> Job:
        """Raises JobNotFound."""
        ...

    def whole_names(self, names: Sequence[str]) -> dict[str, str]:
        """What these names are whole that were kept short; others are left out."""
        ...

    def list_jobs(self, filter: Filter = ALL, limit: int = 50, before: str | None = None) -> Page:
        """Newest first; `before` is the last page's `next`."""
        ...

    def search_jobs(self, search: Search, limit: int = 50, before: str | None = None) -> Found:
        """Newest first. A text is looked for in at most 10,000 of the jobs that the rest of the search finds, and never
        in sensitive arguments. `before` is the last page's `next`."""
        ...

    def find_failures(self, filter: Filter, limit: int = 1000, before: str | None = None) -> Failed:
        """Failed and timed-out jobs, newest first, with the beginning of their errors. The filter names the states."""
        ...

    def find_ids(self, prefix: str, limit: int = 6) -> list[str]:
        """Ids of jobs that begin so, in order."""
        ...

    def short_ids(self, ids: Sequence[str]) -> dict[str, str]:
        """As much of each id as no other job's id begins with, and at least its time."""
        ...

    def count(self, cap: int = 10_000) -> dict[State, int]:
        """Jobs by state, each counted up to `cap`."""
        ...

    def history(self, job_id: str) -> list[HistoryEntry]: ...

    def attempts(self, job_id: str) -> list[AttemptRecord]:
        """The job's runs, oldest first, the one that is under way or that ended it included."""
        ...

    def steps(self, job_id: str) -> list[StepRecord]:
        """What its runs have kept, in that order."""
        ...

    def last_actor(self, job_id: str, events: Sequence[str]) -> str | None:
        """Who did the last of these, by the job's history."""
        ...

    def count_ahead(self, job: Job, cap: int = 1000) -> int:
        """How many due jobs a claim from its queue would take before this one, or how many are before it in its lane.
        Of each kind of jobs the first `cap` are looked at."""
        ...

    def relatives(self, job_id: str, limit: int = 500) -> list[Relative]:
        """What it waits for (unmet first), who waits for it, whose follow-up it is, which follow-ups it has."""
        ...

    def count_relatives(self, job_id: str) -> dict[Relation, int]:
        """How many relatives of each kind it has."""
        ...

    def ties(self, ids: Sequence[str], limit: int = 1000) -> list[Tie]:
        """Who waits for whom and who has asked for whom, of all ties that one of these jobs has: `limit` of each kind
        to jobs that come before them, and as many to jobs that come after."""
        ...

    def parent_results(self, job_id: str) -> list[ParentResult]:
        """Of those it has waited for and that have succeeded, in the order of `after`."""
        ...

    def list_leases(self, owner: str | None = None, limit: int = 50, cursor: str | None = None) -> LeasePage:
        """Who runs what, in the order in which the jobs came; `cursor` is the last page's `next`."""
        ...

    def list_executions(self, limit: int = 500) -> list[ExecutionRow]:
        """What runs outside of the workers, watched or orphaned; the oldest first."""
        ...

    def list_lanes(self, limit: int = 500) -> list[LaneHolder]:
        """Lanes that are held or stand still, and by which job."""
        ...

    def list_gates(self) -> list[tuple[str, str]]:
        """Every (queue, kind) that jobs were ever made for."""
        ...

    def lane_front(self, lane: str) -> tuple[str | None, str | None]:
        """The job that is first in the lane, and the one that blocks it."""
        ...


class Prune(Protocol):
    """Old jobs go."""

    def prune(
        self,
        keep: float | Retention,
        limit: int = 1000,
        after: str | None = None,
        *,
        unique_for_ever: bool = False,
        dry_run: bool = False,
    ) -> Pruned:
        """Look at the next `limit` jobs in the order in which they came, and delete those that ended longer ago than
        they are to be kept. Never what halts a lane, belongs to a group that still lives, or is awaited by a job that
        has not ended for good; what holds a unique key for good only with `unique_for_ever`, and then its key is free.
        A group goes with the last of its jobs, unless it is on hold or has a limit. With `dry_run` nothing goes."""
        ...

    def prune_groups(self, limit: int = 1000, after: str | None = None, *, dry_run: bool = False) -> Pruned:
        """Look at the next `limit` groups by name, and delete those without a job, with their budgets and limits.
        Never one that is on hold."""
        ...

    def set_retention(self, rules: Mapping[str, Ages]) -> None:
        """How long jobs of these kinds are kept, as their code says; an empty rule takes a kind's away. For everybody
        who prunes this store."""
        ...

    def retention(self) -> dict[str, dict[State, float | None]]:
        """Those rules, by kind."""
        ...


class Results(Protocol):
    """Results that are files: in a folder that was named when the store was opened, on SQLite else beside its file."""

    @property
    def results_folder(self) -> str | None:
        """None: there is none, and a result must fit its row."""
        ...

    def check_results(self, needed: bool) -> None:
        """Raises InvalidInput, with the remedy, when there is no folder though one is needed, or when the one that was
        named cannot be written to."""
        ...

    def file_result(self, job_id: str, token: int, text: str) -> str:
        """Keep a result (encoded JSON) as a file of this lease; its name, to be settled with the success. It is whole
        and on the disk when the call returns, and no other lease can write it."""
        ...

    def read_result(self, job_id: str, reference: str) -> str:
        """What `file_result` has kept. Raises ResultMissing."""
        ...

    def sweep_results(self, age: float = 86_400.0, part: int | None = None) -> int:
        """Remove the files older than `age` seconds that no outcome names and no run under way may still settle: of
        runs that lost their lease or died, and of jobs that are gone. Of one part of the 256, or of all; how many
        went."""
        ...


class Workers(Protocol):
    """Who is there, and how they hear of work."""

    def beat_worker(self, card: WorkerCard) -> None:
        """A worker tells of itself. Nothing is decided by it."""
        ...

    def forget_worker(self, owner: str) -> None: ...

    def forget_silent_workers(self, age: float = 3600.0) -> None: ...

    def list_workers(self, age: float = 45.0, tenant: str | None = None) -> list[WorkerCard]:
        """Those who were heard of in the last `age` seconds, and serve this store; or this tenant of it."""
        ...

    def wake(self) -> None:
        """Tell waiting workers, in any process, that there may be work."""
        ...

    def tell_holders(self) -> None:
        """Tell those who hold leases, in any process, that one of them may carry a flag by now."""
        ...

    def wakeups(self, listen_url: str | None = None) -> Wakeups:
        """The waiting side of `wake` and `tell_holders`."""
        ...

    def near_wakeups(self) -> Wakeups:
        """The same for hints from this process alone, without a connection or a thread."""
        ...


class Vitals(Protocol):
    """What tells whether the store is well."""

    def now(self) -> datetime:
        """The store's own clock."""
        ...

    def count_by_queue(self, cap: int = 10_000) -> list[QueueCount]:
        """Jobs by queue, task and state, each state read up to `cap`. Final states are left out."""
        ...

    def stuck_lanes(self, limit: int = 20) -> list[str]:
        """Lanes that nothing blocks, whose head is due, and that no ticket speaks for. There must be none."""
        ...

    def stuck_children(self, limit: int = 20) -> list[str]:
        """Jobs that wait for others, none of whom can still end. There must be none."""
        ...

    def misplaced(self, limit: int = 20) -> list[str]:
        """Jobs that are in no place or in two, and groups that miscount their jobs, in words. There must be none."""
        ...

    def long_expired(self, age: float, limit: int = 20) -> list[str]:
        """Jobs whose lease ran out longer ago than `age` seconds, and that nobody has taken over."""
        ...

    def missing_objects(self) -> list[str]:
        """Tables, indexes and constraints that the schema should have and has not."""
        ...

    def examine(self) -> list[Finding]:
        """What this kind of database can have wrong with it."""
        ...


class Schema(Protocol):
    """The store itself: made, upgraded, removed, closed."""

    def upgrade_sql(self, after: int = 0) -> str:
        """The migrations that follow a version, as one script for somebody else to run."""
        ...

    def insert_sql(self, job: NewJob) -> str:
        """What stores such a plain job, as SQL for other languages: id and arguments are left as parameters. Only the
        job's task, queue, priority, policy and lease are looked at."""
        ...

    def upgrade(self) -> list[int]:
        """Apply the missing migrations under a lock; the versions that were applied."""
        ...

    def drop(self) -> None:
        """Remove the whole store with all it holds. For scratch stores; a SQLite file is removed by its owner."""
        ...

    def check_schema(self) -> None:
        """Raises SchemaOutdated or SchemaTooNew."""
        ...

    def schema_version(self) -> int:
        """The number of the last migration; 0: there is no schema yet."""
        ...

    @property
    def label(self) -> str: ...

    def close(self) -> None: ...

"""Bulk verbs: requests, reports and the states each verb applies to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from leasehold.domain.checks.ids import checked_id
from leasehold.domain.checks.texts import checked_actor
from leasehold.domain.errors import InvalidInput, InvalidState, JobNotFound, LeaseholdError, error_code
from leasehold.domain.frozen import frozen, shown
from leasehold.domain.records import ALL, Criteria, Filter
from leasehold.domain.search import Search
from leasehold.domain.states import State

SAMPLE = 20
"""Most ids that a report names."""
USUAL_LIMIT = 10_000
LARGEST_LIMIT = 1_000_000

RESUMABLE = (State.PAUSED, State.FAILED, State.TIMED_OUT)
BULK_STATES: dict[str, tuple[State, ...]] = {}
"""By verb, the states that a filter without states selects. Every verb declared with `bulk=` adds itself."""


@frozen
class BulkArguments:
    """The arguments of a verb on one job, as a bulk call passes them."""

    required: Mapping[str, bool]
    """Whether each argument is required, by name."""
    check: Callable[[str, object], object]
    """Raises InvalidInput for a wrong value of the argument with this name."""


ARGUMENTS: dict[str, BulkArguments] = {}
"""Arguments by verb. Every verb declared with `bulk=` adds itself."""


class BulkOptions(Criteria, total=False):
    """The keywords of `app.bulk`'s verbs: which jobs, and how."""

    state: State | str | Iterable[State | str]
    everything: bool
    dry_run: bool
    limit: int
    cursor: str | None
    actor: str | None


@frozen
class BulkRefusal:
    """Jobs that were refused with the same error."""

    error: str
    """The name of the error, one of `leasehold.errors`."""
    state: str | None
    """The state of the job, if the state was the reason."""
    detail: str
    """The text of the first job's error."""
    jobs: int
    sample: tuple[str, ...]
    """The ids of the first refused jobs."""

    @shown
    def code(self) -> str:
        """The error's code, as in problems over HTTP."""
        return error_code(self.error)


@frozen(kw_only=True)
class BulkReport:
    """What a bulk verb has done, or with `dry_run` would do."""

    verb: str
    dry_run: bool
    matched: int
    """How many jobs the filter found. If the limit was reached there may be more; see `next`."""
    changed: int
    moved_on: int
    """Jobs that were in another state, or gone, when the verb reached them. This is normal."""
    refused: tuple[BulkRefusal, ...]
    sample: tuple[str, ...]
    """The ids of the first jobs found, newest first."""
    next: str | None
    """The `cursor` to go on from, if the verb stopped at its limit."""


@frozen(kw_only=True)
class BulkRequest:
    """A bulk request as the caller made it. Building one checks it, and raises on a wrong value."""

    verb: str
    filter: Filter
    everything: bool = False
    """Confirms an empty filter, which would match every job."""
    dry_run: bool = False
    limit: int = USUAL_LIMIT
    cursor: str | None = None
    actor: str | None = None
    own: Mapping[str, object] = field(default_factory=dict)
    """The verb's own arguments, by name. None counts as not given."""
    text: str | None = None
    """Text to find in arguments or error, as in `Search`; so are the next three fields."""
    since: datetime | None = None
    until: datetime | None = None
    id_prefix: str | None = None

    def __post_init__(self) -> None:
        if self.verb not in BULK_STATES:
            known = ", ".join(BULK_STATES)
            raise InvalidInput("verb", f"{self.verb!r} is not a verb for many jobs", f"known: {known}")
        if self.filter == ALL and self.search is None and not self.everything:
            raise InvalidInput(
                "filter", "is empty", "give a queue, task, lane, group, tag or state, or everything=True"
            )
        if isinstance(self.limit, bool) or not isinstance(self.limit, int):
            raise InvalidInput("limit", f"{self.limit!r} is not a number", "give a whole number")
        if not 1 <= self.limit <= LARGEST_LIMIT:
            raise InvalidInput("limit", f"{self.limit} is out of range", f"give 1 to {LARGEST_LIMIT:,}")
        verb, given = ARGUMENTS[self.verb], self._given
        for name, value in given.items():
            if name not in verb.required:
                raise InvalidInput(name, f"is not used by a bulk {self.verb}", "leave it out")
            verb.check(name, value)
        missing = [name for name, required in verb.required.items() if required and name not in given]
        if missing and not self.dry_run:
            raise InvalidInput(missing[0], "is missing", f"{self.verb} needs it")
        checked_actor(self.actor)
        if self.cursor is not None:
            checked_id(self.cursor, "cursor")

    @property
    def found_by(self) -> Filter:
        """The filter; if it names no states, with the states that the verb applies to."""
        return replace(self.filter, states=self.filter.states or BULK_STATES[self.verb])

    @property
    def search(self) -> Search | None:
        """The search, or None if the filter alone is enough."""
        search = Search(self.found_by, self.text, self.since, self.until, self.id_prefix)
        return None if search == Search(self.found_by) else search

    @property
    def arguments(self) -> dict[str, object]:
        """The keywords passed to the verb for each job."""
        return {"actor": self.actor, **self._given}

    @property
    def _given(self) -> dict[str, object]:
        return {name: value for name, value in self.own.items() if value is not None}


@dataclass
class BulkTally:
    """Collects the results of a bulk verb into a report."""

    request: BulkRequest
    matched: int = 0
    changed: int = 0
    moved_on: int = 0
    sample: list[str] = field(default_factory=list)
    refused: dict[tuple[str, str | None], BulkRefusal] = field(default_factory=dict)

    def find(self, job_id: str) -> None:
        self.matched += 1
        if len(self.sample) < SAMPLE:
            self.sample.append(job_id)

    def refuse(self, job_id: str, error: LeaseholdError) -> None:
        if has_moved_on(error, self.request.found_by):
            self.moved_on += 1
            return
        state = error.state if isinstance(error, InvalidState) else None
        key = (type(error).__name__, state)
        so_far = self.refused.get(key) or BulkRefusal(*key, str(error), 0, ())
        sample = so_far.sample if len(so_far.sample) == SAMPLE else (*so_far.sample, job_id)
        self.refused[key] = replace(so_far, jobs=so_far.jobs + 1, sample=sample)

    def add(self, part: BulkReport) -> None:
        """Add the report of a part of the request."""
        self.matched += part.matched
        self.changed += part.changed
        self.moved_on += part.moved_on
        self.sample = [*self.sample, *part.sample][:SAMPLE]
        for one in part.refused:
            before = self.refused.get((one.error, one.state)) or replace(one, jobs=0, sample=())
            sample = (before.sample + one.sample)[:SAMPLE]
            self.refused[one.error, one.state] = replace(before, jobs=before.jobs + one.jobs, sample=sample)

    def report(self, more: str | None) -> BulkReport:
        return BulkReport(
            verb=self.request.verb,
            dry_run=self.request.dry_run,
            matched=self.matched,
            changed=self.changed,
            moved_on=self.moved_on,
            refused=tuple(sorted(self.refused.values(), key=lambda one: -one.jobs)),
            sample=tuple(self.sample),
            next=more,
        )


def has_moved_on(error: LeaseholdError, found_by: Filter) -> bool:
    """Return whether the job has changed state, or was pruned, since the filter found it."""
    if isinstance(error, InvalidState):
        return error.state not in found_by.states
    return isinstance(error, JobNotFound)

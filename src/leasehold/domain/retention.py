"""How long jobs that have ended are kept: by state, and for some tasks by a rule of their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from leasehold.domain.checks.durations import Duration, seconds
from leasehold.domain.errors import InvalidInput
from leasehold.domain.frozen import frozen
from leasehold.domain.states import State

ENDED = (State.SUCCEEDED, State.CANCELLED, State.FAILED, State.TIMED_OUT)
Ages = Mapping[State, float | None]
"""Seconds, by the state that a job has ended in; None: for ever."""
Keep = Duration | None | Mapping[str, Duration | None]
"""As people say it: one age for all states, None for ever, or by state."""


def ages_of(keep: Keep, field: str, otherwise: Ages | None = None) -> dict[State, float | None]:
    """By state. States that are not named are kept as `otherwise` says; without it they are left out."""
    if not isinstance(keep, Mapping):
        age = None if keep is None else seconds(keep, field)
        return dict.fromkeys(ENDED, age)
    ages = dict(otherwise or {})
    for name, value in keep.items():
        if name not in ENDED:
            known = ", ".join(ENDED)
            raise InvalidInput(field, f"{name!r} is not a state that a job ends in", f"use {known}")
        ages[State(name)] = None if value is None else seconds(value, f"{field}[{name!r}]")
    return ages


@frozen
class Retention:
    """What one look of a pruner goes by."""

    ages: Ages
    """Of tasks that say nothing."""
    by_kind: Mapping[str, Ages] = field(default_factory=dict)
    """Of tasks with a rule of their own; what that leaves out is as above."""

    @staticmethod
    def after(age: float) -> Retention:
        return Retention(dict.fromkeys(ENDED, age))

    def is_over(self, kind: str, state: State, age: float) -> bool:
        """Whether such a job, which has ended so many seconds ago, may go."""
        own = self.by_kind.get(kind)
        limit = own[state] if own is not None and state in own else self.ages.get(state)
        return limit is not None and age > limit

    @property
    def youngest(self) -> float | None:
        """Nothing that came less than so many seconds ago is old enough; None: nothing ever is."""
        every = [self.ages, *self.by_kind.values()]
        return min((age for ages in every for age in ages.values() if age is not None), default=None)


@frozen
class PruneChoice:
    """How somebody prunes by hand."""

    dry_run: bool = False
    override: bool = False
    """What tasks say of their own jobs does not count."""
    unique_for_ever: bool = False
    """Also what holds a unique key for good; the key is free then."""
    budgets: bool = False
    """Also groups that have a limit, once they have no job."""


@frozen
class PruneCount:
    """How many jobs of one task and state were pruned."""

    kind: str
    state: State
    jobs: int


@frozen
class PruneReport:
    """What has gone, or with `dry_run` what would go."""

    jobs: int
    groups: int
    """Of which no job is left."""
    counts: tuple[PruneCount, ...]
    """The jobs, by task and state."""
    dry_run: bool = False

    def __str__(self) -> str:
        verb = "would be deleted" if self.dry_run else "deleted"
        groups = f", {self.groups:,} empty groups" if self.groups else ""
        return f"{self.jobs:,} job{'' if self.jobs == 1 else 's'} {verb}{groups}"

"""Retention: how long ended jobs are kept, by state and by task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from leasehold.domain.checks.times import Duration, seconds
from leasehold.domain.errors import InvalidInput
from leasehold.domain.frozen import frozen
from leasehold.domain.states import ENDED, State

Ages = Mapping[State, float | None]
"""Seconds by the state that a job ended in; None: for ever."""
Keep = Duration | None | Mapping[str, Duration | None]
"""The form users write: one age for all states, None for ever, or ages by state."""


def retention_by_state(keep: Keep, field: str, otherwise: Ages | None = None) -> dict[State, float | None]:
    """Return ages by state. States that are not named get the age of `otherwise`; without it they are left out."""
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
    """The rules that a pruner applies."""

    ages: Ages
    """Ages for tasks without their own rule."""
    by_task: Mapping[str, Ages] = field(default_factory=dict)
    """Ages for tasks with their own rule; states that the rule leaves out use `ages`."""

    @staticmethod
    def after(age: float) -> Retention:
        return Retention(dict.fromkeys(ENDED, age))

    def is_over(self, task: str, state: State, age: float) -> bool:
        """Return whether a job that ended this many seconds ago may be pruned."""
        own = self.by_task.get(task)
        limit = own[state] if own is not None and state in own else self.ages.get(state)
        return limit is not None and age > limit

    @property
    def youngest(self) -> float | None:
        """The lowest age of all rules in seconds: no younger job can be pruned. None: nothing is ever pruned."""
        every = [self.ages, *self.by_task.values()]
        return min((age for ages in every for age in ages.values() if age is not None), default=None)


@frozen
class PruneChoice:
    """The options of pruning by hand."""

    dry_run: bool = False
    override: bool = False
    """Ignore the rules of tasks."""
    unique_for_ever: bool = False
    """Also prune jobs that hold a unique key for ever; the key becomes free."""
    budgets: bool = False
    """Also prune groups that have a limit, once they have no job."""


@frozen
class PruneCount:
    """How many jobs of one task and state were pruned."""

    task: str
    state: State
    jobs: int


@frozen
class PruneReport:
    """What was pruned, or with `dry_run` what would be."""

    jobs: int
    groups: int
    """Groups without any job left."""
    counts: tuple[PruneCount, ...]
    """The jobs by task and state."""
    dry_run: bool = False

    def __str__(self) -> str:
        verb = "would be deleted" if self.dry_run else "deleted"
        groups = f", {self.groups:,} empty groups" if self.groups else ""
        return f"{self.jobs:,} job{'' if self.jobs == 1 else 's'} {verb}{groups}"

"""Chains and DAGs: several calls that wait for each other, stored in one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from typing import Any, Generic

from leasehold.domain.checks.names import checked_name
from leasehold.domain.errors import DependencyCycle, InvalidInput
from leasehold.domain.frozen import frozen
from leasehold.domain.job import NewJob, OnParentFailure
from leasehold.tasks.blueprint import After, checked_parents
from leasehold.tasks.call import Bindable, J, Producer
from leasehold.tasks.settings import checked_on_parent_failure
from leasehold.threads import to_thread


class Chain(Generic[J]):
    """Calls that run one after the other, each when the one before it has succeeded. If one ends without success, those
    after it are cancelled, with the reason."""

    def __init__(self, calls: Sequence[Bindable[[], Any]], producer: Producer[J]) -> None:
        if not calls:
            raise InvalidInput("chain", "has no calls", "give it at least one task")
        self._jobs: list[NewJob] = []
        for call in calls:
            job = _job_of(call, producer)
            before = tuple(one.id for one in self._jobs[-1:])
            self._jobs.append(replace(job, after=(*before, *job.after)))
        self._producer = producer

    def enqueue(self) -> list[J]:
        """Store all jobs or none, and return them in order. A second call returns the jobs of the first."""
        return list(self._producer.enqueue(self._jobs))

    async def aenqueue(self) -> list[J]:
        return await to_thread(self.enqueue)


@frozen
class _Node:
    job: NewJob
    within: tuple[str, ...]
    """Names of parent nodes."""


class Dag(Generic[J]):
    """Calls that wait for each other by name, in any order that has no circle.

    flow = app.dag()
    flow.add("load", load.bind(day))
    flow.add("clean", clean, after=["load"])
    flow.add("report", report, after=["load", "clean"])
    jobs = flow.enqueue()             # {"load": <Job …>, …}
    """

    def __init__(self, producer: Producer[J]) -> None:
        self._producer = producer
        self._nodes: dict[str, _Node] = {}

    def add(
        self,
        name: str,
        call: Bindable[[], Any],
        *,
        after: Iterable[After] = (),
        on_parent_failure: OnParentFailure | None = None,
    ) -> str:
        """Add a node. `after` names other nodes, which may be added later, or gives jobs that exist already. Returns
        the name."""
        checked_name(name, "name")
        if name in self._nodes:
            raise InvalidInput("name", f"{name!r} is taken", "give every node a name of its own")
        if isinstance(after, str):
            raise InvalidInput("after", f"{after!r} is text", "give a list of names")
        wanted = list(after)
        within = tuple(one for one in wanted if isinstance(one, str))
        others = checked_parents([one for one in wanted if not isinstance(one, str)])
        job = _job_of(call, self._producer)
        if on_parent_failure is not None:
            job = replace(job, on_parent_failure=checked_on_parent_failure(on_parent_failure))
        self._nodes[name] = _Node(replace(job, after=(*others, *job.after)), within)
        return name

    def enqueue(self) -> dict[str, J]:
        """Store all nodes or none, and return the jobs by name. Raises DependencyCycle, which names the cycle. A second
        call returns the jobs of the first."""
        ids = {name: node.job.id for name, node in self._nodes.items()}
        order = _sorted({name: node.within for name, node in self._nodes.items()})
        jobs = [_tied(self._nodes[name], ids) for name in order]
        made = dict(zip(order, self._producer.enqueue(jobs), strict=True)) if jobs else {}
        return {name: made[name] for name in self._nodes}

    async def aenqueue(self) -> dict[str, J]:
        return await to_thread(self.enqueue)


def _job_of(call: Bindable[[], Any], producer: Producer[Any]) -> NewJob:
    """Build the job of a node. All are stored in one transaction, so all must be in one store."""
    plan = call.bind().__plan__
    plan.call.refuse_tx(
        "the jobs of a chain or DAG wait for each other",
        "enqueue it after the commit, or its first job alone",
    )
    if plan.producer.tenant not in (None, producer.tenant):
        name = plan.producer.tenant
        raise InvalidInput(
            "tenant",
            f"{name!r} has a store of its own, and jobs that wait for each other are stored together",
            f"leave it out, and begin with app.tenant({name!r})",
        )
    return plan.new_job()


def _sorted(parents: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Sort the nodes, parents first."""
    for name, wanted in parents.items():
        for parent in wanted:
            if parent not in parents:
                known = ", ".join(sorted(parents))
                raise InvalidInput(
                    "after", f"{name!r} waits for {parent!r}, which is not a node", f"known: {known}"
                )
    try:
        return list(TopologicalSorter(parents).static_order())
    except CycleError as error:
        # CycleError lists each node before those that wait for it; the message's arrow means "waits for".
        raise DependencyCycle(error.args[1][::-1]) from None


def _tied(node: _Node, ids: Mapping[str, str]) -> NewJob:
    return replace(node.job, after=(*(ids[name] for name in node.within), *node.job.after))

"""Calls: a task together with its arguments and settings, not enqueued yet; chains and DAGs of calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from typing import Any, Generic, ParamSpec, Protocol, TypeVar

from leasehold.domain.checks.texts import checked_name
from leasehold.domain.errors import DependencyCycle, InvalidInput
from leasehold.domain.frozen import frozen
from leasehold.domain.job import NewJob, OnParentFailure
from leasehold.tasks.blueprint import After, Blueprint, HasId, checked_parents
from leasehold.tasks.definition import TaskDefinition
from leasehold.tasks.settings import CallSettings, TaskSettings, checked_on_parent_failure
from leasehold.threads import to_thread

P = ParamSpec("P")
J = TypeVar("J", bound=HasId)
"""The handle of a stored job, which enqueueing returns."""
J_co = TypeVar("J_co", bound=HasId, covariant=True)


class Producer(Protocol[J_co]):
    """Stores new jobs, and returns handles of them."""

    @property
    def tenant(self) -> str | None:
        """The tenant whose store it is; None: the app's own."""

    def of_tenant(self, name: str | None) -> Producer[J_co]:
        """Return the producer of another tenant."""

    def enqueue(self, jobs: Sequence[NewJob]) -> Sequence[J_co]:
        """Store all jobs or none, in the order given."""

    def enqueue_pieces(self, pieces: Iterable[Sequence[NewJob]]) -> Sequence[J_co]:
        """Store piece by piece, each piece all or none. Raises PartlyStored for an error after the first piece."""

    def enqueue_within(self, tx: Any, pieces: Iterable[Sequence[NewJob]]) -> Sequence[J_co]:
        """Store the jobs over a connection of the caller, inside its open transaction."""

    async def aenqueue_within(self, tx: Any, pieces: Iterable[Sequence[NewJob]]) -> Sequence[J_co]: ...

    def traced(self, job: NewJob) -> NewJob:
        """Add the present trace, if there is one, to a job that another transaction will store."""

    def run_now(self, job: NewJob, max_running: int) -> J_co:
        """Start the job in this process, unless `max_running` jobs of its task run already."""


class Bindable(Protocol[P, J]):
    """A task, or a task with its arguments."""

    def bind(self, *args: P.args, **kwargs: P.kwargs) -> Call[J]:
        """Return the call with these arguments, to be made later."""


@frozen
class Plan(Generic[J]):
    """Everything needed to make the job of a call, and to store it."""

    definition: TaskDefinition
    settings: TaskSettings
    call: CallSettings
    arguments: Mapping[str, Any]
    producer: Producer[J]

    def new_job(self, **changes: Any) -> NewJob:
        """Build the job to store; raises on wrong arguments."""
        if self.call.key is not None and "follow_up_of" not in changes:
            raise InvalidInput(
                "key", "names a follow-up", "leave it out, or ask for the job with ctx.enqueue"
            )
        (job,) = Blueprint(self.definition, self.settings, self.call).make([self.arguments])
        return replace(job, **changes) if changes else job

    def store(self, job: NewJob) -> J:
        if self.call.tx is not None:
            return self.producer.enqueue_within(self.call.tx, [[job]])[0]
        return self.producer.enqueue([job])[0]


class Call(Generic[J]):
    """A task bound to its arguments, to be enqueued later: alone, in a chain, in a DAG, or as a follow-up."""

    def __init__(self, plan: Plan[J]) -> None:
        self.__plan__ = plan
        """For chains, DAGs and follow-ups, which make the job and store it themselves."""

    def __repr__(self) -> str:
        return f"<Call {self.name}>"

    @property
    def name(self) -> str:
        """The name of its task."""
        return self.__plan__.definition.name

    def bind(self) -> Call[J]:
        """Return this call, so that code that takes a task without arguments also takes a call."""
        return self

    def enqueue(self) -> J:
        """Store a job; it is durable when this returns."""
        return self.__plan__.store(self.__plan__.new_job())

    async def aenqueue(self) -> J:
        plan = self.__plan__
        if plan.call.tx is None:
            return await to_thread(self.enqueue)
        return (await plan.producer.aenqueue_within(plan.call.tx, [[plan.new_job()]]))[0]


# -- chains and DAGs ---------------------------------------------------------------------------------------------------


class Chain(Generic[J]):
    """Calls that run one after the other, each when the previous one has succeeded. If a call ends without
    success, all later calls are cancelled, with the reason."""

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
    """Calls that wait for each other by name, in any order without a cycle.

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
    """Build the job of a node. All nodes are stored in one transaction, so all must be in one store."""
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

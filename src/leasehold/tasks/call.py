"""Calls: a task together with its arguments and settings, not enqueued yet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, ParamSpec, Protocol, TypeVar

from leasehold.domain.errors import InvalidInput
from leasehold.domain.frozen import frozen
from leasehold.domain.job import NewJob
from leasehold.tasks.blueprint import Blueprint, HasId
from leasehold.tasks.definition import TaskDefinition
from leasehold.tasks.settings import CallSettings, TaskSettings
from leasehold.threads import to_thread

P = ParamSpec("P")
J = TypeVar("J", bound=HasId)
"""What enqueueing returns: the handle of the stored job."""
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
        """Store piece by piece, each of them all or none. Raises PartlyStored for an error after the first piece."""

    def enqueue_within(self, tx: Any, pieces: Iterable[Sequence[NewJob]]) -> Sequence[J_co]:
        """Store over a connection of the caller, inside its open transaction."""

    async def aenqueue_within(self, tx: Any, pieces: Iterable[Sequence[NewJob]]) -> Sequence[J_co]: ...

    def traced(self, job: NewJob) -> NewJob:
        """Add the present trace, if there is one, to a job that another transaction will store."""

    def run_now(self, job: NewJob, max_running: int) -> J_co:
        """Start the job in this process, unless this many run already."""


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
    """What `task.bind(…)` returns: to be enqueued later, alone, in a chain, in a DAG, or as a follow-up."""

    def __init__(self, plan: Plan[J]) -> None:
        self.__plan__ = plan
        """Used by chains, DAGs and follow-ups, which make its job and store it themselves."""

    def __repr__(self) -> str:
        return f"<Call {self.name}>"

    @property
    def name(self) -> str:
        """The name of its task."""
        return self.__plan__.definition.name

    def bind(self) -> Call[J]:
        """Return itself, so that what takes a task without arguments takes a call too."""
        return self

    def enqueue(self) -> J:
        """Store a job; it is durable when this returns."""
        return self.__plan__.store(self.__plan__.new_job())

    async def aenqueue(self) -> J:
        plan = self.__plan__
        if plan.call.tx is None:
            return await to_thread(self.enqueue)
        return (await plan.producer.aenqueue_within(plan.call.tx, [[plan.new_job()]]))[0]

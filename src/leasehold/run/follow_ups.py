"""Follow-ups: jobs that a handler enqueues with `ctx.enqueue`, kept until its success is settled.

With `immediately=True` a follow-up is stored at once, under an id made from the parent and a name, so that a second
attempt of the parent finds the job that the first one made.
"""

from __future__ import annotations

import hashlib
import uuid
from collections import Counter
from collections.abc import Generator
from typing import Any, Generic

from leasehold.domain.checks.ids import make_id
from leasehold.domain.checks.payload import check_text
from leasehold.domain.errors import InvalidInput
from leasehold.domain.job import Grant, NewJob, check_size
from leasehold.tasks.call import Call, J
from leasehold.threads import to_thread


class FollowUp(Generic[J]):
    """A job that will exist when this attempt has succeeded; its `id` is already known. Given as `after=` it makes
    another follow-up wait for it. With `immediately=True` it is stored when awaited (in a plain handler: at once)."""

    def __init__(self, parent: Grant, call: Call[J], earlier: FollowUps) -> None:
        plan, settings = call.__plan__, call.__plan__.call
        settings.refuse_tx(
            "a follow-up is stored with its run's success",
            "leave it out, or call task.using(tx=…).enqueue(…)",
        )
        if plan.producer.tenant not in (None, parent.tenant):
            raise InvalidInput(
                "tenant",
                f"a follow-up is stored with its parent's success, and {plan.producer.tenant!r} has a store of its own",
                "leave it out, or call enqueue of the task itself",
            )
        # A follow-up belongs to the same group as its parent, unless it names another.
        family = {"follow_up_of": parent.id, "group": settings.group or parent.group}
        self.immediately = settings.immediately
        self._tried = False
        self._found: str | None = None
        if self.immediately:
            named = None if settings.key is None else check_text(settings.key, "key")
            name = f"number {earlier.number(call.name)}" if named is None else f"key {named}"
            self._job = plan.new_job(id=derived_id(parent.id, call.name, name), **family)
        else:
            if settings.key is not None:
                raise InvalidInput(
                    "key", "names a follow-up that is stored at once", "use it together with immediately=True"
                )
            self._job = plan.producer.traced(plan.new_job(**family))
        self._producer = plan.producer.of_tenant(parent.tenant)

    def __repr__(self) -> str:
        return f"<FollowUp {self._job.task} {self.id}>"

    def __await__(self) -> Generator[Any, None, J]:
        if not self.immediately:
            raise InvalidInput(
                "immediately", "is not set: the job is stored with the success", "do not await it"
            )
        return to_thread(self.store).__await__()

    @property
    def id(self) -> str:
        """The id of the new job; once stored, that of the job that already held its unique key, if there was one."""
        return self._found or self._job.id

    @property
    def task(self) -> str:
        """The name of its task."""
        return self._job.task

    @property
    def unstored(self) -> NewJob | None:
        """The job to store with the success; None if it was tried at once."""
        return None if self._tried else self._job

    def store(self) -> J:
        """Store it at once. The handler must handle an error: it is not tried again with the success."""
        self._tried = True
        found = self._producer.enqueue([self._job])[0]
        self._found = found.id
        return found


class FollowUps(list[FollowUp[Any]]):
    """The follow-ups of one attempt, in the order of their calls."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers: Counter[str] = Counter()
        self._later = 0
        """How many are stored with the success."""

    def append(self, one: FollowUp[Any]) -> None:
        if not one.immediately:
            remedy = (
                "store them at once with task.using(immediately=True), or let one follow-up enqueue the rest"
            )
            check_size(self._later + 1, "enqueue", remedy)
            self._later += 1
        super().append(one)

    def number(self, task: str) -> int:
        """Return the next number for a follow-up of this task without a key."""
        self._numbers[task] += 1
        return self._numbers[task]

    def unstored(self) -> tuple[NewJob, ...]:
        """The jobs to store with the success: also those that should have been awaited and were not."""
        return tuple(job for one in self if (job := one.unstored) is not None)


def derived_id(parent_id: str, task: str, name: str) -> str:
    """Return an id that is always the same for the same parent, task and name. It is a millisecond younger than the
    parent's, so that it sorts after the parent in id order."""
    digest = hashlib.blake2b(f"{parent_id}\n{task}\n{name}".encode(), digest_size=10).digest()
    return make_id((uuid.UUID(parent_id).int >> 80) + 1, digest)

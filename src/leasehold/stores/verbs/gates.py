"""Gates: what a job needs besides its turn, interned as a number that the claim index leads with."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache

from leasehold.domain.job import NewJob
from leasehold.domain.limits import slots_text
from leasehold.stores.database.audit import unrecorded
from leasehold.stores.database.database import Database, Records, Session
from leasehold.stores.verbs.limits import LimitVerbs
from leasehold.stores.verbs.named_limits import limit_problems, make_limits


class GateVerbs(LimitVerbs):
    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._known_gates: set[int] = set()

    def _make_gates(self, jobs: Sequence[NewJob], strict: bool = True) -> None:
        """In a transaction of their own, before the jobs': producers in long transactions must not wait for each
        other to learn the same gate."""
        missing = self._unknown_gates(jobs)
        if not missing:
            return
        with unrecorded():
            if any(job.slots or job.rate is not None for job in missing.values()):
                made = self._database.transact(lambda session: make_limited_gates(session, missing, strict))
                self._known_gates.update(made)
            else:
                self._database.single(lambda session: make_gates(session, missing), idempotent=True)
                self._known_gates.update(missing)

    def _unknown_gates(self, jobs: Sequence[NewJob]) -> dict[int, NewJob]:
        """Gates of which this store does not know that they are there, with a job of each."""
        missing = {}
        for job in jobs:
            number = gate_of(job)
            if number not in self._known_gates:
                missing[number] = job
        return missing


def make_limited_gates(session: Session, missing: Mapping[int, NewJob], strict: bool = True) -> set[int]:
    """The gates that were made, with the limits that their jobs bring along. With `strict` a limit that does not exist
    is refused. A gate that is known has limits that exist: their rows are never deleted."""
    make_limits(session, missing.values())
    problems = limit_problems(session, missing.values())
    for problem in problems.values() if strict else ():
        raise problem
    good = {number: job for number, job in missing.items() if job.id not in problems}
    make_gates(session, good)
    return set(good)


def make_gates(session: Session, missing: Mapping[int, NewJob]) -> None:
    records = [
        {
            "id": number,
            "queue": job.queue,
            "task": job.task,
            "slots": slots_text(job.slots),
            "rate_key": job.rate,
        }
        for number, job in sorted(missing.items())
    ]
    session.run("insert_gates", gates=Records(records))


@lru_cache(maxsize=4096)
def gate_id(queue: str, task: str, slots: str | None = None, rate_key: str | None = None) -> int:
    """A positive 63-bit hash of what a job needs besides its turn. 0 stands for "any gate"."""
    text = json.dumps([queue, task, slots, rate_key])
    number = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1
    return number or 1


def gate_of(job: NewJob) -> int:
    return gate_id(job.queue, job.task, slots_text(job.slots) if job.slots else None, job.rate)

"""The store as semantics.md tells it, in plain Python: what SQLite and PostgreSQL are held against.

It shares values with the code (NewJob, Sighting, outcomes, Policy) but no decision. Answers are plain tuples; a
refusal is an answer too.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from leasehold.domain import outcome as o
from leasehold.domain.job import NewJob, Sighting
from leasehold.domain.questions import QuestionAsked
from leasehold.stores.results import Ending
from leasehold.testing import ManualClock
from tests.stores.model_job import ENDED, FINAL, LIVE, STATES, ModelJob, ModelQuestion, ripe
from tests.stores.model_settle import end

Answer = Any


class ModelRefusal(Exception):
    """Carries the answer; nothing was changed."""

    def __init__(self, *answer: Any) -> None:
        self.answer = answer
        super().__init__(answer)


class ModelBase:
    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.jobs: dict[str, ModelJob] = {}
        self.groups: dict[str, int] = {}
        self.questions: dict[tuple[str, str], ModelQuestion] = {}
        self.pauses: dict[tuple[str, str], tuple[Any, ...]] = {}
        self._last_seq = 0

    # -- for the verbs ---------------------------------------------------------------------------------------------
    def find(self, job_id: str) -> ModelJob:
        if job_id not in self.jobs:
            raise ModelRefusal("missing", job_id)
        return self.jobs[job_id]

    def mine(self, job_id: str, token: int) -> ModelJob | None:
        job = self.jobs.get(job_id)
        held = job is not None and job.worker is not None and job.lease_token == token
        return job if held else None

    def key_holder(self, task: str, key: str | None) -> ModelJob | None:
        for job in self.jobs.values():
            if key is not None and job.holds_key and (job.task, job.unique_key) == (task, key):
                return job
        return None

    def notify(self, jobs: Iterable[ModelJob]) -> None:
        """At the end of a transaction, once per group; those who wait for an ended job are judged before."""
        concerned = [*jobs, *self._judge_children()]
        for name in {job.group for job in concerned if job.group is not None}:
            self.groups[name] = self.groups.get(name, 0) + 1

    def _judge_children(self) -> list[ModelJob]:
        """Wave by wave, until nobody waits for an ended job any more; whoever was concerned."""
        concerned = []
        while wave := [
            (job, news) for job in self.jobs.values() if job.state not in FINAL and (news := self._news(job))
        ]:
            bad = {job_id for job_id, job in self.jobs.items() if job.state != "succeeded"}
            for job, news in wave:
                concerned.append(job)
                if any(job.waits_for[parent] == "cancel" for parent in news if parent in bad):
                    job.state, job.finished_at = "cancelled", self.clock.now()
                    job.held = job.halts_lane = False
                    self.close_questions(job)
                    continue
                for parent in news:
                    del job.waits_for[parent]
                    job.unmet -= 1
                if not job.unmet and job.state == "pending" and not job.held:
                    job.state, job.available_at = "queued", max(job.available_at, self.clock.now())
                    job.place = None if job.lane is None else job.available_at
        return concerned

    def _news(self, job: ModelJob) -> list[str]:
        return [parent for parent in job.waits_for if self.jobs[parent].state in ENDED]

    def close_questions(self, job: ModelJob) -> None:
        if job.state in FINAL:
            for (job_id, _), question in self.questions.items():
                if job_id == job.id:
                    question.open = False

    def paused(self, scope: str, name: str) -> bool:
        entry = self.pauses.get((scope, name))
        return entry is not None and (entry[2] is None or entry[2] > self.clock.now())

    # -- lanes -----------------------------------------------------------------------------------------------------
    def lane_head(self, lane: str) -> ModelJob | None:
        now = self.clock.now()
        joined = [
            job
            for job in self.jobs.values()
            if job.lane == lane and job.state == "queued" and job.lane_at is not None and job.lane_at <= now
        ]
        return min(joined, key=lambda j: (not j.first_in_lane, j.lane_at, j.seq), default=None)

    def lane_blocked(self, lane: str) -> bool:
        return any(job.lane == lane and job.blocks for job in self.jobs.values())

    def free_heads(self) -> list[ModelJob]:
        """Of every lane that is not blocked, its head if it is due."""
        lanes = {job.lane for job in self.jobs.values() if job.lane is not None}
        heads = [self.lane_head(lane) for lane in lanes if not self.lane_blocked(lane)]
        return [head for head in heads if head is not None and head.available_at <= self.clock.now()]


class ModelStore(ModelBase):
    # -- enqueue ---------------------------------------------------------------------------------------------------
    def enqueue(self, jobs: Sequence[NewJob]) -> Answer:
        before = (
            copy.deepcopy((self.jobs, self.groups, self._last_seq)) if any(j.after for j in jobs) else None
        )
        try:
            return self._enqueue(jobs)
        except ModelRefusal:
            if before is not None:
                self.jobs, self.groups, self._last_seq = before
            raise

    def _enqueue(self, jobs: Sequence[NewJob]) -> Answer:
        answers, made = [], []
        for new in jobs:
            holder = self.key_holder(new.task, new.unique_key)
            if new.id in self.jobs:
                answers.append((new.id, new.id in {job.id for job in made}))
                continue
            if holder is not None and new.on_duplicate == "raise":
                raise ModelRefusal("duplicate", holder.id)
            if holder is not None and not (new.on_duplicate == "replace" and self._replace(holder)):
                answers.append((holder.id, False))
                continue
            made.append(self._insert(new))
            if holder is not None:
                made += [holder, *self._judge_children()]
            answers.append((new.id, True))
        self._tie(jobs, answers)
        self.notify(made)
        return tuple(answers)

    def _tie(self, jobs: Sequence[NewJob], answers: Sequence[tuple[str, bool]]) -> None:
        stands_for = {new.id: answer[0] for new, answer in zip(jobs, answers, strict=True)}
        made = [new for new, answer in zip(jobs, answers, strict=True) if answer == (new.id, True)]
        wanted = {stands_for.get(parent, parent) for new in made for parent in new.after}
        for parent in sorted(wanted - self.jobs.keys()):
            raise ModelRefusal("missing", parent)
        for new in made:
            parents = {stands_for.get(parent, parent): new.on_parent_failure for parent in new.after}
            if parents:
                job = self.jobs[new.id]
                job.parents, job.waits_for, job.unmet = parents, dict(parents), len(parents)
                job.state = "pending"
        for parent in wanted:
            self.jobs[parent].awaited = True

    def _replace(self, holder: ModelJob) -> bool:
        """A never-started one; a key that is held for good is not given up."""
        if holder.attempt > 0 or holder.state not in {"pending", "queued"} or holder.unique_for == "ever":
            return False
        holder.state, holder.finished_at, holder.held = "cancelled", self.clock.now(), False
        return True

    def _insert(self, new: NewJob) -> ModelJob:
        now = self.clock.now()
        self._last_seq += 1
        due = now + timedelta(seconds=new.delay)
        job = ModelJob(
            id=new.id,
            seq=self._last_seq,
            task=new.task,
            queue=new.queue,
            priority=new.priority,
            args=new.args,
            policy=new.policy,
            state="pending" if new.hold else "queued",
            created_at=now,
            available_at=due,
            lease_seconds=new.lease_seconds,
            lane=new.lane,
            place=None if new.lane is None else due,
            unique_key=new.unique_key,
            unique_for=new.unique_for,
            group=new.group,
            held=new.hold,
            retry_of=new.retry_of,
        )
        self.jobs[job.id] = job
        return job

    # -- claim -----------------------------------------------------------------------------------------------------
    def claimable(
        self, queues: Sequence[str], tasks: Sequence[str] | None
    ) -> tuple[list[ModelJob], list[ModelJob]]:
        """Plain jobs and lane heads, each in the queue's order: priority, due time, seq."""

        def is_open(job: ModelJob) -> bool:
            requested = job.queue in queues and (tasks is None or job.task in tasks)
            return requested and not self.paused("queue", job.queue) and not self.paused("task", job.task)

        now = self.clock.now()
        due = [
            j for j in self.jobs.values() if j.lane is None and j.state == "queued" and j.available_at <= now
        ]
        order = lambda job: (-job.priority, job.available_at, job.seq)  # noqa: E731
        return (
            sorted(filter(is_open, due), key=order),
            sorted(filter(is_open, self.free_heads()), key=order),
        )

    def claim(
        self,
        worker: str,
        queues: Sequence[str],
        limit: int,
        tasks: Sequence[str] | None = None,
        *,
        idle: bool = False,
    ) -> Answer:
        """The limit must leave no choice between plain jobs and lane heads (see `is_determined`)."""
        plain, heads = self.claimable(queues, tasks)
        taken = [*plain, *heads][:limit]
        for job in taken:
            self._grant(job, worker)
        return tuple(job.grant() for job in taken)

    def is_determined(self, queues: Sequence[str], limit: int, tasks: Sequence[str] | None) -> bool:
        """Between lane heads and plain jobs the order is exact to a batch only: is the answer the same either way?"""
        plain, heads = self.claimable(queues, tasks)
        return limit >= len(plain) + len(heads) or not plain or not heads

    def _grant(self, job: ModelJob, worker: str) -> None:
        now = self.clock.now()
        job.state, job.attempt, job.started_at = "running", job.attempt + 1, now
        job.first_started_at = job.first_started_at or now
        job.first_in_lane = job.lane is not None
        self._lease(job, worker)

    def _lease(self, job: ModelJob, worker: str) -> None:
        job.worker, job.lease_token = worker, job.lease_token + 1
        job.lease_expires_at = self.clock.now() + timedelta(seconds=job.lease_seconds)

    def claim_by_id(
        self, job_id: str, worker: str, sites: Sequence[str] = (), sighting: Sighting | None = None
    ) -> Answer:
        job, now = self.jobs.get(job_id), self.clock.now()
        if job is None:
            return ("denied", None, None)
        if job.state == "running" and job.worker is not None:
            assert job.lease_expires_at is not None
            if job.lease_expires_at > now:
                return ("denied", "running", None)
            if sighting is None or not self._second_look(job, sighting):
                return ("denied", "running", self._sighting(job))
            self._reap(job, sighting)
            self.notify([] if job.orphan else [job])
        if job.orphan and job.execution_site in sites:
            self._lease(job, worker)
        elif self._may_start(job):
            self._grant(job, worker)
        else:
            return ("denied", job.state, None)
        return ("granted", *job.grant())

    def _may_start(self, job: ModelJob) -> bool:
        if job.state != "queued" or job.available_at > self.clock.now() or self.paused("task", job.task):
            return False
        if job.lane is None:
            return True
        head = self.lane_head(job.lane)
        return head is job and not self.lane_blocked(job.lane)

    # -- hold ------------------------------------------------------------------------------------------------------
    def renew(self, leases: Mapping[str, int]) -> Answer:
        held = [job for job_id, token in sorted(leases.items()) if (job := self.mine(job_id, token))]
        for job in held:
            job.lease_expires_at = self.clock.now() + timedelta(seconds=job.lease_seconds)
        return tuple((job.id, job.stop_requested) for job in held)

    def record_site(self, job_id: str, token: int, site: str, name: str) -> Answer:
        if job := self.mine(job_id, token):
            job.execution_site, job.execution_name, job.execution_started_at = site, name, None
        return job is not None

    def mark_started(self, job_id: str, token: int) -> Answer:
        job = self.mine(job_id, token)
        if job is None or job.execution_site is None:
            return False
        job.execution_started_at = self.clock.now()
        return True

    def settle(self, endings: Sequence[Ending]) -> Answer:
        """Successes are one transaction, those that others wait for another, and everything else a third. Of one job
        only the latest lease can be held, and the answer names it once."""
        endings = {ending.id: ending for ending in sorted(endings, key=lambda ending: ending.token)}.values()
        accepted, fenced = [], []
        for turn in ("plain", "awaited", "other"):
            reported = []
            for ending in [e for e in endings if self._turn(e) == turn]:
                job = self.mine(ending.id, ending.token)
                if job is None:
                    fenced.append(ending.id)
                    continue
                self._end(job, ending.outcome)
                accepted.append(job.id)
                reported += [] if job.orphan else [job]
            self.notify(reported)
        return tuple(sorted(accepted)), tuple(sorted(fenced))

    def _turn(self, ending: Ending) -> str:
        if not isinstance(ending.outcome, o.Success):
            return "other"
        job = self.jobs.get(ending.id)
        return "awaited" if job is not None and job.awaited else "plain"

    def _end(self, job: ModelJob, outcome: o.Outcome) -> None:
        end(job, outcome, self.clock.now())
        if isinstance(outcome, QuestionAsked) and job.state in {"waiting", "paused"}:
            for (job_id, _), question in self.questions.items():
                question.open &= job_id != job.id
            for requested in outcome.questions:
                self.questions[job.id, requested.key] = ModelQuestion(requested.text)
        self.close_questions(job)

    # -- recover ---------------------------------------------------------------------------------------------------
    def sight_overdue(self) -> Answer:
        now = self.clock.now()
        overdue = [
            j
            for j in self.jobs.values()
            if j.lease_expires_at is not None
            and j.lease_expires_at <= now + timedelta(seconds=j.lease_seconds / 3)
        ]
        overdue.sort(key=lambda job: (job.lease_expires_at, job.seq))
        return tuple(self._sighting(job) for job in overdue)

    def _sighting(self, job: ModelJob) -> Sighting:
        worker, expires_at = job.worker, job.lease_expires_at
        assert worker is not None
        assert expires_at is not None
        alone = sum(other.worker == worker for other in self.jobs.values()) == 1
        seen_at = self.clock.monotonic()
        left = (expires_at - self.clock.now()).total_seconds()
        return Sighting(job.id, job.lease_token, expires_at, job.lease_seconds, worker, alone, seen_at, left)

    def _second_look(self, job: ModelJob, sighting: Sighting) -> bool:
        same = (job.lease_token, job.lease_expires_at) == (sighting.token, sighting.expires_at)
        expired = job.lease_expires_at is not None and job.lease_expires_at <= self.clock.now()
        return job.id == sighting.id and same and expired and ripe(sighting, self.clock.monotonic())

    def _reap(self, job: ModelJob, sighting: Sighting) -> None:
        self._end(job, o.Lost(alone=sighting.alone))

    def reap(self, sightings: Sequence[Sighting]) -> Answer:
        reaped, reported = [], []
        for sighting in sorted(sightings, key=lambda s: s.id):
            job = self.jobs.get(sighting.id)
            if job is None or not self._second_look(job, sighting):
                continue
            worker = job.worker
            self._reap(job, sighting)
            reported += [] if job.orphan else [job]
            reaped.append((job.id, worker, job.state, job.orphan))
        self.notify(reported)
        return tuple(reaped)

    def adopt(
        self, worker: str, sites: Sequence[str], tasks: Sequence[str] | None = None, limit: int = 100
    ) -> Answer:
        orphans = [
            job
            for job in self._by_seq()
            if job.orphan and job.execution_site in sites and (tasks is None or job.task in tasks)
        ][:limit]
        for job in orphans:
            self._lease(job, worker)
        return tuple(job.grant() for job in orphans)

    def find_leases_of(self, worker: str) -> Answer:
        return tuple(job.grant() for job in self._by_seq() if job.worker == worker)

    def _by_seq(self) -> list[ModelJob]:
        return sorted(self.jobs.values(), key=lambda job: job.seq)

    def read_settlements(self, leases: Mapping[str, int], worker: str) -> Answer:
        verdicts = dict.fromkeys(leases, "fenced")
        for job_id, token in leases.items():
            job = self.jobs.get(job_id)
            if job is not None and job.worker is not None and job.lease_token == token:
                verdicts[job_id] = "mine"
            elif job is not None and job.settlements.get(token) == worker:
                verdicts[job_id] = "done"
        return verdicts

    # -- inspect, prune --------------------------------------------------------------------------------------------
    def get(self, job_id: str) -> Answer:
        return self.find(job_id).row()

    def list_jobs(self, **wanted: Any) -> Answer:
        found = sorted(self.jobs.values(), key=lambda job: job.seq, reverse=True)
        return tuple(
            job.id for job in found if all(getattr(job, name) == value for name, value in wanted.items())
        )

    def count(self) -> Answer:
        return {state: sum(job.state == state for job in self.jobs.values()) for state in STATES}

    def prune(self, age: float, limit: int) -> Answer:
        before = self.clock.now() - timedelta(seconds=age)
        lively = {job.group for job in self.jobs.values() if job.state in LIVE | {"paused"}} - {None}
        ended = [(job.id, job) for job in self._by_seq() if job.state in ENDED]
        seen = ended[:limit]
        gone = [
            job_id
            for job_id, job in seen
            if job.finished_at is not None
            and job.finished_at < before
            and not job.halts_lane
            and not (job.unique_for == "ever" and job.unique_key is not None)
            and job.group not in lively
            and not any(job_id in j.parents for j in self.jobs.values() if j.state not in FINAL)
        ]
        touched = {self.jobs[job_id].group for job_id in gone}
        for job_id in gone:
            del self.jobs[job_id]
        for name in touched - {job.group for job in self.jobs.values()} - {None}:
            del self.groups[name]  # it goes with the last of its jobs
        for job in self.jobs.values():
            job.parents = {parent: how for parent, how in job.parents.items() if parent in self.jobs}
            job.waits_for = {parent: how for parent, how in job.waits_for.items() if parent in self.jobs}
        self.questions = {key: value for key, value in self.questions.items() if key[0] in self.jobs}
        return len(gone), len(seen) == limit and seen[-1][1].created_at < before

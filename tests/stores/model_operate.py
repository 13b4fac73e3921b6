"""The operator's verbs as the model understands them (semantics.md §2)."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from leasehold.domain.job import NewJob
from tests.stores.model_job import FINAL, ModelJob
from tests.stores.model_store import Answer, ModelRefusal, ModelStore

STRENGTH = (None, "finish", "pause", "cancel")


class Model(ModelStore):
    def cancel(self, job_id: str) -> Answer:
        job = self._in_state(job_id, "pending queued waiting paused failed timed_out running")
        if job.state == "running":
            return self._flag(job, "cancel")
        job.state, job.finished_at = "cancelled", self.clock.now()
        job.halts_lane = job.held = False
        self.close_questions(job)
        return self._changed(job)

    def pause(self, job_id: str) -> Answer:
        job = self._in_state(job_id, "pending queued waiting running")
        if job.state == "running":
            return self._flag(job, "pause")
        job.state, job.held = "paused", False
        job.available_at = min(job.available_at, self.clock.now())
        return self._changed(job)

    def interrupt(self, job_id: str) -> Answer:
        job = self._in_state(job_id, "pending queued waiting paused running")
        return self.pause(job_id) if job.state == "running" else self.cancel(job_id)

    def finish(self, job_id: str) -> Answer:
        return self._flag(self._in_state(job_id, "running"), "finish")

    def resume(self, job_id: str) -> Answer:
        job, now = self._in_state(job_id, "paused failed timed_out running"), self.clock.now()
        if job.state == "running":
            if job.stop_requested != "pause":
                raise ModelRefusal("refused", "running")
            job.stop_requested = None
            return self._changed(job)
        holder = self.key_holder(job.task, job.unique_key)
        if holder is not None and holder is not job:
            raise ModelRefusal("duplicate", holder.id)
        passed_by = job.state != "paused" and not job.halts_lane
        due = job.available_at if job.state == "paused" else min(job.available_at, now)
        job.state, job.finished_at, job.halts_lane = "pending" if job.unmet else "queued", None, False
        job.failures = job.crashes = 0
        job.settled_by = job.settled_token = None
        job.available_at = due
        if job.lane is not None and passed_by:
            job.first_in_lane, job.place = False, job.available_at
        elif job.place is not None:
            job.place = min(job.place, now)
        return self._changed(job)

    def resume_lane(self, lane: str) -> Answer:
        """One that can be resumed before one that waits for an answer."""
        halters = [
            (job.state == "waiting", job.seq, job.id)
            for job in self.jobs.values()
            if job.lane == lane and (job.state in {"waiting", "paused"} or job.halts_lane)
        ]
        return self.resume(min(halters)[2]) if halters else None

    def skip(self, job_id: str) -> Answer:
        job = self._in_state(job_id, "failed timed_out")
        if job.halts_lane:
            job.halts_lane = False
            self.notify([job])
        return job.row()

    def snooze(self, job_id: str, until: datetime) -> Answer:
        job, now = self._in_state(job_id, "pending queued paused"), self.clock.now()
        before = (job.available_at, job.place)
        job.available_at = until if until > now else min(job.available_at, now)
        if job.place is not None:
            job.place = min(job.place, max(until, now))
        return self._changed(job) if (job.available_at, job.place) != before else job.row()

    def release(self, job_id: str) -> Answer:
        job = self._in_state(job_id, "pending")
        if not job.held:
            raise ModelRefusal("refused", "pending")
        job.held = False
        if job.unmet:
            return self._changed(job)
        job.state = "queued"
        job.available_at = max(job.available_at, self.clock.now())
        job.place = None if job.lane is None else job.available_at
        return self._changed(job)

    def answer(self, job_id: str, key: str, answer: str) -> Answer:
        job = self._in_state(job_id, "waiting paused")
        question = self.questions.get((job_id, key))
        if question is None or not question.open:
            raise ModelRefusal("refused", job.state)
        question.answer, question.open = answer, False
        others = [q for (asker, _), q in self.questions.items() if asker == job_id and q.open]
        if job.state == "waiting" and not others:
            job.state = "queued"
            job.available_at = min(job.available_at, self.clock.now())
        return self._changed(job)

    def retry(self, job_id: str, new_id: str) -> Answer:
        job = self._in_state(job_id, "paused failed timed_out succeeded cancelled")
        new = NewJob(
            id=new_id,
            task=job.task,
            args=job.args,
            queue=job.queue,
            priority=job.priority,
            lane=job.lane,
            unique_key=job.unique_key,
            unique_for=job.unique_for,
            on_duplicate="raise",
            lease_seconds=job.lease_seconds,
            policy=job.policy,
            group=job.group,
            retry_of=job.id,
            after=tuple(job.parents),
            on_parent_failure=next(iter(job.parents.values()), "cancel"),
        )
        self.enqueue([new])
        return self.jobs[new_id].row()

    def pause_scope(self, scope: str, name: str, for_: float | None = None) -> Answer:
        now = self.clock.now()
        until = None if for_ is None else now + timedelta(seconds=for_)
        self.pauses[scope, name] = (scope, name, until, now)
        return self.pauses[scope, name]

    def resume_scope(self, scope: str, name: str) -> Answer:
        was_paused = self.paused(scope, name)
        self.pauses.pop((scope, name), None)
        return was_paused

    def list_pauses(self) -> Answer:
        return tuple(entry for key, entry in sorted(self.pauses.items()) if self.paused(*key))

    def _in_state(self, job_id: str, states: str) -> ModelJob:
        job = self.find(job_id)
        if job.state not in states.split():
            raise ModelRefusal("refused", job.state)
        return job

    def _flag(self, job: ModelJob, flag: str) -> Answer:
        """The stronger wins; the token stays, because the owner has to stop the work."""
        if STRENGTH.index(flag) > STRENGTH.index(job.stop_requested):
            job.stop_requested = flag
            self.notify([job])
        return job.row()

    def _changed(self, job: ModelJob) -> dict[str, Any]:
        assert job.state not in FINAL or job.finished_at is not None
        self.notify([job])
        return job.row()

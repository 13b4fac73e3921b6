"""Our own tools: the one table of what an agent may call, who may, and what it does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from mcp_types import Tool as Listed
from mcp_types import ToolAnnotations
from pydantic import BaseModel

from leasehold.domain.frozen import frozen
from leasehold.domain.stop import StopRequest
from leasehold.domain.tokens import TokenScope
from leasehold.domain.views import Filter
from leasehold.surfaces.guard.callers import Caller
from leasehold.surfaces.guard.calls import AskedCall, enqueue_for, enqueue_once_for, kinds_for
from leasehold.surfaces.mcp import asked, told
from leasehold.surfaces.mcp.waiting import settled
from leasehold.threads import to_thread
from leasehold.types import Job

READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
MAKES = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=True)
STEERS = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)
STOPS = ToolAnnotations(
    read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False
)


@frozen(kw_only=True)
class Tool:
    name: str
    title: str
    description: str
    scope: TokenScope
    annotations: ToolAnnotations
    arguments: type[BaseModel]
    answer: type[BaseModel]
    call: Callable[[Caller, Any], Awaitable[BaseModel]]

    def listed(self) -> Listed:
        return Listed(
            name=self.name,
            title=self.title,
            description=self.description,
            input_schema=self.arguments.model_json_schema(),
            output_schema=self.answer.model_json_schema(mode="serialization"),
            annotations=self.annotations,
        )


async def list_kinds(who: Caller, _: asked.Nothing) -> told.Kinds:
    return told.Kinds(kinds=[told.Kind.model_validate(card) for card in kinds_for(who)])


async def enqueue_job(who: Caller, given: asked.EnqueueJob) -> told.Created:
    wanted = given.model_dump(exclude={"wait_s", "idempotency_key"})
    call = AskedCall(**wanted)

    def store() -> tuple[Job[Any], bool]:
        if given.idempotency_key is None:
            (job,) = enqueue_for(who, [call])
            return job, job.created
        (job,), repeated = enqueue_once_for(who, [call], given.idempotency_key, wanted)
        return job, job.created and not repeated

    job, created = await to_thread(store)
    brief = await _brief(who, job.id, given.wait_s)
    return told.Created(**dict(brief), created=created)


async def get_job(who: Caller, given: asked.GetJob) -> told.Job:
    return await _brief(who, given.id, given.wait_s)


async def list_jobs(who: Caller, given: asked.ListJobs) -> told.Jobs:
    filter = Filter(tuple(given.state), given.queue, given.kind, None, given.group, given.tag)
    page = await to_thread(who.operations.list_jobs, filter, given.limit, given.cursor)
    return told.Jobs(
        jobs=[
            told.JobLine(
                id=job.id,
                kind=job.kind,
                queue=job.queue,
                state=job.state,
                group=job.group_name,
                created_at=job.created_at,
                error=told.first_lines(job.error),
            )
            for job in page.jobs
            if who.access.may_use_queue(job.queue)
        ],
        next=page.next,
    )


async def explain_job(who: Caller, given: asked.OneJob) -> told.Holds:
    def read() -> told.Holds:
        job = who.job(given.id)
        holds = [told.Hold.model_validate(hold) for hold in who.explain(job.id)]
        return told.Holds(id=job.id, state=job.state, holds=holds)

    return await to_thread(read)


async def stop_job(who: Caller, given: asked.StopJob) -> told.Job:
    def stop() -> told.Job:
        job = who.job(given.id)
        if given.dry_run:
            found = told.job_of(who, job)
            return found.model_copy(
                update={"hint": f"dry run: it is {job.state}, and nothing was done to it"}
            )
        verbs = {"cancel": job.cancel, "pause": job.pause, "interrupt": job.interrupt}
        return told.job_of(who, verbs[given.mode](given.reason, actor=who.actor))

    return await to_thread(stop)


async def resume_job(who: Caller, given: asked.ResumeJob) -> told.Job:
    def resume() -> told.Job:
        job = who.job(given.id).resume(args=given.args, fresh=given.fresh, actor=who.actor)
        return told.job_of(who, job)

    return await to_thread(resume)


async def list_questions(who: Caller, given: asked.ListQuestions) -> told.Questions:
    def read() -> told.Questions:
        rows = who.operations.open_questions(group=given.group, kind=given.kind, limit=given.limit)
        return told.Questions(
            questions=[
                told.AskedByJob(**dict(told.question_of(row)), job_id=row.job_id, kind=row.kind)
                for row in rows
                if who.access.may_use_queue(row.queue)
            ]
        )

    return await to_thread(read)


async def answer_question(who: Caller, given: asked.AnswerQuestion) -> told.Job:
    def answer() -> told.Job:
        return told.job_of(who, who.job(given.id).answer(given.key, given.value, actor=who.actor))

    return await to_thread(answer)


async def group_status(who: Caller, given: asked.GroupStatus) -> told.Group:
    who.check_all_queues()
    status = await who.operations.agroup_status(given.group, wait=given.wait_s, since=given.since)
    return told.Group(
        group=status.name,
        state=status.state,
        version=status.version,
        total=status.total,
        live=status.live,
        succeeded=status.succeeded,
        progress=status.progress,
        counts={kind: dict(states) for kind, states in status.counts.items()},
        errors=[f"{one.id}: {told.first_lines(one.error)}" for one in status.errors[:10]],
        open_questions=status.questions,
        next_poll_s=5.0 if status.live else None,
    )


async def stop_group(who: Caller, given: asked.StopGroup) -> told.Stopped:
    who.check_all_queues()
    request = StopRequest(
        group=given.group,
        kinds=given.kinds,
        mode=given.mode,
        reason=given.reason,
        wait=given.wait_s,
        hold=given.hold,
        dry_run=given.dry_run,
        actor=who.actor,
    )
    return told.Stopped.model_validate(await who.operations.astop(request))


async def _brief(who: Caller, id: str, wait: float) -> told.Job:
    job = await settled(who, id, wait)
    return await to_thread(told.job_of, who, job)


TOOLS: dict[str, Tool] = {
    tool.name: tool
    for tool in (
        Tool(
            name="list_kinds",
            title="List kinds of jobs",
            description="The tasks that can be enqueued here, with the schemas of their arguments.",
            scope="read",
            annotations=READS,
            arguments=asked.Nothing,
            answer=told.Kinds,
            call=list_kinds,
        ),
        Tool(
            name="enqueue_job",
            title="Start a job",
            description="Store a job; it is durable when this answers, and runs when a worker is free. "
            "Follow it with get_job.",
            scope="enqueue",
            annotations=MAKES,
            arguments=asked.EnqueueJob,
            answer=told.Created,
            call=enqueue_job,
        ),
        Tool(
            name="get_job",
            title="Look at a job",
            description="State, progress, result, error and open questions of a job. With wait_s it answers as soon "
            "as the job has ended or asks something. If next_poll_s is set, ask again after so many seconds.",
            scope="read",
            annotations=READS,
            arguments=asked.GetJob,
            answer=told.Job,
            call=get_job,
        ),
        Tool(
            name="list_jobs",
            title="List jobs",
            description="Jobs that match everything given, newest first.",
            scope="read",
            annotations=READS,
            arguments=asked.ListJobs,
            answer=told.Jobs,
            call=list_jobs,
        ),
        Tool(
            name="explain_job",
            title="Why is it not running?",
            description="Every cause that keeps a job from running, in order, with what would change it.",
            scope="read",
            annotations=READS,
            arguments=asked.OneJob,
            answer=told.Holds,
            call=explain_job,
        ),
        Tool(
            name="stop_job",
            title="Stop a job",
            description="Cancel, pause or interrupt a job. A running one stops as soon as its worker has heard of it.",
            scope="operate",
            annotations=STOPS,
            arguments=asked.StopJob,
            answer=told.Job,
            call=stop_job,
        ),
        Tool(
            name="resume_job",
            title="Resume a job",
            description="Resume a paused, failed or timed-out job.",
            scope="operate",
            annotations=STEERS,
            arguments=asked.ResumeJob,
            answer=told.Job,
            call=resume_job,
        ),
        Tool(
            name="list_questions",
            title="List open questions",
            description="Questions that jobs ask and wait for, oldest first.",
            scope="read",
            annotations=READS,
            arguments=asked.ListQuestions,
            answer=told.Questions,
            call=list_questions,
        ),
        Tool(
            name="answer_question",
            title="Answer a question",
            description="Answer a job's question, so that the job continues. Ask the user; do not make up an answer.",
            scope="operate",
            annotations=STEERS,
            arguments=asked.AnswerQuestion,
            answer=told.Job,
            call=answer_question,
        ),
        Tool(
            name="group_status",
            title="Look at a group",
            description="The progress of a group of jobs. With wait_s and since it answers as soon as it changes.",
            scope="read",
            annotations=READS,
            arguments=asked.GroupStatus,
            answer=told.Group,
            call=group_status,
        ),
        Tool(
            name="stop_group",
            title="Stop a group",
            description="Stop all jobs of a group, or those of some tasks. Try it with dry_run first.",
            scope="operate",
            annotations=STOPS,
            arguments=asked.StopGroup,
            answer=told.Stopped,
            call=stop_group,
        ),
    )
}
"""By name, in the order in which they are listed."""

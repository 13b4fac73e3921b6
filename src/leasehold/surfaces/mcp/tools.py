"""Our own tools: the table of their texts, scopes, models and functions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from mcp_types import Tool as Listed
from mcp_types import ToolAnnotations
from pydantic import BaseModel

from leasehold.domain.frozen import frozen
from leasehold.domain.records import Filter
from leasehold.domain.stop import StopRequest
from leasehold.domain.tokens import TokenScope
from leasehold.surfaces.guard.callers import Caller
from leasehold.surfaces.guard.calls import CallRequest, enqueue_for, enqueue_once_for, tasks_for
from leasehold.surfaces.mcp import arguments, responses
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


async def list_tasks(caller: Caller, _: arguments.Nothing) -> responses.Tasks:
    return responses.Tasks(tasks=[responses.Task.model_validate(card) for card in tasks_for(caller)])


async def enqueue_job(caller: Caller, given: arguments.EnqueueJob) -> responses.Created:
    wanted = given.model_dump(exclude={"wait_s", "idempotency_key"})
    call = CallRequest(**wanted)

    def store() -> tuple[Job[Any], bool]:
        if given.idempotency_key is None:
            (job,) = enqueue_for(caller, [call])
            return job, job.created
        (job,), repeated = enqueue_once_for(caller, [call], given.idempotency_key, wanted)
        return job, job.created and not repeated

    job, created = await to_thread(store)
    brief = await _brief(caller, job.id, given.wait_s)
    return responses.Created(**dict(brief), created=created)


async def get_job(caller: Caller, given: arguments.GetJob) -> responses.Job:
    return await _brief(caller, given.id, given.wait_s)


async def list_jobs(caller: Caller, given: arguments.ListJobs) -> responses.Jobs:
    filter = Filter(tuple(given.state), given.queue, given.task, None, given.group, given.tag)
    page = await to_thread(caller.operations.list_jobs, filter, given.limit, given.cursor)
    return responses.Jobs(
        jobs=[
            responses.JobLine(
                id=job.id,
                task=job.task,
                queue=job.queue,
                state=job.state,
                group=job.group,
                created_at=job.created_at,
                error=responses.first_lines(job.error),
            )
            for job in page.jobs
            if caller.access.may_use_queue(job.queue)
        ],
        next=page.next,
    )


async def explain_job(caller: Caller, given: arguments.OneJob) -> responses.Holds:
    def read() -> responses.Holds:
        job = caller.job(given.id)
        holds = [responses.Hold.model_validate(hold) for hold in caller.explain(job.id)]
        return responses.Holds(id=job.id, state=job.state, holds=holds)

    return await to_thread(read)


async def stop_job(caller: Caller, given: arguments.StopJob) -> responses.Job:
    def stop() -> responses.Job:
        job = caller.job(given.id)
        if given.dry_run:
            found = responses.job_of(caller, job)
            return found.model_copy(
                update={"hint": f"dry run: it is {job.state}, and nothing was done to it"}
            )
        verbs = {"cancel": job.cancel, "pause": job.pause, "interrupt": job.interrupt}
        return responses.job_of(caller, verbs[given.mode](given.reason, actor=caller.actor))

    return await to_thread(stop)


async def resume_job(caller: Caller, given: arguments.ResumeJob) -> responses.Job:
    def resume() -> responses.Job:
        job = caller.job(given.id).resume(args=given.args, fresh=given.fresh, actor=caller.actor)
        return responses.job_of(caller, job)

    return await to_thread(resume)


async def list_questions(caller: Caller, given: arguments.ListQuestions) -> responses.Questions:
    def read() -> responses.Questions:
        rows = caller.operations.open_questions(group=given.group, task=given.task, limit=given.limit)
        return responses.Questions(
            questions=[
                responses.QuestionOfJob(**dict(responses.question_of(row)), job_id=row.job_id, task=row.task)
                for row in rows
                if caller.access.may_use_queue(row.queue)
            ]
        )

    return await to_thread(read)


async def answer_question(caller: Caller, given: arguments.AnswerQuestion) -> responses.Job:
    def answer() -> responses.Job:
        return responses.job_of(
            caller, caller.job(given.id).answer(given.key, given.value, actor=caller.actor)
        )

    return await to_thread(answer)


async def group_status(caller: Caller, given: arguments.GroupStatus) -> responses.Group:
    caller.check_all_queues()
    status = await caller.operations.agroup_status(given.group, wait=given.wait_s, since=given.since)
    return responses.Group(
        group=status.name,
        state=status.state,
        version=status.version,
        total=status.total,
        live=status.live,
        succeeded=status.succeeded,
        progress=status.progress,
        counts={task: dict(states) for task, states in status.counts.items()},
        errors=[f"{one.id}: {responses.first_lines(one.error)}" for one in status.errors[:10]],
        open_questions=status.questions,
        next_poll_s=5.0 if status.live else None,
    )


async def stop_group(caller: Caller, given: arguments.StopGroup) -> responses.Stopped:
    caller.check_all_queues()
    request = StopRequest(
        group=given.group,
        tasks=given.tasks,
        mode=given.mode,
        reason=given.reason,
        wait=given.wait_s,
        hold=given.hold,
        dry_run=given.dry_run,
        actor=caller.actor,
    )
    return responses.Stopped.model_validate(await caller.operations.astop(request))


async def _brief(caller: Caller, id: str, wait: float) -> responses.Job:
    job = await settled(caller, id, wait)
    return await to_thread(responses.job_of, caller, job)


TOOLS: dict[str, Tool] = {
    tool.name: tool
    for tool in (
        Tool(
            name="list_tasks",
            title="List tasks",
            description="The tasks that can be enqueued here, with the schemas of their arguments.",
            scope="read",
            annotations=READS,
            arguments=arguments.Nothing,
            answer=responses.Tasks,
            call=list_tasks,
        ),
        Tool(
            name="enqueue_job",
            title="Start a job",
            description="Store a job. It is durable when this returns, and runs when a worker is free. "
            "Follow it with get_job.",
            scope="enqueue",
            annotations=MAKES,
            arguments=arguments.EnqueueJob,
            answer=responses.Created,
            call=enqueue_job,
        ),
        Tool(
            name="get_job",
            title="Look at a job",
            description="State, progress, result, error and open questions of a job. With wait_s it returns as soon "
            "as the job has ended or waits for an answer. If next_poll_s is set, call it again after so many seconds.",
            scope="read",
            annotations=READS,
            arguments=arguments.GetJob,
            answer=responses.Job,
            call=get_job,
        ),
        Tool(
            name="list_jobs",
            title="List jobs",
            description="Jobs that match everything given, newest first.",
            scope="read",
            annotations=READS,
            arguments=arguments.ListJobs,
            answer=responses.Jobs,
            call=list_jobs,
        ),
        Tool(
            name="explain_job",
            title="Why is it not running?",
            description="Every cause that keeps a job from running, in order, with what would change it.",
            scope="read",
            annotations=READS,
            arguments=arguments.OneJob,
            answer=responses.Holds,
            call=explain_job,
        ),
        Tool(
            name="stop_job",
            title="Stop a job",
            description="Cancel, pause or interrupt a job. A running job stops as soon as its worker sees the request.",
            scope="operate",
            annotations=STOPS,
            arguments=arguments.StopJob,
            answer=responses.Job,
            call=stop_job,
        ),
        Tool(
            name="resume_job",
            title="Resume a job",
            description="Resume a paused, failed or timed-out job.",
            scope="operate",
            annotations=STEERS,
            arguments=arguments.ResumeJob,
            answer=responses.Job,
            call=resume_job,
        ),
        Tool(
            name="list_questions",
            title="List open questions",
            description="Open questions of jobs, oldest first.",
            scope="read",
            annotations=READS,
            arguments=arguments.ListQuestions,
            answer=responses.Questions,
            call=list_questions,
        ),
        Tool(
            name="answer_question",
            title="Answer a question",
            description="Answer a job's question, so that the job continues. Ask the user; do not make up an answer.",
            scope="operate",
            annotations=STEERS,
            arguments=arguments.AnswerQuestion,
            answer=responses.Job,
            call=answer_question,
        ),
        Tool(
            name="group_status",
            title="Look at a group",
            description="The progress of a group of jobs. With wait_s and since it returns as soon as it changes.",
            scope="read",
            annotations=READS,
            arguments=arguments.GroupStatus,
            answer=responses.Group,
            call=group_status,
        ),
        Tool(
            name="stop_group",
            title="Stop a group",
            description="Stop all jobs of a group, or those of some tasks. Try it with dry_run first.",
            scope="operate",
            annotations=STOPS,
            arguments=arguments.StopGroup,
            answer=responses.Stopped,
            call=stop_group,
        ),
    )
}
"""The tools by name, in the order of the list."""

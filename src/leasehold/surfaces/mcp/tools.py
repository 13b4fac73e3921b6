"""Our own MCP tools: the one table of tools, with their arguments, scopes, responses and functions."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, Literal

from mcp_types import Tool as Listed
from mcp_types import ToolAnnotations
from pydantic import BaseModel, ConfigDict, Field, StrictBool

from leasehold.domain.checks.texts import LONGEST_NAME
from leasehold.domain.errors import InvalidInput
from leasehold.domain.frozen import frozen
from leasehold.domain.groups import StatusRequest
from leasehold.domain.job import HIGHEST_PRIORITY, LOWEST_PRIORITY
from leasehold.domain.records import Filter
from leasehold.domain.states import State
from leasehold.domain.stop import StopMode, StopRequest
from leasehold.domain.tokens import TokenScope
from leasehold.operations import jobs, questions
from leasehold.operations.arguments import Answer, Args, Duration, Fresh, QuestionKey, Reason
from leasehold.operations.verb import Verb
from leasehold.surfaces.guard import Caller, CallRequest, enqueue_for, enqueue_once_for, tasks_for
from leasehold.surfaces.mcp import responses
from leasehold.surfaces.mcp.responses import settled
from leasehold.threads import to_thread
from leasehold.types import Job

# -- arguments ---------------------------------------------------------------------------------------------------------
# A model reads their descriptions.

LONGEST_WAIT = 50.0
"""Seconds. Many clients give up on a call after a minute."""
USUAL_WAIT = 25.0

Id = Annotated[str, Field(min_length=1, max_length=64, description="Id of a job.")]
Name = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME)]
Wait = Annotated[
    float, Field(ge=0, le=LONGEST_WAIT, description="Seconds to wait for it; 0: respond at once.")
]
DryRun = Annotated[StrictBool, Field(description="Only report what would happen.")]


class Arguments(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Nothing(Arguments):
    pass


class EnqueueJob(Arguments):
    task: Annotated[Name, Field(description="Name of a task, as list_tasks shows it.")]
    args: Annotated[dict[str, Any], Field(default_factory=dict, description="Its arguments, by name.")]
    delay: Duration | None = None
    priority: Annotated[int, Field(ge=LOWEST_PRIORITY, le=HIGHEST_PRIORITY)] | None = None
    group: Annotated[Name | None, Field(description="To follow or stop many jobs together.")] = None
    tags: Annotated[list[Name], Field(max_length=50)] | None = None
    unique: Annotated[str, Field(min_length=1, max_length=16_384)] | None = Field(
        default=None, description="While a job with this key is live, no second one is made."
    )
    idempotency_key: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        default=None, description="The same key with the same arguments within a day makes one job."
    )
    wait_s: Wait = 0


class GetJob(Arguments):
    id: Id
    wait_s: Annotated[
        Wait, Field(description="Seconds to wait until it has ended or waits for an answer.")
    ] = 0


class OneJob(Arguments):
    id: Id


class ListJobs(Arguments):
    state: list[State] = Field(default_factory=list, description="Empty: any.")
    task: Name | None = None
    queue: Name | None = None
    group: Name | None = None
    tag: Name | None = None
    limit: Annotated[int, Field(ge=1, le=100)] = 20
    cursor: Annotated[str, Field(max_length=64, description="next of the previous page.")] | None = None


class StopJob(Arguments):
    id: Id
    mode: Annotated[
        Literal["cancel", "pause", "interrupt"],
        Field(
            description="cancel: for good. pause: it can be resumed. interrupt: pause it if it runs, else cancel."
        ),
    ] = "cancel"
    reason: Reason = None
    dry_run: DryRun = False


class ResumeJob(Arguments):
    id: Id
    args: Args = None
    fresh: Fresh = False


class AnswerQuestion(Arguments):
    id: Id
    key: Annotated[
        QuestionKey, Field(min_length=1, max_length=LONGEST_NAME, description="Key of the question.")
    ]
    value: Answer = Field(description="The answer; it must fit the question's schema.")


class ListQuestions(Arguments):
    group: Name | None = None
    task: Name | None = None
    limit: Annotated[int, Field(ge=1, le=100)] = 20


class GroupStatusArguments(Arguments):
    group: Name
    wait_s: Annotated[Wait, Field(description="Seconds to wait until the version is not `since`.")] = 0
    since: Annotated[int, Field(ge=0, le=2**53)] | None = Field(
        default=None, description="version of an earlier response."
    )


class StopGroup(Arguments):
    group: Name
    tasks: Annotated[list[Name], Field(min_length=1, max_length=100)] | None = Field(
        default=None, description="Only jobs of these tasks."
    )
    mode: StopMode = "graceful"
    reason: Reason = None
    wait_s: Wait = 10.0
    hold: StrictBool = Field(default=False, description="Refuse new jobs of the group afterwards.")
    dry_run: DryRun = False


# -- tools -------------------------------------------------------------------------------------------------------------

READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
MAKES = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=True)
CONTROLS = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)
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
    verbs: tuple[Verb[..., Any], ...] = ()
    """The verbs of the table that it calls."""

    def listed(self) -> Listed:
        return Listed(
            name=self.name,
            title=self.title,
            description=self.description,
            input_schema=self.arguments.model_json_schema(),
            output_schema=self.answer.model_json_schema(mode="serialization"),
            annotations=self.annotations,
        )


def _of(*verbs: Verb[..., Any]) -> dict[str, Any]:
    """What the verbs of the table say about a tool that calls them."""
    (scope,) = {verb.scope for verb in verbs}
    changes, destroys = any(verb.write for verb in verbs), any(verb.destructive for verb in verbs)
    hints = STOPS if destroys else CONTROLS if changes else READS
    return {"verbs": verbs, "scope": scope, "annotations": hints}


async def list_tasks(caller: Caller, _: Nothing) -> responses.Tasks:
    return responses.Tasks(tasks=[responses.Task.model_validate(card) for card in tasks_for(caller)])


async def enqueue_job(caller: Caller, given: EnqueueJob) -> responses.Created:
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


async def get_job(caller: Caller, given: GetJob) -> responses.Job:
    return await _brief(caller, given.id, given.wait_s)


async def list_jobs(caller: Caller, given: ListJobs) -> responses.Jobs:
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


async def explain_job(caller: Caller, given: OneJob) -> responses.Holds:
    def read() -> responses.Holds:
        job = caller.job(given.id)
        holds = [responses.Hold.model_validate(hold) for hold in caller.explain(job.id)]
        return responses.Holds(id=job.id, state=job.state, holds=holds)

    return await to_thread(read)


STOPPING = {"cancel": jobs.cancel, "pause": jobs.pause, "interrupt": jobs.interrupt}


async def stop_job(caller: Caller, given: StopJob) -> responses.Job:
    def stop() -> responses.Job:
        job = caller.job(given.id)
        if given.dry_run:
            found = responses.job_of(caller, job)
            return found.model_copy(
                update={"hint": f"dry run: it is {job.state}, and nothing was done to it"}
            )
        verb = STOPPING[given.mode]
        after = caller.operations.call(verb, job.id, reason=given.reason, actor=caller.actor)
        return responses.job_of(caller, after)

    return await to_thread(stop)


async def resume_job(caller: Caller, given: ResumeJob) -> responses.Job:
    def resume() -> responses.Job:
        job = caller.job(given.id)
        after = caller.operations.call(
            jobs.resume, job.id, args=given.args, fresh=given.fresh, actor=caller.actor
        )
        return responses.job_of(caller, after)

    return await to_thread(resume)


async def list_questions(caller: Caller, given: ListQuestions) -> responses.Questions:
    def read() -> responses.Questions:
        rows = caller.operations.call(
            questions.open_questions, group=given.group, task=given.task, limit=given.limit
        )
        return responses.Questions(
            questions=[
                responses.QuestionOfJob(**dict(responses.question_of(row)), job_id=row.job_id, task=row.task)
                for row in rows
                if caller.access.may_use_queue(row.queue)
            ]
        )

    return await to_thread(read)


async def answer_question(caller: Caller, given: AnswerQuestion) -> responses.Job:
    def answer() -> responses.Job:
        job = caller.job(given.id)
        after = caller.operations.call(questions.answer, job.id, given.key, given.value, actor=caller.actor)
        return responses.job_of(caller, after)

    return await to_thread(answer)


async def group_status(caller: Caller, given: GroupStatusArguments) -> responses.Group:
    caller.check_all_queues()
    request = StatusRequest(group=given.group, wait=given.wait_s, since=given.since)
    status = await caller.operations.agroup_status(request)
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


async def stop_group(caller: Caller, given: StopGroup) -> responses.StopResult:
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
    return responses.StopResult.model_validate(await caller.operations.astop(request))


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
            arguments=Nothing,
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
            arguments=EnqueueJob,
            answer=responses.Created,
            call=enqueue_job,
        ),
        Tool(
            name="get_job",
            title="Look at a job",
            description="State, progress, result, error and open questions of a job. With wait_s it returns as soon "
            "as the job has ended or waits for an answer. If next_poll_s is set, call it again after so many seconds.",
            arguments=GetJob,
            answer=responses.Job,
            call=get_job,
            **_of(jobs.get),
        ),
        Tool(
            name="list_jobs",
            title="List jobs",
            description="Jobs that match everything given, newest first.",
            arguments=ListJobs,
            answer=responses.Jobs,
            call=list_jobs,
            **_of(jobs.list_jobs),
        ),
        Tool(
            name="explain_job",
            title="Why is it not running?",
            description="Every cause that keeps a job from running, in order, with what would change it.",
            arguments=OneJob,
            answer=responses.Holds,
            call=explain_job,
            **_of(jobs.explain),
        ),
        Tool(
            name="stop_job",
            title="Stop a job",
            description="Cancel, pause or interrupt a job. A running job stops as soon as its worker sees the request.",
            arguments=StopJob,
            answer=responses.Job,
            call=stop_job,
            **_of(*STOPPING.values()),
        ),
        Tool(
            name="resume_job",
            title="Resume a job",
            description="Resume a paused, failed or timed-out job.",
            arguments=ResumeJob,
            answer=responses.Job,
            call=resume_job,
            **_of(jobs.resume),
        ),
        Tool(
            name="list_questions",
            title="List open questions",
            description="Open questions of jobs, oldest first.",
            arguments=ListQuestions,
            answer=responses.Questions,
            call=list_questions,
            **_of(questions.open_questions),
        ),
        Tool(
            name="answer_question",
            title="Answer a question",
            description="Answer a job's question, so that the job continues. Ask the user; do not make up an answer.",
            arguments=AnswerQuestion,
            answer=responses.Job,
            call=answer_question,
            **_of(questions.answer),
        ),
        Tool(
            name="group_status",
            title="Look at a group",
            description="The progress of a group of jobs. With wait_s and since it returns as soon as it changes.",
            scope="read",
            annotations=READS,
            arguments=GroupStatusArguments,
            answer=responses.Group,
            call=group_status,
        ),
        Tool(
            name="stop_group",
            title="Stop a group",
            description="Stop all jobs of a group, or those of some tasks. Try it with dry_run first.",
            scope="operate",
            annotations=STOPS,
            arguments=StopGroup,
            answer=responses.StopResult,
            call=stop_group,
        ),
    )
}
"""The tools by name, in the order of the list."""

# -- a question as a form, and the filled form as its answer -----------------------------------------------------------
# A form is a flat object of texts, numbers, choices and booleans. A question may require any JSON value: the schema of
# any other value becomes a form with the single field `value`; a value that no field can show is typed as JSON text.

FORM_FIELD = "value"
_PLAIN = frozenset({"string", "number", "integer", "boolean"})
_KEPT = frozenset(
    {
        "type",
        "title",
        "description",
        "default",
        "enum",
        "minLength",
        "maxLength",
        "minimum",
        "maximum",
        "format",
        "pattern",
    }
)


def form_of(schema: Mapping[str, Any] | None) -> dict[str, Any]:
    """The schema of a form whose content `answer_of` turns into an answer."""
    if schema is not None and _is_flat(schema):
        fields = {name: _field(one) for name, one in schema.get("properties", {}).items()}
        return {"type": "object", "properties": fields, "required": list(schema.get("required", []))}
    return {"type": "object", "properties": {FORM_FIELD: _value_field(schema)}, "required": [FORM_FIELD]}


def answer_of(schema: Mapping[str, Any] | None, content: Mapping[str, Any]) -> Any:
    """The answer from a filled form. Raises InvalidInput for a field that should be JSON and is not."""
    if schema is not None and _is_flat(schema):
        return dict(content)
    if FORM_FIELD not in content:
        raise InvalidInput(FORM_FIELD, "is missing", "fill in the form")
    value = content[FORM_FIELD]
    if schema is not None and is_plain(schema):
        return value
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        raise InvalidInput(
            FORM_FIELD, "is not JSON", "give a JSON value that fits the question's schema"
        ) from None


def is_plain(schema: Mapping[str, Any]) -> bool:
    """Whether a single field of a form can show a value of this schema."""
    return schema.get("type") in _PLAIN


def _is_flat(schema: Mapping[str, Any]) -> bool:
    properties = schema.get("properties")
    return (
        schema.get("type") == "object"
        and isinstance(properties, dict)
        and bool(properties)
        and all(isinstance(one, dict) and is_plain(one) for one in properties.values())
    )


def _field(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key in _KEPT}


def _value_field(schema: Mapping[str, Any] | None) -> dict[str, Any]:
    if schema is not None and is_plain(schema):
        return _field(schema)
    wanted = "" if not schema else f" that fits {json.dumps(schema)}"
    return {"type": "string", "description": f"A JSON value{wanted}"}

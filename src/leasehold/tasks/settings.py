"""Settings of tasks and calls: their check, where a function runs, and the typed keywords that give them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, fields, replace
from datetime import datetime
from types import EllipsisType
from typing import Any, Literal, Protocol, get_args

from typing_extensions import TypedDict

from leasehold.domain.budgets import checked_amounts
from leasehold.domain.checks.numbers import Priority, Size, priority_number, size
from leasehold.domain.checks.texts import check_choice, check_template, checked_name
from leasehold.domain.checks.times import Duration, seconds
from leasehold.domain.errors import InvalidInput, InvalidTask, leaves
from leasehold.domain.frozen import frozen
from leasehold.domain.job import DEFAULT_LEASE, OnDuplicate, OnParentFailure, UniqueFor
from leasehold.domain.limits import Rate, Slot, checked_slots, default_rate, rate_template
from leasehold.domain.policy import (
    BudgetFor,
    KeepResult,
    OnBreach,
    OnDrain,
    OnFailure,
    OnLost,
    OnStall,
    Policy,
)
from leasehold.domain.records import Expose
from leasehold.domain.retention import Keep, retention_by_state
from leasehold.domain.states import State

# -- where a function runs ---------------------------------------------------------------------------------------------

RunIn = Literal["loop", "thread", "process"]

LEAST_MEMORY = 128 * 2**20
"""Least memory limit: Python and this package use most of it before the task's own code is loaded."""


class RunInSettings(Protocol):
    """The settings that decide where the function runs."""

    @property
    def run_in(self) -> RunIn | None: ...

    @property
    def memory(self) -> Size | None: ...

    @property
    def cpu_time(self) -> Duration | None: ...


def runs_in_child_process(settings: RunInSettings, function: Callable[..., Any], is_async: bool) -> bool:
    """Return whether each job gets a process. Raises InvalidTask if the function cannot run where `run_in` says."""
    if settings.run_in == "process":
        _check_process(settings, function)
        return True
    for name in ("memory", "cpu_time"):
        if getattr(settings, name) is not None:
            raise InvalidTask(name, "limits a process, and this task has none", "add run_in='process'")
    wrong, kind, place = ("thread", "an async", "loop") if is_async else ("loop", "a plain", "thread")
    if settings.run_in == wrong:
        raise InvalidTask(
            "run_in", f"{kind} function does not run in the {wrong}", f"use {place!r} or 'process'"
        )
    return False


def _check_process(settings: RunInSettings, function: Callable[..., Any]) -> None:
    if os.name == "nt":
        raise InvalidTask("run_in", "'process' is not available on Windows", "leave it out")
    if settings.memory is not None:
        size(settings.memory, "memory", LEAST_MEMORY)
    if settings.cpu_time is not None:
        seconds(settings.cpu_time, "cpu_time", positive=True)
    name = getattr(function, "__qualname__", "")
    if "<" in name or not name:
        # <locals>, <lambda>
        raise InvalidTask(
            "run_in",
            f"{name or function!r} cannot be imported, and a process of its own has to",
            "define it at the top of a module",
        )


# -- settings ----------------------------------------------------------------------------------------------------------

MOST_TRIES = 1_000_000_000


_NO_QUEUE = "is for jobs that go back to a queue, and queueing is off"


@frozen(kw_only=True)
class Retry:
    """When a failed attempt is tried again: up to `max_attempts` attempts that fail, waiting `backoff` seconds, doubled
    each time up to `max_delay`. `backoff=0` retries at once. `on` limits retries to these exceptions, `never` excludes
    some. An exception group is excluded if anything in it is, and covered by `on` if everything in it is. Only a task
    can set `on` and `never`: a class cannot be stored with a job."""

    max_attempts: int = 3
    """How many failed attempts the job has before it fails for good."""
    backoff: Duration = 2.0
    """The wait before the first retry; it doubles with each further one, and half of it is random. 0 retries at
    once."""
    max_delay: Duration = 300.0
    """The longest wait between two attempts."""
    max_crashes: int | None = None
    """How many lost leases or crashed processes in a row, without progress, fail the job. None: 3 if it ran
    alone in its process, else 10."""
    on: tuple[type[BaseException], ...] | None = None
    """The exceptions that are retried. None: every `Exception`; on a single call, as its task says."""
    never: tuple[type[BaseException], ...] | None = None
    """The exceptions that are never retried. None: none; on a single call, as its task says."""

    def covers(self, error: BaseException) -> bool:
        """Return whether an attempt that raised this error is tried again."""
        on = (Exception,) if self.on is None else self.on
        never = self.never or ()
        if not isinstance(error, BaseExceptionGroup):
            return isinstance(error, on) and not isinstance(error, never)
        found = leaves(error)
        if isinstance(error, never) or any(isinstance(leaf, never) for leaf in found):
            return False
        return isinstance(error, on) or all(isinstance(leaf, on) for leaf in found)


@frozen(kw_only=True)
class TaskSettings:
    """The settings of a task, or of one call of it. The names are the keywords of `@app.task` and `.using()`."""

    queue: str = "default"
    """The queue that its jobs wait in."""
    priority: Priority = 0
    """From -100 (last) to 100 (first); "high" is 10, "medium" 0 and "low" -10. Jobs with the same priority run
    in order of their due time."""
    lane: str | None = None
    """A template of arguments, such as "{user_id}": jobs in the same lane run one at a time and in order."""
    on_failure: OnFailure = "halt"
    """What a failed job does to its lane: "halt" stops the lane until an operator steps in, "skip" lets it go on."""
    retry: Retry = field(default_factory=Retry)
    """When a failed attempt is tried again."""
    timeout: Duration | None = None
    """How long one attempt may take. None: no limit."""
    deadline: Duration | None = None
    """How long the whole job may take from its enqueue, with all waits and retries."""
    start_by: Duration | None = None
    """The job is cancelled if it has not started this long after its enqueue."""
    lease: Duration = DEFAULT_LEASE
    """How long a worker's claim on the job lasts without a renewal; after a crash another worker takes over
    when it runs out."""
    heartbeat: Duration | None = None
    """How often the worker renews the lease, at most a third of it. None: a third of it."""
    on_lost: OnLost = "retry"
    """What happens when the lease is lost: "retry" queues the job again, "fail" fails it, "adopt" is what
    commands and containers do."""
    count_lost: bool = False
    """Whether a lost lease counts as a failed attempt. If not, only `Retry.max_crashes` limits lost leases."""
    on_drain: OnDrain = "requeue"
    """What happens to a job that still runs when its worker's shutdown grace ends: "requeue" or "pause"."""
    stall_after: Duration | None = None
    """The job is reported as stalled when it shows no sign of life (progress, steps, log lines) for this long."""
    budget: Mapping[str, int] | None = None
    """What the job may spend, in whole numbers by unit: `{"usd_cents": 50}`."""
    on_breach: OnBreach = "fail"
    """What happens when the job spends more than its budget, or its group's: "fail", "pause", or "allow", which only
    shows it in `ctx.left`."""
    budget_for: BudgetFor = "job"
    """Whether `budget` is for all attempts of a job together ("job") or for each attempt ("attempt")."""
    on_stall: OnStall = "report"
    """What happens to a stalled job besides the report: nothing, "pause", or "stop", a failure that may be
    retried."""
    unique: str | None = None
    """A template of arguments: only one job can have the same text."""
    unique_for: UniqueFor = "live"
    """How long the key is taken: while the job lives ("live"), or as long as its row is kept ("ever")."""
    on_duplicate: OnDuplicate = "return"
    """What an enqueue does when the key is taken: "return" gives back the job that has it, "replace" cancels
    that job if it never started, "raise" raises `DuplicateJob`."""
    tags: tuple[str, ...] = ()
    """Labels to find jobs by; templates of arguments, as for `lane`: `("user:{user_id}",)`."""
    slots: Mapping[str, int | Slot] | None = None
    """Units that the job holds while it runs, by slot; the names are templates, as for `lane`."""
    rate: str | Rate | None = None
    """The rate limit that its starts count against; a template, as for `lane`."""
    max_running: int | None = None
    """How many of its jobs may run at once for `app.run_now` to start another."""
    queueing: bool = True
    """False: its jobs are never queued, only started at once by `app.run_now`; they run once, and an
    interrupted run fails."""
    sensitive: tuple[str, ...] = ()
    """Arguments that only the handler sees; they are stored, and hidden in every list, page and API."""
    mirror: bool = False
    """Whether the triggers of `leasehold db mirror` see its jobs, and keep a table of yours in step with them."""
    expose: Expose = False
    """Whether MCP clients get it as a tool: a task for clients that support tasks, otherwise a call that waits. "task":
    only a task. "call": always a call, for quick work."""
    retention: Keep | EllipsisType = ...
    """How long its jobs are kept after they end; None: for ever. Left out, the worker's `retention` decides. Or
    by state: `{"succeeded": "1d", "failed": "30d"}`."""
    result: KeepResult = "row"
    """Where its result is kept: in the "row", or in a "file". A result that is too large for a row goes to
    the results folder, or to the database if there is none."""
    run_in: RunIn | None = None
    """Where its code runs. None: an async function on the event loop, a plain function in a thread."""
    memory: Size | None = None
    """How much memory its process may use; needs `run_in="process"`."""
    cpu_time: Duration | None = None
    """How much CPU time its process may use; needs `run_in="process"`."""

    def checked(self, task: str, arguments: set[str]) -> TaskSettings:
        """Return the same settings, or raise an error that names the wrong one."""
        checked_name(self.queue, "queue")
        self._check_sensitive(task, arguments)
        priority_number(self.priority)
        for name in ("lane", "unique"):
            check_template(task, name, getattr(self, name), arguments)
        check_template(task, "rate", rate_template(self.rate), arguments)
        default_rate(self.rate)
        needs, _ = checked_slots(self.slots)
        for name, _ in needs:
            check_template(task, "slots", name, arguments)
        for name, choices in (
            ("on_failure", OnFailure),
            ("on_lost", OnLost),
            ("on_drain", OnDrain),
            ("on_stall", OnStall),
            ("on_breach", OnBreach),
            ("budget_for", BudgetFor),
            ("unique_for", UniqueFor),
            ("on_duplicate", OnDuplicate),
            ("result", KeepResult),
        ):
            check_choice(name, getattr(self, name), choices, InvalidTask)
        if self.run_in is not None:
            check_choice("run_in", self.run_in, RunIn, InvalidTask)
        if self.expose not in get_args(Expose):
            raise InvalidTask(
                "expose", f"{self.expose!r} is not allowed", 'use True, False, "task" or "call"'
            )
        for name in ("count_lost", "mirror"):
            if not isinstance(getattr(self, name), bool):
                raise InvalidTask(name, f"{getattr(self, name)!r} is not allowed", "use True or False")
        for name in ("timeout", "deadline", "start_by", "stall_after"):
            if getattr(self, name) is not None:
                seconds(getattr(self, name), name, positive=True)
        lease, beat = seconds(self.lease, "lease", positive=True), self.beat
        if beat > lease / 3 + 1e-9:
            raise InvalidTask(
                "heartbeat",
                f"{beat:g} s is more than a third of the {lease:g} s lease",
                "one missed beat must not cost the lease: lengthen the lease or shorten the heartbeat",
            )
        tags: object = self.tags
        if isinstance(tags, str):
            raise InvalidTask("tags", f"{self.tags!r} is text", "give a tuple of texts")
        for tag in self.tags:
            check_template(task, "tags", checked_name(tag, "tags"), arguments)
        check_max_running(self.max_running)
        self.ages()
        self.policy()
        check_without_queue(self, explicit_retry=self.retry != Retry())
        return self

    def ages(self) -> dict[State, float | None]:
        """Return the task's own retention by state; empty: it has none."""
        return (
            {}
            if isinstance(self.retention, EllipsisType)
            else retention_by_state(self.retention, "retention")
        )

    def _check_sensitive(self, task: str, arguments: set[str]) -> None:
        names: object = self.sensitive
        if isinstance(names, str) or not isinstance(names, tuple):
            raise InvalidTask("sensitive", f"{names!r} is not a tuple", 'give names: sensitive=("api_key",)')
        for name in names:
            if name not in arguments:
                listed = ", ".join(sorted(arguments)) or "none"
                raise InvalidTask(
                    "sensitive", f"names {name!r}", f"task {task!r} has these arguments: {listed}"
                )
        slots = tuple(self.slots or ())
        for setting, template in (
            ("lane", self.lane),
            ("unique", self.unique),
            ("rate", rate_template(self.rate)),
            *(("tags", tag) for tag in self.tags),
            *(("slots", slot) for slot in slots),
        ):
            for name in self.sensitive:
                if isinstance(template, str) and f"{{{name}}}" in template:
                    raise InvalidTask(
                        setting,
                        f"{template!r} would show {name!r}, which is sensitive",
                        "make it from another argument",
                    )

    def policy(self) -> Policy:
        """Return the policy that is stored with the job."""
        retry = self.retry
        if not isinstance(retry, Retry):
            raise InvalidTask("retry", f"{retry!r} is not a Retry", "use retry=Retry(max_attempts=…)")
        check_tries(retry.max_attempts, "retry.max_attempts")
        if retry.max_crashes is not None:
            check_tries(retry.max_crashes, "retry.max_crashes")
        return Policy(
            queueing=self.queueing,
            max_attempts=retry.max_attempts if self.queueing else 1,
            max_crashes=retry.max_crashes,
            backoff=seconds(retry.backoff, "retry.backoff"),
            max_delay=seconds(retry.max_delay, "retry.max_delay"),
            on_lost=self.on_lost if self.queueing or self.on_lost == "adopt" else "fail",
            count_lost=self.count_lost,
            on_failure=self.on_failure,
            on_breach=self.on_breach,
            budget=None if self.budget is None else checked_amounts(self.budget, "budget"),
            budget_for=self.budget_for,
            mirror=self.mirror,
        )

    def policy_of_call(self, own: TaskSettings) -> Policy:
        """Like `policy`, for a call whose settings differ from the task's. The policy also carries what the worker
        would take from the task, but only where the call differs: a plain job carries nothing."""
        policy = self.policy()
        if self is own:
            return policy
        said: dict[str, Any] = {
            name: 0.0 if value is None else seconds(value, name)
            for name in ("timeout", "stall_after")
            if (value := getattr(self, name)) != getattr(own, name)
        }
        said |= {
            name: getattr(self, name)
            for name in ("on_stall", "on_drain", "result")
            if getattr(self, name) != getattr(own, name)
        }
        if self.heartbeat != own.heartbeat:
            said["heartbeat"] = self.beat
        return replace(policy, **said) if said else policy

    @property
    def beat(self) -> float:
        """Seconds between two renewals of the lease."""
        lease = seconds(self.lease, "lease", positive=True)
        return lease / 3 if self.heartbeat is None else seconds(self.heartbeat, "heartbeat", positive=True)

    def changed(self, changes: Mapping[str, Any]) -> TaskSettings:
        """Return the settings of a call with these changes."""
        retry = changes.get("retry")
        for name in ("on", "never") if isinstance(retry, Retry) else ():
            if getattr(retry, name) not in (None, getattr(self.retry, name)):
                raise InvalidInput(
                    f"retry.{name}",
                    "is the task's alone: the class of an exception cannot travel with a job",
                    "say it in @app.task(retry=Retry(…)), and leave it out here",
                )
        return replace(self, **changes)


@frozen(kw_only=True)
class CallSettings:
    """Settings that only a single call can have, besides the task's settings."""

    delay: Duration = 0
    """Start no sooner than this long from now."""
    at: datetime | None = None
    """Start no sooner than this time, which needs a time zone. Wins over `delay`."""
    hold: bool = False
    """Store the job as pending, and start it only after `job.release()`."""
    group: str | None = None
    """The group that the job belongs to, to be watched, stopped and budgeted with the others in it."""
    trace: str | None = None
    """The `traceparent` of the caller, for links between traces; `app.instrument` sets it for you."""
    after: tuple[str, ...] = ()
    """Jobs that must end before this one may run: jobs, follow-ups or ids."""
    on_parent_failure: OnParentFailure = "cancel"
    """What the job does when a parent ends without success: "cancel" or "run"."""
    immediately: bool = False
    """For a follow-up: store it at once, not with the success of its parent."""
    key: str | None = None
    """For a follow-up with `immediately=True`: its name, so that a second attempt of the parent finds it instead of
    making another."""
    tx: Any = None
    """A connection of yours with an open transaction: the job is stored when the transaction commits."""

    def refuse_tx(self, what: str, remedy: str) -> None:
        """Refuse `tx` where no enqueue could join a transaction."""
        if self.tx is not None:
            raise InvalidInput("tx", f"joins an enqueue to your own transaction, and {what}", remedy)


OF_TASK = frozenset(f.name for f in fields(TaskSettings))
CALL_ONLY = frozenset(f.name for f in fields(CallSettings))


def check_tries(count: object, field: str) -> None:
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MOST_TRIES:
        raise InvalidTask(field, f"{count!r} is not a number of tries", f"give 1 to {MOST_TRIES:,}")


def check_max_running(count: object) -> None:
    if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 1):
        raise InvalidTask("max_running", f"{count!r} is not a number of runs", "give 1 or more")


def check_without_queue(settings: TaskSettings, explicit_retry: bool) -> None:
    """Refuse settings that a task without a queue cannot keep, at its declaration."""
    if not isinstance(settings.queueing, bool):
        raise InvalidTask("queueing", f"{settings.queueing!r} is not allowed", "use True or False")
    if settings.queueing:
        return
    if explicit_retry and settings.retry.max_attempts > 1:
        raise InvalidTask("retry", _NO_QUEUE, "leave it out: such a job runs once")
    if settings.on_drain == "pause":
        raise InvalidTask("on_drain", f"'pause' {_NO_QUEUE}", "leave it out: an interrupted run fails")


def checked_max_running(task: str, settings: TaskSettings, call: CallSettings) -> int:
    """Return the `max_running` of a `run_now` call. Raises on a setting that would make the job wait."""
    call.refuse_tx("run_now starts the job before your commit", "leave it out, or enqueue the job instead")
    for name, given in (
        ("delay", call.delay != 0),
        ("at", call.at is not None),
        ("hold", call.hold),
        ("after", bool(call.after)),
        ("key", call.key is not None),
    ):
        if given:
            raise InvalidInput(name, "makes a job wait, and run_now starts it at once", "leave it out")
    if settings.max_running is None:
        raise InvalidInput(
            "max_running",
            f"task {task!r} has none",
            "say how many may run at once: app.run_now(task.using(max_running=4), …)",
        )
    return settings.max_running


def checked_on_parent_failure(choice: OnParentFailure) -> OnParentFailure:
    check_choice("on_parent_failure", choice, OnParentFailure)
    return choice


# -- typed keywords ----------------------------------------------------------------------------------------------------
# `TaskSettings` and `CallSettings` explain them; this module checks them.


class _Options(TypedDict, total=False):
    """The keywords that a task and a call share."""

    queue: str
    priority: Priority
    lane: str | None
    on_failure: OnFailure
    retry: Retry
    timeout: Duration | None
    deadline: Duration | None
    start_by: Duration | None
    lease: Duration
    heartbeat: Duration | None
    on_lost: OnLost
    count_lost: bool
    on_drain: OnDrain
    budget: Mapping[str, int] | None
    on_breach: OnBreach
    budget_for: BudgetFor
    stall_after: Duration | None
    on_stall: OnStall
    unique: str | None
    unique_for: UniqueFor
    on_duplicate: OnDuplicate
    tags: tuple[str, ...]
    slots: Mapping[str, int | Slot] | None
    rate: str | Rate | None
    max_running: int | None
    result: KeepResult


class TaskOptions(_Options, total=False):
    """The keywords of `@app.task`, for editors and type checkers; `TaskSettings` explains them."""

    queueing: bool
    mirror: bool
    expose: Expose
    retention: Keep
    sensitive: tuple[str, ...]
    run_in: RunIn
    memory: Size | None
    cpu_time: Duration | None


class CallOptions(_Options, total=False):
    """The keywords of `.using()`, for editors and type checkers; `TaskSettings` and `CallSettings` explain them."""

    after: Iterable[Any]
    on_parent_failure: OnParentFailure
    immediately: bool
    key: str | None
    delay: Duration
    at: datetime | None
    hold: bool
    group: str | None
    trace: str | None
    tx: Any
    tenant: str | None
    """The tenant that gets the job. None: the app's own store."""

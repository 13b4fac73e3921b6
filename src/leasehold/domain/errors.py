"""Every error a user can meet, as one tree.

LeaseholdError
    ├── InvalidInput                 the call was wrong; nothing was stored
    │   ├── InvalidArguments         a task's arguments do not fit its signature
    │   ├── NotSerializable          a value no store can keep (NaN, NUL, lone surrogate, too large)
    │   ├── UnknownTask              no task of that name is registered
    │   ├── DuplicateStep            an attempt used the name of a step twice
    │   ├── InvalidTask              a task's own declaration is wrong
    │   ├── DependencyCycle          jobs that would wait for each other for ever
    │   ├── InvalidAnswer            an answer does not fit its question
    │   ├── IdempotencyKeyReused     the key was used before, for a different request
    │   └── InvalidSignature         a request to a webhook was not signed with its secret
    ├── JobError                     the call was right; the job does not allow it
    │   ├── JobNotFound
    │   ├── InvalidState             not in this state
    │   ├── DuplicateJob             its unique key is held by another job
    │   ├── LeaseLost                the write came from a worker that no longer holds the lease
    │   ├── TransactionTooLong       a handler kept the job's row locked for too long
    │   ├── JobNotSucceeded          a caller wants its result, and it did not succeed
    │   ├── UnreadableResult         its result no longer fits the task's return annotation
    │   ├── ResultMissing            its result is a file that is gone, damaged or out of reach
    │   ├── StreamFull               the job emits faster than the database can store
    │   ├── OverBudget               the job or its group has spent more than its limit
    │   └── QuestionExpired          no one answered its question in time
    ├── PartlyStored                 a long enqueue_many failed in a later piece
    ├── AtCapacity                   run_now found every place of the task taken; nothing was stored
    ├── ScheduleNotFound             no schedule has that name
    ├── TenantNotFound               no tenant has that name
    ├── GroupOnHold                  the group takes no jobs until it is released
    ├── RunnerUnreachable            the runner of a task, such as a Docker engine, does not answer
    ├── WaitTimedOut                 the job did not end in time
    ├── AcquireTimedOut              a slot or a rate was not free in time
    └── StoreError                   the database, or the server in front of it, refuses or fails
        ├── DatabaseUnreachable
        │   └── DatabaseDamaged      its file, or a page of it, is not what a database wrote
        ├── PoolExhausted            all connections of the process were in use for too long
        ├── ResultsUnwritable        the folder for results is full, missing or read-only
        ├── ReadTooSlow              a read took longer than its caller may wait
        ├── DriverMissing
        ├── DatabaseTooOld
        ├── DatabaseUnfit            its encoding, or a setting of its connections, is unusable
        ├── PermissionMissing        the role lacks a permission
        ├── SchemaOutdated           migrations are missing
        ├── SchemaIncomplete         tables or other parts are missing
        ├── SchemaTooNew             the schema was written by a newer Leasehold
        ├── RemoteUnreachable        the server of `leasehold.remote` does not answer
        └── RemoteError              that server refused the request, or failed

An error carries its facts as attributes; its text names the field and the remedy. All errors are in this one long file,
so that a reader who catches one sees the related ones.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from leasehold.domain.frozen import frozen

# -- pickling ----------------------------------------------------------------------------------------------------------


class Portable(BaseException):
    """An exception that survives pickling unchanged. By default Python rebuilds an exception from its message, which
    does not fit these constructors: unpickling would fail, and a process pool would wait for its result for ever."""

    def __reduce__(self) -> tuple[Any, ...]:
        return rebuilt, (type(self), self.args, vars(self))


def rebuilt(kind: type[BaseException], args: tuple[Any, ...], facts: dict[str, Any]) -> BaseException:
    error = kind.__new__(kind)
    error.args = args
    vars(error).update(facts)
    return error


# -- errors ------------------------------------------------------------------------------------------------------------


class LeaseholdError(Portable, Exception):
    """The root: `except LeaseholdError` catches everything that Leasehold raises on purpose.

    Remedy: Catch one of its kinds."""


def error_code(name: str) -> str:
    """The error's code outside of Python: `JobNotFound` is `job-not-found`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).lower()


class InvalidInput(LeaseholdError, ValueError):
    """A value was refused before anything was stored. `field` names it, `remedy` says what to give instead.

    Remedy: Change the value as `remedy` says."""

    def __init__(self, field: str, problem: str, remedy: str) -> None:
        self.field = field
        self.problem = problem
        self.remedy = remedy
        super().__init__(f"{field}: {problem}; {remedy}" if remedy else f"{field}: {problem}")


class InvalidArguments(InvalidInput):
    """The arguments do not fit the task's signature. `problems` maps each field to what is wrong with it.

    Remedy: Pass arguments that fit the signature."""

    def __init__(self, task: str, problems: Mapping[str, str]) -> None:
        self.task = task
        self.problems = dict(problems)
        first = next(iter(self.problems), "arguments")
        listed = "; ".join(f"{field}: {problem}" for field, problem in self.problems.items())
        super().__init__(first, f"task {task!r} refused its arguments ({listed})", "see the task's signature")


class NotSerializable(InvalidInput):
    """The value cannot be kept as JSON with the same meaning on every store: NaN, NUL, a lone surrogate, or too
    large.

    Remedy: Pass a smaller or plainer value, or a reference to it."""


class InvalidSignature(InvalidInput):
    """The request to a webhook was not signed with its secret, or is too old.

    Remedy: Do not trust the request; check the secret and the clock."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(field, problem, "reject the request, and check the secret and the clock")


class IdempotencyKeyReused(InvalidInput):
    """The key was used within the last day for a different request. Nothing was stored.

    Remedy: Repeat a request unchanged, or give each one its own key."""

    def __init__(self) -> None:
        super().__init__(
            "Idempotency-Key",
            "was used before for a different request",
            "repeat a request unchanged, or give each one its own key",
        )


class UnknownTask(InvalidInput):
    """No task of that name is registered on this app.

    Remedy: Register it with `@app.task`, or import the module that does."""

    def __init__(self, name: str, known: list[str]) -> None:
        self.name = name
        self.known = sorted(known)
        listed = ", ".join(self.known[:10]) or "none"
        super().__init__("task", f"no task is named {name!r}", f"register it with @app.task; known: {listed}")


class DuplicateStep(InvalidInput):
    """An attempt used the same name for two steps. A step's stored result is found by its name.

    Remedy: Name each step by what it works on."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            "step", f"{name!r} was used before in this run", "name each step by what it works on"
        )


class InvalidTask(InvalidInput):
    """A task's declaration is wrong: a template names an unknown argument, a heartbeat does not fit its lease.

    Remedy: Correct the declaration."""


class DependencyCycle(InvalidInput):
    """These jobs would wait for each other for ever. `cycle` names them in order, and the first one again at the end.

    Remedy: Remove one of these dependencies."""

    def __init__(self, cycle: Sequence[str]) -> None:
        self.cycle = list(cycle)
        listed = " → ".join(self.cycle)
        super().__init__("after", f"{listed} would wait for each other", "remove one of these dependencies")


class InvalidAnswer(InvalidInput):
    """The answer does not fit the question's schema; the question stays open. `path` leads to the part that does
    not fit, `$` is the whole.

    Remedy: Look at the question's schema, and answer again."""

    def __init__(self, key: str, path: str, problem: str) -> None:
        self.key = key
        self.path = path
        super().__init__(
            "answer",
            f"question {key!r} refused it: {path} {problem}",
            "see the question's schema, and answer again",
        )


def state_reported(state: str) -> str:
    """Return the state as the end of a sentence about a job."""
    ended = {
        "succeeded": "has succeeded",
        "failed": "failed",
        "timed_out": "timed out",
        "cancelled": "was cancelled",
    }
    return ended.get(state, f"is {state}")


class JobError(LeaseholdError):
    """The job does not allow the call. `job_id` names the job.

    Remedy: Look at the job: `leasehold jobs show ID`."""

    def __init__(self, job_id: str, message: str) -> None:
        self.job_id = job_id
        super().__init__(message)


class JobNotFound(JobError, LookupError):
    """No job has that id, or it was pruned.

    Remedy: Check the id, the database and the tenant; keep jobs longer with `retention`."""

    def __init__(self, job_id: str, why: str = "it may have been pruned") -> None:
        super().__init__(job_id, f"no job has the id {job_id[:100]}; {why}")


class InvalidState(JobError):
    """The verb does not apply in the job's present state; nothing was changed.

    Remedy: Look at `state` and `why`; another verb may apply."""

    def __init__(self, job_id: str, verb: str, state: str, why: str = "") -> None:
        self.verb = verb
        self.state = state
        self.why = why
        super().__init__(
            job_id, f"cannot {verb} job {job_id}: it {state_reported(state)}" + (f"; {why}" if why else "")
        )


class DuplicateJob(JobError):
    """Another job holds the unique key. `job_id` is the holder's.

    Remedy: Use that job, wait for its end, or enqueue with `on_duplicate="return"`."""

    def __init__(self, job_id: str, task: str, unique_key: str) -> None:
        self.task = task
        self.unique_key = unique_key
        super().__init__(job_id, f"the unique key {unique_key!r} of task {task!r} is held by job {job_id}")


class LeaseLost(JobError):
    """The attempt no longer holds the lease: its write was refused, and only the next holder's writes count.

    Remedy: Let the handler end; another attempt has the job."""

    def __init__(self, job_id: str, token: int) -> None:
        self.token = token
        super().__init__(
            job_id, f"lease {token} on job {job_id} is lost, and the write was refused; let the handler end"
        )


class TransactionTooLong(JobError):
    """A transaction of a handler took too long. Nothing written in it is kept. Renewals of the lease wait for it,
    and on SQLite every other writer, so it must be short.

    Remedy: Do the slow work before the transaction, and only write in it."""

    def __init__(self, job_id: str, seconds: float) -> None:
        self.seconds = seconds
        super().__init__(
            job_id,
            f"a transaction of job {job_id} took more than {seconds:g} s and was rolled back; "
            "do the slow work before it, and only write in it",
        )


class JobNotSucceeded(JobError):
    """A caller wants the result of a job that did not succeed.

    Remedy: Look at `state` and `error`; `job.retry()` makes a new job."""

    def __init__(self, job_id: str, state: str, error: str | None) -> None:
        self.state = state
        self.error = error
        super().__init__(job_id, f"job {job_id} {state_reported(state)}" + (f": {error}" if error else ""))


class UnreadableResult(JobError):
    """The job has succeeded, but its result does not fit the task's return annotation, which has changed since.

    Remedy: Let the annotation accept both, or read the result with `leasehold jobs show ID --json`."""

    def __init__(self, job_id: str, task: str, problem: str) -> None:
        self.task = task
        self.problem = problem
        super().__init__(
            job_id,
            f"the result of job {job_id} {problem}: task {task!r} has changed since it was stored; let the annotation "
            f"accept both, or read it as it is with `leasehold jobs show {job_id} --json`",
        )


NO_RESULTS_FOLDER = (
    'name a folder that all workers and readers reach: Leasehold(results="…"), or LEASEHOLD_RESULTS'
)


class ResultMissing(JobError):
    """The job has succeeded, but its result is in a file that cannot be read. `path` is where it should be.

    Remedy: Give every process the same results folder (`LEASEHOLD_RESULTS`), or run the job again."""

    def __init__(self, job_id: str, path: str, problem: str, remedy: str) -> None:
        self.path = path
        self.problem = problem
        self.remedy = remedy
        listed = f"the result of job {job_id} is missing: {path} {problem}"
        super().__init__(job_id, f"{listed}; {remedy}" if remedy else listed)


class StreamFull(JobError):
    """An async handler emits updates faster than the database can store them. `waiting` is how many wait.

    Remedy: Call `await ctx.flush()` now and then."""

    def __init__(self, job_id: str, waiting: int) -> None:
        self.waiting = waiting
        super().__init__(
            job_id,
            f"job {job_id} has too many updates waiting (up to {waiting:,}); call `await ctx.flush()` now and then",
        )


class PartlyStored(LeaseholdError):
    """A long `enqueue_many` failed after some of it was stored: the first `stored` calls, in order; `ids` are their
    jobs. None of the others is stored, unless the cause is a lost connection to the database.

    Remedy: Correct the cause, and enqueue the rest from number `stored` on."""

    def __init__(self, stored: int, ids: Sequence[str], cause: str) -> None:
        self.stored = stored
        self.ids = ids
        self.cause = cause
        super().__init__(
            f"the first {stored:,} jobs are stored, the next ones are not: {cause}; "
            f"fix that, and enqueue the rest, from number {stored:,} on"
        )


@frozen
class RunningJob:
    """An attempt that takes one place. Without worker and lease end it is an orphan: its execution may still run."""

    job_id: str
    worker: str | None
    started_at: datetime | None
    lease_expires_at: datetime | None


class AtCapacity(LeaseholdError):
    """`run_now` found every place of the task taken; nothing was stored. `holders` lists the attempts that
    take them (`job_id`, `worker`, `started_at`, `lease_expires_at`), `retry_after` is a hint in seconds.

    Remedy: Try again after `retry_after` seconds, raise `max_running`, or enqueue the job."""

    def __init__(
        self, task: str, max_running: int, holders: Sequence[RunningJob], retry_after: float
    ) -> None:
        self.task = task
        self.max_running = max_running
        self.holders = tuple(holders)
        self.retry_after = retry_after
        named = ", ".join(holder.job_id for holder in self.holders[:3])
        more = f" and {len(self.holders) - 3} more" if len(self.holders) > 3 else ""
        super().__init__(
            f"task {task!r} already runs {len(self.holders)} times, and its max_running is {max_running} "
            f"(jobs {named}{more}); try again in about {retry_after:g} s, raise max_running, or enqueue the job"
        )


class OverBudget(JobError):
    """Raised in a handler by the spend that went over a limit; the amount is recorded. A handler that catches it
    and returns has succeeded; otherwise the job ends as its `on_breach` says, and is not retried.

    Remedy: Raise the limit with `job.top_up(…)` or `app.group(name).budget(…)`, then resume the job."""

    def __init__(self, job_id: str, scope: str, name: str, unit: str, limit: int, spent: int) -> None:
        self.scope = scope
        self.name = name
        self.unit = unit
        self.limit = limit
        self.spent = spent
        top_up = f"raise it with job.top_up({unit}=…), or `leasehold limits top-up {job_id} {unit}=…`"
        whose, remedy = {
            "job": ("its budget", top_up),
            "attempt": ("the budget of an attempt", f"the next attempt begins at 0; {top_up}"),
        }.get(scope, (f"the budget of group {name!r}", f"raise the group's limit for {unit}"))
        super().__init__(job_id, f"over budget: {spent:,} {unit} are spent, {whose} is {limit:,}; {remedy}")


class QuestionExpired(JobError, TimeoutError):
    """Raised in a handler by `ctx.ask`: the question's time-out has passed without an answer.

    Remedy: Catch it and go on without the answer, or ask with a longer `timeout`."""

    def __init__(self, job_id: str, key: str) -> None:
        self.key = key
        super().__init__(
            job_id,
            f"question {key!r} of job {job_id} was not answered in time; "
            "ask with a longer timeout, or catch QuestionExpired",
        )


class ScheduleNotFound(LeaseholdError, LookupError):
    """No schedule has that name.

    Remedy: List them with `app.schedules.list()`."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"no schedule is named {name!r}; list them with `leasehold schedules`, or app.schedules.list()"
        )


class TenantNotFound(LeaseholdError, LookupError):
    """No tenant has that name, or it was dropped.

    Remedy: Create it with `app.tenants.create(name)`."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"no tenant is named {name!r}; create it with `leasehold tenants create {name}`, "
            f"or app.tenants.create({name!r})"
        )


class GroupOnHold(LeaseholdError):
    """A stop has put the group on hold: it takes no jobs, and none of its jobs starts again. The call changed
    nothing.

    Remedy: Lift the hold with `app.group(name).release()`."""

    def __init__(self, group: str, reason: str | None = None, held_by: str | None = None) -> None:
        self.group = group
        self.reason = reason
        self.held_by = held_by
        by = f" by {held_by}" if held_by else ""
        why = f" ({reason})" if reason else ""
        super().__init__(f"group {group!r} is on hold{by}{why}; lift it with app.group({group!r}).release()")


class RunnerUnreachable(LeaseholdError):
    """The worker does not start, because it could not run one of its tasks: a container without an engine, say.

    Remedy: Start what the task needs, or a worker whose app lacks this task."""

    def __init__(self, task: str, cause: str) -> None:
        self.task = task
        self.cause = cause
        super().__init__(f"cannot run {task}: {cause}; fix that, or start a worker whose app lacks this task")


class WaitTimedOut(LeaseholdError, TimeoutError):
    """The job did not end in time. The job itself goes on.

    Remedy: Wait longer, or look later; `leasehold why ID` says what holds it up."""

    def __init__(self, job_id: str, seconds: float, state: str) -> None:
        self.job_id = job_id
        self.seconds = seconds
        self.state = state
        super().__init__(
            f"job {job_id} is still {state} after {seconds:g} s; wait longer, or see `leasehold why {job_id}`"
        )


class AcquireTimedOut(LeaseholdError, TimeoutError):
    """A handler waited for units of a slot, or for a rate, and got none in time. `name` is the slot's or rate's name.

    Remedy: Wait longer, or raise the limit."""

    def __init__(self, name: str, units: int, seconds: float) -> None:
        self.name = name
        self.units = units
        self.seconds = seconds
        super().__init__(
            f"{units} unit(s) of {name!r} did not become free within {seconds:g} s; wait longer, or raise its limit"
        )


class StoreError(LeaseholdError):
    """The database, or the server in front of it, refuses or fails.

    Remedy: Look at the kind of error; `leasehold doctor` checks the database."""


class DatabaseUnreachable(StoreError):
    """The database cannot be reached.

    Remedy: Check that it runs and that the URL is right."""

    def __init__(
        self, store: str, cause: str, remedy: str = "check that it runs and that the URL is right"
    ) -> None:
        self.store = store
        self.cause = cause
        self.remedy = remedy
        super().__init__(f"cannot reach {store}: {cause}; {remedy}")


class DatabaseDamaged(DatabaseUnreachable):
    """The database's file is damaged, or is no database.

    Remedy: Stop the processes that use it, and restore it from a backup."""

    def __init__(
        self,
        store: str,
        cause: str,
        remedy: str = "stop the processes that use it, and restore it from a backup",
    ) -> None:
        super().__init__(store, cause, remedy)
        self.args = (f"{store} is damaged: {cause}; {remedy}",)


class PoolExhausted(StoreError):
    """All connections of this process to its database were in use for too long. Nothing was sent; the database may be
    well.

    Remedy: Call from fewer threads at once, keep transactions in handlers short, and look for locks."""

    def __init__(self, store: str, size: int, seconds: float) -> None:
        self.store = store
        self.size = size
        self.seconds = seconds
        super().__init__(
            f"all {size} connections of this process to {store} were in use for {seconds:g} s; call from fewer threads "
            "at once, keep transactions in handlers short, and look in pg_stat_activity for statements that wait for a "
            "lock"
        )


class ResultsUnwritable(StoreError):
    """The folder for results cannot be written to: it is full, missing or read-only. A worker keeps the results of
    running jobs and tries again.

    Remedy: Make room in the folder, bring it back, or change its rights."""

    def __init__(self, folder: str, cause: str) -> None:
        self.folder = folder
        self.cause = cause
        super().__init__(
            f"cannot write to the results folder {folder}: {cause}; make room, bring it back or change its rights"
        )


class DriverMissing(StoreError):
    """A package that this needs is not installed.

    Remedy: Install the extra that the message names, such as `pip install 'leasehold[postgres]'`."""

    def __init__(self, driver: str, extra: str) -> None:
        self.driver = driver
        self.extra = extra
        super().__init__(f"{driver} is not installed; run: pip install 'leasehold[{extra}]'")


def need_extra(extra: str, *packages: str) -> None:
    """Raise DriverMissing unless these packages of the extra are installed. None of them is imported."""
    from importlib.util import find_spec

    for package in packages:
        if find_spec(package) is None:
            raise DriverMissing(package, extra)


class DatabaseTooOld(StoreError):
    """The database, or the SQLite library, is older than Leasehold supports.

    Remedy: Upgrade it."""

    def __init__(self, database: str, found: str, needed: str) -> None:
        self.database = database
        self.found = found
        self.needed = needed
        super().__init__(f"{database} {found} is too old; Leasehold needs {needed} or later")


class DatabaseUnfit(StoreError):
    """The database can be reached, but would lose or garble stored values.

    Remedy: Change the setting that the message names."""

    def __init__(self, store: str, problem: str, remedy: str) -> None:
        self.store = store
        self.problem = problem
        self.remedy = remedy
        super().__init__(f"{store} cannot be used: {problem}; {remedy}")


class ReadTooSlow(StoreError):
    """A read took longer than its caller may wait, and was given up.

    Remedy: Request less at once, or try again later."""

    def __init__(self, store: str, seconds: float) -> None:
        self.store = store
        self.seconds = seconds
        super().__init__(
            f"a read of {store} took more than {seconds:g} s and was given up; ask for less at once, or again later"
        )


class PermissionMissing(StoreError):
    """The database's role lacks a permission. `problem` names the object, in the database's own words.

    Remedy: Let the owner GRANT it: USAGE on the schema, and all on its tables and sequences."""

    def __init__(self, store: str, role: str, problem: str) -> None:
        self.store = store
        self.role = role
        self.problem = problem
        super().__init__(
            f"role {role!r} lacks a permission on {store}: {problem}; "
            "let the owner GRANT it: USAGE on the schema, and all on its tables and sequences"
        )


class SchemaIncomplete(StoreError):
    """A part of the schema is missing, or the file was replaced.

    Remedy: `leasehold db verify` lists what is missing; restore a backup, or make it with the statements of `leasehold
    db sql`."""

    def __init__(self, store: str, problem: str) -> None:
        self.store = store
        self.problem = problem
        super().__init__(
            f"the schema of {store} is incomplete: {problem}; see `leasehold db verify`, and restore a backup or run "
            "the statements of `leasehold db sql` that make what is missing"
        )


class SchemaOutdated(StoreError):
    """The database has no schema yet, or an older one than this code needs.

    Remedy: Run `leasehold db upgrade`, or `app.upgrade()`, before the workers start."""

    def __init__(self, store: str, found: int, needed: int) -> None:
        self.store = store
        self.found = found
        self.needed = needed
        what = (
            "has no Leasehold schema"
            if found == 0
            else f"has schema version {found}, this code needs {needed}"
        )
        super().__init__(
            f"{store} {what}; run `leasehold db upgrade`, or app.upgrade(), before the workers start"
        )


class SchemaTooNew(StoreError):
    """The schema was written by a newer version of Leasehold.

    Remedy: Upgrade the `leasehold` package."""

    def __init__(self, store: str, found: int, known: int) -> None:
        self.store = store
        self.found = found
        self.known = known
        super().__init__(
            f"{store} has schema version {found}, this code knows {known}; upgrade the leasehold package"
        )


class RemoteUnreachable(StoreError):
    """The server of `leasehold.remote` did not answer. It may or may not have carried out the request; an enqueue can
    be repeated safely with the same `idempotency_key`.

    Remedy: Check that `leasehold serve` runs and that the URL is right."""

    def __init__(self, url: str, cause: str) -> None:
        self.url = url
        self.cause = cause
        super().__init__(
            f"cannot reach {url}: {cause}; check that `leasehold serve` runs and that the URL is right"
        )


class RemoteError(StoreError):
    """The server of `leasehold.remote` refused the request, or could not answer it. `code` is the code of the
    problem (docs/guides/http.md): `unauthenticated`, `scope-missing`, `database-unavailable` …

    Remedy: Look at `status`, `code` and `detail`."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        self.status = status
        self.code = code
        self.detail = detail
        super().__init__(f"the server answered {status} ({code}): {detail}")


def leaves(error: BaseException) -> list[BaseException]:
    """Return the exceptions inside an exception group, at any depth; for any other exception, the exception itself."""
    found: list[BaseException] = []
    coming = [error]
    while coming:
        one = coming.pop()
        if isinstance(one, BaseExceptionGroup):
            coming += reversed(one.exceptions)
        else:
            found.append(one)
    return found

"""Answers → values."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pydantic import TypeAdapter

from leasehold.domain.groups import FiledResult
from leasehold.domain.records import Scope
from leasehold.remote.exchange import Answer, answer_to, strange
from leasehold.remote.values import HistoryEntry, JobRow, Made, Page, Question, ScheduleRow, TaskCard
from leasehold.types import (
    AttemptRecord,
    AuditPage,
    BudgetLine,
    BudgetPage,
    BulkReport,
    ExecutionRow,
    Explanation,
    GroupPage,
    GroupStatus,
    Hold,
    LaneHolder,
    LeasePage,
    LogTail,
    OpenQuestion,
    PauseRecord,
    QueueRow,
    RateRow,
    Relative,
    SlotRow,
    State,
    StepRecord,
    StopReport,
    Update,
    WorkerCard,
)

_JOB, _PAGE = TypeAdapter(JobRow), TypeAdapter(Page)
_MADE, _MANY_MADE = TypeAdapter(Made), TypeAdapter(list[Made])
_HISTORY, _ATTEMPTS = TypeAdapter(list[HistoryEntry]), TypeAdapter(list[AttemptRecord])
_HOLDS, _LOG, _EVENT = TypeAdapter(list[Hold]), TypeAdapter(LogTail), TypeAdapter(Update)
_QUESTIONS, _OPEN_QUESTIONS = TypeAdapter(list[Question]), TypeAdapter(list[OpenQuestion])
_STATUS, _STOP = TypeAdapter(GroupStatus), TypeAdapter(StopReport)
_PAUSE, _PAUSES = TypeAdapter(PauseRecord), TypeAdapter(list[PauseRecord])
_QUEUES, _TASKS, _LANES = (
    TypeAdapter(list[QueueRow]),
    TypeAdapter(list[TaskCard]),
    TypeAdapter(list[LaneHolder]),
)
_SLOTS, _RATES = TypeAdapter(list[SlotRow]), TypeAdapter(list[RateRow])
_SCHEDULE, _SCHEDULES = TypeAdapter(ScheduleRow), TypeAdapter(list[ScheduleRow])
_WORKERS, _EXECUTIONS = TypeAdapter(list[WorkerCard]), TypeAdapter(list[ExecutionRow])
_GROUPS, _LEASES, _AUDIT = TypeAdapter(GroupPage), TypeAdapter(LeasePage), TypeAdapter(AuditPage)
_BUDGETS, _BUDGET = TypeAdapter(BudgetPage), TypeAdapter(list[BudgetLine])
_BULK = TypeAdapter(BulkReport)
_STEPS, _RELATIVES = TypeAdapter(list[StepRecord]), TypeAdapter(list[Relative])
_COUNT = TypeAdapter(dict[State, int])


# -- jobs ----------------------------------------------------------------------------------------------------------
def job(answer: Answer) -> JobRow:
    return answer.read(_JOB)


def job_or_none(answer: Answer) -> JobRow | None:
    return None if answer.data is None else job(answer)


def page(answer: Answer) -> Page:
    return answer.read(_PAGE)


def made(answer: Answer) -> Made:
    return answer.read(_MADE)


def many_made(answer: Answer) -> list[Made]:
    return Answer(answer.status, answer.of("jobs")).read(_MANY_MADE)


def history(answer: Answer) -> list[HistoryEntry]:
    return answer.read(_HISTORY)


def steps(answer: Answer) -> list[StepRecord]:
    return answer.read(_STEPS)


def relatives(answer: Answer) -> list[Relative]:
    return answer.read(_RELATIVES)


def count(answer: Answer) -> dict[State, int]:
    return answer.read(_COUNT)


def attempts(answer: Answer) -> list[AttemptRecord]:
    return answer.read(_ATTEMPTS)


def explanation(answer: Answer) -> Explanation:
    holds: list[Hold] = answer.read(_HOLDS)
    return Explanation(holds)


def log(answer: Answer) -> LogTail:
    return answer.read(_LOG)


def event(text: str) -> Update:
    """Of a stream."""
    return answer_to(200, text.encode()).read(_EVENT)


def state_of(event: Update) -> State:
    """Of an event that tells of a change."""
    try:
        return State(event.data["state"])
    except (ValueError, KeyError, TypeError) as error:
        raise strange(200, f"{event.data!r} tells of no state") from error


def questions(answer: Answer) -> list[Question]:
    return _each(answer, _question).read(_QUESTIONS)


def open_questions(answer: Answer) -> list[OpenQuestion]:
    def one(row: dict[str, Any]) -> dict[str, Any]:
        return row | {"schema": _encoded(row.get("schema"))}

    return _each(answer, one).read(_OPEN_QUESTIONS)


# -- groups, stops and bulk ----------------------------------------------------------------------------------------
def groups(answer: Answer) -> GroupPage:
    return _with_each(answer, "groups", _stopped).read(_GROUPS)


def status(answer: Answer, result: Callable[[str], Any]) -> GroupStatus:
    """`result` gets one that is kept as a file, when somebody looks at it."""

    def reader(job_id: str) -> Callable[[], Any]:
        return lambda: result(job_id)

    found = _mapped(answer, _stopped).read(_STATUS)
    results = (
        one if one.result_ref is None else FiledResult(one.id, one.task, one.result_ref, reader(one.id))
        for one in found.results
    )
    return replace(found, results=tuple(results))


def stop_report(answer: Answer) -> StopReport:
    return _mapped(answer, _scoped).read(_STOP)


def bulk_report(answer: Answer) -> BulkReport:
    """The code of a refusal is the name of its error, spelt as in problems."""

    def one(row: Row) -> Row:
        return row | {"error": "".join(map(str.capitalize, str(row.get("code", "")).split("-")))}

    return _with_each(answer, "refused", one).read(_BULK)


def changed(answer: Answer) -> bool:
    return bool(answer.of("changed"))


def nothing(answer: Answer) -> None:
    """It is done."""


# -- scopes and limits ---------------------------------------------------------------------------------------------
def pause(scope: Scope) -> Callable[[Answer], PauseRecord]:
    return lambda answer: _mapped(answer, lambda row: row | {"scope": scope}).read(_PAUSE)


def pauses(scope: Scope) -> Callable[[Answer], list[PauseRecord]]:
    return lambda answer: [one for one in answer.read(_PAUSES) if one.scope == scope]


def queues(answer: Answer) -> list[QueueRow]:
    def one(row: dict[str, Any]) -> dict[str, Any]:
        pauses = ((f"{scope}_pause", scope) for scope in ("queue", "task"))
        return row | {name: row[name] | {"scope": scope} for name, scope in pauses if row.get(name)}

    return _each(answer, one).read(_QUEUES)


def tasks(answer: Answer) -> list[TaskCard]:
    return answer.read(_TASKS)


def lanes(answer: Answer) -> list[LaneHolder]:
    return answer.read(_LANES)


def slots(answer: Answer) -> list[SlotRow]:
    return answer.read(_SLOTS)


def rates(answer: Answer) -> list[RateRow]:
    return answer.read(_RATES)


def budget(answer: Answer) -> list[BudgetLine]:
    return answer.read(_BUDGET)


def budgets(answer: Answer) -> BudgetPage:
    return answer.read(_BUDGETS)


def schedule(answer: Answer) -> ScheduleRow:
    return _mapped(answer, _schedule).read(_SCHEDULE)


def schedules(answer: Answer) -> list[ScheduleRow]:
    return _each(answer, _schedule).read(_SCHEDULES)


# -- workers and operators -----------------------------------------------------------------------------------------
def workers(answer: Answer) -> list[WorkerCard]:
    return answer.read(_WORKERS)


def leases(answer: Answer) -> LeasePage:
    return answer.read(_LEASES)


def executions(answer: Answer) -> list[ExecutionRow]:
    return answer.read(_EXECUTIONS)


def audit(answer: Answer) -> AuditPage:
    return answer.read(_AUDIT)


# -- rows ----------------------------------------------------------------------------------------------------------
Row = dict[str, Any]


def _question(row: Row) -> Row:
    answered = row.get("status") == "answered" and not row.get("secret")
    answer = json.dumps(row.get("answer")) if answered else None
    return row | {"schema": _encoded(row.get("schema")), "answer": answer}


def _schedule(row: Row) -> Row:
    return row | {"args": json.dumps(row.get("args"))}


def _stopped(row: Row) -> Row:
    """A group: with its last stop, if there was one."""
    stop = row.get("last_stop")
    return row | {"last_stop": _scoped(stop)} if isinstance(stop, dict) else row


def _scoped(row: Row) -> Row:
    """A stop: the names in its scope are tuples."""
    scope = row.get("scope")
    if not isinstance(scope, dict):
        return row
    return row | {
        "scope": {name: tuple(value) if isinstance(value, list) else value for name, value in scope.items()}
    }


def _encoded(value: object) -> str | None:
    return None if value is None else json.dumps(value)


def _mapped(answer: Answer, change: Callable[[Row], Row]) -> Answer:
    """What is no row stays as it is, and is refused by who reads it."""
    return Answer(answer.status, change(answer.data)) if isinstance(answer.data, dict) else answer


def _each(answer: Answer, change: Callable[[Row], Row]) -> Answer:
    if not isinstance(answer.data, list):
        return answer
    return Answer(answer.status, [change(row) if isinstance(row, dict) else row for row in answer.data])


def _with_each(answer: Answer, name: str, change: Callable[[Row], Row]) -> Answer:
    """Rows that stand in a field of it: a page."""
    rows = _each(Answer(answer.status, answer.of(name)), change)
    return Answer(answer.status, answer.data | {name: rows.data})

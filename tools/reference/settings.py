"""settings.md: every setting with its type, its default and its sentence."""

from __future__ import annotations

import ast
import dataclasses
import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import leasehold.app
from leasehold.app import Leasehold
from leasehold.domain.limits import Rate, Slot
from leasehold.domain.schedules import Schedule
from leasehold.runners.docker.spec import ContainerSpec, Mount
from leasehold.runners.subprocess import Command
from leasehold.tasks.definition import TaskDefinition
from leasehold.tasks.external import External
from leasehold.tasks.schedule import ScheduleOptions
from leasehold.tasks.settings import CallOptions, CallSettings, Retry, TaskOptions, TaskSettings
from leasehold.wiring import Internals, Location
from leasehold.worker.settings import WorkerSettings
from tools.reference.source import (
    annotations_of,
    default_text,
    field_default,
    field_docs,
    table,
    type_text,
)

HEAD = """# Settings

Every setting of an app, a task, a call, a worker and a schedule. Pass them as keywords.

## Durations, sizes and templates

A **duration** is a number of seconds, a `timedelta`, or text such as `"10m"`, `"1h30m"` or `"500ms"` (units `ms`,
`s`, `m`, `h`, `d`, `w`). A **size** is a number of bytes, or text such as `"512MB"`. A **template** is text with
names of the task's arguments in braces: `"{user_id}"`.
"""


class Setting(NamedTuple):
    name: str
    type: str
    default: str
    sentence: str


class Group(NamedTuple):
    title: str
    about: str
    settings: list[Setting]


def settings_page() -> str:
    lines = [HEAD]
    for group in groups():
        rows = [[f"`{one.name}`", one.type, one.default or "–", one.sentence] for one in group.settings]
        lines += [f"## {group.title}", "", group.about, ""]
        lines += [*table(["Setting", "Type", "Default", "Meaning"], rows), ""]
    return "\n".join(lines).rstrip() + "\n"


def groups() -> list[Group]:
    of_both = TaskOptions.__annotations__.keys() & CallOptions.__annotations__.keys()
    of_task = fields_of(TaskSettings)
    return [
        Group(
            "The app",
            'Of `Leasehold(…)`: `app = Leasehold("postgresql://localhost/shop", schema="jobs")`.',
            keywords_of(Leasehold.__init__, field_docs(Location) | {"shutdown_grace": field_docs(Internals)["_grace"]}),
        ),
        Group(
            "Tasks and calls",
            "Of `@app.task(…)`, `@app.command(…)`, `@app.container(…)` and `@app.external(…)`. "
            "A single call may change them: "
            '`report.using(priority="high").enqueue(7)`.',
            [one for one in of_task if one.name in of_both],
        ),
        Group(
            "Tasks only",
            "Of `@app.task(…)`. A call cannot change them.",
            keywords_of(Leasehold.task, field_docs(TaskDefinition), {"name"})
            + [one for one in of_task if one.name not in of_both],
        ),
        Group(
            "Calls only",
            "Of `.using(…)`: `report.using(delay=\"10m\", group=\"nightly\").enqueue(7)`.",
            _of_calls(),
        ),
        Group("Retry", "`@app.task(retry=Retry(max_attempts=5))`.", fields_of(Retry)),
        Group(
            "Rate",
            '`@app.task(rate=Rate("openai", "60/min"))`; `rate="openai"` for a limit set elsewhere.',
            fields_of(Rate),
        ),
        Group(
            "Slot",
            '`@app.task(slots={"browser": Slot(units=1, limit=4)})`; `{"browser": 1}` for a limit set elsewhere.',
            fields_of(Slot),
        ),
        Group(
            "Schedules",
            'Of `@app.schedule(…)` and `app.schedules.set(…)`: `@app.schedule(every="15m")`.',
            _of_schedules(),
        ),
        Group(
            "Workers",
            "Of `app.worker(…)`. `leasehold worker` has most of them as [options](cli.md#leasehold-worker).",
            _of_workers(),
        ),
        Group(
            "Commands and containers",
            "Of `@app.command(…)`, `@app.container(…)` and `@app.external(…)`, besides the settings of a task. "
            "`image` is for containers alone, `to_spec` for runners of your own; `runner` is for both.",
            _of_executions(),
        ),
        Group("Command", "What the function of `@app.command` returns, unless it returns a list.", fields_of(Command)),
        Group(
            "ContainerSpec",
            "What the function of `@app.container` returns, unless it returns a list.",
            fields_of(ContainerSpec),
        ),
        Group(
            "Mount",
            "One of `ContainerSpec.mounts`. Only paths below a folder that the runner allows (`mounts_allowed`).",
            fields_of(Mount),
        ),
    ]  # fmt: skip


def fields_of(worker: Any) -> list[Setting]:
    types, docs = annotations_of(worker), field_docs(worker)
    return [
        Setting(field.name, types[field.name], field_default(field), docs.get(field.name, ""))
        for field in dataclasses.fields(worker)
    ]


def keywords_of(
    function: Callable[..., Any], docs: Mapping[str, str], only: Collection[str] = ()
) -> list[Setting]:
    """The parameters of a method of the app, but for `self` and those that only collect others."""
    found = []
    for one in inspect.signature(function).parameters.values():
        plain = one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY) and one.name != "self"
        if plain and (not only or one.name in only):
            type_ = type_text(ast.parse(one.annotation, mode="eval").body, leasehold.app)
            found.append(Setting(one.name, type_, default_text(one.default), docs.get(one.name, "")))
    return found


def _of_calls() -> list[Setting]:
    types = annotations_of(CallOptions)
    found = [one._replace(type=types[one.name]) for one in fields_of(CallSettings)]
    return [*found, Setting("tenant", types["tenant"], "`None`", field_docs(CallOptions)["tenant"])]


def _of_schedules() -> list[Setting]:
    types, defaults = annotations_of(ScheduleOptions), {one.name: one.default for one in fields_of(Schedule)}
    docs = field_docs(ScheduleOptions)
    when = [Setting(name, types[name], defaults[name], docs.get(name, "")) for name in types]
    return when + keywords_of(Leasehold.schedule, field_docs(Schedule))


def _of_workers() -> list[Setting]:
    """The keywords that are written out, as users write them; then those that are passed on."""
    named = keywords_of(Leasehold.worker, field_docs(WorkerSettings))
    names = {one.name for one in named}
    more = [one for one in fields_of(WorkerSettings) if one.name not in names]
    return named + [one._replace(default="") if one.name == "name" else one for one in more]


def _of_executions() -> list[Setting]:
    docs = field_docs(External) | {"image": field_docs(ContainerSpec)["image"]}
    docs |= {"runner": docs["open_runner"], "name": field_docs(TaskDefinition)["name"]}
    found: dict[str, Setting] = {}
    for register in (Leasehold.command, Leasehold.container, Leasehold.external):
        for one in keywords_of(register, docs):
            found.setdefault(one.name, one)
    return list(found.values())

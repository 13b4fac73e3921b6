"""`app.mirrors`: tables of your own that follow the jobs of a task."""

from __future__ import annotations

from typing import Any, Unpack

from leasehold.domain.mirror import Mirror, MirrorOptions, MirrorRow
from leasehold.operations import mirrors
from leasehold.operations.local import Operator
from leasehold.tasks.definition import Registry
from leasehold.tasks.task import Task
from leasehold.threads import aio

AnyTask = Task[..., ..., Any, Any]


class Mirrors:
    """Tables of your own that follow the jobs of a task: database triggers write your row in the transaction that moves
    the job."""

    def __init__(self, operator: Operator, tasks: Registry) -> None:
        self._operator = operator
        self._tasks = tasks

    def add(
        self, task: AnyTask | str, *, actor: str | None = None, **settings: Unpack[MirrorOptions]
    ) -> None:
        """Keep a table in step with the jobs of this task, which has `mirror=True`. `key` is the column that identifies
        the row, `argument` the argument with its value (by default the job's unique key), `status` the column for the
        state, `states` your word for every state. `columns` names a column for each fact you want: `requested`,
        `started` (first), `finished`, `updated`, `result`, `result_ref`, `exit_code`, `error`. With `insert` a missing
        row is inserted. `times` is "iso" or "unix", for SQLite. Call it at each start, before the first job: it
        replaces an existing mirror. The table must exist."""
        name = task if isinstance(task, str) else task.name
        definition = self._tasks.find(name)
        given = dict(settings)
        argument = definition.mirrored_argument(settings.get("argument"))
        given["states"] = {str(state): word for state, word in settings["states"].items()}
        mirror = Mirror(**{**given, "task": name, "argument": argument})  # type: ignore[arg-type] # checked by Mirror itself
        self._operator.call(mirrors.add_mirror, name, mirror, actor=actor)

    aadd = aio(add)

    def remove(self, task: AnyTask | str, table: str, *, actor: str | None = None) -> None:
        """Remove a mirror; your rows stay. Raises InvalidInput if there is none."""
        name = task if isinstance(task, str) else task.name
        mirror = self._operator.call(mirrors.find_mirror, name, table)
        self._operator.call(mirrors.remove_mirror, name, mirror, actor=actor)

    aremove = aio(remove)

    def list(self) -> list[MirrorRow]:
        """List the installed mirrors, each with its problems: a trigger or a column that is missing."""
        return self._operator.call(mirrors.list_mirrors)

    alist = aio(list)

"""What a child may call in its worker: verbs of the store, always on its own job and under its own lease."""

from __future__ import annotations

import contextlib
from typing import Any, NamedTuple

from leasehold.domain.budgets import BudgetLine, Spend, Spending
from leasehold.domain.errors import LeaseLost
from leasehold.domain.job import Question
from leasehold.domain.limits import DefaultLimit
from leasehold.domain.records import ParentResult, Relative
from leasehold.domain.signals import StopRequested
from leasehold.domain.stream import LOG
from leasehold.run.attempt import Attempt
from leasehold.run.context import SyncContext
from leasehold.run.stream import CHECK_STOP_EVERY
from leasehold.stores.results import Acquired


class Call(NamedTuple):
    """A verb of the store that a child may call. The worker fills in the first arguments from the child's own grant,
    so that a child cannot name another job."""

    first: tuple[str, ...]
    """Fields of the grant."""
    returns: Any
    """The type of the result, by which it is decoded in the child."""


FLUSH = "flush"
"""A call that is no verb of the store: wait until all that the child has emitted is stored."""
CALLS: dict[str, Call] = {
    "load_steps": Call(("id",), dict[str, str]),
    "save_steps": Call(("id", "token"), bool),
    "save_spent_steps": Call(("id", "token", "attempt"), list[BudgetLine] | None),
    "load_checkpoint": Call(("id",), str | None),
    "spend": Call(("id", "token", "attempt"), list[BudgetLine]),
    "budget": Call(("id", "attempt"), list[BudgetLine]),
    "spending": Call(("id",), list[Spending]),
    "acquire": Call(("id", "token"), Acquired),
    "release_slot": Call(("id", "attempt"), int),
    "notify_workers": Call((), None),
    "read_question": Call(("id",), Question | None),
    "parent_results": Call(("id",), list[ParentResult]),
    "relatives": Call(("id",), list[Relative]),
    "read_result": Call((), str),
    FLUSH: Call((), None),
}


class RpcServer:
    """Answers the calls of one child."""

    def __init__(self, run: Attempt) -> None:
        self._run = run
        self._journal = run.needed_journal()
        self._store = self._journal.store

    def call(self, verb: str, args: list[Any]) -> object:
        if verb == FLUSH:
            SyncContext(self._run).flush()
            return None
        first = [getattr(self._run.grant, name) for name in CALLS[verb].first]
        try:
            answer = getattr(self._store, verb)(*first, *_decoded(verb, args))
        except LeaseLost:
            self._journal.lost(self._run)
            raise
        if (verb == "save_steps" and not answer) or (verb == "save_spent_steps" and answer is None):
            self._journal.lost(self._run)
        if isinstance(answer, Acquired):
            self._run.holds_slots |= answer.granted and answer.what == "slot"
        return answer

    def emit(self, kind: str, data: str | None, key: str | None, text: str) -> None:
        """While too much waits for the database this waits too, and so, soon, does the child."""
        run = self._run
        if kind == LOG:
            run.log_line(text.removesuffix("\n"))
            return
        with contextlib.suppress(StopRequested):  # the attempt ends; its updates are dropped
            while not run.emit(kind, data, key):
                if run.writer is not None and run.stream is not None:
                    run.writer.wait_for_room(run.stream, CHECK_STOP_EVERY)
                run.raise_if_stopped()


def _decoded(verb: str, args: list[Any]) -> list[Any]:
    match verb, args:
        case "spend" | "save_spent_steps", [*before, spends]:
            return [*before, [Spend(**one) for one in spends]]
        case "acquire", [name, units, dict(default)]:
            return [name, units, DefaultLimit(**default)]
    return args

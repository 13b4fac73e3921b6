"""One verb on three stores: the model, SQLite and PostgreSQL. Their answers and their rows must be the same."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg.types.string import TextLoader

from leasehold.domain.errors import DuplicateJob, InvalidState, JobNotFound
from leasehold.domain.job import Enqueued, Grant, Job, Renewal
from leasehold.domain.records import Filter, Page, PauseRecord, Reaped
from leasehold.stores.database.places import COLUMNS
from leasehold.stores.results import ClaimDenied, Pruned, Settled
from leasehold.stores.store import JobStore
from leasehold.stores.verbs import claim, recover, settle
from leasehold.stores.verbs.limits import gate_id
from leasehold.testing import ManualClock
from tests.backends import TABLES, Backend
from tests.stores.model_job import EPOCH, PROTOCOL
from tests.stores.model_operate import Model
from tests.stores.model_settle import JITTER
from tests.stores.model_store import ModelRefusal

AMPLE = 1000
Rows = list[tuple[Any, ...]]
Trace = list[tuple[str, tuple[Any, ...], dict[str, Any]]]

_TIMES = {name for name in PROTOCOL if name.endswith("_at")}
_FLAGS = {"halts_lane", "held", "awaited"}
_COLUMNS = ", ".join("special = 2" if name == "awaited" else COLUMNS.get(name, name) for name in PROTOCOL)
_JOBS = f"SELECT id, {_COLUMNS} FROM leasehold.job_row ORDER BY seq"
_QUESTIONS = "SELECT job_id, key, text, answer, closed_at IS NULL FROM leasehold.question ORDER BY 1, 2"
_GROUPS = "SELECT name, version FROM leasehold.job_group ORDER BY name"
_TICKETS = "SELECT lane, gate, available_at FROM leasehold.ticket"
_HISTORY = """SELECT job_id, event, from_state, to_state, token, attempt, actor, detail FROM leasehold.history
    ORDER BY id"""


class Side:
    """A store and a window into its tables."""

    def __init__(self, backend: Backend, clock: ManualClock) -> None:
        self.name = backend.name
        self.store: JobStore = backend.open(clock)
        self._schema = backend.schema
        if self.name == "sqlite":
            path = backend.url.removeprefix("sqlite:///")
            self._connection: Any = sqlite3.connect(path, isolation_level=None)
            self._connection.execute("PRAGMA synchronous = OFF")
        else:
            self._connection = psycopg.connect(backend.url, autocommit=True)
            for type_name in ("uuid", "json"):
                self._connection.adapters.register_loader(type_name, TextLoader)

    def query(self, text: str) -> Rows:
        text = text.replace("leasehold.", "leasehold_" if self.name == "sqlite" else f'"{self._schema}".')
        cursor = self._connection.execute(text)
        return cursor.fetchall() if cursor.description else []

    def empty(self) -> None:
        for table in TABLES:
            self.query(f"DELETE FROM leasehold.{table}")

    def jobs(self) -> list[tuple[str, dict[str, Any]]]:
        """In the order of seq."""
        rows = [(row[0], dict(zip(PROTOCOL, row[1:], strict=True))) for row in self.query(_JOBS)]
        return [(job_id, {n: self._value(n, v) for n, v in row.items()}) for job_id, row in rows]

    def tickets(self) -> dict[str, list[tuple[int, Any]]]:
        found = defaultdict(list)
        for lane, gate, due in self.query(_TICKETS):
            found[lane].append((gate, self._value("due_at", due)))
        return found

    def close(self) -> None:
        self._connection.close()
        self.store.close()

    def _value(self, name: str, value: Any) -> Any:
        if self.name == "sqlite" and value is not None:
            if name in _TIMES or name == "due_at":
                return EPOCH + timedelta(microseconds=value)
            if name in _FLAGS:
                return bool(value)
        return value


class Trio:
    """Opened once per process; emptied between sequences."""

    def __init__(self, sqlite: Backend, postgres: Backend) -> None:
        self.clock = ManualClock()
        self.sides = [Side(sqlite, self.clock), Side(postgres, self.clock)]
        self.model = Model(self.clock)
        self._patch = pytest.MonkeyPatch()
        for module in (claim, settle, recover):
            self._patch.setattr(module, "random", _Fixed)

    def reset(self) -> None:
        self.clock.reset()
        self.model = Model(self.clock)
        for side in self.sides:
            side.empty()

    def close(self) -> None:
        self._patch.undo()
        for side in self.sides:
            side.close()

    def call(self, verb: str, *args: Any, **named: Any) -> Any:
        """The answer on which all three agree."""
        if verb == "advance":
            return self.clock.advance(*args)
        if verb == "claim":
            args = self._determined(*args)
        try:
            expected = getattr(self.model, verb)(*args, **named)
        except ModelRefusal as refusal:
            expected = refusal.answer
        for side in self.sides:
            answer = _answer(side.store, verb, args, named)
            found, right = _comparable(verb, answer), _comparable(verb, expected)
            assert found == right, f"{verb} on {side.name}: {found} instead of {right}"
        return expected

    def _determined(
        self, worker: str, queues: Sequence[str], limit: int, tasks: Sequence[str] | None = None
    ) -> tuple[Any, ...]:
        """A claim whose answer does not hang on the order between lane heads and plain jobs."""
        determined = self.model.is_determined(queues, limit, tasks)
        return (worker, queues, limit if determined else AMPLE, tasks)

    def replay(self, trace: Trace) -> str | None:
        """What goes wrong with this sequence, if anything does."""
        self.reset()
        try:
            for verb, args, named in trace:
                self.call(verb, *args, **named)
                self.check()
        except Exception as error:
            return str(error) or repr(error)
        return None

    def shorten(self, trace: Trace) -> Trace:
        """Leave out what the failure does not need, by halves and then one by one."""
        reported = self.replay(trace)
        size = max(len(trace) // 2, 1)
        while size:
            for start in range(len(trace) - size, -1, -1):
                shorter = trace[:start] + trace[start + size :]
                if len(shorter) < len(trace) and _alike(self.replay(shorter), reported):
                    trace = shorter
            size //= 2
        return trace

    def check(self) -> None:
        """Rows, questions, groups and pauses are those of the model; histories are each other's."""
        model = self.model
        jobs = [(job.id, job.row()) for job in sorted(model.jobs.values(), key=lambda job: job.seq)]
        questions = [(*key, q.text, q.answer, q.open) for key, q in sorted(model.questions.items())]
        for side in self.sides:
            _same_jobs(side, jobs)
            found = [(*row[:4], bool(row[4])) for row in side.query(_QUESTIONS)]
            assert found == questions, f"questions on {side.name}"
            assert side.query(_GROUPS) == sorted(model.groups.items()), f"groups on {side.name}"
            self._check_tickets(side)
        first, second = (side.query(_HISTORY) for side in self.sides)
        assert first == second, "the histories differ"

    def _check_tickets(self, side: Side) -> None:
        """A lane that is not blocked and whose head is due has a ticket that a claim of its gate would see."""
        tickets = side.tickets()
        for head in self.model.free_heads():
            gates = {0, gate_id(head.queue, head.task)}
            seen = [
                gate for gate, due in tickets[head.lane or ""] if gate in gates and due <= self.clock.now()
            ]
            assert seen, f"no ticket for {head.id}, the head of lane {head.lane}, on {side.name}"


class _Fixed:
    @staticmethod
    def random() -> float:
        return JITTER


def _alike(one: str | None, other: str | None) -> bool:
    """The same verb on the same store, or the same table: not another failure that came into sight."""
    return one is not None and other is not None and one.split()[:1] == other.split()[:1]


def _same_jobs(side: Side, expected: Sequence[tuple[str, dict[str, Any]]]) -> None:
    found = side.jobs()
    if found == list(expected):
        return
    assert [job_id for job_id, _ in found] == [job_id for job_id, _ in expected], f"jobs on {side.name}"
    for (job_id, row), (_, wanted) in zip(found, expected, strict=True):
        odd = {name: (row[name], wanted[name]) for name in PROTOCOL if row[name] != wanted[name]}
        assert not odd, f"job {job_id} on {side.name}: column (found, expected) {odd}"


def _answer(store: JobStore, verb: str, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    try:
        if verb == "list_jobs":
            requested = {name.removesuffix("_name"): value for name, value in named.items()}
            return _normal(verb, store.list_jobs(Filter(**requested), limit=500))
        return _normal(verb, getattr(store, verb)(*args, **named))
    except InvalidState as refusal:
        return ("refused", refusal.state)
    except JobNotFound as missing:
        return ("missing", missing.job_id)
    except DuplicateJob as duplicate:
        return ("duplicate", duplicate.job_id)


def _normal(verb: str, answer: Any) -> Any:
    """Tuples of plain values, as the model gives them."""
    match answer:
        case Grant() if verb == "claim_by_id":
            return ("granted", *_normal("claim", answer))
        case Grant():
            flag, name = answer.stop_requested, answer.execution_name
            return (answer.id, answer.token, answer.attempt, flag, name, answer.lane)
        case ClaimDenied():
            return ("denied", answer.state, answer.sighting)
        case Job():
            return {name: getattr(answer, name) for name in PROTOCOL}
        case Enqueued():
            return (answer.id, answer.created)
        case Settled():
            assert not answer.not_serializable
            return (tuple(answer.accepted), tuple(answer.fenced))
        case Reaped():
            return (answer.id, answer.worker, answer.state, answer.orphan)
        case Renewal():
            return (answer.id, answer.stop_requested)
        case PauseRecord():
            return (answer.scope, answer.name, answer.until, answer.paused_at)
        case Pruned():
            return (answer.deleted, answer.next is not None)
        case Page():
            return tuple(job.id for job in answer.jobs)
        case list():
            return tuple(_normal(verb, item) for item in answer)
        case _:
            return answer


def _comparable(verb: str, answer: Any) -> Any:
    """Where the contract leaves the order open, it is not compared."""
    if verb == "renew":
        return sorted(answer)
    if verb == "claim":
        plain = [grant for grant in answer if grant[-1] is None]
        heads = [grant for grant in answer if grant[-1] is not None]
        return plain, heads
    return answer

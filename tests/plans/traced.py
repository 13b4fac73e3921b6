"""Which statements a verb sends, with which values: the verbs themselves tell, so that nobody has to keep a copy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Call:
    statement: str
    parameters: dict[str, Any]
    parts: tuple[str, ...] = ()
    """Of a statement that was put together: all of them, in order. The first one names it, with the ways of a walk."""

    def text(self, statements: Mapping[str, str]) -> str:
        return " ".join(statements[part] for part in self.parts or (self.statement,))


class Traced:
    """Listens at the seam between the verbs and the database, while the block lasts. With `undone`, every transaction
    is rolled back when its work is done, so that what is planned afterwards finds the rows where they were."""

    def __init__(self, store: Any, *, undone: bool = False) -> None:
        self._store = store
        self._undone = undone
        self._real: Any = self._store._database
        self._known_as = [name for name, value in vars(store).items() if value is self._real]

    def __enter__(self) -> list[Call]:
        traced = _Database(self._real, self._undone)
        self._point_at(traced)
        return traced.calls

    def __exit__(self, *_: object) -> None:
        self._point_at(self._real)

    def _point_at(self, database: object) -> None:
        for name in self._known_as:
            setattr(self._store, name, database)


class _Undone(Exception):
    pass


@dataclass
class _Database:
    real: Any
    undone: bool
    calls: list[Call] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def read(self, work: Callable[[Any], Any]) -> Any:
        return self.real.read(lambda session: work(_Session(session, self.calls)))

    def single(self, work: Callable[[Any], Any], *, idempotent: bool = False) -> Any:
        return self._write(self.real.single, work)

    def transact(self, work: Callable[[Any], Any], *, idempotent: bool = False) -> Any:
        return self._write(self.real.transact, work)

    def _write(self, begin: Callable[[Any], Any], work: Callable[[Any], Any]) -> Any:
        if not self.undone:
            return begin(lambda session: work(_Session(session, self.calls)))
        answers: list[Any] = []

        def undo(session: Any) -> None:
            answers.append(work(_Session(session, self.calls)))
            raise _Undone

        try:
            self.real.transact(undo)
        except _Undone:
            return answers[-1]


@dataclass
class _Session:
    real: Any
    calls: list[Call]

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.real, name)
        if name in ("now", "in_doubt"):
            return found

        def send(statement: Any, /, **parameters: Any) -> Any:
            if isinstance(statement, str):
                self.calls.append(Call(statement, parameters))
            else:
                self.calls.append(Call(_name_of(statement), parameters, tuple(statement)))
            return found(statement, **parameters)

        return send


_NO_WAY = ("walk.where", "walk.with_job", "walk.cut", "walk.or", "walk.past", "walk.window", "walk.size")


def _name_of(parts: list[str]) -> str:
    ways = [part.removeprefix("walk.") for part in parts[1:] if part.startswith("walk.")]
    return ", ".join([parts[0], *(way for way in ways if not f"walk.{way}".startswith(_NO_WAY))])

"""A session over the caller's own transaction: what the verbs need of one, over `execute(sql, parameters)`."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from leasehold.domain.frozen import frozen
from leasehold.stores.database.database import Row

Answer = tuple[Sequence[str], Sequence[tuple[Any, ...]]]
"""The names of the columns, and the rows."""
Execute = Callable[[str, Any], Answer]
Bind = Callable[[str, str, Mapping[str, Any]], tuple[str, Any]]
"""From a statement's name, its text and its parameters to what the driver is given."""
Style = Literal["named", "dollars"]
"""How the driver wants parameters: by name (`%(name)s` or `:name`, as the database has it), or as `$1`, `$2` …"""


@frozen
class Borrowed:
    """A connection of the user's. Nothing here commits, rolls back or closes it."""

    database: Literal["postgres", "sqlite"]
    style: Style
    execute: Callable[[str, Any], Any]
    """Gives an Answer; that of an async driver has to be awaited."""
    in_transaction: Callable[[], bool]
    """Whether what is written next waits for the user's commit. Asked after the first statement: some drivers open a
    transaction only then."""
    is_async: bool = False


class BorrowedSession:
    in_doubt = False

    def __init__(
        self,
        execute: Execute,
        bind: Bind,
        statements: Mapping[str, str],
        read: Callable[[str, Any], Any] = lambda _, value: value,
    ) -> None:
        self._execute = execute
        self._bind = bind
        self._statements = statements
        self._read = read
        """From a column's name and value to what `rows` gives."""

    def rows(self, statement: str, /, **parameters: Any) -> list[Row]:
        return self._rows(statement, self._statements[statement], parameters)

    def tuples(self, statement: str, /, **parameters: Any) -> list[tuple[Any, ...]]:
        _, rows = self._answer(statement, self._statements[statement], parameters)
        return [tuple(map(_plain, row)) for row in rows]

    def run(self, statement: str, /, **parameters: Any) -> None:
        self._answer(statement, self._statements[statement], parameters)

    def listing(self, names: Sequence[str], /, **parameters: Any) -> list[Row]:
        return self._rows(names[0], " ".join(self._statements[name] for name in names), parameters)

    def _rows(self, statement: str, text: str, parameters: Mapping[str, Any]) -> list[Row]:
        names, rows = self._answer(statement, text, parameters)
        return [{n: self._read(n, _plain(v)) for n, v in zip(names, row, strict=True)} for row in rows]

    def _answer(self, statement: str, text: str, parameters: Mapping[str, Any]) -> Answer:
        return self._execute(*self._bind(statement, text, parameters))


def _plain(value: Any) -> Any:
    """As our own connections give it: the user's may read UUIDs, JSON and text in their own way."""
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, dict | list):
        return json.dumps(value)
    if isinstance(value, bytes):
        return value.decode()
    return value

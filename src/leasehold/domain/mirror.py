"""Mirrors: tables of the user's application that triggers keep in step with the jobs of one task."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, field
from typing import Literal, NotRequired, TypedDict, get_args

from leasehold.domain.errors import InvalidInput
from leasehold.domain.frozen import frozen
from leasehold.domain.states import State

Fact = Literal["requested", "started", "finished", "updated", "result", "result_ref", "exit_code", "error"]
"""What a mirror can store about a job besides its state."""
FACTS: tuple[Fact, ...] = get_args(Fact)
Times = Literal["iso", "unix"]
"""How instants are written on SQLite, which has no type for them: as in the view `jobs`, or as seconds."""

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_LONGEST_WORD = 200


@frozen(kw_only=True)
class Mirror:
    """The definition of a mirror. All of it becomes part of SQL statements: it is checked here, and quoted there."""

    task: str
    table: str
    """`table`, or on PostgreSQL `schema.table`; without a schema it is `public`."""
    key: str
    """The column that identifies the row."""
    argument: str | None = None
    """The argument that holds the key's value; None: the job's unique key."""
    status: str
    states: Mapping[str, str]
    """The application's word for each state."""
    columns: Mapping[Fact, str] = field(default_factory=dict)
    insert: bool = False
    """Insert the row if there is none."""
    times: Times = "iso"

    def __post_init__(self) -> None:
        parts = self.table.split(".")
        if len(parts) > 2:
            raise InvalidInput("table", f"{self.table!r} is not a table", "give table, or schema.table")
        for part in parts:
            _check_identifier(part, "table")
        _check_identifier(self.key, "key")
        _check_identifier(self.status, "status")
        for fact, column in self.columns.items():
            _check_identifier(column, fact.replace("_", "-"))
        used = [self.key, self.status, *self.columns.values()]
        for column in used:
            if used.count(column) > 1:
                raise InvalidInput("columns", f"{column!r} is named twice", "give each its own column")
        if self.argument is not None and (not self.argument or _is_odd(self.argument)):
            raise InvalidInput("match", f"{self.argument!r} cannot be looked up", "use a plain name")
        _check_words(self.states)
        # Use one fixed order: the text of an installed trigger is compared with the expected text.
        ordered = {fact: self.columns[fact] for fact in FACTS if fact in self.columns}
        object.__setattr__(self, "columns", ordered)
        if self.times not in get_args(Times):
            raise InvalidInput("times", f"{self.times!r} is not known", "use iso or unix")

    @property
    def name(self) -> str:
        """The name of its triggers, with a hash: a task's name may be long, and contain any character."""
        plain = re.sub(r"[^a-z0-9]+", "_", self.task.lower()).strip("_")[:24]
        both = json.dumps([self.task, self.table]).encode()
        return f"mirror_{plain}_{hashlib.blake2b(both, digest_size=4).hexdigest()}"

    def dump(self) -> str:
        """Encode as JSON."""
        return json.dumps(asdict(self), sort_keys=True, ensure_ascii=False)

    @staticmethod
    def load(text: str) -> Mirror:
        """Decode the text that `dump` made."""
        return Mirror(**json.loads(text))


class MirrorOptions(TypedDict):
    """The keywords of `app.mirrors.add` besides the task."""

    table: str
    key: str
    status: str
    states: Mapping[str, str]
    argument: NotRequired[str | None]
    columns: NotRequired[Mapping[Fact, str]]
    insert: NotRequired[bool]
    times: NotRequired[Times]


@frozen
class MirrorRow:
    """An installed mirror, and what is wrong with it."""

    mirror: Mirror
    problems: tuple[str, ...]


def parse_words(text: str) -> dict[str, str]:
    """Parse `queued=waiting,running=active,…`"""
    words: dict[str, str] = {}
    for part in text.split(","):
        state, equals, word = part.partition("=")
        if not equals:
            raise InvalidInput("states", f"{part!r} has no word", "write STATE=WORD, separated by commas")
        if state.strip() in words:
            raise InvalidInput("states", f"{state.strip()!r} has two words", "give one")
        words[state.strip()] = word.strip()
    return words


def _check_identifier(name: str, field: str) -> None:
    if not _IDENTIFIER.fullmatch(name):
        raise InvalidInput(
            field,
            f"{name!r} is not a usable name",
            "use letters, digits and _, not beginning with a digit, at most 63 characters",
        )


def _check_words(words: Mapping[str, str]) -> None:
    known = {state.value for state in State}
    for state, word in words.items():
        if state not in known:
            raise InvalidInput("states", f"{state!r} is not a state", f"use {', '.join(sorted(known))}")
        if not word or len(word) > _LONGEST_WORD or _is_odd(word):
            raise InvalidInput(
                "states",
                f"the word for {state} is {word!r}",
                f"use 1 to {_LONGEST_WORD} printable characters, without quotation marks and backslashes",
            )
    missing = [state.value for state in State if state.value not in words]
    if missing:
        raise InvalidInput(
            "states",
            f"there is no word for {', '.join(missing)}",
            "give one for each: a job may come into any of them",
        )


def _is_odd(text: str) -> bool:
    return not text.isprintable() or '"' in text or "\\" in text

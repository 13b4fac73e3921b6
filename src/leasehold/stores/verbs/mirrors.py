"""Mirrors: tables of the user's own that triggers keep in step with the jobs of a task."""

from __future__ import annotations

from abc import abstractmethod
from typing import Protocol

from leasehold.domain.errors import InvalidInput
from leasehold.domain.mirror import Mirror, MirrorRow
from leasehold.stores.database.database import Session
from leasehold.stores.verbs.writing import Verbs, reading, transaction

# -- building triggers, in any dialect ---------------------------------------------------------------------------------


class MirrorDialect(Protocol):
    """The DDL of mirrors in one dialect."""

    def create(self, mirror: Mirror) -> str:
        """A script that creates or recreates the mirror and registers it."""

    def remove(self, name: str) -> str:
        """A script that removes the mirror."""

    def objects(self, mirror: Mirror) -> dict[str, str]:
        """What `list_mirror_objects` returns for an intact mirror: names and definitions."""

    def table_of(self, mirror: Mirror) -> str:
        """The name of the user's table, as `list_columns` takes it."""


def quoted(name: str) -> str:
    """The name as a quoted identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


# -- mirrors -----------------------------------------------------------------------------------------------------------


class MirrorVerbs(Verbs):
    """The user's own tables that follow the jobs. A mirror's row shows its job's state in the same transaction,
    whatever changes the job. Only jobs whose policy says `mirror` are shown."""

    @property
    @abstractmethod
    def _mirrors(self) -> MirrorDialect: ...

    @abstractmethod
    def _run_script(self, session: Session, text: str) -> None:
        """Run these statements unchanged, in the session's transaction."""

    def mirror_sql(self, mirror: Mirror) -> str:
        """A script that creates or recreates the mirror, for a person to run."""
        return f"BEGIN;\n{self._mirrors.create(mirror)}\nCOMMIT;"

    def unmirror_sql(self, mirror: Mirror) -> str:
        """A script that removes the mirror, for a person to run. The user's rows stay."""
        return f"BEGIN;\n{self._mirrors.remove(mirror.name)}\nCOMMIT;"

    @transaction
    def add_mirror(self, session: Session, mirror: Mirror) -> None:
        """Create the mirror. Raises InvalidInput if the table or one of its columns is missing."""
        for problem in _problems_of_table(session, mirror, self._mirrors):
            raise InvalidInput("table", problem, "make it first, or name what is there")
        self._run_script(session, self._mirrors.create(mirror))

    def remove_mirror(self, mirror: Mirror) -> None:
        """Remove the mirror. The user's rows stay."""
        self._database.transact(lambda session: self._run_script(session, self._mirrors.remove(mirror.name)))

    def list_mirrors(self) -> list[MirrorRow]:
        """The registered mirrors and the problems of each."""
        return self._database.read(self._read_mirrors)

    @reading
    def stray_mirrors(self, session: Session) -> list[str]:
        """Triggers and functions of mirrors that are not registered."""
        known = {name for mirror in _registered(session) for name in self._mirrors.objects(mirror)}
        return sorted({row["name"] for row in session.rows("list_mirror_objects")} - known)

    def _renew_mirrors(self, session: Session) -> None:
        """Recreate all mirrors after a migration: it may have recreated a place's table, without its triggers."""
        for mirror in _registered(session):
            self._run_script(session, self._mirrors.create(mirror))

    def _read_mirrors(self, session: Session) -> list[MirrorRow]:
        there = {row["name"]: row["definition"] for row in session.rows("list_mirror_objects")}
        found = []
        for mirror in _registered(session):
            problems = _problems_of_table(session, mirror, self._mirrors)
            for name, wanted in self._mirrors.objects(mirror).items():
                if name not in there:
                    problems.append(f"{name} is missing")
                elif there[name].split() != wanted.split():
                    problems.append(f"{name} is not as the mirror says")
            found.append(MirrorRow(mirror, tuple(problems)))
        return found


def _registered(session: Session) -> list[Mirror]:
    return [Mirror.load(row["spec"]) for row in session.rows("list_mirrors")]


def _problems_of_table(session: Session, mirror: Mirror, dialect: MirrorDialect) -> list[str]:
    there = {row["name"] for row in session.rows("list_columns", table=dialect.table_of(mirror))}
    if not there:
        return [f"there is no table {mirror.table!r}"]
    wanted = (mirror.key, mirror.status, *mirror.columns.values())
    return [f"table {mirror.table!r} has no column {name!r}" for name in wanted if name not in there]

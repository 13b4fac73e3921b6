"""Visits: a worker's role calls many tenants one after another, and none of them holds the others up.

One that is locked, slow or damaged must cost the others nothing. So the calls run in a runner, a thread that the role
leaves behind with a call that takes too long. Another runner makes the other calls.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, cast

from leasehold.domain.errors import (
    DatabaseDamaged,
    DatabaseUnreachable,
    SchemaIncomplete,
    StoreError,
    TenantNotFound,
)
from leasehold.domain.records import WorkerProblem

A = TypeVar("A")

logger = logging.getLogger("leasehold.tenants")

Name = str | None
"""The name of a tenant; None: the app's own store."""

ROLE_WAITS = 1.0
"""Seconds that a role waits for a tenant."""
ROLE_WAITS_IN_TROUBLE = 0.1
"""Seconds that a role waits for a tenant that has failed it, or that is late with another call."""
MOST_LATE = 2
"""Late calls of one tenant at a time, whatever their roles: each of them may hold a connection."""
LATE_IS_TROUBLE = 5.0
"""Seconds after which a late call is reported."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
"""Seconds until a role tries a tenant again that has failed."""
URGENT = {
    "renew",
    "read_stop_requests",
    "settle",
    "read_settlements",
    "write_updates",
    "find_leases_of",
}
"""Roles that try again after FIRST_PAUSE each time: leases run out meanwhile."""
RAISE_BUGS = {"settle", "write_updates"}
"""Roles that find out by themselves which of their records an error is about."""
STANDING = {"claim", "sight_overdue", "expire", "list_schedules", "take_events"}
"""Roles that try a tenant in trouble again by themselves. Another role may have nothing more to do there."""
FORGOTTEN_AFTER = 5.0
"""Seconds after its pause in which another role's trouble was not seen again: it is over when a standing role gets an
answer."""


@dataclass(eq=False)
class _Trouble:
    text: str
    pause: float
    retry_at: float


class Troubles:
    """The tenants in trouble, with one line in the log when it begins and one when it is over. Shared by the stores of
    one worker."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[Name, dict[str, _Trouble]] = {}

    def __contains__(self, name: Name) -> bool:
        return name in self._found

    def __len__(self) -> int:
        return len(self._found)

    def note(self, name: Name, role: str, text: str, logged: str = "") -> None:
        """`logged`: what the log says instead. Other readers need not know where the database is."""
        now = time.monotonic()
        with self._lock:
            roles = self._found.setdefault(name, {})
            begins, before = not roles, roles.get(role)
            longest = FIRST_PAUSE if role in URGENT else LONGEST_PAUSE
            pause = FIRST_PAUSE if before is None else min(2 * before.pause, longest)
            roles[role] = _Trouble(text, pause, now + pause)
        if begins:
            logger.warning("%s is in trouble, and its jobs wait: %s", _whose(name), logged or text)

    def over(self, name: Name, role: str) -> None:
        if name in self._found:
            before = time.monotonic() - FORGOTTEN_AFTER
            with self._lock:
                roles = self._found.get(name, {})
                gone = {role} & roles.keys()
                if role in STANDING:
                    gone |= {one for one in roles.keys() - STANDING if roles[one].retry_at <= before}
                for one in gone:
                    del roles[one]
                ends = bool(gone) and not roles
                if ends:
                    del self._found[name]
            if ends:
                logger.info("%s is served again", _whose(name))

    def forget(self, name: Name) -> None:
        """The tenant was dropped."""
        with self._lock:
            self._found.pop(name, None)

    def pausing(self, name: Name, role: str) -> str | None:
        """The trouble, if it is too early to try again."""
        found = self._found.get(name, {}).get(role)
        return None if found is None or time.monotonic() >= found.retry_at else found.text

    def has(self, name: Name, role: str) -> bool:
        return role in self._found.get(name, {})

    def problems(self) -> list[WorkerProblem]:
        """One for each tenant in trouble: what was noticed first."""
        with self._lock:
            return [
                WorkerProblem(name, next(iter(roles.values())).text) for name, roles in self._found.items()
            ]


def _whose(name: Name) -> str:
    return "the app's own store" if name is None else f"tenant {name}"


def _in_short(error: StoreError) -> str:
    match error:
        case DatabaseDamaged():
            return f"its database is damaged: {error.cause}"
        case DatabaseUnreachable():
            return f"its database cannot be reached: {error.cause}"
        case SchemaIncomplete():
            return f"its schema is incomplete: {error.problem}"
        case _:
            return str(error)


class Visited(Generic[A]):
    """What the visits of one call have brought."""

    def __init__(self) -> None:
        self.answers: list[tuple[Name, A]] = []
        self.failed: dict[Name, StoreError] = {}
        """Those that gave no answer: in trouble, late, or not visited because they are in trouble."""
        self.visited: list[Name] = []
        """Those that were called."""
        self.late: set[Name] = set()
        self.gone: list[Name] = []
        """Tenants that were dropped."""
        self.bugs: list[Exception] = []
        """Errors that are not the database's."""

    def record(self, name: Name, answer: A | None, error: Exception | None) -> None:
        if error is None:
            self.answers.append((name, cast(A, answer)))
        elif isinstance(error, TenantNotFound):
            self.gone.append(name)
        elif isinstance(error, StoreError):
            self.failed[name] = error
        else:
            self.bugs.append(error)
            self.failed[name] = StoreError(f"{_whose(name)}: {type(error).__name__}: {error}")


@dataclass(eq=False)
class _Visit:
    name: Name
    role: str
    call: Callable[[], Any]
    patience: float
    on_late: Callable[[Name, Any], None] | None
    began_at: float = field(default_factory=time.monotonic)
    late: bool = False
    """The role has left it behind."""
    answer: Any = None
    error: Exception | None = None

    def make(self) -> None:
        try:
            self.answer = self.call()
        except Exception as error:
            self.error = error


class Visits:
    """The visits of one store of many, by any of its roles. `make` may be called from several threads."""

    def __init__(self, troubles: Troubles) -> None:
        self.troubles = troubles
        self._lock = threading.Lock()
        self._late: set[_Visit] = set()
        """Those under way. A role that calls from several threads may have several of one tenant."""
        self._dropped: set[Name] = set()
        """Tenants of which late visits have found out that they were dropped."""

    def make(
        self,
        role: str,
        calls: Iterator[tuple[Name, Callable[[], A]]],
        visited: Visited[A],
        patience: float = ROLE_WAITS,
        on_late: Callable[[Name, A | None], None] | None = None,
    ) -> None:
        """Make the calls one after another. A call that takes longer than `patience` is left behind; `on_late` gets its
        answer when it has ended, None if it has failed."""
        _Round(self, role, calls, visited, patience, on_late).run()

    def is_late(self, name: Name, role: str) -> bool:
        return any(one.role == role for one in self._late_of(name))

    @property
    def all_is_well(self) -> bool:
        return not self._late and not self.troubles

    def refusal(self, name: Name, role: str) -> str | None:
        """Why the tenant is not visited now."""
        if self.all_is_well:
            return None
        late = self._late_of(name)
        own = [one for one in late if one.role == role]
        if own or len(late) >= MOST_LATE:
            seconds = time.monotonic() - min(one.began_at for one in own or late)
            text = f"no answer for {seconds:.0f} s; look for a lock on its tables or its file"
            if seconds >= LATE_IS_TROUBLE:
                self.troubles.note(name, role, text)
            return text
        return self.troubles.pausing(name, role)

    def _late_of(self, name: Name) -> list[_Visit]:
        if not self._late:
            return []
        with self._lock:
            return [one for one in self._late if one.name == name]

    def is_dropped(self, name: Name) -> bool:
        """Whether a late visit has found that the tenant was dropped. Only once: there may be a new one."""
        if name not in self._dropped:
            return False
        self._dropped.discard(name)
        return True

    def patience(self, name: Name, role: str, usual: float) -> float:
        in_trouble = self.troubles.has(name, role) or self._late_of(name)
        return ROLE_WAITS_IN_TROUBLE if in_trouble else usual

    def left(self, one: _Visit) -> None:
        with self._lock:
            self._late.add(one)

    def came_back(self, one: _Visit) -> None:
        """A late visit has ended."""
        with self._lock:
            self._late.remove(one)
        self.judge(one)
        if isinstance(one.error, TenantNotFound):
            self._dropped.add(one.name)
        if one.on_late is not None:
            one.on_late(one.name, one.answer)

    def judge(self, one: _Visit) -> None:
        if one.error is None:
            self.troubles.over(one.name, one.role)
        elif isinstance(one.error, StoreError):
            self.troubles.note(one.name, one.role, _in_short(one.error), str(one.error))
        elif not isinstance(one.error, TenantNotFound) and one.role not in RAISE_BUGS:
            self.troubles.note(one.name, one.role, f"{type(one.error).__name__}: {one.error}")
            logger.error("%s: %s failed", _whose(one.name), one.role, exc_info=one.error)


class _Round:
    """The visits of one call. One runner at a time makes them: each takes the next one when it has ended the last."""

    def __init__(
        self,
        visits: Visits,
        role: str,
        calls: Iterator[tuple[Name, Callable[[], Any]]],
        visited: Visited[Any],
        patience: float,
        on_late: Callable[[Name, Any], None] | None,
    ) -> None:
        self._visits = visits
        self._role = role
        self._calls = calls
        self._visited = visited
        self._patience = patience
        self._on_late = on_late
        self._lock = threading.Lock()
        self._visit: _Visit | None = None
        """Under way, and not late."""
        self._failure: Exception | None = None
        self._over = threading.Lock()
        self._over.acquire()

    def run(self) -> None:
        _runners.run(self._go_on)
        wait = self._patience if self._visits.all_is_well else ROLE_WAITS_IN_TROUBLE
        while not self._over.acquire(timeout=wait):
            wait = self._leave_late()
        if self._failure is not None:
            raise self._failure

    def _leave_late(self) -> float:
        """Leave the visit under way behind, if it is late; returns the seconds until the next look."""
        with self._lock:
            one = self._visit
            if one is None:
                return ROLE_WAITS_IN_TROUBLE
            left = one.began_at + one.patience - time.monotonic()
            if left > 0:
                return left
            one.late, self._visit = True, None
            self._visited.late.add(one.name)
            self._visited.failed[one.name] = StoreError(f"{_whose(one.name)} has not answered in time")
            self._visits.left(one)
        _runners.run(self._go_on)
        return ROLE_WAITS_IN_TROUBLE

    def _go_on(self) -> Callable[[], object] | None:
        """Make the visits that are left. Runs in a runner; returns what to call when it is free again."""
        while (one := self._next()) is not None:
            one.make()
            if not self._ended(one):
                self._visits.came_back(one)
                return None
        return self._over.release

    def _next(self) -> _Visit | None:
        with self._lock:
            try:
                for name, call in self._calls:
                    if self._visits.is_dropped(name):
                        self._visited.gone.append(name)
                        continue
                    text = self._visits.refusal(name, self._role)
                    if text is not None:
                        self._visited.failed[name] = StoreError(f"{_whose(name)}: {text}")
                        continue
                    patience = self._visits.patience(name, self._role, self._patience)
                    self._visited.visited.append(name)
                    self._visit = _Visit(name, self._role, call, patience, self._on_late)
                    return self._visit
            except Exception as error:
                self._failure = error
            return None

    def _ended(self, one: _Visit) -> bool:
        """False: it was left behind."""
        with self._lock:
            if one.late:
                return False
            self._visit = None
            self._visited.record(one.name, one.answer, one.error)
        self._visits.judge(one)
        return True


IDLE_RUNNER = 10.0
"""Seconds after which a runner without a call ends."""
MOST_IDLE_RUNNERS = 4
"""Runners without a call that are kept."""

Call = Callable[[], "Callable[[], object] | None"]


class _Runners:
    """As many threads as there are calls at a time, and no more."""

    def __init__(self) -> None:
        self._idle: list[queue.SimpleQueue[Call]] = []
        os.register_at_fork(after_in_child=self._idle.clear)

    def run(self, call: Call) -> None:
        try:
            calls = self._idle.pop()
        except IndexError:
            calls = queue.SimpleQueue()
            threading.Thread(target=self._work, args=[calls], name="leasehold-visits", daemon=True).start()
        calls.put(call)

    def _work(self, calls: queue.SimpleQueue[Call]) -> None:
        while True:
            try:
                call = calls.get(timeout=IDLE_RUNNER)
            except queue.Empty:
                try:
                    self._idle.remove(calls)
                except ValueError:
                    continue  # a call is coming
                return
            after = call()
            stays = len(self._idle) < MOST_IDLE_RUNNERS
            if stays:
                self._idle.append(calls)  # before the answer: the next call finds this runner
            if after is not None:
                after()
            if not stays:
                return


_runners = _Runners()

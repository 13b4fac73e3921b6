"""The limits that jobs and runs name: made if they bring them along, refused if they do not exist."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from leasehold.domain.errors import InvalidInput
from leasehold.domain.job import NewJob
from leasehold.domain.limits import DefaultLimit, Need
from leasehold.stores.database.database import Records, Session


def make_limits(session: Session, jobs: Iterable[NewJob]) -> None:
    """The rows that tasks bring along, unless they are there. A name that is of the other kind is left: the jobs that
    use it have a problem, which is reported as theirs."""
    make_defaults(session, {limit.name: limit for job in jobs for limit in job.limits}.values())


def make_defaults(session: Session, defaults: Collection[DefaultLimit]) -> None:
    slots = [{"name": d.name, "lim": d.limit} for d in defaults if d.spacing is None]
    rates = [
        {"key": d.name, "lim": d.text, "spacing": d.spacing, "burst": d.burst}
        for d in defaults
        if d.spacing is not None
    ]
    if slots:
        taken = {row["key"] for row in session.rows("find_rates", keys=[slot["name"] for slot in slots])}
        session.run("make_slots", slots=Records([slot for slot in slots if slot["name"] not in taken]))
    if rates:
        taken = {row["name"] for row in session.rows("find_slots", names=[rate["key"] for rate in rates])}
        session.run("make_rates", rates=Records([rate for rate in rates if rate["key"] not in taken]))


def limit_problems(session: Session, jobs: Iterable[NewJob]) -> dict[str, InvalidInput]:
    """Jobs that name a limit which does not exist, or need more units than there are; by id."""
    limited = [job for job in jobs if job.slots or job.rate is not None]
    if not limited:
        return {}
    names, keys = names_of([Need(job.slots, job.rate) for job in limited])
    requested = [*names, *keys]
    limits = {row["name"]: row["lim"] for row in session.rows("find_slots", names=requested)}
    known = {row["key"] for row in session.rows("find_rates", keys=requested)}
    found = {job.id: _problem(job, limits, known) for job in limited}
    return {job_id: problem for job_id, problem in found.items() if problem is not None}


def _problem(job: NewJob, limits: Mapping[str, int], rates: set[str]) -> InvalidInput | None:
    for name, units in job.slots:
        if name in rates:
            return two_meanings(name, "a rate")
        if name not in limits:
            return InvalidInput(
                "slots", f"no slot is called {name!r}", f"set its limit first: app.slots.set({name!r}, 4)"
            )
        # 0 is a slot that was closed for a while: jobs may wait for it.
        if units > limits[name] > 0:
            return InvalidInput(
                "slots",
                f"{units} units of {name!r} can never be free, its limit is {limits[name]}",
                f"ask for less, or raise it: app.slots.set({name!r}, {units})",
            )
    if job.rate in limits:
        return two_meanings(job.rate or "", "a slot")
    if job.rate is not None and job.rate not in rates:
        return unknown_rate("rate", job.rate)
    return None


def names_of(needs: Iterable[Need]) -> tuple[list[str], list[str]]:
    names: set[str] = set()
    keys: set[str] = set()
    for need in needs:
        names.update(name for name, _ in need.slots)
        if need.rate is not None:
            keys.add(need.rate)
    return sorted(names), sorted(keys)


def two_meanings(name: str, other: str) -> InvalidInput:
    return InvalidInput("name", f"{name!r} is {other} already", "give one of them another name")


def unknown_rate(field: str, key: str) -> InvalidInput:
    return InvalidInput(
        field, f"no rate has the key {key!r}", f"set its limit first: app.rates.set({key!r}, '60/min')"
    )

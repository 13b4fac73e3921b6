"""Mirrors on SQLite: five triggers, one for each place that a job can enter.

Each trigger writes what its own place and `failure_state` hold, as the view `job_row` shows it. It reads no other
place: while it runs, the job's row may still be in the place that the job leaves.
"""

from __future__ import annotations

from leasehold.domain.mirror import Fact, Mirror
from leasehold.stores.verbs.mirrors import literal, quoted

_PREFIX = "leasehold_"
_PARKED = {1: "pending", 2: "waiting", 3: "paused", 4: "running"}
_ENDED = {1: "succeeded", 2: "cancelled", 3: "failed", 4: "timed_out"}
_NUMBERS = {"ready": "seq", "lane_place": "seq", "lease": "job", "parked": "job", "outcome": "job"}
_QUEUED: dict[Fact, str] = {
    "started": "t.first_started_at",
    "updated": "coalesce(t.changed_at, j.created_at)",
}
_OF_PLACE: dict[str, dict[Fact, str]] = {
    "ready": _QUEUED,
    "lane_place": _QUEUED,
    "lease": {"started": "coalesce(t.first_started_at, NEW.started_at)", "updated": "NEW.started_at"},
    "parked": {
        "started": "coalesce(t.first_started_at, CASE WHEN NEW.state = 4 THEN NEW.started_at END)",
        "updated": "CASE WHEN NEW.state = 4 THEN NEW.started_at ELSE NEW.since END",
    },
    "outcome": {
        "started": "coalesce(t.first_started_at, NEW.started_at)",
        "finished": "NEW.finished_at",
        "updated": "NEW.finished_at",
        "result": "NEW.result",
        "result_ref": "NEW.result_ref",
        "exit_code": (
            "CASE WHEN json_type(NEW.result, '$.exit_code') = 'integer'"
            " THEN json_extract(NEW.result, '$.exit_code') END"
        ),
        "error": "CASE WHEN NEW.state <> 1 THEN coalesce(NEW.error, t.error) END",
    },
}
_EVERYWHERE: dict[Fact, str] = {"requested": "j.created_at", "error": "t.error"}
_INSTANTS = frozenset({"requested", "started", "finished", "updated"})


class SqliteMirrors:
    def create(self, mirror: Mirror) -> str:
        parts = [self.remove(mirror.name)]
        parts += [f"{text};" for text in self.objects(mirror).values()]
        values = ", ".join(map(literal, (mirror.name, mirror.task, mirror.dump())))
        parts.append(f"INSERT INTO leasehold_mirror (name, task, spec) VALUES ({values});")
        return "\n".join(parts)

    def remove(self, name: str) -> str:
        parts = [f"DROP TRIGGER IF EXISTS {quoted(f'{_PREFIX}{name}_{place}')};" for place in _NUMBERS]
        return "\n".join([*parts, f"DELETE FROM leasehold_mirror WHERE name = {literal(name)};"])

    def objects(self, mirror: Mirror) -> dict[str, str]:
        return {f"{_PREFIX}{mirror.name}_{place}": _trigger(mirror, place) for place in _NUMBERS}

    def table_of(self, mirror: Mirror) -> str:
        return mirror.table


def _trigger(mirror: Mirror, place: str) -> str:
    """A plain job costs one comparison, of `special`. The task is compared too, because jobs of other tasks are tied as
    well."""
    name, number = quoted(f"{_PREFIX}{mirror.name}_{place}"), _NUMBERS[place]
    table, key = quoted(mirror.table), quoted(mirror.key)
    columns = {mirror.status: "m.status"} | {
        column: _expression(fact, mirror) for fact, column in mirror.columns.items()
    }
    facts = f"""(
        SELECT {_key(mirror)} AS key, {_status(mirror, place)} AS status{_facts(mirror, place)}
        FROM leasehold_job AS j LEFT JOIN leasehold_failure_state AS t ON t.job = j.seq
        WHERE j.seq = NEW.{number} AND j.task = {literal(mirror.task)}) AS m"""
    changes = ", ".join(f"{quoted(column)} = {value}" for column, value in columns.items())
    text = f"""CREATE TRIGGER {name} AFTER INSERT ON {_PREFIX}{place} WHEN NEW.special >= 1 BEGIN
    UPDATE {table} SET {changes}
    FROM {facts}
    WHERE {table}.{key} = m.key;"""
    if mirror.insert:
        names = ", ".join(map(quoted, (mirror.key, *columns)))
        text += f"""
    INSERT INTO {table} ({names})
    SELECT m.key, {", ".join(columns.values())}
    FROM {facts}
    WHERE m.key IS NOT NULL AND NOT EXISTS (SELECT 1 FROM {table} AS r WHERE r.{key} = m.key);"""
    return text + "\nEND"


def _key(mirror: Mirror) -> str:
    if mirror.argument is not None:
        path = literal(f'$."{mirror.argument}"')
        return f"json_extract(j.args, {path})"
    return (
        "coalesce((SELECT n.whole FROM leasehold_long_name AS n WHERE n.name = j.unique_key), j.unique_key)"
    )


def _status(mirror: Mirror, place: str) -> str:
    numbered = {"parked": _PARKED, "outcome": _ENDED}.get(place)
    if numbered is None:
        return literal(mirror.states["running" if place == "lease" else "queued"])
    cases = " ".join(f"WHEN {number} THEN {literal(mirror.states[s])}" for number, s in numbered.items())
    return f"CASE NEW.state {cases} END"


def _facts(mirror: Mirror, place: str) -> str:
    expressions = _EVERYWHERE | _OF_PLACE[place]
    return "".join(f", {expressions.get(fact, 'NULL')} AS {fact}" for fact in mirror.columns)


def _expression(fact: Fact, mirror: Mirror) -> str:
    value = f"m.{fact}"
    if fact == "error":
        return f"substr({value}, 1, instr({value} || char(10), char(10)) - 1)"
    if fact not in _INSTANTS:
        return value
    if mirror.times == "unix":
        return f"{value} / 1000000.0"
    return (
        f"strftime('%Y-%m-%dT%H:%M:%S', {value} / 1000000, 'unixepoch')"
        f" || printf('.%06dZ', {value} % 1000000)"
    )

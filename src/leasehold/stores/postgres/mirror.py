"""Mirrors on PostgreSQL: one function in our schema, and a trigger that calls it on each of the five places.

The function writes what the place and `failure_state` hold, as the view `job_row` shows it. Values go through variables
of the user's column types, so that a key may be a uuid, a state an enum, and a result text or jsonb. The script names
the schema itself: a later replacement of `leasehold.` could change text that the user wrote.
"""

from __future__ import annotations

from leasehold.domain.mirror import Fact, Mirror
from leasehold.domain.states import State
from leasehold.stores.verbs.mirrors import literal, quoted

_PLACES = ("ready", "lane_place", "lease", "parked", "outcome")
_FACTS: dict[Fact, str] = {
    "requested": "fact.created_at",
    "started": "coalesce(fact.first_started_at, mirror.ran)",
    "finished": "mirror.ended",
    "updated": "coalesce(mirror.since, fact.changed_at, fact.created_at)",
    "result": "mirror.result",
    "result_ref": "mirror.result_ref",
    "exit_code": (
        "CASE WHEN json_typeof(mirror.result -> 'exit_code') = 'number'"
        " AND mirror.result ->> 'exit_code' ~ '^-?[0-9]{1,9}$' THEN mirror.result ->> 'exit_code' END"
    ),
    "error": (
        "CASE WHEN mirror.state <> 'succeeded' THEN split_part(coalesce(mirror.error, fact.error), chr(10), 1) END"
    ),
}


class PostgresMirrors:
    def __init__(self, schema: str) -> None:
        self._schema = quoted(schema)

    def create(self, mirror: Mirror) -> str:
        """Replaces the triggers instead of dropping them: a drop would lock out all readers."""
        function = f"{self._schema}.{quoted(mirror.name)}"
        body = self._body(mirror)
        tag = "$mirror$"
        while tag in body:  # the user's own text may contain it
            tag = f"{tag[:-1]}_$"
        parts = [
            f"CREATE OR REPLACE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql SET timezone = 'UTC' AS {tag}"
            f"{body}{tag};"
        ]
        parts += [
            f"CREATE OR REPLACE TRIGGER {quoted(mirror.name)} AFTER INSERT ON {self._schema}.{place}"
            f" FOR EACH ROW WHEN (NEW.special >= 1) EXECUTE FUNCTION {function}();"
            for place in _PLACES
        ]
        values = ", ".join(map(_text, (mirror.name, mirror.task, mirror.dump())))
        parts.append(
            f"INSERT INTO {self._schema}.mirror (name, task, spec) VALUES ({values})"
            " ON CONFLICT (name) DO UPDATE SET spec = excluded.spec;"
        )
        return "\n".join(parts)

    def remove(self, name: str) -> str:
        parts = [f"DROP TRIGGER IF EXISTS {quoted(name)} ON {self._schema}.{place};" for place in _PLACES]
        parts.append(f"DROP FUNCTION IF EXISTS {self._schema}.{quoted(name)}();")
        return "\n".join([*parts, f"DELETE FROM {self._schema}.mirror WHERE name = {literal(name)};"])

    def objects(self, mirror: Mirror) -> dict[str, str]:
        triggers = {f"{mirror.name} on {place}": "on" for place in _PLACES}
        return {mirror.name: self._body(mirror)} | triggers

    def table_of(self, mirror: Mirror) -> str:
        schema, _, table = mirror.table.rpartition(".")
        return f"{quoted(schema or 'public')}.{quoted(table)}"

    def _body(self, mirror: Mirror) -> str:
        table = self.table_of(mirror)
        values = {mirror.status: ("status", _status(mirror))}
        values |= {column: (fact, _FACTS[fact]) for fact, column in mirror.columns.items()}
        declared = "".join(
            f"\n    of_{name} {table}.{quoted(column)}%TYPE;" for column, (name, _) in values.items()
        )
        assigned = "".join(f"\n    of_{name} := {value};" for name, value in values.values())
        changes = ", ".join(f"{quoted(column)} = mirror.of_{name}" for column, (name, _) in values.items())
        update = f"UPDATE {table} AS r SET {changes} WHERE r.{quoted(mirror.key)} = mirror.of_key;"
        if mirror.insert:
            names = ", ".join(map(quoted, (mirror.key, *values)))
            given = ", ".join(["mirror.of_key", *(f"mirror.of_{name}" for name, _ in values.values())])
            insert = f"INSERT INTO {table} ({names}) VALUES ({given})"
            # Another session may insert the row between UPDATE and INSERT. After three tries a plain INSERT lets the
            # table raise its own error.
            write = f"""FOR turn IN 1..3 LOOP
        {update}
        IF FOUND THEN RETURN NULL; END IF;
        {insert} ON CONFLICT DO NOTHING;
        IF FOUND THEN RETURN NULL; END IF;
    END LOOP;
    {insert};"""
        else:
            write = update
        return f"""
<<mirror>>
DECLARE
    number bigint;
    state text;
    ran timestamptz;
    since timestamptz;
    ended timestamptz;
    result json;
    result_ref text;
    error text;
    fact record;
    of_key {table}.{quoted(mirror.key)}%TYPE;{declared}
BEGIN
    IF TG_TABLE_NAME = 'lease' THEN
        number := NEW.job;
        state := 'running';
        ran := NEW.started_at;
        since := NEW.started_at;
    ELSIF TG_TABLE_NAME = 'outcome' THEN
        number := NEW.job;
        state := (ARRAY['succeeded', 'cancelled', 'failed', 'timed_out'])[NEW.state];
        ran := NEW.started_at;
        since := NEW.finished_at;
        ended := NEW.finished_at;
        result := NEW.result;
        result_ref := NEW.result_ref;
        error := NEW.error;
    ELSIF TG_TABLE_NAME = 'parked' THEN
        number := NEW.job;
        state := (ARRAY['pending', 'waiting', 'paused', 'running'])[NEW.state];
        ran := CASE WHEN NEW.state = 4 THEN NEW.started_at END;
        since := CASE WHEN NEW.state = 4 THEN NEW.started_at ELSE NEW.since END;
    ELSE
        number := NEW.seq;
        state := 'queued';
    END IF;
    SELECT {self._key(mirror)} AS key, j.created_at, t.first_started_at, t.changed_at, t.error INTO fact
    FROM {self._schema}.job AS j LEFT JOIN {self._schema}.failure_state AS t ON t.job = j.seq
    WHERE j.seq = mirror.number AND j.task = {_text(mirror.task)};
    IF NOT FOUND OR fact.key IS NULL THEN RETURN NULL; END IF;
    of_key := fact.key;{assigned}
    {write}
    RETURN NULL;
END
"""

    def _key(self, mirror: Mirror) -> str:
        if mirror.argument is not None:
            return f"j.args ->> {literal(mirror.argument)}"
        whole = f"SELECT n.whole FROM {self._schema}.long_name AS n WHERE n.name = j.unique_key"
        return f"coalesce(({whole}), j.unique_key)"


def _status(mirror: Mirror) -> str:
    cases = " ".join(f"WHEN {literal(s.value)} THEN {literal(mirror.states[s.value])}" for s in State)
    return f"CASE mirror.state {cases} END"


def _text(text: str) -> str:
    """A string literal. With backslashes it is an escape string, which no server setting reads differently."""
    return f"E{literal(text.replace(chr(92), chr(92) * 2))}" if "\\" in text else literal(text)

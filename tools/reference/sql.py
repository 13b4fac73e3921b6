"""sql.md: the view that people may read, with the type of each column on both databases."""

from __future__ import annotations

import sqlite3

import psycopg

from leasehold.domain.job import Job
from leasehold.stores.database.places import COLUMNS
from leasehold.stores.database.statements import read_migrations
from leasehold.tasks.settings import Retry
from tools.reference.source import annotations_of, field_docs, table

HEAD = """# SQL

One view is there to be read: `jobs`, a row for each job. It is `leasehold_jobs` on SQLite and `leasehold.jobs` on
PostgreSQL, where `leasehold` is the schema. The tables behind it change without notice: read the view alone, and
write to nothing. To enqueue from SQL, see [transactions](../concepts/transactions.md).

<!-- setup
from leasehold import Leasehold
app = Leasehold("sqlite:///leasehold.db")
app.count()
app.close()
-->

```python
import sqlite3

database = sqlite3.connect("file:leasehold.db?mode=ro", uri=True)
counted = database.execute("SELECT task, state, count(*) FROM leasehold_jobs GROUP BY task, state")
for task, state, jobs in counted:
    print(task, state, jobs)
database.close()
```

## The view `jobs`

On SQLite, times are text in UTC such as `2026-01-31T12:00:00.000000Z`, and JSON is text. A column is NULL where there
is nothing to say.
"""


def sql_page(postgres: dict[str, str]) -> str:
    docs = _by_column(field_docs(Job)) | {"max_attempts": field_docs(Retry)["max_attempts"]}
    types = _by_column(annotations_of(Job)) | {"max_attempts": "`int`"}
    rows = [
        [f"`{name}`", "integer" if types[name] == "`int`" else "text", postgres[name], docs[name]]
        for name in columns()
    ]
    return "\n".join([HEAD, *table(["Column", "SQLite", "PostgreSQL", "Meaning"], rows)]) + "\n"


def _by_column(texts: dict[str, str]) -> dict[str, str]:
    return {COLUMNS.get(name, name): text for name, text in texts.items()}


def columns() -> list[str]:
    """Of the view, in SQLite's order; tests/docs/test_reference.py sees that PostgreSQL has the same."""
    connection = sqlite3.connect(":memory:")
    try:
        for text in read_migrations("leasehold.stores.sqlite").values():
            connection.executescript(text)
        return [
            name for (name,) in connection.execute("SELECT name FROM pragma_table_info('leasehold_jobs')")
        ]
    finally:
        connection.close()


def postgres_columns(url: str, schema: str = "leasehold") -> dict[str, str]:
    """The view's columns in a PostgreSQL database that has the schema, with their types."""
    query = "SELECT attname, format_type(atttypid, NULL) FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0"
    with psycopg.connect(url) as connection:
        found = connection.execute(query, [f'"{schema}".jobs']).fetchall()
    return {name: sql_type.replace("timestamp with time zone", "timestamptz") for name, sql_type in found}

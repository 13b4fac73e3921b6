"""The two dialects stay in step: the same files, statements, parameters and migrations."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from leasehold.stores.database.statements import read_statements
from tests.architecture.sources import PACKAGE

DIALECTS = ("sqlite", "postgres")

# Statements that are in one dialect only, or whose parameters differ, and why. An entry that is no longer needed
# fails a test too.
_ONE_WRITER = "SQLite has one writer, so a claim there reads first and takes then, in one transaction"
_NO_LATERAL = "SQLite has no LATERAL and no data-modifying CTE"
DIALECT_ONLY: dict[str, str] = {
    "insert_plain": "with NOTIFY in the same round trip",
    "copy_plain": "COPY",
    "change_groups_at_commit": "SQLite has one writer: a group's row waits for nobody else",
    "notify_at_commit": "NOTIFY",
    "insert_by_hand": "NOTIFY",
    "identify_schema": "a SQLite file is known by its inode",
    "identify_cluster": "a SQLite file is known by its inode",
    "ready_many": "COPY takes no expressions, and needs its numbers beforehand",
    "find_due_groups": _NO_LATERAL,
    "claim_idle": _NO_LATERAL,
    "find_limited_groups": _NO_LATERAL,
    "claim_plain": _NO_LATERAL,
    "claim_shares": _NO_LATERAL,
    "claim_lanes": _NO_LATERAL,
    "list_unpaused_gates": _NO_LATERAL,
    "find_ready_groups": _NO_LATERAL,
    "find_ticket_groups": _NO_LATERAL,
    "list_due": _ONE_WRITER,
    "list_tickets": _ONE_WRITER,
    "drop_tickets": _ONE_WRITER,
    "insert_leases_of_ready": _ONE_WRITER,
    "drop_ready": _ONE_WRITER,
    "claim_lane_heads": _ONE_WRITER,
    "hold_lanes": _ONE_WRITER,
    "leave_lanes": _ONE_WRITER,
    "use_slots": _ONE_WRITER,
    "read_grants": _ONE_WRITER,
    "end_leases": _ONE_WRITER,
    "read_ties": _ONE_WRITER,
    "read_succeeded": _ONE_WRITER,
    "settle_plain": "one statement for all ties costs even those that have none; SQLite looks after ties apart",
    "file_next_tickets": "with one writer it is safe to look whether a lane has a next job",
}

NAME_LINE = re.compile(r"^--[ \t]*(?:name|part):[ \t]*(\S+)[ \t]*$", re.MULTILINE)
# What can hide a colon that is no parameter: comments, quoted text, quoted names, dollar quotes. PostgreSQL nests
# block comments; no statement of ours needs that.
HIDDEN = re.compile(
    r"""--[^\n]* | /\*.*?\*/ | \b[eE]'(?:[^'\\]|\\.|'')*' | '(?:[^']|'')*' | "(?:[^"]|"")*" | (\$\w*\$).*?\1""",
    re.DOTALL | re.VERBOSE,
)
PARAMETER = re.compile(r"(?<![:\w]):([A-Za-z_]\w*)")
MIGRATION = re.compile(r"(\d{4})_[a-z0-9_]+\.sql")

Statements = dict[str, frozenset[str]]


def test_both_dialects_have_the_same_statement_files():
    files = {dialect: {path.name for path in sql_files(dialect)} for dialect in DIALECTS}
    assert files["sqlite"], "there are no statements"
    assert files["sqlite"] == files["postgres"]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_statement_names_are_unique(dialect: str):
    names = [
        name for path in sql_files(dialect) for name in NAME_LINE.findall(path.read_text(encoding="utf-8"))
    ]
    assert names, "there are no statements"
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_statement_file_begins_with_a_name(dialect: str):
    nameless = [
        path.name
        for path in sql_files(dialect)
        if visible(NAME_LINE.split(path.read_text(encoding="utf-8"))[0]).strip()
    ]
    assert nameless == []


def test_both_dialects_have_the_same_statements_with_the_same_parameters():
    sqlite, postgres = (
        {name: parameters(text) for name, text in read_statements(f"leasehold.stores.{dialect}").items()}
        for dialect in DIALECTS
    )
    differing = differences(sqlite, postgres)
    unexplained = [text for name, text in sorted(differing.items()) if name not in DIALECT_ONLY]
    assert not unexplained, "\n" + "\n".join(unexplained)
    assert sorted(set(DIALECT_ONLY) - set(differing)) == [], (
        "these no longer differ: take them out of DIALECT_ONLY"
    )


def test_every_file_of_statements_has_verbs_of_its_name():
    """Who looks for a statement finds it by the name of the stage, and the other way round."""
    verbs = {path.stem for path in (PACKAGE / "stores" / "verbs").glob("*.py")} - {"__init__"}
    files = {path.stem for path in sql_files("sqlite")}
    assert files - verbs == {"migrate"}, (
        "migrate.sql belongs to database/statements.py and the dialects' stores"
    )
    assert verbs - files == set()


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_statement_is_used(dialect: str):
    source = "\n".join(path.read_text(encoding="utf-8") for path in (PACKAGE / "stores").rglob("*.py"))
    names = read_statements(f"leasehold.stores.{dialect}")
    unused = [name for name in names if "." not in name and f'"{name}"' not in source]
    assert unused == []


def test_migrations_are_numbered_alike_without_gaps():
    names = {dialect: sorted(path.name for path in migrations(dialect)) for dialect in DIALECTS}
    assert names["sqlite"], "there are no migrations"
    assert names["sqlite"] == names["postgres"]
    numbers = [int(match[1]) if (match := MIGRATION.fullmatch(name)) else name for name in names["sqlite"]]
    assert numbers == list(range(1, len(numbers) + 1))


def folder(dialect: str) -> Path:
    return PACKAGE / "stores" / dialect


def sql_files(dialect: str) -> list[Path]:
    return sorted((folder(dialect) / "sql").glob("*.sql"))


def migrations(dialect: str) -> Iterator[Path]:
    return (folder(dialect) / "migrations").glob("*.sql")


def statements(text: str) -> Statements:
    """The parameters of each named statement of a file."""
    _, *rest = NAME_LINE.split(text)
    return {name: parameters(body) for name, body in zip(rest[::2], rest[1::2], strict=True)}


def parameters(statement: str) -> frozenset[str]:
    return frozenset(PARAMETER.findall(visible(statement)))


def visible(sql: str) -> str:
    return HIDDEN.sub(" ", sql)


def differences(sqlite: Statements, postgres: Statements) -> dict[str, str]:
    found = {}
    for name in sqlite.keys() | postgres.keys():
        if name not in postgres:
            found[name] = f"{name}: only in sqlite"
        elif name not in sqlite:
            found[name] = f"{name}: only in postgres"
        elif sqlite[name] != postgres[name]:
            only = [
                f"{dialect} alone has :{parameter}"
                for dialect, one, other in (("sqlite", sqlite, postgres), ("postgres", postgres, sqlite))
                for parameter in sorted(one[name] - other[name])
            ]
            found[name] = f"{name}: {', '.join(only)}"
    return found


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("select :id, :now", {"id", "now"}),
        ("select :id::bigint, now()::text", {"id"}),
        ("select cast(:id as text) -- not :this\n, :that", {"id", "that"}),
        ("select /* :a\n :b */ :c", {"c"}),
        ("select ':a', 'it''s :b', \":c\", :d", {"d"}),
        (r"select e'\':a', E'x', :b", {"b"}),
        ("do $body$ :a $body$; select $$ :b $$, :c", {"c"}),
        ("select '{\"a\":true}'::jsonb, x::text[]", set()),
        ("where id = any(:ids) and (:queue::text is null or queue=:queue)", {"ids", "queue"}),
    ],
)
def test_parameters_are_told_from_casts_comments_and_quotes(statement: str, expected: set[str]):
    assert parameters(statement) == expected


def test_differences_between_dialects_are_noticed():
    sqlite = statements(
        "-- about\n-- name: claim\n-- why\nselect :a;\n-- name: renew\nselect :a, :b;\n-- name: same\n:x"
    )
    postgres = statements(
        "-- name: claim\nselect :a;\n-- name: renew\nselect :a, :c;\n-- name: more\n-- name: same\n:x"
    )
    assert differences(sqlite, postgres) == {
        "renew": "renew: sqlite alone has :b, postgres alone has :c",
        "more": "more: only in postgres",
    }
    assert differences(postgres, sqlite)["more"] == "more: only in sqlite"

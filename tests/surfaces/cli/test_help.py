"""Help is quick because nothing heavy is imported for it, and every command stands under its noun."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from leasehold.surfaces.cli.command import Noun
from leasehold.surfaces.cli.main import command
from leasehold.surfaces.cli.nouns import ENTRIES, NOUNS, modules_of

HEAVY = ("psycopg", "psycopg_pool", "fastapi", "starlette", "uvicorn", "mcp", "rich", "pydantic")

PROGRAM = """
import json, sys
from leasehold.surfaces.cli.main import run
assert run(ARGUMENTS) == 0
print(json.dumps(sorted(sys.modules)))
"""


def loaded_by(*arguments: str) -> tuple[str, list[str]]:
    """What a command prints, and the modules that are loaded afterwards."""
    program = PROGRAM.replace("ARGUMENTS", repr(arguments))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads(done.stdout.splitlines()[-1])


def commands(group: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    for name in group.list_commands(None):
        found = group.get_command(None, name)
        yield f"{before}{name}", found
        if isinstance(found, Noun):
            yield from commands(found, f"{before}{name} ")


def test_help_imports_nothing_heavy_and_no_command():
    printed, loaded = loaded_by("--help")
    assert "Exit codes: 0 ok" in printed
    assert [name for name in HEAVY if name in loaded] == []
    modules = {f"leasehold.surfaces.cli.{module}" for word in ENTRIES for module in modules_of(word)}
    assert modules & set(loaded) == set()


def test_only_the_modules_of_the_noun_that_is_called_are_imported():
    _, loaded = loaded_by("schedules", "--help")
    modules = {f"leasehold.surfaces.cli.{module}" for word in ENTRIES for module in modules_of(word)}
    assert modules & set(loaded) == {"leasehold.surfaces.cli.schedules"}


@pytest.mark.parametrize("word", ENTRIES)
def test_the_sentence_in_the_list_is_that_of_the_command(word):
    found = command().get_command(None, word)
    assert found.help.startswith(ENTRIES[word].sentence)


def test_every_command_has_help(here):
    listed = [
        line.split()[0]
        for line in here("--help").out.splitlines()
        if line.startswith("  ") and line[2] != " "
    ]
    assert set(ENTRIES) <= set(listed)
    for name, found in commands(command()):
        answer = here(*name.split(), "--help")
        assert answer.code == 0
        assert f"Usage: leasehold {name}" in answer.out
        assert found.help, name
        described = answer.out.partition("Options:")[2].splitlines()
        options = [line.split()[0] for line in described if line.startswith("  --")]
        assert sorted(options) == sorted(set(options)), f"{name} has an option twice"


def test_the_list_of_commands_fits_eighty_columns_without_cutting_a_sentence(here, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for heading, entries in NOUNS.items():
        listed = here("--help").out.partition(f"{heading}:\n")[2].partition("\n\n")[0].splitlines()
        assert [line.split()[0] for line in listed] == list(entries), "each has a line, and one only"
    for name, found in commands(command()):
        if isinstance(found, Noun):
            listed = here(*name.split(), "--help").out.partition("Commands:")[2]
            assert listed
            assert "..." not in listed


def test_without_a_command_the_help_is_printed_and_the_code_is_usage(here):
    answer = here()
    assert answer.code == 2
    assert "Run jobs:" in answer.out


def test_completion_can_be_shown_for_a_shell(sqlite_cli):
    answer = sqlite_cli("", _LEASEHOLD_COMPLETE="complete_bash", COMP_WORDS="leasehold de", COMP_CWORD="1")
    assert answer.out.split() == ["dev", "demo"]


def test_a_verb_is_completed_below_its_noun(sqlite_cli):
    words = {"COMP_WORDS": "leasehold jobs re", "COMP_CWORD": "2"}
    answer = sqlite_cli("", _LEASEHOLD_COMPLETE="complete_bash", **words)
    assert answer.out.split() == ["result", "relatives", "resume", "retry", "release"]


def test_a_reader_that_has_seen_enough_is_no_error(sqlite_cli):
    process = sqlite_cli.start("--help")
    process.stdout.close()
    assert process.wait(30) == 0
    assert process.stderr.read() == ""


def test_the_version_is_an_option(here):
    from importlib.metadata import version

    requested = here("--version")
    assert (requested.code, requested.out) == (0, f"{version('leasehold')}\n")


@pytest.mark.parametrize("noun", ["db", "limits"])
def test_a_noun_without_a_list_prints_its_help_and_the_code_is_usage(here, noun):
    answer = here(noun)
    assert answer.code == 2
    assert f"Usage: leasehold {noun}" in answer.out
    assert "Commands:" in answer.out


@pytest.mark.parametrize(
    "noun",
    ["jobs", "queues", "tasks", "lanes", "groups", "schedules", "questions", "workers", "executions", "tenants",
     "tokens", "webhooks", "webhooks hooks", "limits slots", "limits rates"],
)  # fmt: skip
def test_a_noun_alone_lists_and_takes_the_options_of_its_list(app, here, noun):
    listed = here(*noun.split(), "list", "--json")
    assert (listed.code, here(*noun.split(), "--json").out) == (0, listed.out)
    assert here(*noun.split()).code == 0


def test_options_before_a_verb_are_refused_instead_of_ignored(app, here):
    answer = here("jobs", "--url", "sqlite:///elsewhere.db", "cancel", "--all", "--yes")
    assert answer.code == 2
    assert "cancel" in answer.err or "--all" in answer.err


@pytest.mark.parametrize(
    ("old", "new"),
    {
        "cancel": "leasehold jobs cancel", "show": "leasehold jobs show", "answer": "leasehold questions answer",
        "top-up": "leasehold limits top-up", "sweep": "leasehold db sweep", "leases": "leasehold workers leases",
        "pause": "leasehold jobs pause, leasehold queues pause, leasehold tasks pause, leasehold schedules pause",
        "nonsense": "leasehold --help",
    }.items(),
)  # fmt: skip
def test_a_verb_without_its_noun_is_unknown_and_the_error_says_where_it_stands(here, old, new):
    answer = here(old, "x")
    assert answer.code == 2
    assert answer.err.startswith(f"error: no such command: {old}; ")
    assert new in answer.err


def test_an_unknown_verb_names_those_that_there_are(here):
    answer = here("lanes", "explode")
    assert (answer.code, answer.err) == (
        2,
        "error: no such command: leasehold lanes explode; it has list, resume\n",
    )

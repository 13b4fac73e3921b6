"""Help is quick because nothing heavy is imported for it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from leasehold.surfaces.cli.main import COMMANDS, command

HEAVY = ("psycopg", "psycopg_pool", "fastapi", "starlette", "uvicorn", "mcp", "rich")

PROGRAM = """
import json, sys
from leasehold.surfaces.cli.main import run
assert run(["--help"]) == 0
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


def test_help_imports_nothing_heavy():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "Exit codes: 0 ok" in done.stdout
    loaded = json.loads(done.stdout.splitlines()[-1])
    assert [name for name in HEAVY if name in loaded] == []


@pytest.mark.parametrize("module", COMMANDS)
def test_what_a_module_adds_is_what_the_table_of_commands_says(module):
    for name in COMMANDS[module]:
        assert sorted(command(name).commands) == sorted(COMMANDS[module])


def test_every_command_has_help(here):
    text = here("--help").out.partition("Commands:")[2]
    names = [line.split()[0] for line in text.splitlines() if line.startswith("  ") and line[2] != " "]
    assert {"worker", "enqueue", "jobs", "show", "why", "lanes", "queues", "db", "doctor", "demo"} <= set(
        names
    )
    for name in names:
        answer = here(name, "--help")
        assert answer.code == 0
        assert f"Usage: leasehold {name}" in answer.out
        described = answer.out.partition("Options:")[2].splitlines()
        options = [line.split()[0] for line in described if line.startswith("  --")]
        assert sorted(options) == sorted(set(options)), f"{name} has an option twice"


def test_the_list_of_commands_fits_eighty_columns_without_cutting_a_sentence(here, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    groups = [name for name, found in command().commands.items() if hasattr(found, "commands")]
    for arguments in ([], *([name] for name in groups)):
        listed = here(*arguments, "--help").out.partition("Commands:")[2]
        assert listed
        assert "..." not in listed


def test_without_a_command_the_help_is_printed_and_the_code_is_usage(here):
    answer = here()
    assert answer.code == 2
    assert "Commands:" in answer.out


def test_completion_can_be_shown_for_a_shell(sqlite_cli):
    answer = sqlite_cli("", _LEASEHOLD_COMPLETE="complete_bash", COMP_WORDS="leasehold de", COMP_CWORD="1")
    assert answer.out.split() == ["dev", "demo"]


def test_a_reader_that_has_seen_enough_is_no_error(sqlite_cli):
    process = sqlite_cli.start("--help")
    process.stdout.close()
    assert process.wait(30) == 0
    assert process.stderr.read() == ""


def test_the_version_is_an_option_too(here):
    asked = here("--version")
    assert (asked.code, asked.out) == (0, here("version").out)


@pytest.mark.parametrize("group", ["hooks", "webhooks", "tenants", "tokens", "db"])
def test_a_group_of_commands_called_alone_prints_its_help_and_the_code_is_usage(here, group):
    answer = here(group)
    assert answer.code == 2
    assert f"Usage: leasehold {group}" in answer.out
    assert "Commands:" in answer.out

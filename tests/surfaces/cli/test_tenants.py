"""`leasehold tenants …`, and `--tenant` on the others."""

from __future__ import annotations

from leasehold.surfaces.cli.command import Noun
from leasehold.surfaces.cli.main import command as all_commands
from tests.surfaces.cli.test_help import commands

WITHOUT = {"worker", "serve", "dev", "demo", "bench", "tenants", "tokens", "db upgrade", "db sql"}
"""Commands that take no --tenant: they are about all tenants, or about none."""


def test_a_tenant_is_made_listed_used_and_dropped(here, app):
    assert here("tenants", "create", "acme").out == "tenant acme is created\n"
    try:
        assert here("tenants", "create", "acme", "--json").json == {"name": "acme", "changed": False}
        assert [row["name"] for row in here("tenants", "list", "--json").json] == ["acme"]
        theirs = app.tenant("acme").enqueue("work").id
        assert here("jobs", "show", theirs).code == 3
        assert [job["id"] for job in here("jobs", "--tenant", "acme", "--json").json] == [theirs]
        assert here("jobs", "--json").json == []
        assert here("jobs", "cancel", theirs, "--tenant", "acme").code == 0
        assert here("tenants", "drop", "acme").code == 2, "there is no terminal to ask on"
    finally:
        assert here("tenants", "drop", "acme", "--yes").code == 0
    assert here("tenants", "list", "--json").json == []


def test_a_tenant_that_is_not_there_is_exit_code_3(here, app):
    for words in (("jobs", "--tenant", "nobody"), ("tenants", "drop", "nobody", "--yes")):
        reported = here(*words)
        assert reported.code == 3
        assert "leasehold tenants create nobody" in reported.err
    assert here("jobs", "--tenant", "No-Name").code == 2


def test_every_command_takes_a_tenant_or_is_listed_as_one_that_does_not():
    for name, command in commands(all_commands()):
        if not isinstance(command, Noun):
            has = any("--tenant" in parameter.opts for parameter in command.params)
            assert has == (name.split()[0] not in WITHOUT and name not in WITHOUT), name

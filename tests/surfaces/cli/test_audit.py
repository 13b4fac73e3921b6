"""`leasehold audit`, and who stands in it for commands."""

from __future__ import annotations

import getpass
import socket

from leasehold import Leasehold


def test_whoever_acts_by_a_command_stands_in_the_audit(here, app: Leasehold):
    app.task(name="add")(lambda a=1: a)
    app.schedules.set("hourly", "add", every="1h", actor="setup")
    job = app.enqueue("add")
    named = ("--actor", "ann")
    commands = [
        ("slot.set", "gpu", ("limits", "slots", "set", "gpu", "2", *named)),
        ("rate.set", "api", ("limits", "rates", "set", "api", "1/s", *named)),
        ("rate.close", "api", ("limits", "rates", "close", "api", *named)),
        ("rate.open", "api", ("limits", "rates", "open", "api", *named)),
        ("queue.pause", "mail", ("queues", "pause", "mail", *named)),
        ("queue.resume", "mail", ("queues", "resume", "mail", *named)),
        ("schedule.pause", "hourly", ("schedules", "pause", "hourly", *named)),
        ("schedule.resume", "hourly", ("schedules", "resume", "hourly", *named)),
        ("schedule.delete", "hourly", ("schedules", "delete", "hourly", *named)),
        ("token.create", "ci", ("tokens", "create", "ci", "--scope", "read", *named)),
        ("token.revoke", "ci", ("tokens", "revoke", "ci", *named)),
        ("webhook.set", "pager", ("webhooks", "add", "pager", "https://example.org/x", "--event", "failed", *named)),
        ("webhook.test", "pager", ("webhooks", "test", "pager", *named)),
        ("webhook.remove", "pager", ("webhooks", "remove", "pager", *named)),
        ("tenant.create", "acme", ("tenants", "create", "acme", *named)),
        ("tenant.drop", "acme", ("tenants", "drop", "acme", "--yes", *named)),
        ("prune", None, ("db", "prune", *named)),
        ("job.cancel", job.id, ("jobs", "cancel", job.id, *named)),
    ]  # fmt: skip
    for _, _, arguments in commands:
        answer = here(*arguments)
        assert answer.code == 0, answer.err
    reported = [
        (row["verb"], row["target"], row["outcome"])
        for row in here("audit", "--actor", "ann", "--json").lines
    ]
    assert reported == [(verb, target, "done") for verb, target, _ in reversed(commands)]


def test_without_a_name_it_is_the_user_at_this_machine(here, app: Leasehold):
    assert here("limits", "slots", "set", "gpu", "2").code == 0
    (row,) = here("audit", "--json").lines
    assert row["actor"] == f"{getpass.getuser()}@{socket.gethostname()}"


def test_what_is_listed_is_what_was_asked_for(here, app: Leasehold):
    for number in range(5):
        app.slots.set("gpu", number, actor="ann")
    app.queues.pause("mail", actor="bob", reason="disk")
    assert here("jobs", "cancel", "019a7c1e-5b0c-7d11-9a3e-0f2d6c4b8a10", "--actor", "bob").code == 3
    assert [
        row["detail"]["limit"] for row in here("audit", "--target", "gpu", "--limit", "2", "--json").lines
    ] == [4, 3]
    last = here("audit", "--target", "gpu", "--limit", "2", "--json").lines[-1]["seq"]
    more = here("audit", "--target", "gpu", "--cursor", str(last), "--json").lines
    assert [row["detail"]["limit"] for row in more] == [2, 1, 0]
    text = here("audit", "--actor", "bob").out
    assert "queue.pause" in text
    assert "reason disk" in text
    assert "refused: JobNotFound" in text
    assert "slot.set" not in text
    assert here("audit", "--cursor", "x").code == 2
    assert here("audit", "--limit", "0").code == 2


def test_a_tenants_audit_is_its_own(here, app: Leasehold):
    for arguments in (
        ("tenants", "create", "acme", "--actor", "ann"),
        ("limits", "slots", "set", "gpu", "2", "--tenant", "acme", "--actor", "ann"),
    ):
        assert here(*arguments).code == 0
    assert [row["verb"] for row in here("audit", "--tenant", "acme", "--actor", "ann", "--json").lines] == [
        "slot.set"
    ]
    assert [row["verb"] for row in here("audit", "--actor", "ann", "--json").lines] == ["tenant.create"]
    assert here("tenants", "drop", "acme", "--yes").code == 0

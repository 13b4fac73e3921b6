"""Hooks and webhooks from the command line."""

from __future__ import annotations

URL = "https://example.com/hook"


def test_a_webhook_is_added_listed_tested_and_removed_and_its_secret_shown_once(sqlite_cli):
    sqlite_cli("db", "upgrade")
    made = sqlite_cli("webhooks", "add", "ops", URL, "-e", "failed", "-e", "paused", "--json").json
    assert made["secret"].startswith("whsec_")
    listed = sqlite_cli("webhooks", "list", "--json")
    assert [(row["name"], row["url"], row["events"]) for row in listed.lines] == [
        ("ops", URL, ["failed", "paused"])
    ]
    for shown in (
        listed.out,
        sqlite_cli("webhooks", "list").out,
        sqlite_cli("webhooks", "hooks", "list", "--json").out,
    ):
        assert made["secret"] not in shown
        assert "ops" in shown
    job = sqlite_cli("webhooks", "test", "ops", "--json").json["id"]
    shown = sqlite_cli("jobs", "show", job, "--json")
    assert (shown.json["task"], shown.json["queue"]) == ("leasehold.webhook", "leasehold.webhooks")
    assert made["secret"] not in shown.out
    assert sqlite_cli("webhooks", "remove", "ops").code == 0
    assert sqlite_cli("webhooks", "list", "--json").lines == []
    assert sqlite_cli("webhooks", "hooks", "list", "--json").lines == []


def test_a_listener_is_listed_and_removed(sqlite_cli):
    sqlite_cli("db", "upgrade")
    sqlite_cli("webhooks", "add", "ops", URL, "-e", "failed")
    (row,) = sqlite_cli("webhooks", "hooks", "list", "--json").lines
    assert (row["name"], row["event"], row["waiting"], row["seen_at"]) == ("webhook:ops", "failed", 0, None)
    assert sqlite_cli("webhooks", "hooks", "remove", "webhook:ops").code == 0
    assert sqlite_cli("webhooks", "hooks", "remove", "webhook:ops").code == 2


def test_what_is_wrong_is_named(sqlite_cli):
    sqlite_cli("db", "upgrade")
    for words, field in (
        (["add", "ops", URL, "-e", "halted"], "events"),
        (["add", "ops", "http://example.com", "-e", "failed"], "url"),
        (["add", "ops", URL, "-e", "failed", "--secret", "short"], "secret"),
        (["test", "nope"], "name"),
        (["remove", "nope"], "name"),
    ):
        answer = sqlite_cli("webhooks", *words, "--json")
        assert (answer.code, answer.json["error"]["field"]) == (2, field)

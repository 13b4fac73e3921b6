"""The nouns of the command line, for the top-level help: they can be listed without loading a command."""

from __future__ import annotations

from typing import NamedTuple


class Entry(NamedTuple):
    sentence: str
    """The sentence in the help. For a single command it is the first sentence of its docstring."""
    modules: tuple[str, ...] = ()
    """The modules in this folder that have the commands of this word; empty: the module of the same name. The first
    module has the word as an attribute."""


NOUNS: dict[str, dict[str, Entry]] = {
    "Run jobs": {
        "worker": Entry("Run jobs until SIGTERM or Ctrl-C."),
        "serve": Entry("Serve the HTTP API and the dashboard until SIGTERM or Ctrl-C."),
        "dev": Entry("Run a worker, the API and the dashboard for development."),
        "demo": Entry("Watch a demo: retries, a halted lane, a killed worker.", ("dev",)),
        "mcp": Entry("Serve MCP over stdin and stdout, until the client leaves.", ("serve",)),
    },
    "See what happens": {
        "status": Entry("Show jobs, queues, workers, halted lanes, open questions."),
        "top": Entry("Show the status, refreshed until Ctrl-C.", ("status",)),
        "why": Entry("Say why a job is not running, and what would change that.", ("status",)),
        "doctor": Entry("Look for problems: clock, disk, pooler, schema, jobs, leases.", ("status",)),
    },
    "Control the work": {
        "jobs": Entry("List, show, enqueue, cancel, resume … jobs.", ("jobs", "job_verbs")),
        "queues": Entry("List queues with their jobs and workers; pause or resume one."),
        "tasks": Entry("List tasks with their jobs and workers; pause or resume one.", ("queues",)),
        "lanes": Entry("List lanes that are held or halted; resume one.", ("queues",)),
        "groups": Entry("List, show or release groups of jobs."),
        "schedules": Entry("List, set, pause, resume, run or delete schedules."),
        "questions": Entry("List the open questions of jobs; answer one."),
        "limits": Entry("Slots, rates and budgets: what may run, start and be spent."),
    },
    "Workers and what they run": {
        "workers": Entry("List live workers; leases, health and metrics."),
        "executions": Entry("List running commands and containers; abandon one.", ("workers",)),
    },
    "Set up and administer": {
        "db": Entry("Upgrade, check and tidy the database; SQL; mirrors."),
        "tenants": Entry("List, create, upgrade or drop tenants."),
        "tokens": Entry("List, create or revoke tokens for the HTTP API."),
        "webhooks": Entry("List, add, test or remove webhooks and hooks."),
        "audit": Entry("List changes by hand and refusals, newest first."),
        "bench": Entry("Measure enqueue, drain and pick-up on your database.", ("db",)),
    },
}
"""Heading of the help → word → entry, in the order of the help."""

ENTRIES = {word: entry for entries in NOUNS.values() for word, entry in entries.items()}


def modules_of(word: str) -> tuple[str, ...]:
    return ENTRIES[word].modules or (word,)

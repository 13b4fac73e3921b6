"""`webhooks list|add|remove|test` and `webhooks hooks`: the receivers of notifications about jobs."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from leasehold.domain.hooks import EVENTS
from leasehold.operations import webhooks as verbs
from leasehold.surfaces.cli import render
from leasehold.surfaces.cli.command import CommandCall, command, noun
from leasehold.surfaces.cli.verbs import add

Name = Annotated[str, typer.Argument(metavar="NAME", help="Its name, as the list shows it.")]
Events = Annotated[
    list[str],
    typer.Option(
        "--event", "-e", metavar="EVENT", help=f"An event to post; may be repeated: {', '.join(EVENTS)}."
    ),
]


webhooks = noun("webhooks")


@command(webhooks, "list")
def list_webhooks(call: CommandCall) -> None:
    """List webhooks, without their secrets."""
    listeners = call.operations.call(verbs.list_listeners)
    rows: list[dict[str, Any]] = [
        {
            "name": webhook.name,
            "url": webhook.url,
            "events": sorted({row.event for row in listeners if row.name == webhook.listener}),
            "allow_private": webhook.allow_private,
            "source": webhook.source,
        }
        for webhook in call.operations.call(verbs.list_webhooks)
    ]
    call.show(
        rows,
        {
            "webhook": lambda row: row["name"],
            "url": lambda row: row["url"],
            "events": lambda row: " ".join(row["events"]),
            "from": lambda row: row["source"],
        },
        empty="no webhooks; add one with leasehold webhooks add NAME URL --event failed",
    )


@command(webhooks, "add", acts=True)
def add_webhook(
    call: CommandCall,
    name: Name,
    target: Annotated[str, typer.Argument(metavar="URL", help="The address to post events to.")],
    events: Events,
    tasks: Annotated[
        list[str] | None,
        typer.Option("--task", "-t", metavar="NAME", help="Only for jobs of this task; may be repeated."),
    ] = None,
    secret: Annotated[
        str | None,
        typer.Option(
            envvar="LEASEHOLD_WEBHOOK_SECRET",
            help="The key that signs the events. Default: a new one.",
            metavar="TEXT",
        ),
    ] = None,
    allow_private: Annotated[
        bool, typer.Option(help="Allow an address in a private network, and http.")
    ] = False,
) -> None:
    """Add a webhook: post events to a URL. Its secret is shown once, now."""
    webhook = call.operations.call(
        verbs.set_webhook,
        name,
        target,
        events,
        tasks=tasks or (),
        secret=secret,
        allow_private=allow_private,
        actor=call.actor,
    )
    facts = {"name": name, "url": target, "events": events, "secret": webhook.secret}
    call.report(facts, f"webhook {name} is added; its secret, shown only now: {webhook.secret}")


add(webhooks, verbs.remove_webhook, "webhook {name} is removed")
add(webhooks, verbs.try_webhook, "{0.id}")

hooks = noun("hooks", "List or remove hooks: functions and webhooks.", below=webhooks)

add(
    hooks,
    verbs.list_listeners,
    columns={
        "hook": "name",
        "event": "event",
        "task": lambda row: row.task or "all",
        "seen": lambda row: "added by hand" if row.seen_at is None else render.ago(row.seen_at),
        "waiting": "waiting",
        "given up": lambda row: f"{row.given_up}: {row.last_error}" if row.given_up else "",
    },
    empty="no hooks; register a function with @app.on, or add a webhook",
)
add(hooks, verbs.remove_listener, "hook {name} is removed")

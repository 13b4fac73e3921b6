"""`hooks` and `webhooks`: who is told of what happens to jobs."""

from __future__ import annotations

from typing import Annotated

import typer

from leasehold.domain.hooks import EVENTS, ListenerRow
from leasehold.surfaces.cli import options, render
from leasehold.surfaces.cli.load import open_app
from leasehold.surfaces.cli.subcommands import command_group

Name = Annotated[str, typer.Argument(metavar="NAME", help="Its name, as the list shows it.")]
Events = Annotated[
    list[str],
    typer.Option(
        "--event", "-e", metavar="EVENT", help=f"An event to post; may be repeated: {', '.join(EVENTS)}."
    ),
]


def add_to(cli: typer.Typer) -> None:
    hooks = command_group("hooks", "List or remove hooks: who is told of which events.")
    hooks.command("list")(list_hooks)
    hooks.command("remove")(remove_hook)
    cli.add_typer(hooks)
    webhooks = command_group("webhooks", "List, add, test or remove webhooks: events posted to a URL.")
    webhooks.command("list")(list_webhooks)
    webhooks.command("add")(add_webhook)
    webhooks.command("remove")(remove_webhook)
    webhooks.command("test")(try_webhook)
    cli.add_typer(webhooks)


def list_hooks(
    url: options.Url = None,
    schema: options.Schema = options.DEFAULT_SCHEMA,
    as_json: options.AsJson = False,
) -> None:
    """List hooks: their events, what waits, what was given up."""
    with open_app(url, schema) as app:
        rows = app.__internals__.operations.list_listeners()
    render.show(
        rows,
        {
            "hook": lambda row: row.name,
            "event": lambda row: row.event,
            "task": lambda row: row.kind or "all",
            "seen": lambda row: "added by hand" if row.seen_at is None else render.ago(row.seen_at),
            "waiting": lambda row: str(row.waiting),
            "given up": _given_up,
        },
        as_json=as_json,
        empty="no hooks; register a function with @app.on, or add a webhook",
    )


def _given_up(row: ListenerRow) -> str:
    return f"{row.given_up}: {row.last_error}" if row.given_up else ""


def remove_hook(
    name: Name,
    actor: options.Actor = None,
    url: options.Url = None,
    schema: options.Schema = options.DEFAULT_SCHEMA,
    as_json: options.AsJson = False,
) -> None:
    """Remove a hook and the events that wait for it. A worker that has its code registers it again when it starts."""
    with open_app(url, schema) as app:
        app.__internals__.operations.remove_listener(name, actor=options.acting(actor))
    _told({"name": name, "removed": True}, f"hook {name} is removed", as_json)


def list_webhooks(
    url: options.Url = None,
    schema: options.Schema = options.DEFAULT_SCHEMA,
    as_json: options.AsJson = False,
) -> None:
    """List webhooks, without their secrets."""
    with open_app(url, schema) as app:
        operations = app.__internals__.operations
        listeners = operations.list_listeners()
        rows = [
            {
                "name": webhook.name,
                "url": webhook.url,
                "events": sorted({row.event for row in listeners if row.name == webhook.listener}),
                "allow_private": webhook.allow_private,
                "source": webhook.source,
            }
            for webhook in operations.list_webhooks()
        ]
    render.show(
        rows,
        {
            "webhook": lambda row: str(row["name"]),
            "url": lambda row: str(row["url"]),
            "events": lambda row: " ".join(row["events"]),  # type: ignore[arg-type]
            "from": lambda row: str(row["source"]),
        },
        as_json=as_json,
        empty="no webhooks; add one with leasehold webhooks add NAME URL --event failed",
    )


def add_webhook(
    name: Name,
    target: Annotated[str, typer.Argument(metavar="URL", help="Where events are posted to.")],
    events: Events,
    kinds: Annotated[
        list[str] | None,
        typer.Option("--kind", metavar="TASK", help="Only for jobs of this task; may be repeated."),
    ] = None,
    secret: Annotated[
        str | None,
        typer.Option(
            envvar="LEASEHOLD_WEBHOOK_SECRET",
            help="Signs the events. Default: a new one is made.",
            metavar="TEXT",
        ),
    ] = None,
    allow_private: Annotated[
        bool, typer.Option(help="Allow an address in a private network, and http.")
    ] = False,
    actor: options.Actor = None,
    url: options.Url = None,
    schema: options.Schema = options.DEFAULT_SCHEMA,
    as_json: options.AsJson = False,
) -> None:
    """Add a webhook: post events to a URL. Its secret is shown once, now."""
    with open_app(url, schema) as app:
        webhook = app.__internals__.operations.set_webhook(
            name,
            target,
            events,
            kinds=kinds or (),
            secret=secret,
            allow_private=allow_private,
            actor=options.acting(actor),
        )
    told = {"name": name, "url": target, "events": events, "secret": webhook.secret}
    _told(told, f"webhook {name} is added; its secret, shown only now: {webhook.secret}", as_json)


def remove_webhook(
    name: Name,
    actor: options.Actor = None,
    url: options.Url = None,
    schema: options.Schema = options.DEFAULT_SCHEMA,
    as_json: options.AsJson = False,
) -> None:
    """Remove a webhook and the events that wait for it."""
    with open_app(url, schema) as app:
        app.__internals__.operations.remove_webhook(name, actor=options.acting(actor))
    _told({"name": name, "removed": True}, f"webhook {name} is removed", as_json)


def try_webhook(
    name: Name,
    actor: options.Actor = None,
    url: options.Url = None,
    schema: options.Schema = options.DEFAULT_SCHEMA,
    as_json: options.AsJson = False,
) -> None:
    """Let a worker post a `test` event. Prints the id of the delivery's job; leasehold show ID has its outcome."""
    with open_app(url, schema) as app:
        job = app.__internals__.operations.try_webhook(name, actor=options.acting(actor))
    _told({"id": job.id}, job.id, as_json)


def _told(facts: object, text: str, as_json: bool) -> None:
    if as_json:
        render.emit(facts)
    else:
        print(text)

"""`groups`, `budgets` and `leases`: lists that come a page at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from leasehold.domain.groups import GROUP_TOTAL_CAP
from leasehold.surfaces.cli import options, render
from leasehold.surfaces.cli.load import open_app

if TYPE_CHECKING:
    from leasehold.domain.budgets import BudgetOwner, BudgetRow
    from leasehold.domain.groups import GroupState, GroupSummary
    from leasehold.domain.leases import LeaseRow

Limit = Annotated[int, typer.Option(help="At most this many, up to 500.", metavar="NUMBER")]
Cursor = Annotated[
    str | None, typer.Option(help="Continue after the page that printed this cursor.", metavar="TEXT")
]
Everything = Annotated[bool, typer.Option("--all", help="All pages.")]


def add_to(cli: typer.Typer) -> None:
    cli.command("groups")(list_groups)
    cli.command("budgets")(list_budgets)
    cli.command("leases")(list_leases)


def list_groups(
    state: Annotated[
        str | None, typer.Option("--state", "-s", help="active, stopped or held.", metavar="STATE")
    ] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    all_: Everything = False,
    url: options.Url = None,
    schema: options.Schema = options.DEFAULT_SCHEMA,
    as_json: options.AsJson = False,
) -> None:
    """List groups by name: state, live jobs, and the last stop."""
    with open_app(url, schema) as app:
        pages = _Pages(
            lambda limit, cursor: app.groups(state=cast("GroupState", state), limit=limit, cursor=cursor),
            "groups",
        )
        render.show(
            pages.rows(limit, cursor, all_),
            {
                "group": lambda row: row.name,
                "state": lambda row: row.state if row.reason is None else f"{row.state}: {row.reason}",
                "live": lambda row: f"{row.live:,}",
                "jobs": lambda row: f"{row.total:,}+" if row.total >= GROUP_TOTAL_CAP else f"{row.total:,}",
                "changed": lambda row: render.moment(row.changed_at),
                "last stop": _last_stop,
            },
            as_json=as_json,
            empty="no matching groups; put a job into one with --group NAME, or task.using(group=…)",
        )
    pages.tell()


def _last_stop(row: GroupSummary) -> str:
    stop = row.last_stop
    if stop is None:
        return ""
    by = f" by {stop.actor}" if stop.actor else ""
    return f"{stop.mode}{by}, {render.ago(stop.at)}"


def list_budgets(
    of: Annotated[str | None, typer.Option("--of", help="job or group.", metavar="SCOPE")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    all_: Everything = False,
    url: options.Url = None,
    schema: options.Schema = options.DEFAULT_SCHEMA,
    as_json: options.AsJson = False,
) -> None:
    """List what groups and jobs have spent, and what they may. Jobs are listed once they have spent something."""
    with open_app(url, schema) as app:
        pages = _Pages(
            lambda limit, cursor: app.budgets(scope=cast("BudgetOwner", of), limit=limit, cursor=cursor),
            "budgets",
        )
        render.show(
            pages.rows(limit, cursor, all_),
            {
                "of": lambda row: f"group {row.name}" if row.scope == "group" else row.name,
                "task": lambda row: row.kind,
                "unit": lambda row: row.unit,
                "spent": lambda row: f"{row.spent:,}" + (" in its run" if row.scope == "run" else ""),
                "limit": lambda row: "" if row.limit is None else f"{row.limit:,}",
                "left": _left,
                "on breach": lambda row: row.on_breach,
            },
            as_json=as_json,
            empty="no budget is set, and nothing was spent",
        )
    pages.tell()


def _left(row: BudgetRow) -> str:
    if row.left is None:
        return ""
    return "exhausted" if row.exhausted else f"{row.left:,}"


def list_leases(
    worker: Annotated[str | None, typer.Option(help="Of this worker.", metavar="NAME")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    all_: Everything = False,
    url: options.Url = None,
    schema: options.Schema = options.DEFAULT_SCHEMA,
    as_json: options.AsJson = False,
) -> None:
    """List leases: which worker runs which job, and until when. A lease runs out unless it is renewed."""
    with open_app(url, schema) as app:
        pages = _Pages(lambda limit, cursor: app.leases(owner=worker, limit=limit, cursor=cursor), "leases")
        render.show(
            pages.rows(limit, cursor, all_),
            {
                "id": lambda row: row.job_id,
                "task": lambda row: row.kind,
                "queue": lambda row: row.queue,
                "attempt": lambda row: str(row.attempt),
                "worker": _holder,
                "since": lambda row: render.ago(row.started_at),
                "expires": _expiry,
            },
            as_json=as_json,
            empty="nothing is running",
            ids=app.__internals__.operations.short_ids,
        )
    pages.tell()


def _holder(row: LeaseRow) -> str:
    owner = row.owner or ""
    return owner if row.stop_requested is None else f"{owner}, {row.stop_requested} requested"


def _expiry(row: LeaseRow) -> str:
    return (
        f"in {render.span(row.expires_in)}" if row.expires_in >= 0 else f"{render.span(-row.expires_in)} ago"
    )


class _Pages:
    """The rows of one page, or of all; and where it would go on."""

    def __init__(self, look: Callable[[int, str | None], Any], rows: str) -> None:
        self._look = look
        self._rows = rows
        self._next: str | None = None

    def rows(self, limit: int, cursor: str | None, everything: bool) -> Iterator[Any]:
        while True:
            page = self._look(limit, cursor)
            yield from getattr(page, self._rows)
            self._next = cursor = page.next
            if cursor is None or not everything:
                return

    def tell(self) -> None:
        if self._next is not None:
            render.note(f"there are more: --cursor {self._next}, or --all")

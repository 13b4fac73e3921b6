"""Golden files: what users and their programs see of every surface, frozen so that a change shows as a diff.

python -m tests.golden.freeze   write them anew

The pages of docs/reference are golden too: `python -m tools.generate` writes those, and tests/docs/test_reference.py
compares them.
"""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
from mcp import Client

from leasehold import Leasehold
from leasehold.domain.budgets import Spend
from leasehold.domain.hooks import EVENTS, WEBHOOK_QUEUE, Notification, body_of, new_secret
from leasehold.domain.job import TIED
from leasehold.domain.outcome import DeadlinePassed, Failure, Success
from leasehold.domain.policy import Policy
from leasehold.domain.questions import QuestionAsked
from leasehold.domain.tokens import SCOPES, Access
from leasehold.http import create_app
from leasehold.operations import webhooks as verbs
from leasehold.operations.operations import Operations
from leasehold.operations.verb import VERBS
from leasehold.stores.results import Ending
from leasehold.stores.store import JobStore
from leasehold.surfaces.guard import Caller
from leasehold.surfaces.mcp.server import make_server
from leasehold.testing import ManualClock
from leasehold.worker.hooks import make_delivery
from tests.architecture.sources import PACKAGE
from tests.backends import Backend, put
from tests.contract.lives import OWNER, SITE, claim_one, end, lose, orphan, run

HERE = Path(__file__).parent
COMMAND = "python -m tests.golden.freeze"

ID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
TIME = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[0-9.]*(?:Z|[+-]\d\d:\d\d)")
RECORDED = re.compile(r"\b_recorded\(\s*\"([a-z_.]+)\"")
"""Where the source records what is not in the table of verbs."""


def main() -> None:
    for name, make in FILES.items():
        text, path = make(), HERE / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"written: {path}")


# -- OpenAPI and MCP ---------------------------------------------------------------------------------------------------
def openapi() -> str:
    """What `GET /openapi.json` answers. The version of the package is left out: a release changes no schema."""

    async def ask() -> dict[str, Any]:
        api = create_app(Leasehold("sqlite:///unused.db"), tokens=False)
        transport = httpx2.ASGITransport(app=api)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            response = await client.get("/openapi.json")
            return response.raise_for_status().json()

    schema = asyncio.run(ask())
    del schema["info"]["version"]
    return _as_json(schema)


def mcp_tools() -> str:
    """The instructions of the MCP server and its answer to `tools/list`: our own tools and a task that is exposed."""
    app = Leasehold("sqlite:///unused.db")

    @app.task(expose=True)
    def resize(path: str, width: int = 800) -> dict[str, str]:
        """Resize a picture."""
        return {}

    caller = Caller(app, Access(name="local", scopes=SCOPES, tenants=("*",)), None, "mcp")

    async def ask() -> dict[str, Any]:
        async with Client(make_server(lambda _: caller)) as client:
            listed = (await client.list_tools()).tools
            tools = [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in listed]
            return {"instructions": client.instructions, "tools": tools}

    return _as_json(asyncio.run(ask()))


# -- webhooks ----------------------------------------------------------------------------------------------------------
def webhooks() -> str:
    """An example of every body that is posted, by its type."""
    with tempfile.TemporaryDirectory() as folder:
        backend = Backend("sqlite", f"sqlite:///{folder}/jobs.db")
        clock = ManualClock()
        store = backend.open(clock)
        store.upgrade()
        operations = Operations(lambda: store)
        operations.call(
            verbs.set_webhook, "all", "https://example.org/x", EVENTS, secret=new_secret(bytes(32))
        )
        _make_events_happen(store, clock)
        store.enqueue_events(["webhook:all"], make_delivery)
        operations.call(verbs.try_webhook, "all")
        posted = [json.loads(grant.args)["body"] for grant in store.claim(OWNER, [WEBHOOK_QUEUE], 100)]
        backend.close_opened()
        posted.append(body_of(_stall(f"sqlite:///{folder}/stall.db")))
    bodies = [json.loads(TIME.sub("<time>", ID.sub("<id>", text))) for text in posted]
    # Of several with the same type the one with the most facts is the example.
    examples = {body["type"]: body for body in sorted(bodies, key=lambda one: (len(one["data"]), str(one)))}
    missing = {*EVENTS, "test"} ^ examples.keys()
    if missing:
        raise AssertionError(
            f"make these happen in {Path(__file__).name}, each with all its facts: {missing}"
        )
    return _as_json(examples)


def _make_events_happen(store: JobStore, clock: ManualClock) -> None:
    """All but `stalled`, which a worker reports."""
    put(store, group="g")
    grant = claim_one(store)
    store.settle([Ending(grant.id, grant.token, Success("1"), grant.seq, max(grant.special, TIED))])
    end(store, run(store, group="g", lane="l"), Failure("broken", final=True))
    end(store, run(store, group="g"), DeadlinePassed("the job's deadline has passed"))
    end(store, run(store, group="g"), Failure("broken"))
    end(store, run(store, group="g"), QuestionAsked("q", "May I?", schema='{"type": "boolean"}'))
    store.cancel(put(store, group="g").id, "ann", "no need")
    store.pause(put(store, group="g").id, "ann", "later")
    lose(store, clock, run(store, group="g"))
    orphan(store, clock, group="g")
    assert store.adopt("worker-2", [SITE])
    spender = run(store, group="g", policy=Policy(budget={"tokens": 10}))
    store.spend(spender.id, spender.token, 1, [Spend("1", "tokens", 11)])


def _stall(url: str) -> Notification:
    """The event of a real worker whose run is silent."""
    app = Leasehold(url)
    events: list[Notification] = []

    async def work() -> None:
        reported = asyncio.Event()
        loop = asyncio.get_running_loop()

        @app.on("stalled")
        def keep(event: Notification) -> None:
            events.append(event)
            loop.call_soon_threadsafe(reported.set)

        @app.task(name="work", stall_after=0.05)
        async def wait() -> None:
            await reported.wait()

        app.enqueue("work", group="g")
        async with app.worker(retention=None):
            await reported.wait()

    with app:
        asyncio.run(work())
    return events[0]


# -- the audit ---------------------------------------------------------------------------------------------------------
def audit_verbs() -> str:
    """Every verb that an audit entry may have: those of the table, and the few that are recorded by hand."""
    found = {verb.name for verb in VERBS if verb.write}
    for path in PACKAGE.rglob("*.py"):
        found |= set(RECORDED.findall(path.read_text(encoding="utf-8")))
    return "\n".join(sorted(found)) + "\n"


def _as_json(value: object) -> str:
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


FILES: dict[str, Callable[[], str]] = {
    "openapi.json": openapi,
    "mcp_tools.json": mcp_tools,
    "webhooks.json": webhooks,
    "audit_verbs.txt": audit_verbs,
}

if __name__ == "__main__":
    main()

"""A store with something on every page, and with the same text in every field that a user or a job can set."""

from __future__ import annotations

import asyncio
import logging
import threading

from leasehold import Context, Leasehold, Retry
from leasehold.types import Slot

QUIET = "a plain text"
HOSTILE = {
    "script": '<script>window.hacked=1</script><img src=x onerror="window.hacked=1">\'"`${1}{{7*7}}-->',
    "attribute": '" onmouseover="window.hacked=1" x=\'</title></textarea></script>&lt;&amp;\\u003c',
    "right to left": "\u202eevil\u202c \u2066מה שלום\u2069 مرحبا \u200f\u061c",
    "emoji": "👩‍👩‍👧‍👦🏴‍☠️ e\u0301\u0323" + "Z\u0351\u036b\u0343\u036a\u0302" * 20,
    "escapes": "\x1b[31mred\x1b]0;title\x07 \x08\x08\x1b[2J \r\n\t|",
    "long": "x" * 100_000,
    "long words": "word " * 20_000,
}


def add_tasks(app: Leasehold) -> None:
    """Once for an app."""

    @app.task(queue="stories", budget={"tokens": 100})
    async def notify(ctx: Context, text: str, name: str) -> dict[str, str]:
        logging.getLogger("stories").warning("%s", text[:30_000])
        ctx.progress(1, 3, text[:1000])
        ctx.emit("note", {"text": text[:50_000]}, key=name)
        await ctx.step(name, lambda: text[:50_000])
        await ctx.spend(tokens=70)
        return {text[:5000]: text}

    @app.task(queue="stories")
    async def ask(ctx: Context, text: str, name: str) -> str:
        schema = {
            "type": "object",
            "properties": {
                "approve": {"type": "boolean", "title": text[:300], "description": text[:300]},
                "choice": {"enum": [name, "other"], "title": "Choice"},
                "comment": {"type": "string", "default": text[:300]},
            },
            "required": ["approve"],
        }
        return str(await ctx.ask(name, text[:2000], schema=schema))

    @app.task(queue="stories", lane="{name}", retry=Retry(max_attempts=1))
    def break_down(name: str, text: str) -> None:
        raise ValueError(text[:20_000])

    @app.task(queue="stories", slots={"{name}": Slot(limit=2)}, rate="rate {name}")
    def limited(name: str) -> None: ...


def burst_aside(app: Leasehold) -> None:
    """In a thread of its own: the browser's has an event loop already."""

    def run() -> None:
        worker = app.worker(queues=["default", "stories"], burst=True, retention=None)
        asyncio.run(worker.run())

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(120)
    assert not thread.is_alive()


def name_of(text: str) -> str:
    """Without braces: in some places a name may be a template."""
    return text[:180].strip().replace("{", "(").replace("}", ")")


def fill(app: Leasehold, text: str = QUIET) -> list[str]:
    """The ids of its jobs. Names that are limited have the beginning of the text."""
    name = name_of(text)
    store = app.__internals__.store
    more = {"group": name, "tags": (name, "two")}
    app.slots.set(name, 3)
    app.rates.set(f"rate {name}", "60/min")
    app.group(name).budget(tokens=1000)
    reported = app.enqueue("notify", {"text": text, "name": name}, **more)
    requested = app.enqueue("ask", {"text": text, "name": name}, **more)
    broken = app.enqueue("break_down", {"name": name, "text": text}, **more)
    behind = app.enqueue("break_down", {"name": name, "text": text})
    burst_aside(app)
    limited = app.enqueue("limited", {"name": name}, unique=name, **more)
    (grant,) = store.claim(name[:100], ["stories"], 1)
    assert grant.id == limited.id
    chain = [app.enqueue("add", {"a": 1}, delay="1h")]
    for n in range(3):
        chain.append(app.enqueue("add", {"a": n}, after=[chain[-1]]))
    held = app.enqueue("add", {"a": 7}, hold=True)
    paused = app.enqueue("add", {"a": 8}, delay="1h")
    paused.pause(text[:5000], actor=name)
    gone = app.enqueue("add", {"a": 9})
    gone.cancel(text[:5000], actor=name)
    app.queues.pause("agents", reason=text[:5000], actor=name)
    app.rates.close(f"rate {name}", for_="1h", reason=text[:5000], actor=name)
    app.schedules.set(name, "add", {"a": 1}, cron="0 3 * * *", tz="Europe/Berlin")
    app.schedules.set(f"{name[:150]} often", "fail", {"text": text[:5000]}, every="10m")
    app.schedules.pause(name, text[:5000], actor=name)
    jobs = [reported, requested, broken, behind, limited, *chain, held, paused, gone]
    return [job.id for job in jobs]

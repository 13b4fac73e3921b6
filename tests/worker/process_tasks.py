"""Tasks that run in processes of their own: their interpreter imports them from here."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from leasehold import Context, Fail, Leasehold, RetryIn, Snooze, StopRequested, SyncContext


class Point(BaseModel):
    x: int
    y: int = 0


class Known(Exception):
    pass


app = Leasehold("sqlite://")
"""Only the place to declare `follow`; the tests have apps of their own."""


@app.task
def follow(n: int) -> int:
    return n


# -- plain ones -------------------------------------------------------------------------------------------------------
def where(x: int) -> dict[str, int]:
    return {"x": x, "pid": os.getpid(), "parent": os.getppid(), "group": os.getpgid(0)}


async def where_async(x: int) -> dict[str, int]:
    await asyncio.sleep(0)
    return where(x)


def moved(point: Point, by: int = 1) -> Point:
    return Point(x=point.x + by, y=point.y)


def raises(what: str) -> None:
    match what:
        case "known":
            raise Known("as expected")
        case "value":
            raise ValueError("no good")
        case "fail":
            raise Fail("never again")
        case "snooze":
            raise Snooze(3600)
        case "retry in":
            raise RetryIn(3600, "later")
        case "exit":
            sys.exit(3)
        case "not serializable":
            return {1, 2}  # it does not fit the annotation: that is the point
        case "group":
            raise ExceptionGroup("two", [Known("a"), ValueError("b")])


# -- verbs ------------------------------------------------------------------------------------------------------------
def all_verbs(ctx: SyncContext, folder: str) -> dict[str, Any]:
    def once() -> int:
        with (Path(folder) / "calls").open("a") as file:
            file.write("x")
        ctx.spend(tokens=5)
        return 7

    seven = ctx.step("seven", once)
    cheap = [ctx.step(f"cheap {n}", pow, n, 2, durable="batch") for n in range(3)]
    if ctx.attempt == 1:
        ctx.checkpoint({"at": "first"})
        ctx.spend(tokens=10, key="call")
        raise Known("between two runs")
    ctx.progress(1, 2, "half")
    ctx.emit("page", {"n": 1}, key="one")
    ctx.log("a line")
    logging.getLogger("tests").warning("a record")
    ctx.flush()
    ctx.acquire("browser", 2)
    ctx.release("browser")
    ctx.acquire("openai", rate="1000/s")
    ctx.wait(0.01)
    ctx.raise_if_stopped()
    follower = ctx.enqueue(follow, 3)
    return {
        "seven": seven, "cheap": cheap, "saved": ctx.saved, "left": ctx.left("tokens"), "spent": ctx.spent("tokens"),
        "follower": follower.id, "facts": [ctx.task, ctx.queue, ctx.attempt, ctx.lease_token, ctx.group],
    }  # fmt: skip


async def all_verbs_async(ctx: Context, folder: str) -> dict[str, Any]:
    async def once() -> int:
        with (Path(folder) / "calls").open("a") as file:
            file.write("x")
        await ctx.spend(tokens=5)
        return 7

    seven = await ctx.step("seven", once)
    cheap = [await ctx.step(f"cheap {n}", pow, n, 2, durable="batch") for n in range(3)]
    if ctx.attempt == 1:
        await ctx.checkpoint({"at": "first"})
        await ctx.spend(tokens=10, key="call")
        raise Known("between two runs")
    ctx.progress(1, 2, "half")
    ctx.emit("page", {"n": 1}, key="one")
    ctx.log("a line")
    logging.getLogger("tests").warning("a record")
    await ctx.flush()
    await ctx.acquire("browser", 2)
    await ctx.release("browser")
    await ctx.acquire("openai", rate="1000/s")
    follower = ctx.enqueue(follow, 3)
    return {
        "seven": seven, "cheap": cheap, "saved": ctx.saved, "left": ctx.left("tokens"), "spent": ctx.spent("tokens"),
        "follower": follower.id, "facts": [ctx.task, ctx.queue, ctx.attempt, ctx.lease_token, ctx.group],
    }  # fmt: skip


def asks(ctx: SyncContext) -> str:
    return f"hello {ctx.ask('name', 'RequestCaller are you?', str)}"


async def asks_async(ctx: Context) -> str:
    return f"hello {await ctx.ask('name', 'RequestCaller are you?', str)}"


def reads_its_parents(ctx: SyncContext) -> list[Any]:
    return [list(ctx.results().values()), [(one.task, one.state) for one in ctx.parents()]]


def waits_for_a_slot(ctx: SyncContext) -> None:
    ctx.acquire("scarce", 1, timeout=0.1)


def completes(ctx: SyncContext) -> None:
    with ctx.complete():
        pass


def wants_resources(ctx: SyncContext) -> None:
    ctx.resources.get("client")


def spends(ctx: SyncContext) -> None:
    ctx.spend(tokens=11)


def tells_its_secret(ctx: SyncContext, secret: str) -> None:
    ctx.log(f"logged {secret}")
    raise RuntimeError(f"the secret is {secret}")


def large(size: int) -> str:
    return "x" * size


# -- ends -------------------------------------------------------------------------------------------------------------
def segfaults() -> None:
    ctypes.string_at(0)


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def exits_without_a_word(code: int) -> None:
    os._exit(code)


def takes_memory(size: int) -> int:
    return len(bytearray(size))


def computes() -> None:
    while True:
        pass


def closes_its_pipes(go_on: bool) -> int:
    os.closerange(3, 256)
    while go_on:
        time.sleep(1)
    return 1


def forks_and_returns() -> int:
    """Both sides return; one of them is a copy."""
    os.fork()
    return os.getpid()


def writes_garbage() -> None:
    for descriptor in range(3, 256):
        try:
            os.write(descriptor, b"\0" * 7 + b"\5" + b"hello")
        except OSError:
            continue
    time.sleep(3600)


def leaves_a_grandchild(folder: str, escape: bool) -> int:
    """The grandchild ignores SIGTERM, and with `escape` leaves the group and the session."""
    code = "import signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); open(sys.argv[1], 'w'); "
    up = str(Path(folder, "up"))
    grandchild = subprocess.Popen(
        [sys.executable, "-c", code + "time.sleep(3600)", up], start_new_session=escape
    )
    while not (Path(folder) / "up").exists():
        time.sleep(0.01)
    return grandchild.pid


def waits_with_a_grandchild(folder: str, escape: bool) -> None:
    grandchild = leaves_a_grandchild(folder, escape)
    note(folder, grandchild=grandchild)
    time.sleep(3600)


def lingers() -> str:
    threading.Thread(target=time.sleep, args=(3600,)).start()  # which Python waits for at exit
    return "done"


# -- stops ------------------------------------------------------------------------------------------------------------
def note(folder: str, **facts: object) -> None:
    """A file per fact, which is there when it is whole."""
    (Path(folder) / "tmp").write_text(str(os.getpid()))
    (Path(folder) / "tmp").rename(Path(folder) / "child")
    for name, value in facts.items():
        (Path(folder) / "tmp").write_text(str(value))
        (Path(folder) / "tmp").rename(Path(folder) / name)


def ignores_sigterm(folder: str) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    note(folder, up=1)
    while True:
        time.sleep(1)


def leaves_its_group(folder: str) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.setpgid(0, os.getpgid(os.getppid()))  # its guard's
    note(folder, up=1)
    while True:
        time.sleep(1)


def steps_when_told(ctx: SyncContext, folder: str, go: str) -> int:
    note(folder, up=1)
    while not Path(go).exists():
        time.sleep(0.01)
    ctx.step("late", int)
    note(folder, went_on=1)
    return 1


def sleeps(folder: str) -> None:
    """Has no context to ask."""
    note(folder, up=1)
    try:
        time.sleep(3600)
    except StopRequested:
        note(folder, cleaned=1)
        raise


def looks(ctx: SyncContext, folder: str) -> None:
    note(folder, up=1)
    while not ctx.stop_requested:
        time.sleep(0.01)
    note(folder, cleaned=1)
    ctx.raise_if_stopped()


async def sleeps_async(ctx: Context, folder: str) -> None:
    note(folder, up=1)
    try:
        await asyncio.sleep(3600)
    finally:
        note(folder, cleaned=1)


def finishes(ctx: SyncContext, folder: str) -> str:
    """What it has done by the time of the stop counts."""
    note(folder, up=1)
    while not ctx.stop_requested:
        time.sleep(0.01)
    return "all done"


def lives(folder: str, go: str) -> str:
    note(folder, up=1)
    while not Path(go).exists():
        time.sleep(0.01)
    return "went on"


# -- middleware -------------------------------------------------------------------------------------------------------
def around(run: Any, call_next: Any) -> Any:
    return {"around": os.getpid(), "inner": call_next(), "job": run.job_id}


def free(x: int) -> dict[str, Any]:
    return {"pid": os.getpid(), "x": x}

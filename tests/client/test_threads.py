"""Async twins have threads of their own: those of asyncio are the program's."""

from __future__ import annotations

import asyncio
import contextvars
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

from leasehold import Leasehold, State
from leasehold.threads import Threads


def test_async_twins_answer_while_the_programs_own_threads_are_taken(app: Leasehold):
    goes_on = threading.Event()

    @app.task
    async def work() -> int:
        return 1

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        taken = asyncio.ensure_future(asyncio.to_thread(goes_on.wait, 120))
        try:
            async with asyncio.timeout(100):
                job = await work.using(group="g").aenqueue()
                assert (await app.aget(job.id)).state is State.QUEUED
                assert (await app.group("g").astatus()).live == 1
                await job.apause()
                await job.aresume()
                async with app.worker(retention=None):
                    assert await job.aresult() == 1
        finally:
            goes_on.set()
            await taken

    asyncio.run(serve())


def test_a_call_sees_the_context_of_its_caller():
    caller = contextvars.ContextVar("who", default="nobody")

    async def ask() -> str:
        caller.set("ann")
        return await Threads(1, "test").call(caller.get)

    assert asyncio.run(ask()) == "ann"


FORKS = """
import asyncio, os, sys, warnings
from leasehold.threads import Threads

warnings.simplefilter("ignore", DeprecationWarning)  # a fork beside threads is what is tried here
threads = Threads(1, "test")
assert asyncio.run(threads.call(os.getpid)) == os.getpid()
child = os.fork()
answer = asyncio.run(asyncio.wait_for(threads.call(os.getpid), 60))
assert answer == os.getpid()
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
os._exit(0)
"""


def test_a_forked_child_has_threads_of_its_own():
    """In a process that has no other threads: they might hold locks at the moment of the fork."""
    done = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr

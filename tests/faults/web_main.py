"""A web server with a worker inside: an ASGI app whose lifespan holds `app.worker()`.

The server is a small one of our own (no ASGI server is among the tests' requirements), but it drives the app as any
other does: lifespan start-up, http requests, lifespan shut-down at SIGTERM, once the open requests have ended.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from leasehold import Leasehold
from tests.faults.tasks import LOOK_EVERY, register
from tests.faults.worker_main import end_with_the_test

logger = logging.getLogger("web")


def make_application(config: dict[str, Any]) -> Any:
    """As a user would write it."""
    jobs = Leasehold(config["url"], schema=config["schema"])
    tasks = register(jobs, Path(config["folder"]), config["lease"])

    async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await receive()
            async with jobs.worker(**config["settings"]):
                await send({"type": "lifespan.startup.complete"})
                await receive()
                logger.info("shutting down")
            await send({"type": "lifespan.shutdown.complete"})
            return
        if scope["path"] == "/slow":
            logger.info("a slow request")
            while not tasks.gate("slow").exists():
                await asyncio.sleep(LOOK_EVERY)
            result = "slow"
        else:
            job = await tasks.brief.aenqueue(0.01)
            result = await job.aresult(timeout=30)
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": result.encode()})

    return application


async def serve(application: Any, folder: Path) -> None:
    told_to_end = asyncio.Event()
    loop = asyncio.get_running_loop()
    # Before the application begins, as servers do, and by the plain module, as uvicorn does.
    signal.signal(signal.SIGTERM, lambda *_: loop.call_soon_threadsafe(told_to_end.set))
    requests: set[asyncio.Task[Any]] = set()
    inbox: asyncio.Queue[dict[str, str]] = asyncio.Queue()
    outbox: asyncio.Queue[dict[str, str]] = asyncio.Queue()
    lifespan = asyncio.create_task(application({"type": "lifespan"}, inbox.get, outbox.put))
    await inbox.put({"type": "lifespan.startup"})
    assert (await outbox.get())["type"] == "lifespan.startup.complete"

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.add(asyncio.current_task())
        asyncio.current_task().add_done_callback(requests.discard)
        head = await reader.readuntil(b"\r\n\r\n")

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                writer.write(b"HTTP/1.1 %d OK\r\nConnection: close\r\n\r\n" % message["status"])
            else:
                writer.write(message["body"])
                await writer.drain()

        await application({"type": "http", "path": head.split()[1].decode()}, inbox.get, send)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    (folder / "port").write_text(str(server.sockets[0].getsockname()[1]))
    logger.info("ready")
    async with server:
        await told_to_end.wait()
        logger.info("told to end: %d open request(s)", len(requests))
        if requests:
            await asyncio.wait(requests)
    await inbox.put({"type": "lifespan.shutdown"})
    assert (await outbox.get())["type"] == "lifespan.shutdown.complete"
    await lifespan
    logger.info("bye")


def main() -> None:
    config = json.loads(sys.argv[1])
    threading.Thread(target=end_with_the_test, daemon=True).start()
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.INFO)
    asyncio.run(serve(make_application(config), Path(config["folder"])))


if __name__ == "__main__":
    main()

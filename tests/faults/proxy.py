"""A TCP proxy in front of PostgreSQL that can swallow the reply to one statement, after the server has done it, or
everything."""

from __future__ import annotations

import asyncio
import threading
from typing import Self

IDLE, IN_TRANSACTION = b"Z\x00\x00\x00\x05I", b"Z\x00\x00\x00\x05T"
"""The end of a reply: ready for the next statement, outside of a transaction or in one."""
_FIELDS = b"SFATAL\0VFATAL\0C57P01\0Mterminating connection due to administrator command\0\0"
SHUTDOWN = b"E" + (len(_FIELDS) + 4).to_bytes(4, "big") + _FIELDS


class Proxy:
    """`drop_reply(b"…")` arms it: the next statement that contains these bytes is passed on, its whole reply is
    read, and then both ends are cut. The client cannot tell whether the statement took effect; it did. With
    `with_rows` a reply without rows, such as that of a claim that found nothing, goes through and does not count.
    With `shutdown` the client gets the reply, and in the same breath the news that its session has been ended.

    `swallow()` is a network that is gone: what is connected stays connected for ever and passes nothing on, and so does
    what connects before `pass_on()`."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._marker: bytes | None = None
        self._shutdown = False
        self._with_rows = False
        self._swallows = False
        self._epoch = 0
        """The connections of an earlier one are dead."""
        self.dropped = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        assert self._ready.wait(10)

    def drop_reply(self, marker: bytes, *, with_rows: bool = False, shutdown: bool = False) -> None:
        self.dropped.clear()
        self._with_rows = with_rows
        self._shutdown = shutdown
        self._marker = marker

    def swallow(self) -> None:
        self._swallows = True
        self._epoch += 1

    def pass_on(self) -> None:
        """Only what connects from now on."""
        self._epoch += 1
        self._swallows = False

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(10)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._run())

    async def _run(self) -> None:
        self._ended = asyncio.Event()
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._ended.wait()
        server.close()
        await asyncio.sleep(0)  # whoever has just been accepted gets a task
        # Each connection closes both its ends.
        while left := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.gather(*left, return_exceptions=True)
        await asyncio.sleep(0)

    async def _connected(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        epoch = self._epoch
        if self._swallows:
            await self._ended.wait()
            to_client.close()
            return
        try:
            server, to_server = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            to_client.close()
            return
        armed = asyncio.Event()

        async def read(source: asyncio.StreamReader) -> bytes:
            data = await source.read(1 << 16)
            if self._epoch != epoch:  # not even that the other end has hung up
                await self._ended.wait()
            return data

        async def upwards() -> None:
            while data := await read(client):
                if self._marker is not None and self._marker in data:
                    armed.set()
                    if not self._with_rows:
                        self._marker = None
                to_server.write(data)
                await to_server.drain()

        async def downwards() -> None:
            reply = b""
            while data := await read(server):
                if not armed.is_set():
                    to_client.write(data)
                    await to_client.drain()
                    continue
                # Ready outside of a transaction: by then the statement has committed.
                reply += data
                if reply.endswith((IDLE, IN_TRANSACTION)):
                    if self._with_rows and not _has_rows(reply):
                        armed.clear()
                        to_client.write(reply)
                        await to_client.drain()
                        reply = b""
                        continue
                    self._marker = None
                    if self._shutdown:
                        to_client.write(reply[: -len(IDLE)] + SHUTDOWN)
                        await to_client.drain()
                    self.dropped.set()
                    return

        ways = [asyncio.create_task(way) for way in (upwards(), downwards(), self._ended.wait())]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            for end in (to_client, to_server):
                end.close()
                if self._ended.is_set():  # what a dead end has not read holds its socket open
                    end.transport.abort()


def _has_rows(reply: bytes) -> bool:
    at = 0
    while at < len(reply):
        if reply[at : at + 1] == b"D":
            return True
        at += 1 + int.from_bytes(reply[at + 1 : at + 5], "big")
    return False

"""A TCP proxy in front of a server that can lose an answer, after the server has given it, and cut connections."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Self


class Cutter:
    def __init__(self, port: int) -> None:
        self._target = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._to_lose = 0
        self._open: list[socket.socket] = []
        self.connections = 0
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def lose_answers(self, number: int) -> None:
        """The next ones; their requests are heard."""
        with self._lock:
            self._to_lose = number

    def cut(self) -> None:
        """All connections that are open now."""
        with self._lock:
            ends, self._open = self._open, []
        for end in ends:
            _end(end)

    def close(self) -> None:
        """And nobody comes through any more."""
        _end(self._listening)
        self.cut()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._target))
            with self._lock:
                self.connections += 1
                self._open += [client, server]
            for source, target, answers in ((client, server, False), (server, client, True)):
                threading.Thread(target=self._pump, args=(source, target, answers), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, answers: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                if answers and self._lose():
                    break
                target.sendall(data)
        _end(source)
        _end(target)

    def _lose(self) -> bool:
        with self._lock:
            self._to_lose -= 1
            return self._to_lose >= 0


def _end(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
